"""How long communication takes in an emulated job: the communication model that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from paracosm.cluster import Cluster
from paracosm.cluster.changes import Change, apply_changes
from paracosm.cluster.collectives import COLLECTIVES as WITH_ALGORITHMS
from paracosm.cluster.collectives import algorithms_of
from paracosm.emulation.cluster_communication import ClusterCommunication
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import FREE, Communication, Cost
from paracosm.emulation.user_communication import UserCommunication
from paracosm.emulation.what_if import changes_of, with_world
from paracosm.errors import InputError, unknown
from paracosm.factory import is_reference

__all__ = ["ChangedCommunication", "NoCommunication", "changed_cluster", "communication_of"]

_NAMES = ("cluster", "none", "measured")


def communication_of(config: EmulateConfig) -> ChangedCommunication:
    """Return the communication model of a job, with the changes of its what-ifs.

    `config.communication` names it; by default it is that of the links where links are given, else
    "measured" in mode wire and "none" in mode backend.

    Raises:
        InputError: it is unknown, lacks links, or belongs to the other mode; the links do not join
            the ranks; an algorithm or a what-if that is unknown or has no effect; a function of the
            user's that cannot be found or called.
    """
    config = with_world(config)
    collectives = changes_of(config, "collectives")
    name = _name(config)
    model: _Model
    if name == "cluster":
        model = _of_links(config, collectives)
    else:
        _refuse(config, name, collectives)
        model = (
            UserCommunication.of(name, config.world)
            if is_reference(name)
            else NoCommunication(is_measured=name == "measured")
        )
    delays: dict[str, float] = {}
    factors: dict[str, float] = {}
    for each in collectives:
        if each.what != "time":
            continue
        if config.mode == "wire" and each.factor != 1:
            raise each.error(
                "has no effect: in mode wire gloo itself sends the messages; add a delay "
                "(all_reduce: +2 ms) or change links"
            )
        assert not isinstance(each.added, str)
        for kind in each.kinds:
            delays[kind] = delays.get(kind, 0.0) + each.added
            factors[kind] = factors.get(kind, 1.0) * each.factor
    return ChangedCommunication(model, MappingProxyType(delays), MappingProxyType(factors))


def changed_cluster(config: EmulateConfig) -> Cluster | None:
    """Return the cluster whose worker i is rank i, after the changes of links; None for none.

    Raises:
        InputError: it cannot be read, or a change does not fit it.
    """
    cluster = with_world(config).resolve_cluster()
    return None if cluster is None else apply_changes(cluster, changes_of(config, "link"))


class _Model(Protocol):
    """A communication model without changes."""

    @property
    def is_measured(self) -> bool: ...

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost: ...

    def message(self, source: int, target: int, size: int, rank: int) -> Cost: ...


@dataclass(frozen=True)
class NoCommunication:
    """Communication takes no time; or, where it `is_measured`, what the emulator measures."""

    is_measured: bool = False

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        """Return nothing."""
        return FREE

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        """Return nothing."""
        return FREE


@dataclass(frozen=True)
class ChangedCommunication(Communication):
    """A communication model, and what what-ifs make of its collectives.

    Attributes:
        model: without the changes.
        delays: seconds by which collectives of a kind take longer.
        factors: how many times as long they take without that.
    """

    model: _Model
    delays: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_measured(self) -> bool:
        """Whether hops take what the emulator measures on the real rank's links, not 0."""
        return self.model.is_measured

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        """Return the model's cost times the factor plus the delay of its kind; see the protocol.

        A group of one member has nothing to communicate, and no delay.

        Raises:
            InputError: nothing joins ranks that have to exchange messages; a function of the user's
                failed, or returned what is not a time.
        """
        if len(members) < 2:
            return FREE
        cost = self.model.cost(kind, members, size, rank, peer)
        if kind not in self.delays and kind not in self.factors:
            return cost
        factor = self.factors.get(kind, 1.0)
        fixed = cost.fixed * factor + self.delays.get(kind, 0.0)
        return replace(cost, fixed=fixed, busy=cost.busy * factor, after=cost.after * factor)

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        """Return the model's cost of one message, without changes; see the protocol."""
        return self.model.message(source, target, size, rank)

    def added(self, kind: str) -> float:
        """Return the seconds that are added to collectives of a kind."""
        return self.delays.get(kind, 0.0)


def _name(config: EmulateConfig) -> str:
    """Return the name of the model that the job asks for, or has by default."""
    name = config.communication
    if name is None:
        if config.has_links:
            return "cluster"
        return "measured" if config.mode == "wire" else "none"
    if name == "cluster" and not config.has_links:
        raise InputError(
            "communication: cluster needs links: --cluster FILE, or --bandwidth and --latency"
        )
    if name == "measured" and config.mode == "backend":
        raise InputError(
            "communication: measured is what messages take, and in mode backend none pass: "
            "--mode wire"
        )
    if name not in _NAMES and not is_reference(name):
        raise InputError(f"{unknown('communication', name, _NAMES)}, or file.py:function")
    return name


def _of_links(config: EmulateConfig, changes: Sequence[Change]) -> ClusterCommunication:
    """Return the model of the cluster file or of the link flags, checked for the whole world."""
    cluster = changed_cluster(config)
    assert cluster is not None  # `_name` has seen to it
    if config.mode == "wire" and any(link.duplex == "half" for link in cluster.links):
        raise InputError(
            "duplex: half has no model in mode wire, where gloo sends and receives at one time: "
            "full, or mode backend"
        )
    model = ClusterCommunication(cluster, _algorithms(config.algorithm))
    everyone = tuple(range(len(cluster.workers)))
    # Nothing but a ring needs fewer links, so where this is refused everything would be.
    model.cost("all_reduce", everyone, 0, everyone[0], -1)
    chosen: dict[str, Change] = {}
    for each in changes:
        if each.what != "algorithm":
            continue
        if config.mode == "wire":
            raise each.error("has no effect: in mode wire gloo itself decides")
        kind, name = each.kinds[0], str(each.value)
        if kind in chosen:
            raise each.error(f'there is one already, "{chosen[kind].text}"')
        chosen[kind] = each
        try:
            if kind not in WITH_ALGORITHMS:
                raise InputError(f"{kind} has no algorithms")
            names = ("auto", *algorithms_of(kind))
            if name not in names:
                raise unknown(f"algorithm for {kind}", name, names)
            model = ClusterCommunication(cluster, {**model.algorithms, kind: name})
            model.cost(kind, everyone, 0, everyone[0], everyone[0])
        except InputError as error:
            raise each.error(str(error)) from None
    return model


def _algorithms(name: str) -> dict[str, str]:
    """Return the algorithm of each kind that has one of that name; the others take the cheapest."""
    if name == "auto":
        return {}
    found = {kind: name for kind in WITH_ALGORITHMS if name in algorithms_of(kind)}
    if not found:
        names = dict.fromkeys(way for kind in WITH_ALGORITHMS for way in algorithms_of(kind))
        raise unknown("algorithm", name, ("auto", *names))
    return found


def _refuse(config: EmulateConfig, name: str, changes: Sequence[Change]) -> None:
    """Refuse what has no effect without links."""
    if config.communication is None:
        reason = "there are no links: add --bandwidth and --latency, or --cluster FILE"
    else:
        reason = f"communication is {name}, not that of links"
    if config.algorithm != "auto":
        raise InputError(f"algorithm has no effect: {reason}")
    for each in (*changes_of(config, "link"), *changes):
        times_nothing = each.factor != 1 and not is_reference(name)
        if each.subject in ("link", "links") or each.what == "algorithm" or times_nothing:
            raise each.error(f"has no effect: {reason}")

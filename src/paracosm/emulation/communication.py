"""Communication models of emulated jobs: what each collective and message costs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from paracosm.cluster.changes import Change
from paracosm.cluster.collectives import COLLECTIVES as WITH_ALGORITHMS
from paracosm.cluster.collectives import algorithms_of
from paracosm.emulation.cluster_communication import ClusterCommunication
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import FREE, IN, OUT, Cost
from paracosm.errors import InputError, unknown
from paracosm.factory import describe_error, is_reference, named_function
from paracosm.units import parse_duration

_NAMES = ("cluster", "none", "measured")


def communication_of(config: EmulateConfig) -> Communication:
    """Return the communication model of a job, with the changes of its what-ifs."""
    changes = config.changes("collectives")
    name = _name(config)
    model: _Model
    if name == "cluster":
        model = _of_links(config, changes)
    else:
        _refuse_without_links(config, name, changes)
        model = (
            UserCommunication.of(name, config.world)
            if is_reference(name)
            else NoCommunication(is_measured=name == "measured")
        )
    delays: dict[str, float] = {}
    factors: dict[str, float] = {}
    for change in changes:
        if change.what != "time":
            continue
        if config.mode == "wire" and change.factor != 1:
            raise change.error(
                "has no effect: in mode wire gloo itself sends the messages; add a delay "
                "(all_reduce: +2 ms) or change links"
            )
        assert not isinstance(change.added, str)
        for kind in change.kinds:
            delays[kind] = delays.get(kind, 0.0) + change.added
            factors[kind] = factors.get(kind, 1.0) * change.factor
    return Communication(model, delays, factors)


class _Model(Protocol):
    """A communication model before what-ifs: the plug-in of the paper's section 2.1."""

    @property
    def is_measured(self) -> bool: ...

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost: ...

    def message(self, source: int, target: int, size: int, rank: int) -> Cost: ...


@dataclass(frozen=True)
class NoCommunication:
    """Communication takes no time; or, where it `is_measured`, as long as the emulator measures."""

    is_measured: bool = False

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        return FREE

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        return FREE


def done_as(kind: str, by_gloo: bool) -> str:
    """Return the kind of collective that the library really runs.

    gloo has no reduce-scatter: PyTorch all-reduces a copy and takes its part
    (ProcessGroupGloo::reduce_scatter_tensor_coalesced, ProcessGroupGloo.cpp).
    """
    return "all_reduce" if by_gloo and kind == "reduce_scatter" else kind


@dataclass(frozen=True)
class Communication:
    """How long communication takes: a model, and the changes of what-ifs."""

    model: _Model
    delays: Mapping[str, float]  # seconds by which collectives of a kind take longer
    factors: Mapping[str, float]  # how many times as long they take without that

    @property
    def is_measured(self) -> bool:
        return self.model.is_measured

    @property
    def is_uniform(self) -> bool:
        """Whether a message needs one link of a rank, is as fast as that, and always as fast."""
        model = self.model
        return isinstance(model, ClusterCommunication) and not model.cluster.overrides

    def cost(
        self,
        kind: str,  # one of `records.COLLECTIVES`
        members: Sequence[int],  # global ranks of the group, in its order
        size: int,  # bytes, as `records.Collective.size` counts them
        rank: int,  # global rank of the real rank
        peer: int,  # global rank of the root or the other end; -1 where there is none
        by_gloo: bool = False,  # whether gloo does it
    ) -> Cost:
        """Return the cost of a collective for `rank`: nothing in a group of one member."""
        if len(members) < 2:
            return FREE
        cost = self.model.cost(done_as(kind, by_gloo), members, size, rank, peer)
        if kind not in self.delays and kind not in self.factors:
            return cost
        factor = self.factors.get(kind, 1.0)
        fixed = cost.fixed * factor + self.added(kind)
        return replace(cost, fixed=fixed, busy=cost.busy * factor, after=cost.after * factor)

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        return self.model.message(source, target, size, rank)

    def added(self, kind: str) -> float:
        return self.delays.get(kind, 0.0)


def _name(config: EmulateConfig) -> str:
    name = config.communication_model
    if name == "cluster" and not config.has_links:
        raise InputError(
            "communication: cluster needs links: --cluster FILE, or --bandwidth and --latency"
        )
    if name == "measured" and config.mode == "backend":
        raise InputError(
            "communication: measured needs real messages, which mode backend lacks: add --mode wire"
        )
    if name not in _NAMES and not is_reference(name):
        raise InputError(f"{unknown('communication', name, _NAMES)}, or file.py:function")
    return name


def _of_links(config: EmulateConfig, changes: Sequence[Change]) -> ClusterCommunication:
    cluster = config.resolve_cluster()
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
    for change in changes:
        if change.what != "algorithm":
            continue
        if config.mode == "wire":
            raise change.error("has no effect: in mode wire gloo itself decides")
        kind, name = change.kinds[0], str(change.value)
        if kind in chosen:
            raise change.error(f'there is one already, "{chosen[kind].text}"')
        chosen[kind] = change
        try:
            if kind not in WITH_ALGORITHMS:
                raise InputError(f"{kind} has no algorithms")
            names = ("auto", *algorithms_of(kind))
            if name not in names:
                raise unknown(f"algorithm for {kind}", name, names)
            model = ClusterCommunication(cluster, {**model.algorithms, kind: name})
            model.cost(kind, everyone, 0, everyone[0], everyone[0])
        except InputError as error:
            raise change.error(str(error)) from None
    return model


def _algorithms(name: str) -> dict[str, str]:
    if name == "auto":
        return {}
    algorithms = {kind: name for kind in WITH_ALGORITHMS if name in algorithms_of(kind)}
    if not algorithms:
        names = dict.fromkeys(way for kind in WITH_ALGORITHMS for way in algorithms_of(kind))
        raise unknown("algorithm", name, ("auto", *names))
    return algorithms


def _refuse_without_links(config: EmulateConfig, name: str, changes: Sequence[Change]) -> None:
    if config.communication is None:
        reason = "there are no links: add --bandwidth and --latency, or --cluster FILE"
    else:
        reason = f"communication is {name}, not that of links"
    if config.algorithm != "auto":
        raise InputError(f"algorithm has no effect: {reason}")
    for change in (*config.changes("link"), *changes):
        times_nothing = change.factor != 1 and not is_reference(name)
        if change.subject in ("link", "links") or change.what == "algorithm" or times_nothing:
            raise change.error(f"has no effect: {reason}")


_OFFERED = ("kind", "members", "size", "rank", "peer")


@dataclass(frozen=True)
class UserCommunication:
    """A communication model that calls a function of the user's.

    The function gets by name those of kind, members, size, rank and peer that it has parameters
    for, as `Communication.cost` gets them. It returns a `Cost`, or the seconds for which the rank's
    link is busy. It is called for every collective, so it may draw from a distribution; a message
    between two ranks is a "send".
    """

    reference: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    is_measured = False

    @classmethod
    def of(cls, reference: str, world: int) -> UserCommunication:
        """Return the model of a function, after one trial call for a world of `world` ranks."""
        function = named_function("communication", reference)
        model = cls(reference, function, _names(reference, function))
        if world > 1:
            model.cost("all_reduce", tuple(range(world)), 1, 0, -1)
        return model

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        offered = {"kind": kind, "members": members, "size": size, "rank": rank, "peer": peer}
        try:
            answer = self.function(**{name: offered[name] for name in self.names})
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f'communication "{self.reference}" failed for {kind} of {size} bytes: '
                f"{describe_error(error)}"
            ) from error
        cost = answer if isinstance(answer, Cost) else Cost(0.0, self._seconds(answer, kind), "nic")
        for seconds in (cost.fixed, cost.busy, cost.after):
            self._seconds(seconds, kind)
        return cost

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        cost = self.cost("send", (source, target), size, source, target)
        way = OUT if rank == source else IN
        return replace(cost, link=cost.link.removesuffix(OUT).removesuffix(IN) + way)

    def _seconds(self, value: Any, kind: str) -> float:
        try:
            seconds = parse_duration(value)
            if not math.isfinite(seconds):
                raise InputError(f"a duration must be finite, not {seconds}")
        except InputError as error:
            text = f'communication "{self.reference}" returned no time for {kind}: {error}'
            raise InputError(text) from None
        return seconds


def _names(reference: str, function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some callables written in C have none
        return _OFFERED
    takes_all = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()
    )
    names = tuple(name for name in _OFFERED if takes_all or name in signature.parameters)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError:
        raise InputError(
            f'communication "{reference}" has the parameters {signature}; it is called with any '
            f"of {', '.join(_OFFERED)}, by name"
        ) from None
    return names

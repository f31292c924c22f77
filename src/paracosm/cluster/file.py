"""The cluster file (YAML), and the same as a mapping: `docs/cluster-file.md` describes it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
)

from paracosm.cluster import hardware
from paracosm.cluster.changes import MOST_TIMES
from paracosm.cluster.cluster import Cluster, Node, assemble, star_around
from paracosm.cluster.link import (
    Duplex,
    Hierarchical,
    Link,
    Ring,
    Sharing,
    Switch,
    Topology,
    parse_sharing,
)
from paracosm.cluster.power import Power
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError
from paracosm.quantities import Bandwidth, Duration, Size, Watts
from paracosm.validation import validated

SharingField = Annotated[
    Sharing, PlainValidator(parse_sharing), PlainSerializer(str, return_type=str)
]
"""How messages share ports, as a text or parsed; it is written as a text."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class _Link(_Strict):
    bandwidth: Annotated[Bandwidth, Field(gt=0)] = inf
    latency: Annotated[Duration, Field(allow_inf_nan=False)] = 0.0
    overhead: Annotated[Duration, Field(allow_inf_nan=False)] = 0.0
    duplex: Duplex = "full"
    pipelined: bool = True
    sharing: SharingField = "fair"

    def over(self, link: Link) -> Link:
        """Return `link` with its values overridden by those of the file."""
        return replace(link, **{key: getattr(self, key) for key in _LINK & self.model_fields_set})


class _Override(_Link):
    between: tuple[str, str]


class _Links(_Strict):
    default: _Link = _Link()
    between_groups: _Link | None = None
    overrides: list[_Override] = []


class _Power(_Strict):
    busy: Watts
    idle: Watts
    off: Watts = 0.0


class _Nodes(_Strict):
    count: int = Field(1, ge=1, le=MOST_NODES, strict=True)
    speed: float = Field(1.0, ge=1 / MOST_TIMES, le=MOST_TIMES)
    memory: Annotated[Size, Field(gt=0)] | None = None
    device: str | None = None
    power: _Power | None = None


def _as_list(value: Any) -> Any:
    """Read `16` as `{count: 16}`, and one mapping as a list of one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [] if value == 0 else [{"count": value}]
    return [value] if isinstance(value, Mapping) else value


def _few_enough(groups: list[_Nodes]) -> list[_Nodes]:
    if (nodes := sum(group.count for group in groups)) > MOST_NODES:
        raise ValueError(f"{nodes:,} nodes: a cluster has {MOST_NODES:,} of a kind at most")
    return groups


NodeGroups = Annotated[list[_Nodes], BeforeValidator(_as_list), AfterValidator(_few_enough)]


class _LeafSwitches(_Strict):
    groups: int = Field(ge=1, strict=True)
    oversubscription: float


class _File(_Strict):
    topology: Literal["star", "switch", "ring", "hierarchical"]
    workers: NodeGroups
    servers: NodeGroups = []
    placement: Literal["own", "workers"] = "own"
    group_size: int | None = Field(None, ge=1, strict=True)
    cards: int | None = Field(None, ge=1, strict=True)
    leaf_switches: _LeafSwitches | None = None
    links: _Links = _Links()


_LINK = set(_Link.model_fields)


def read(mapping: Any, where: str) -> Cluster:
    """Return the cluster that `mapping` describes; `where` names its origin in errors."""
    if not isinstance(mapping, Mapping):
        raise InputError(f"{where}: a cluster is described by keys and values, such as workers: 4")
    file = validated(_File, mapping, where)
    try:
        return _cluster(file)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _cluster(file: _File) -> Cluster:
    workers, servers = _read_nodes(file.workers), _read_nodes(file.servers)
    if file.placement == "workers":
        if not servers:
            raise InputError("placement: there are no servers to place")
        if any(server != Node("") for server in servers):
            raise InputError("servers: give only their number where placement is workers")
    topology = _topology(file, workers, len(servers))
    for number, entry in enumerate(file.links.overrides):
        if entry.model_fields_set <= {"between"}:
            raise InputError(f"links.overrides.{number} has no effect: give it a value of a link")
    overrides = tuple((*entry.between, entry.over(topology.link)) for entry in file.links.overrides)
    return assemble(workers, servers, topology, file.placement, overrides)


def _topology(file: _File, nodes: Sequence[Node], servers: int) -> Topology:
    workers = len(nodes)
    link = file.links.default.over(Link())
    outer = file.links.between_groups
    if file.topology == "hierarchical":
        if file.group_size is None or outer is None:
            raise InputError("topology hierarchical needs group_size and links.between_groups")
        # Messages of both meet at the same nodes: there is one rule of sharing.
        outermost = outer.over(Link(sharing=link.sharing))
        above = file.leaf_switches
        leaf = (above.groups, above.oversubscription) if above else ()
        cards = _cards(file.group_size, nodes) if file.cards is None else file.cards
        names = {node.device for node in nodes}
        nccl = hardware.load_catalogue().nccl_of(names.pop()) if len(names) == 1 else None
        joined = Hierarchical(link, outermost, file.group_size, workers, cards, *leaf)
        return replace(joined, nccl=nccl)
    for key in ("group_size", "cards", "leaf_switches", "links.between_groups"):
        if (outer if "." in key else getattr(file, key)) is not None:
            raise InputError(f"{key} belongs to topology hierarchical, not {file.topology}")
    if file.topology == "star":
        return star_around(link, workers, servers, file.placement)
    if file.topology == "switch":
        return Switch(link)
    if servers:
        raise InputError("a ring joins workers only; topology star or switch takes servers")
    return Ring(link, workers)


def _cards(group_size: int, nodes: Sequence[Node]) -> int | None:
    """Return the cards of a group of which the file has none: those of the catalogue's node.

    Raises:
        InputError: neighbours could share cards, and nothing says whether they do.
    """
    if group_size == 1 or len(nodes) <= group_size:
        return None
    known = hardware.load_catalogue()
    kinds = [known.node_of(device) for device in {node.device for node in nodes}]
    if len(kinds) == 1 and kinds[0] is not None and kinds[0].count == group_size:
        return kinds[0].cards
    raise InputError(
        f"cards: missing: how many network cards the {group_size} workers of a group share, each "
        f"as fast as links.between_groups: write cards: 1, or cards: {group_size} for one of each"
    )


def _power(group: _Nodes) -> Power | None:
    watts = group.power
    return None if watts is None else Power(watts.busy, watts.idle, watts.off)


def _read_nodes(groups: Iterable[_Nodes]) -> list[Node]:
    return [
        Node("", group.speed, group.memory, group.device, _power(group))
        for group in groups
        for _ in range(group.count)
    ]

"""What-ifs as text, `SUBJECT: CHANGE`: one grammar for every command.

    worker 5: compute 1.5x slower       its computing takes 1.5 times as long
    workers 4..7: compute 2x faster     of several; "workers" for all; "server 0", "servers"
    worker 5: +10 ms                    it is later by that in every iteration; or a distribution
    workers: 128                        another number of workers
    links: bandwidth 2x                 of every link; also 4x slower, or a value: 25 Gbit/s
    link 0-3: latency +1 ms             of one link, between workers 0 and 3, or worker0 and server0
    latency: 50 us                      short for links: latency 50 us; bandwidth, overhead likewise
    all_reduce: +2 ms                   every all-reduce takes longer by that; "collectives": all
    all_gather: 2x slower
    all_gather: algorithm ring
    compute: 1.5x faster                a part of what all workers do: compute, copies, host,
                                        data loading, kernel PATTERN
    worker 3: host 1.5x slower          a part of what one worker does
    data loading: none                  it takes no time

"Slower" and "faster" refer to time: 2x slower takes twice as long, and halves a bandwidth. A factor
alone multiplies a value (bandwidth 2x, latency 3x), and is refused for anything else. "rank" is a
synonym of worker. Each command states which of these it can change.
"""

import fnmatch
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.link import Hierarchical, Link
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError, unknown
from paracosm.quantities import read_bandwidth, read_duration
from paracosm.units import parse_number

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"),
    *("gather", "scatter", "barrier", "send", "recv"),
)
LINK_VALUES = ("bandwidth", "latency", "overhead")
PARTS = ("compute", "copies", "host", "data loading", "kernel")

MOST_TIMES = 1e9
"""Factor by which anything becomes slower or faster."""

Subject = Literal["workers", "servers", "link", "links", "collectives"]

_SUBJECTS = (
    *("worker N", "workers", "server N", "servers", "link A-B", "links", *LINK_VALUES),
    *("collectives", *COLLECTIVES, *(part for part in PARTS if part != "kernel"), "kernel PATTERN"),
)
_EXAMPLES = '"worker 5: compute 1.5x slower", "links: bandwidth 2x", "all_reduce: +2 ms"'
_PLACES = re.compile(
    r"(workers?|ranks?|processors?|servers?)(?:\s+(\d{1,9})(?:\s*\.\.\s*(\d{1,9}))?)?"
)
_LINK = re.compile(r"link\s+(\w+)\s*-\s*(\w+)")
_FACTOR = re.compile(r"([\d.eE+-]+)\s*x(?:\s+(slower|faster))?")
_PART = re.compile(rf"({'|'.join(PARTS[:4])}|kernel\s+\S+)\s+(.+)")


@dataclass(frozen=True, slots=True)
class Change:
    """One change."""

    text: str  # as it was written
    subject: Subject
    # Of a node one of `PARTS`, "count", or "late" (the `added` of every iteration); of a link one
    # of `LINK_VALUES`; of collectives "time" or "algorithm"
    what: str
    first: int | None = None  # numbers of the nodes; None for all
    last: int | None = None
    ends: tuple[str, str] | None = None  # names of the two ends of a link
    kinds: tuple[str, ...] = ()  # of the collectives
    pattern: str = ""  # of the kernels that are meant, "*" for anything
    factor: float = 1.0  # multiplies the value, or the time that it takes; 0 for "none"
    added: float | str = 0.0  # seconds, or a distribution of them as a text, that come on top
    value: float | str | None = None  # instead: seconds, bytes/s, a number of workers, a name

    def __str__(self) -> str:
        return self.text

    def numbers(self, count: int) -> range:
        """Return which of `count` workers or servers it is about; InputError if there are fewer."""
        if self.first is None:
            return range(count)
        last = self.first if self.last is None else self.last
        if last >= count:
            name = self.subject[:-1]
            if count == 1:
                raise self.error(f"there is only {name} 0, not {last:,}")
            raise self.error(f"there are {name}s 0 to {count - 1:,}, not {last:,}")
        return range(self.first, last + 1)

    def means(self, kernel: str) -> bool:
        """Whether its pattern is about a kernel: all of its name with "*", else a part of it."""
        pattern = self.pattern.lower()
        if "*" not in pattern:
            pattern = f"*{pattern}*"
        return fnmatch.fnmatchcase(kernel.lower(), pattern)

    def error(self, reason: str) -> InputError:
        """Return the error that names this change."""
        return InputError(f'what_if "{self.text}": {reason}')


def parse_change(text: str) -> Change:
    """Return the change that a text describes; an InputError names the nearest subject."""
    words = " ".join(str(text).split())
    # Names of kernels have colons of their own.
    parts = words.rpartition(":") if words.lower().startswith("kernel ") else words.partition(":")
    subject, colon, rest = (part.strip() for part in parts)
    try:
        if not colon or not rest:
            raise InputError(f"write SUBJECT: CHANGE, as in {_EXAMPLES}")
        change = _parse(str(text), subject, rest)
    except InputError as error:
        raise InputError(f'what_if "{text}": {error}') from None
    if change.factor == 1 and change.added == 0 and change.value is None:
        raise change.error("changes nothing")
    return change


def _read_changes(value: Any) -> Any:
    parts = (value,) if isinstance(value, str | Change) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(part if isinstance(part, Change) else parse_change(part) for part in parts)


Changes = Annotated[
    tuple[Change, ...],
    BeforeValidator(_read_changes),
    PlainSerializer(lambda changes: [str(change) for change in changes]),
]
"""The field `what_if` of a configuration."""


def changes_cluster(change: Change) -> bool:
    """Whether `apply_changes` handles it: a value of links, or the speed of nodes."""
    if change.subject in ("workers", "servers"):
        return change.what == "compute" and change.factor > 0
    return change.subject in ("link", "links")


def apply_changes(cluster: Cluster, changes: Iterable[Change]) -> Cluster:
    """Return the cluster after all changes in turn.

    A changed link of two nodes becomes a link of their own, which later changes start from.
    InputError for a change that does not fit the cluster or has no effect on it.
    """
    return reduce(_applied, changes, cluster)


WORTH_FASTER_LINKS = 0.05
"""Share of an iteration that waits for communication, above which commands say what twice the
bandwidth would bring: below it that is no more than 2.5 %."""


def with_twice_the_bandwidth(cluster: Cluster) -> Cluster | None:
    """Return the cluster with faster links; None where their bandwidth is unlimited."""
    try:
        return apply_changes(cluster, [parse_change("links: bandwidth 2x")])
    except InputError:
        return None


def refuse_changes(changes: Iterable[Change], command: str, can: str) -> None:
    """Raise InputError for the first of `changes`, which a command cannot make."""
    for change in changes:
        raise change.error(f"{command} cannot change that; it can change {can}")


def _parse(text: str, subject: str, rest: str) -> Change:
    lower = subject.lower()
    if lower in LINK_VALUES:
        return _parse_link(Change(text, "links", lower), rest)
    if lower == "links":
        return _parse_links(Change(text, "links", ""), rest)
    if match := _LINK.fullmatch(subject):
        ends = tuple(f"worker{end}" if end.isdecimal() else end for end in match.groups())
        if ends[0] == ends[1]:
            raise InputError("a link has two different ends")
        return _parse_links(Change(text, "link", "", ends=(ends[0], ends[1])), rest)
    if lower == "collectives" or lower in COLLECTIVES:
        kinds = COLLECTIVES if lower == "collectives" else (lower,)
        return _parse_collectives(Change(text, "collectives", "time", kinds=kinds), rest)
    if _PLACES.fullmatch(lower):
        return _parse_nodes(text, lower, rest)
    if lower in PARTS[:4] or lower.startswith("kernel "):
        return _parse_part(Change(text, "workers", ""), f"{subject} {rest}")
    raise unknown("subject", subject, _SUBJECTS)


def parse_places(text: str) -> tuple[Literal["workers", "servers"], int | None, int | None]:
    """Read "worker 3", "workers 4..7", "servers" as the kind, and the first and last number.

    Raises:
        InputError: what is not understood.
    """
    match = _PLACES.fullmatch(text.lower())
    if match is None:
        raise InputError(
            f'"{text}" does not name workers or servers: write worker 3, or workers 4..7'
        )
    word, first, last = match[1], *(None if at is None else int(at) for at in match.groups()[1:])
    if first is None and not word.endswith("s"):
        raise InputError(f"which {word}? write {word} 3, or {word}s for all")
    if first is not None and last is not None and last <= first:
        raise InputError(f"{first}..{last} is not a range: the larger number comes last")
    return "servers" if word.startswith("server") else "workers", first, last


def _parse_nodes(text: str, places: str, rest: str) -> Change:
    subject, first, last = parse_places(places)
    change = Change(text, subject, "", first, last)
    if rest.startswith("+"):
        late = rest[1:].strip()
        return replace(change, what="late", added=late if "(" in late else _added(late))
    if subject == "workers" and first is None and rest.isdecimal():
        count = int(rest) if len(rest) < 18 else MOST_NODES + 1
        if not 1 <= count <= MOST_NODES:
            raise InputError(f"a job has 1 to {MOST_NODES:,} workers")
        return replace(change, what="count", value=count)
    return _parse_part(change, rest)


def _parse_part(change: Change, rest: str) -> Change:
    match = _PART.fullmatch(rest)
    if match is None:
        word = rest.partition(" ")[0]
        if not any(part.startswith(word) for part in PARTS):
            raise unknown("part", word, PARTS)
        raise InputError(f'cannot read "{rest}": write compute 1.5x slower')
    if match[1].startswith("kernel "):
        change = replace(change, what="kernel", pattern=match[1].removeprefix("kernel ").strip())
    else:
        change = replace(change, what=match[1])
    return _parse_time(change, match[2], f"{match[1]} is")


def _parse_time(change: Change, text: str, subject: str) -> Change:
    """Read "none", "2x slower" or "2x faster"."""
    if text == "none":
        return replace(change, factor=0.0)
    factor, direction = _factor(text)
    if direction is None:
        raise InputError(f"write {subject} {factor:g}x slower or {factor:g}x faster")
    return replace(change, factor=factor if direction == "slower" else 1 / factor)


def _parse_links(change: Change, rest: str) -> Change:
    what, _, value = rest.partition(" ")
    if what.lower() not in LINK_VALUES:
        raise unknown("value of a link", what, LINK_VALUES)
    if not value:
        raise InputError(f"write {what} 2x, or a value with its unit")
    return _parse_link(replace(change, what=what.lower()), value.strip())


def _parse_link(change: Change, text: str) -> Change:
    if _FACTOR.fullmatch(text):
        factor, direction = _factor(text)
        # More bandwidth is less time, more latency is more.
        divides = direction == ("slower" if change.what == "bandwidth" else "faster")
        return replace(change, factor=1 / factor if divides else factor)
    if change.what == "bandwidth":
        value = read_bandwidth(text)
        if not value > 0:
            raise InputError("a bandwidth is above 0")
        return replace(change, value=value)
    sign = -1.0 if text.startswith("-") else 1.0
    seconds = read_duration(text.lstrip("+-").strip())
    if not math.isfinite(seconds):
        raise InputError(f"a {change.what} is finite")
    if text[0] in "+-":
        return replace(change, added=sign * seconds)
    return replace(change, value=seconds)


def _parse_collectives(change: Change, rest: str) -> Change:
    if rest.startswith("algorithm "):
        if len(change.kinds) > 1:
            raise InputError("of which kind? write all_reduce: algorithm ring")
        return replace(change, what="algorithm", value=rest.removeprefix("algorithm ").strip())
    if rest[0] in "+-":
        sign = -1.0 if rest[0] == "-" else 1.0
        return replace(change, added=sign * _added(rest[1:].strip()))
    if rest != "none" and not _FACTOR.fullmatch(rest):
        raise InputError(f'cannot read "{rest}": write +2 ms, 2x slower, 2x faster or none')
    return _parse_time(change, rest, "they are")


def _factor(text: str) -> tuple[float, str | None]:
    match = _FACTOR.fullmatch(text)
    if match is None:
        raise InputError(f'cannot read "{text}": write 1.5x slower, or 2x faster')
    factor = parse_number(match[1])
    if not 1 / MOST_TIMES <= factor <= MOST_TIMES:
        raise InputError(f"a factor is {1 / MOST_TIMES:g} to {MOST_TIMES:g}, not {match[1]}")
    return factor, match[2]


def _added(text: str) -> float:
    seconds = read_duration(text)
    if not math.isfinite(seconds):
        raise InputError(f"a delay is finite, not {text}")
    return seconds


def _applied(cluster: Cluster, change: Change) -> Cluster:
    if not changes_cluster(change):
        raise change.error("is not a change of the cluster")
    try:
        if change.subject == "link":
            return _with_one_link(cluster, change)
        if change.subject == "links":
            return _with_all_links(cluster, change)
    except InputError as error:
        if str(error).startswith("what_if "):
            raise
        raise change.error(str(error)) from None
    return _with_speeds(cluster, change)


def _with_speeds(cluster: Cluster, change: Change) -> Cluster:
    if change.subject == "servers":
        if not cluster.servers or cluster.placement == "workers":
            raise change.error("the cluster has no servers on nodes of their own")
        names: Sequence[str] = cluster.servers
    else:
        names = cluster.workers
    slower = {names[number] for number in change.numbers(len(names))}
    nodes = tuple(
        replace(node, speed=node.speed / change.factor) if node.name in slower else node
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def _with_one_link(cluster: Cluster, change: Change) -> Cluster:
    assert change.ends is not None
    a, b = change.ends
    link = cluster.link(a, b)
    ends = {cluster.node(a).name, cluster.node(b).name}
    if len(ends) == 1:
        raise InputError(f'"{a}" and "{b}" live on one node: no link is between them')
    _check_effect([link], change)
    others = tuple(
        override
        for override in cluster.overrides
        if {cluster.node(override[0]).name, cluster.node(override[1]).name} != ends
    )
    return replace(cluster, overrides=(*others, (a, b, _changed(link, change))))


def _with_all_links(cluster: Cluster, change: Change) -> Cluster:
    _check_effect(cluster.links, change)
    topology = cluster.topology
    if isinstance(topology, Hierarchical):
        topology = replace(topology, outer=_changed(topology.outer, change))
    return replace(
        cluster,
        topology=replace(topology, link=_changed(topology.link, change)),
        overrides=tuple((a, b, _changed(link, change)) for a, b, link in cluster.overrides),
    )


def _changed(link: Link, change: Change) -> Link:
    assert not isinstance(change.added, str)
    assert not isinstance(change.value, str)
    old: float = getattr(link, change.what)
    new = old * change.factor + change.added if change.value is None else change.value
    if new < 0:
        raise InputError(f"makes {change.what} negative")
    values: dict[str, Any] = {change.what: new}
    return replace(link, **values)


def _check_effect(links: Sequence[Link], change: Change) -> None:
    if change.added or change.value is not None:
        return
    if all(getattr(link, change.what) == 0 for link in links):
        raise InputError(f"has no effect: there is no {change.what}; write {change.what} +1 ms")
    if all(math.isinf(getattr(link, change.what)) for link in links):
        raise InputError(f"has no effect: {change.what} is unlimited; give it a value first")

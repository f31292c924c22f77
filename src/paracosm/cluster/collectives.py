"""Costs of collectives in the alpha-beta model: on given links, and between workers of a cluster.

For a cluster, the links and the algorithm are chosen. Workers are given by their numbers, in the
order of their ranks in the group. In `hierarchical` clusters each worker has its own way out of its
machine, or those of a machine share network cards, and machines the uplinks of leaf switches
(`Hierarchical`). Then concurrent messages of a step through the same card or uplink share it, those
of the group and of `concurrent` ones: eight rings over one card take eight times as long as one. A
tree's steps are each charged the slowest of its links. Where NCCL runs the collectives, rings and
trees are its own (`nccl.py`).

`size` is always that of the whole vector, in bytes. Steps are consecutive, and each costs what its
messages cost on an idle link: `link.transfer_time(bytes)`, or `link.exchange_time(bytes)` if every
rank sends and receives at once, which is longer with half duplex. With several links, every step
waits for the slowest. The arithmetic of a reduction is not counted. On a constant link,
`Link.constant(seconds)`, every function returns its number of steps times `seconds`.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
MPICH", 2005 (below: TRG); Patarasuk, Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
Workstations", 2009; Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory,
practice, and experience", 2007 (CHPG); Hensgen, Finkel, Manber, "Two Algorithms for Barrier
Synchronization", 1988.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from paracosm.arrays import Floats, Ints, distinct_rows
from paracosm.cluster.cluster import Cluster
from paracosm.cluster.link import Hierarchical, Link, Ring, Switch
from paracosm.cluster.nccl import Nccl, Protocol, Span, in_switches, ring, tree
from paracosm.errors import InputError, shown, unknown
from paracosm.units import real

TimeOf = Callable[[float], float]
"""Seconds by the size in bytes."""
Way = Callable[[Cluster, Ints], TimeOf]
"""Of groups (a row each) that do the same at the same time, what it takes the first."""

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "barrier", "permute"),
)


def collective_time(
    cluster: Cluster,
    workers: Sequence[int] | Ints,  # their numbers; where there is a root, it comes first
    collective: str,  # one of `COLLECTIVES`
    size: float,
    algorithm: str = "auto",  # one of `algorithms_of(collective)`, or the cheapest of them
    concurrent: Ints | None = None,  # other groups (a row each) that do the same at the same time
) -> float:
    """Return the seconds that a collective takes once all ranks have entered.

    `size` is the bytes of the whole vector: what each has before an all-reduce, a reduction or a
    reduce-scatter, what each has after an all-gather or a broadcast, what each sends in an
    all-to-all or a permutation, what the root has before a scatter or after a gather; 0 for a
    barrier.

    Raises:
        InputError: a collective or an algorithm that is unknown; the topology does not join two
            workers that would exchange messages, or has no machines for "hierarchical".
    """
    ways = collective_times(cluster, workers, collective, algorithm, concurrent)
    number = real(size)
    if not 0 <= number < inf:
        raise InputError(
            f"the size of a collective is finite and 0 or more bytes, not {shown(size)}"
        )
    return min(time_of(number) for time_of in ways.values())


def collective_times(
    cluster: Cluster,
    workers: Sequence[int] | Ints,
    collective: str,
    algorithm: str = "auto",
    concurrent: Ints | None = None,
) -> dict[str, TimeOf]:
    """Return the time of a collective as a function of size, by algorithm, for repeated use."""
    ways = algorithms_of(collective)
    if algorithm != "auto" and algorithm not in ways:
        raise unknown(f"algorithm for {collective}", algorithm, ways)
    tried = ways if algorithm == "auto" else (algorithm,)
    groups = _numbers_of(cluster, workers).reshape(1, -1)
    nccl = _nccl_of(cluster, collective, groups[0])
    if nccl is not None and algorithm == "auto":
        tried = tuple(_NCCL[collective])
    if groups.shape[1] < 2:
        return dict.fromkeys(tried, lambda size: 0.0)
    if concurrent is not None and shares_ports(cluster):
        groups = np.concatenate((groups, concurrent))
    times, refusals = {}, []
    for name in tried:
        try:
            way = _WAYS[collective][name]
            if nccl is not None:
                way = _NCCL[collective].get(name, way)
            times[name] = way(cluster, groups)
        except InputError as error:
            refusals.append(error)
    if not times:
        raise refusals[0]
    return times


def _numbers_of(cluster: Cluster, workers: Sequence[int] | Ints) -> Ints:
    numbers, count = np.asarray(workers), len(cluster.workers)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise InputError(f"workers of a collective are given by their numbers, not {workers!r}")
    if numbers.min() < 0 or numbers.max() >= count or len(np.unique(numbers)) < len(numbers):
        raise InputError(
            f"workers of a collective are different ones of 0 to {count - 1}, not {workers!r}"
        )
    return numbers.astype(np.int64)


def algorithms_of(collective: str) -> tuple[str, ...]:
    """Return the names of a collective's algorithms; InputError if it is none of `COLLECTIVES`."""
    if not isinstance(collective, str) or collective not in _WAYS:
        raise unknown("collective", collective, _WAYS)
    return tuple(_WAYS[collective])


def shares_ports(cluster: Cluster) -> bool:
    """Whether workers share ports on the way out of their machines."""
    return isinstance(cluster.topology, Hierarchical) and cluster.topology.shares_ports


def message_link(
    cluster: Cluster, source: int, target: int, concurrent: Ints | None = None
) -> Link:
    """Return the link from one worker to another, shared with concurrent messages.

    `concurrent` are pairs of other senders and receivers, a row each.
    """
    pairs = np.array([[source, target]], dtype=np.int64)
    if concurrent is not None and shares_ports(cluster):
        pairs = np.concatenate((pairs, concurrent))
    (link,) = _links(cluster, pairs[:, :1], pairs[:, 1:])
    return link


def group_classes(cluster: Cluster, groups: Ints, at_once: Ints | None = None) -> Ints:
    """Return the class of each group (a row of workers).

    Groups of one class cost the same, whatever they communicate. Those with the same number in
    `at_once` do so at the same time; without it, each does so alone.
    """
    if len(groups) == 1:
        return np.zeros(1, dtype=np.int64)
    topology = cluster.topology
    shape = np.zeros((len(groups), 1), dtype=np.int64)
    if isinstance(topology, Hierarchical):
        machine = groups // topology.group_size
        shape = machine - machine[:, :1]
        for port in _ports(topology, groups):
            shape = np.column_stack((shape, port - port[:, :1]))
    elif isinstance(topology, Ring):
        shape = (groups - groups[:, :1]) % topology.size
    for number, (a, b) in enumerate(_overridden(cluster), start=1):
        touched = (groups == a).any(axis=1) & (groups == b).any(axis=1)
        own_class = np.where(touched, number * len(groups) + np.arange(len(groups)), 0)
        shape = np.column_stack((shape, own_class)) if touched.any() else shape
    if at_once is not None and isinstance(topology, Hierarchical) and topology.shares_ports:
        classes = distinct_rows(shape)[1].reshape(-1, 1)
        who = classes * groups.shape[1] + np.arange(groups.shape[1])
        for port in _ports(topology, groups):
            shape = np.column_stack((shape, _company(at_once[:, None], port, who)))
    return distinct_rows(shape)[1]


def _ports(topology: Hierarchical, nodes: Ints) -> list[Ints]:
    """Return the card, and the leaf switch, of each worker; neither if it shares none."""
    machine, ports = nodes // topology.group_size, []
    if (topology.cards or topology.group_size) < topology.group_size:
        assert topology.cards is not None
        within = nodes % topology.group_size * topology.cards // topology.group_size
        ports.append(machine * topology.cards + within)
    if topology.leaf is not None:
        ports.append(machine // topology.leaf)
    return ports


def _company(at_once: Ints, port: Ints, who: Ints) -> Ints:
    """Return a number for each member of groups that identifies its companions at its port."""
    now = np.broadcast_to(at_once, port.shape)
    at: list[tuple[int, int]] = [*zip(now.ravel().tolist(), port.ravel().tolist(), strict=True)]
    there: dict[tuple[int, int], list[int]] = {}
    for place, member in zip(at, who.ravel().tolist(), strict=True):
        there.setdefault(place, []).append(member)
    numbers: dict[tuple[int, ...], int] = {}
    of = {place: numbers.setdefault(tuple(sorted(m)), len(numbers)) for place, m in there.items()}
    return np.array([of[place] for place in at], dtype=np.int64).reshape(port.shape)


def _ring(time: Callable[[int, float, list[Link]], float]) -> Way:
    def way(cluster: Cluster, groups: Ints) -> TimeOf:
        links = _links(cluster, groups, np.roll(groups, -1, axis=1))
        return lambda size: time(groups.shape[1], size, links)

    return way


def _ring_reduce(cluster: Cluster, groups: Ints) -> TimeOf:
    links = _links(cluster, groups, np.roll(groups, -1, axis=1))
    into_root = _links_of_root(cluster, groups)
    return lambda size: ring_reduce(groups.shape[1], size, links, into_root)


def _tree(time: Callable[[int, float, list[Link]], float], *, every: bool = False) -> Way:
    """Yield steps at distances d = 1, 2, 4, ...: `every` rank sends, or one of 2 d."""

    def way(cluster: Cluster, groups: Ints) -> TimeOf:
        links = _doubling_links(cluster, groups, every)
        return lambda size: time(groups.shape[1], size, links)

    return way


def _linear(time: Callable[[float, list[Link]], float]) -> Way:
    def way(cluster: Cluster, groups: Ints) -> TimeOf:
        links = _links_of_root(cluster, groups)
        return lambda size: time(size, links)

    return way


def _hierarchical(time: Callable[[int, float, Links], float]) -> Way:
    """Return a ring within machines, and one of shares between them; the slowest machine counts."""

    def way(cluster: Cluster, groups: Ints) -> TimeOf:
        machines, most, fewest, link, outer = _machines(cluster, groups)
        return lambda size: time(most, size, link) + time(machines, size / fewest, outer)

    return way


def _nccl_of(cluster: Cluster, collective: str, group: Ints) -> Nccl | None:
    """Return NCCL where it runs a collective on a cluster, and machines have as many ranks each."""
    topology = cluster.topology
    if not isinstance(topology, Hierarchical) or topology.leaf is not None:
        return None
    _, counts = np.unique(group // topology.group_size, return_counts=True)
    is_even = bool((counts == counts[0]).all())
    return topology.nccl if collective in _NCCL and is_even else None


def _over_all_cards(time: Callable[[Span, Protocol, float], float]) -> Way:
    def way(cluster: Cluster, groups: Ints) -> TimeOf:
        span, topology = _span(cluster, groups), cluster.topology
        assert isinstance(topology, Hierarchical)
        assert topology.nccl is not None
        protocols = topology.nccl.between if span.machines > 1 else topology.nccl.within
        return lambda size: min(time(span, protocol, size) for protocol in protocols)

    return way


def _in_switches(cluster: Cluster, groups: Ints) -> TimeOf:
    topology, sums = cluster.topology, None
    if isinstance(topology, Hierarchical) and topology.nccl is not None:
        sums = topology.nccl.sums
    if sums is None:
        raise InputError(
            "algorithm nvls needs machines whose switches add up: --hardware dgx-h100 has them"
        )
    span, known = _span(cluster, groups), sums
    if span.ranks <= 2:
        raise InputError(f"algorithm nvls needs more than two ranks of a machine, not {span.ranks}")
    return lambda size: in_switches(span, known, size)


def _span(cluster: Cluster, groups: Ints) -> Span:
    machines, most, fewest, inner, outer = _machines(cluster, groups)
    within = min(link.bandwidth for link in inner) if most > 1 else inf
    return Span(
        machines=machines,
        ranks=most,
        inner=within,
        inner_latency=max(link.exchange_time(0) for link in inner),
        outer=fewest * min(link.bandwidth for link in outer),
        outer_latency=max(link.exchange_time(0) for link in outer),
    )


CROWDED = 0.66
"""Share of a network card's bandwidth that an all-to-all of more than two machines reaches, whose
messages meet in switches, and in the cards that receive them. NCCL took 13 ms for one of
DeepSeek-V3 on 8 nodes of 8 H100 with 400 Gbit/s a card (github.com/deepseek-ai/DeepEP, issue 59;
4,096 tokens x 8 experts x 7,168 numbers of two bytes, 7 of 8 to other nodes: 31.6 GB/s of 48), and
46 GB/s on two nodes (its issue 3)."""


def _pairwise(cluster: Cluster, groups: Ints) -> TimeOf:
    """Take p - 1 steps: in step k rank i sends `size` / p bytes to rank i + k (TRG, 4.3)."""
    ranks, steps = groups.shape[1], _steps(cluster, groups)
    return lambda size: sum(
        count * max(link.exchange_time(size / ranks) for link in links)
        for links, count in steps.items()
    )


def _direct(cluster: Cluster, groups: Ints) -> TimeOf:
    """Send to all others at once, as NCCL and gloo do: a message leaves its port after the other,
    and latency passes once, after the last one (TRG, 4.3, all sends posted)."""
    ranks, steps = groups.shape[1], _steps(cluster, groups)

    def seconds(size: float) -> float:
        part = size / ranks
        later = max(link.propagation(part) for links in steps for link in links)
        return later + sum(
            count * max(link.exchange_time(part) - link.propagation(part) for link in links)
            for links, count in steps.items()
        )

    return seconds


def _steps(cluster: Cluster, groups: Ints) -> Counter[frozenset[Link]]:
    """Return the links of the steps in which rank i sends to rank i + k, and how many steps take
    the same ones: most do."""
    topology, ranks = cluster.topology, groups.shape[1]
    if isinstance(topology, Switch) and not cluster.overrides:
        return Counter({frozenset((topology.link,)): ranks - 1})
    machine = groups // topology.group_size if isinstance(topology, Hierarchical) else groups * 0
    crowded = max(len(np.unique(row)) for row in machine) > 2
    steps: Counter[frozenset[Link]] = Counter()
    for step in range(1, ranks):
        links = _links(cluster, groups, np.roll(groups, -step, axis=1))
        if crowded and (machine != np.roll(machine, -step, axis=1)).any():
            links = [replace(link, bandwidth=link.bandwidth * CROWDED) for link in links]
        steps[frozenset(links)] += 1
    return steps


def _dissemination(cluster: Cluster, groups: Ints) -> TimeOf:
    steps = [
        _links(cluster, groups, np.roll(groups, -distance, axis=1))
        for distance in _powers_of_two(groups.shape[1])
    ]
    links = list(dict.fromkeys(link for step in steps for link in step))
    return lambda size: dissemination_barrier(groups.shape[1], links)


def _machines(cluster: Cluster, groups: Ints) -> tuple[int, int, int, list[Link], list[Link]]:
    """Return the number of machines, most and fewest ranks on one, links within and between."""
    topology, group = cluster.topology, groups[0]
    if not isinstance(topology, Hierarchical):
        raise InputError(
            f"algorithm hierarchical needs machines of several workers: topology hierarchical, not "
            f"{topology.name}"
        )
    machine = group // topology.group_size
    _, first, counts = np.unique(machine, return_index=True, return_counts=True)
    within = np.flatnonzero(machine[:-1] == machine[1:])
    leaders = np.sort(first)
    ends = group[leaders], group[np.roll(leaders, -1)]
    if topology.shares_ports:
        ends = groups, np.stack([_of_next_machine(group, topology.group_size) for group in groups])
    link = [topology.link]
    if len(within):
        link = _links(cluster, group[within][None], group[within + 1][None])
    outer = _links(cluster, *np.atleast_2d(*ends)) if len(leaders) > 1 else [topology.outer]
    return len(counts), int(counts.max()), int(counts.min()), link, outer


def _of_next_machine(group: Ints, size: int) -> Ints:
    """Return the rank on the group's next machine to which each rank sends its share."""
    on: dict[int, list[int]] = {}
    for rank in group.tolist():
        on.setdefault(rank // size, []).append(rank)
    machines = list(on.values())
    target = {
        rank: following[place % len(following)]
        for here, following in zip(machines, [*machines[1:], machines[0]], strict=True)
        for place, rank in enumerate(here)
    }
    return np.array([target[rank] for rank in group.tolist()], dtype=np.int64)


def _doubling_links(cluster: Cluster, groups: Ints, every: bool) -> list[Link]:
    """Return the links between ranks whose distance is a power of two."""
    links: dict[Link, None] = {}
    ranks = groups.shape[1]
    for distance in _powers_of_two(ranks):
        one = np.arange(ranks - distance)
        other = one + distance
        if shares_ports(cluster):
            one = one[one % (2 * distance) < (distance if every else 1)]
            other = one + distance
            if every:
                one, other = np.append(one, other), np.append(other, one)
        links |= dict.fromkeys(_links(cluster, groups[:, one], groups[:, other]))
    return list(links)


def _powers_of_two(below: int) -> list[int]:
    return [1 << power for power in range((below - 1).bit_length())]


def _links_of_root(cluster: Cluster, groups: Ints) -> list[Link]:
    """Return the link of the first of the group with each of the others."""
    if not shares_ports(cluster):
        return [_link(cluster, int(groups[0, 0]), int(other)) for other in groups[0, 1:]]
    columns = range(1, groups.shape[1])
    return [_links(cluster, groups[:, :1], groups[:, at : at + 1])[0] for at in columns]


def _links(cluster: Cluster, sources: Ints, targets: Ints) -> list[Link]:
    """Return the distinct links of the first row's pairs, sharing ports with all other rows."""
    topology = cluster.topology
    load = np.ones(sources.shape[1])
    if isinstance(topology, Hierarchical) and topology.shares_ports:
        load = _loads(topology, sources, targets)[0]
    sources, targets = sources[0], targets[0]
    if isinstance(topology, Hierarchical):
        kind = sources // topology.group_size != targets // topology.group_size
    elif isinstance(topology, Ring):
        kind = ~np.isin((sources - targets) % topology.size, (1, topology.size - 1))
    else:
        kind = np.zeros(len(sources), dtype=np.bool_)
    special = np.zeros(len(sources), dtype=np.bool_)
    for a, b in _overridden(cluster):
        special |= ((sources == a) & (targets == b)) | ((sources == b) & (targets == a))
    usual = np.flatnonzero(~special)
    _, examples = np.unique(np.where(kind, load, 0.0)[usual], return_index=True)
    pairs = np.concatenate((usual[examples], np.flatnonzero(special)))
    links = [
        _link(cluster, int(sources[pair]), int(targets[pair])).shared(float(load[pair]))
        for pair in pairs
    ]
    return list(dict.fromkeys(links))


def _loads(topology: Hierarchical, sources: Ints, targets: Ints) -> Floats:
    """Return the number of messages that share the fullest port of each message."""
    load = np.ones(sources.shape)
    machines = [workers // topology.group_size for workers in (sources, targets)]
    crossing = machines[0] != machines[1]
    ports = [_ports(topology, workers) for workers in (sources, targets)]
    for number, ends in enumerate(zip(*ports, strict=True)):
        passing, width = crossing, 1.0
        if topology.leaf is not None and number == len(ports[0]) - 1:
            passing, width = ends[0] != ends[1], topology.uplink
        for end in ends:
            _, of, counts = np.unique(end[passing], return_inverse=True, return_counts=True)
            load[passing] = np.maximum(load[passing], counts[of] / width)
    return load


def _overridden(cluster: Cluster) -> list[tuple[int, int]]:
    """Return the pairs of workers with a link of their own, by their numbers."""
    if not cluster.overrides:
        return []
    position = {name: number for number, name in enumerate(cluster.workers)}
    return [
        (position[a], position[b])
        for a, b, _ in cluster.overrides
        if a in position and b in position
    ]


def _link(cluster: Cluster, source: int, target: int) -> Link:
    return cluster.link(cluster.workers[source], cluster.workers[target])


Links = Link | Sequence[Link]


def ring_all_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a ring all-reduce: a reduce-scatter, then an all-gather.

    2 (p - 1) steps of `size` / p bytes (Patarasuk and Yuan 2009, section 3; the least bytes that
    any algorithm can move).
    """
    return ring_reduce_scatter(ranks, size, link) + ring_all_gather(ranks, size, link)


def ring_reduce_scatter(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a ring reduce-scatter: p - 1 steps of `size` / p bytes (TRG, 4.1)."""
    _check(ranks, size)
    return (ranks - 1) * _exchange(link, size / ranks)


def ring_all_gather(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a ring all-gather of `size` bytes in all, as above (TRG, 4.1)."""
    return ring_reduce_scatter(ranks, size, link)


def ring_permute(ranks: int, size: float, link: Links) -> float:
    """Return the seconds in which each rank sends `size` bytes to the next one around a ring."""
    _check(ranks, size)
    return _exchange(link, size)


def tree_broadcast(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree broadcast: ceil(log2 p) steps of `size` (TRG, 4.2)."""
    _check(ranks, size)
    return (ranks - 1).bit_length() * _step(link, size)


def tree_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree reduction: a broadcast backwards (TRG, section 4.5)."""
    return tree_broadcast(ranks, size, link)


def ring_reduce(ranks: int, size: float, link: Links, into_root: Sequence[Link]) -> float:
    """Return the seconds of gloo's: a ring reduce-scatter, then a linear gather `into_root`."""
    return ring_reduce_scatter(ranks, size, link) + linear_gather(size, into_root)


def tree_scatter(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree scatter of `size` bytes in all.

    The root sends ceil(log2 p) messages, to a rank at distance 2^k the shares of as many ranks as
    there are in that rank's subtree; they are p - 1 shares of `size` / p (CHPG, section 4.1,
    minimum-spanning-tree scatter). No other rank is busy for longer.
    """
    _check(ranks, size)
    shares = (min(distance, ranks - distance) for distance in _powers_of_two(ranks))
    return sum(_step(link, size * share / ranks) for share in shares)


def tree_gather(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree gather of `size` bytes in all: a scatter backwards."""
    return tree_scatter(ranks, size, link)


def linear_scatter(size: float, links: Sequence[Link]) -> float:
    """Return the seconds in which a root sends each other rank its share, one after the other.

    `links` are those to the p - 1 others, in turn; a share is `size` / p bytes. The latencies of
    pipelined links overlap. gloo and NCCL scatter and gather in this way.
    """
    _check(len(links) + 1, size)
    share = size / (len(links) + 1)
    free = there = 0.0
    for link in links:
        free += link.occupancy(share)
        there = max(there, free + link.propagation(share))
    return there


def linear_gather(size: float, links: Sequence[Link]) -> float:
    """Return the seconds in which each other rank sends a root its share: a scatter backwards."""
    return linear_scatter(size, links)


def dissemination_barrier(ranks: int, link: Links) -> float:
    """Return the seconds of a dissemination barrier: ceil(log2 p) exchanges of empty messages.

    In step k rank i signals to rank i + 2^k and waits for rank i - 2^k (Hensgen, Finkel and Manber
    1988).
    """
    _check(ranks, 0.0)
    return (ranks - 1).bit_length() * _exchange(link, 0.0)


def tree_all_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree reduction, then a binomial-tree broadcast.

    2 ceil(log2 p) steps of `size` bytes (TRG, sections 4.2 and 4.4).
    """
    return 2 * tree_broadcast(ranks, size, link)


def halving_doubling_all_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    For a power of two, log2 p steps of `size` / 2, `size` / 4, ... bytes, and the same back (TRG,
    section 4.5). Otherwise the ranks beyond the next lower power of two first send their vector to
    a partner, which returns the result at the end: two more steps, of `size` bytes.
    """
    _check(ranks, size)
    doublings = ranks.bit_length() - 1
    halves = sum(_exchange(link, size / 2**step) for step in range(1, doublings + 1))
    extra = _step(link, size) if ranks > 2**doublings else 0.0
    return 2 * (halves + extra)


def _exchange(links: Links, size: float) -> float:
    """Return the seconds of one step in which every rank sends and receives `size` bytes."""
    if isinstance(links, Link):
        return links.exchange_time(size)
    return max(link.exchange_time(size) for link in links)


def _step(links: Links, size: float) -> float:
    """Return the seconds of one step in which `size` bytes pass over each of the links, one way."""
    if isinstance(links, Link):
        return links.transfer_time(size)
    return max(link.transfer_time(size) for link in links)


def _check(ranks: int, size: float) -> None:
    if ranks < 1:
        raise InputError(f"a collective needs at least 1 rank, not {ranks}")
    if not size >= 0:
        raise InputError(f"the size of a collective must be 0 or more, not {size}")


_GATHER = {"ring": _ring(ring_all_gather), "hierarchical": _hierarchical(ring_all_gather)}
_WAYS: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": _ring(ring_all_reduce),
        "tree": _tree(tree_all_reduce),
        "hierarchical": _hierarchical(ring_all_reduce),
        "halving-doubling": _tree(halving_doubling_all_reduce, every=True),
        "nvls": _in_switches,
    },
    "all_gather": _GATHER,
    "reduce_scatter": _GATHER,
    "all_to_all": {"pairwise": _pairwise, "direct": _direct},
    "broadcast": {"tree": _tree(tree_broadcast)},
    "reduce": {"tree": _tree(tree_reduce), "ring": _ring_reduce},
    "gather": {"tree": _tree(tree_gather), "linear": _linear(linear_gather)},
    "scatter": {"tree": _tree(tree_scatter), "linear": _linear(linear_scatter)},
    "barrier": {"dissemination": _dissemination},
    "permute": {"ring": _ring(ring_permute)},
}

_GATHER_OVER_CARDS = _over_all_cards(partial(ring, all_reduce=False))
_NCCL: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": _over_all_cards(partial(ring, all_reduce=True)),
        "tree": _over_all_cards(tree),
        "nvls": _in_switches,
    },
    "all_gather": {"ring": _GATHER_OVER_CARDS},
    "reduce_scatter": {"ring": _GATHER_OVER_CARDS},
}
"""Algorithms as NCCL runs them where it does; `auto` is the cheapest of these."""

"""The process groups of a rank, and which of them the threads of gloo work for.

Ranges of gloo do not say their group: PyTorch's ProcessGroupGloo.cpp passes no arguments to them,
and calls of "c10d" have it as an object, which a trace leaves out. But each group has threads of
its own, and the header of a trace lists the groups of its rank in the order in which they were made
(`_get_all_pg_configs` in PyTorch's distributed_c10d.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paracosm.timeline.kineto.arguments import MOST_RANKS, number_of
from paracosm.timeline.kineto.trace import Lane, ProcessGroup

THREADS = 2
"""Threads that gloo starts for a group: `Options::threads` in PyTorch's ProcessGroupGloo.hpp, which
scripts leave as it is."""


def process_groups(listed: Any) -> tuple[ProcessGroup, ...]:
    """Return the groups of a header's "pg_config"; none if one of them lacks its ranks."""
    groups = []
    for item in listed if isinstance(listed, list) else []:
        ranks = item.get("ranks") if isinstance(item, dict) else None
        if not isinstance(ranks, list) or not 0 < len(ranks) <= MOST_RANKS:
            return ()
        if not all(type(rank) is int and rank >= 0 for rank in ranks):
            return ()
        name, backends = (str(item.get(key, "")) for key in ("pg_name", "backend_config"))
        groups.append(ProcessGroup(name, tuple(ranks), "gloo" in backends))
    return tuple(groups)


def groups_of_threads(
    groups: Sequence[ProcessGroup], threads: Mapping[int, Lane], lanes: Iterable[Lane]
) -> dict[int, ProcessGroup]:
    """Return the group of each thread of gloo, by its key; empty where that is not certain.

    A group's threads are started when it is made, and Linux numbers threads in the order of their
    start, upwards from the process's own number, which its first thread has; after the highest
    number it begins again. So where both threads of every group have worked, they are told by their
    order. Those of an only group are all its own.

    Args:
        groups: of the rank, in the order in which they were made.
        threads: those on which gloo's collectives ran.
        lanes: all threads of the trace.
    """
    made = [group for group in groups if group.on_gloo]
    if len(made) == 1:
        return dict.fromkeys(threads, made[0])
    owners = {lane.owner for lane in threads.values()}
    numbers = {key: number_of(lane.number, -1) for key, lane in threads.items()}
    first = [lane for lane in lanes if lane.owner in owners and lane.owner == lane.number]
    if len(owners) != 1 or len(first) != 1 or len(numbers) != THREADS * len(made):
        return {}
    start = number_of(first[0].number, -1)
    if min(start, *numbers.values()) < 0:
        return {}
    in_order = sorted(numbers, key=lambda key: (numbers[key] < start, numbers[key]))
    return {key: made[at // THREADS] for at, key in enumerate(in_order)}

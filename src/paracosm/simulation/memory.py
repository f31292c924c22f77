"""What a rank of a job holds of its device: bytes over time, by use, and what is reserved for them.

PyTorch's caching allocator (`caching_allocator.py`) is given the blocks of a program in the order
in which the host asks for them, that of its tasks, iteration after iteration. What the optimizer
keeps is made in its first step, out of what the backward pass has freed, so that later iterations
find pieces where the first one found whole segments: that, and not rounding, is most of what an
allocator reserves beyond what it gives out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.jobs.job import MEMORY, STEPS, Job, Program
from paracosm.jobs.writer import Use
from paracosm.simulation.caching_allocator import AllocatorSettings, Block, CachingAllocator
from paracosm.simulation.static import JobSchedule

ITERATIONS = 3
"""How many are played: from the third on nothing new was reserved in all that were looked at."""

_COLLECTIVES = MEMORY.index("collectives")
_GRADIENTS = MEMORY.index("gradients")


def memory_over_time(schedule: JobSchedule, rank: int) -> tuple[Floats, Ints]:
    """Return k instants in seconds, ascending, and the bytes that a rank holds from each on.

    A task's allocations count from the instant at which it takes its lane, and what it releases
    is free when it ends; at one instant tasks do so in the order of their rows.
    """
    program = schedule.job.programs[schedule.job.program[rank]]
    instants, order = _instants(schedule, rank)
    held = program.resident + np.cumsum(program.holdings.size[order])
    row, takes = program.holdings.row[order], program.holdings.size[order] > 0
    last = np.ones(len(order), dtype=np.bool_)  # of the blocks that a task takes, or gives
    last[:-1] = (row[1:] != row[:-1]) | (takes[1:] != takes[:-1])
    return (
        np.concatenate(([0.0], instants[order][last])),
        np.concatenate(([program.resident], held[last])).astype(np.int64),
    )


def _instants(schedule: JobSchedule, rank: int) -> tuple[Floats, Ints]:
    """Return the seconds at which blocks of a rank are taken and given back, and their order."""
    program = schedule.job.programs[schedule.job.program[rank]]
    row, takes = program.holdings.row, program.holdings.size > 0
    tasks = schedule.tasks_of(rank)
    instants = np.where(takes, schedule.arrive[tasks][row], schedule.end[tasks][row])
    return instants, np.lexsort((2 * row + ~takes, instants))  # a task takes before it gives


def peak_memory_of_ranks(schedule: JobSchedule) -> Ints:
    """Return the most bytes that each of R ranks holds at a time."""
    peaks = [int(memory_over_time(schedule, rank)[1].max()) for rank in schedule.representative]
    return np.array(peaks, dtype=np.int64)[schedule.class_of]


def memory_at_peak(schedule: JobSchedule, rank: int) -> dict[Use, int]:
    """Return the bytes that a rank holds by their use, at the instant when it holds most."""
    program, names = schedule.job.programs[schedule.job.program[rank]], schedule.job.names
    held: dict[Use, int] = {(kind, ""): size for kind, size in program.throughout.items()}
    holdings = program.holdings
    _, order = _instants(schedule, rank)
    total = np.cumsum(holdings.size[order])
    until = order[: int(np.argmax(total)) + 1] if total.max(initial=0) > 0 else order[:0]
    codes = holdings.kind.astype(np.int64) * len(names) + holdings.name
    distinct, place = np.unique(codes[until], return_inverse=True)
    sizes = np.bincount(place, weights=holdings.size[until], minlength=len(distinct))
    for code, size in zip(distinct.tolist(), np.rint(sizes).astype(np.int64).tolist(), strict=True):
        kind, name = divmod(code, len(names))
        if size:
            held[MEMORY[kind], names[name]] = held.get((MEMORY[kind], names[name]), 0) + size
    return held


@dataclass(frozen=True)
class Reserved:
    """What the allocator takes of the device for a rank."""

    size: int  # bytes at most
    retries: int  # times in the last iteration that it gives back what is unused, to make room
    is_full: bool  # whether there is no room then either


def reserved_memory(
    job: Job, rank: int, settings: AllocatorSettings, limit: int | None = None
) -> Reserved:
    """Return what PyTorch's allocator reserves for a rank in `ITERATIONS` iterations.

    Args:
        job: whose programs say what is taken and given back.
        rank: one of its ranks.
        settings: of the allocator.
        limit: bytes that it may take of the device; None where there is no end of it.
    """
    program = job.programs[job.program[rank]]
    allocator = CachingAllocator(settings, limit)
    blocks = _blocks_of_parameters(program)
    for kind in ("parameters", "master weights", "gradients"):
        _take_for_good(allocator, program.throughout.get(kind, 0), blocks)
    moments = program.throughout.get("optimizer", 0)
    before = 0
    for iteration in range(ITERATIONS):
        before = allocator.retries
        left = _play(allocator, program)
        if not iteration:
            for _ in range(2):  # of Adam
                _take_for_good(allocator, moments // 2, blocks)
        for block in left:  # gradients, which the next iteration makes anew
            allocator.free(block)
    return Reserved(allocator.highest, allocator.retries - before, allocator.failures > 0)


def _play(allocator: CachingAllocator, program: Program) -> list[Block]:
    """Take and give back the blocks of one iteration; return those that are left."""
    held = defaultdict[tuple[int, int, int], list[Block]](list)
    columns = (column.tolist() for column in program.holdings)
    for _, size, kind, name in zip(*columns, strict=True):
        alike = held[abs(size), kind, name]
        if size > 0:
            alike.append(allocator.take(size, int(kind == _COLLECTIVES)))
        elif alike:  # of equal ones the last, as backward passes need them
            allocator.free(alike.pop())
    return [block for alike in held.values() for block in alike]


def _blocks_of_parameters(program: Program) -> list[int]:
    """Return sizes in proportion to those of the parameters, by their gradients."""
    holdings = program.holdings
    first = program.microbatch[holdings.row] <= 0
    backward = program.step[holdings.row] == STEPS.index("backward")
    taken = (holdings.size > 0) & (holdings.kind == _GRADIENTS) & first & backward
    return list(map(int, holdings.size[taken])) or [1]


def _take_for_good(allocator: CachingAllocator, size: int, blocks: list[int]) -> None:
    total = sum(blocks)
    for block in blocks if size else ():
        allocator.take(max(size * block // total, 1), 0)

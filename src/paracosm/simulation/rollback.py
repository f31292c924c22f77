"""Schedules of jobs that fail and continue from a checkpoint.

A life of a job lasts from its begin, or from a restart, until it fails. Every life begins with
nothing under way, as a schedule of its own. Work of a life since its newest checkpoint is lost with
it, including what was under way. Virtual time passes in checkpoints, when no worker computes, and
in restarts:

    work | save | work | save | work, lost ! restart | work | save | ...
    tau  |  c   | tau  |  c   |            !    R    | tau  |  c   |

A failure during a checkpoint makes it worthless, one during a restart begins that again. These are
the assumptions of Daly, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart
Dumps", Future Generation Computer Systems 22, 2006.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from typing import NamedTuple

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.network.clock import LAST_INSTANT
from paracosm.simulation.schedule import Schedule

_MOST_IDLE = 10_000


class Checkpoint(NamedTuple):
    """The parameters are saved as they are after the blocks before; no worker computes."""

    begin: int  # picoseconds
    end: int


class Restore(NamedTuple):
    """The job failed, and continues from its newest checkpoint, or from its first parameters."""

    failed: int  # picoseconds
    end: int  # when everybody begins a step
    lost: int  # picoseconds of work since the newest checkpoint
    saving: int  # picoseconds spent on a checkpoint that was under way
    failures: int  # 1, and one for every restart that failed


Block = Schedule | Checkpoint | Restore
"""A part of a schedule, or what happens to the whole job between two."""


def with_rollbacks(
    lives: Callable[[int], Iterable[Schedule]],
    failures: Iterable[float],
    *,
    workers: int,
    tensors: int,
    restart: float,
    interval: float | None = None,
    cost: float = 0.0,
    in_step: bool = False,
) -> Iterator[Block]:
    """Yield a job's schedule with its checkpoints and the effects of failures.

    It is in the order of virtual time: blocks, and between them events of the whole job. After a
    `Restore`, versions continue from the checkpoint's, and the numbers of steps from where they
    were. It ends with a life that ends before it fails.

    Args:
        lives: the schedule of the n-th life, as if it never failed: instants, steps and versions
            from 0, in blocks that begin and end between two instants.
        failures: seconds of virtual time at which the job fails, ascending.
        workers, tensors: how many there are.
        restart: seconds from a failure until everybody begins a step.
        interval: seconds of work from one checkpoint to when the next is due; it is saved right
            after the next update. None: no checkpoints.
        cost: seconds that a checkpoint takes.
        in_step: whether a checkpoint waits for an update that leaves all tensors at one version,
            as the end of an iteration does in a synchronous job.

    Raises:
        InputError: virtual time passes 2**63 - 1 ps (106 days), or 10,000 failures in a row leave
            nothing done.
    """
    job = _Job(
        np.zeros(tensors, np.int64),
        np.zeros(workers, np.int64),
        LAST_INSTANT if interval is None else round(interval * 1e12),
        round(cost * 1e12),
        in_step,
    )
    falls = chain((round(instant * 1e12) for instant in failures), repeat(LAST_INSTANT))
    fall, begin, idle = next(falls), 0, 0
    for number in count():
        before = job.saved.copy()
        wasted = yield from job.live(lives(number), begin, fall)
        if wasted is None:
            return
        failed, attempts = fall, 0
        idle = 0 if (job.saved > before).any() else idle + 1
        while attempts == 0 or fall < begin:
            begin, fall = _instant(fall + round(restart * 1e12)), next(falls)
            attempts += 1
            if idle + attempts > _MOST_IDLE:
                raise InputError(
                    f"failures: {_MOST_IDLE:,} in a row leave nothing done: fail less often, or "
                    "try other checkpoints"
                )
        yield Restore(failed, begin, *wasted, attempts)


@dataclass
class _Job:
    """The state that is kept from life to life."""

    saved: Ints  # versions in the newest checkpoint, by tensor
    steps: Ints  # begun so far, by worker
    interval: int
    cost: int
    in_step: bool

    def live(
        self, blocks: Iterable[Schedule], begin: int, fall: int
    ) -> Generator[Schedule | Checkpoint, None, tuple[int, int] | None]:
        """Yield the blocks of a life; return the work and the saving time that are lost.

        A life that ends before it fails returns nothing.
        """
        first, numbers = self.saved.copy(), self.steps.copy()
        versions = np.zeros_like(first)
        points = _Points()
        for block in blocks:
            rest = block
            while True:
                paused = begin + points.count * self.cost
                point = self._next_point(rest, points.last + self.interval, versions)
                limit = fall - paused
                done, rest = _cut(rest, min(point, limit))
                if not _is_empty(done):
                    # Of a tensor's several versions, the last one counts.
                    versions[done.updates["tensor"]] = done.updates["version"]
                    yield self._place(done, begin, points.saved, first, numbers)
                if limit <= point:
                    if _is_empty(rest):
                        break
                    return limit - points.last, 0
                if limit < point + self.cost:
                    return point - points.last, limit - point
                points.add(point)
                self.saved[:] = first + versions
                yield Checkpoint(paused + point, paused + point + self.cost)
        return None

    def _next_point(self, block: Schedule, due: int, versions: Ints) -> int:
        """Return the instant of the block's first update that a checkpoint can follow."""
        times = block.updates["time"]
        start = int(np.searchsorted(times, due))
        if start == len(times):
            return LAST_INSTANT
        if not self.in_step:
            return int(times[start])
        reached = versions.copy()
        reached[block.updates["tensor"][:start]] = block.updates["version"][:start]
        for index in range(start, len(times)):
            _, _, _, tensor, version, _ = block.updates[index]
            reached[tensor] = version
            is_last = index + 1 == len(times) or times[index + 1] > times[index]
            if is_last and (reached == version).all():
                return int(times[index])
        return LAST_INSTANT

    def _place(
        self, block: Schedule, begin: int, after: Ints, first: Ints, numbers: Ints
    ) -> Schedule:
        """Return a block of a life as a part of the job's schedule; `after` are checkpoints."""
        _instant(begin + len(after) * self.cost + _last(block))

        def instants(times: Ints) -> Ints:
            return times + begin + self.cost * np.searchsorted(after, times)

        reads, updates, steps = block.reads.copy(), block.updates.copy(), block.steps.copy()
        for rows, names in ((reads, ["time"]), (updates, ["time"]), (steps, ["begin", "end"])):
            for name in names:
                rows[name] = instants(rows[name])
            rows["step"] += numbers[rows["worker"]]
        for rows in (reads, steps):
            np.maximum.at(self.steps, rows["worker"], rows["step"] + 1)
        reads["version"] += first[reads["tensor"]]
        for name in ("version", "read"):
            updates[name] += first[updates["tensor"]]
        failures = block.failures.copy()
        failures["time"] = instants(failures["time"])
        end = int(instants(np.array(block.end)))
        return replace(
            *(block,), reads=reads, updates=updates, steps=steps, failures=failures, end=end
        )


class _Points:
    """When checkpoints were saved, on the clock of a life that begins at 0."""

    def __init__(self) -> None:
        self.last = self.count = 0
        self._instants = np.empty(16, np.int64)

    def add(self, instant: int) -> None:
        if self.count == len(self._instants):  # there may be one after every update
            self._instants = np.resize(self._instants, 2 * self.count)
        self._instants[self.count] = self.last = instant
        self.count += 1

    @property
    def saved(self) -> Ints:
        return self._instants[: self.count]


def _cut(block: Schedule, instant: int) -> tuple[Schedule, Schedule]:
    """Split a block at an instant; drops are only counted, in the first part."""
    reads, updates, steps, failures = (
        int(np.searchsorted(times, instant, side="right")) for times in _instants(block)
    )
    done = replace(
        block,
        reads=block.reads[:reads],
        updates=block.updates[:updates],
        steps=block.steps[:steps],
        failures=block.failures[:failures],
        end=min(block.end, instant),
        busy={},
    )
    rest = replace(
        block,
        reads=block.reads[reads:],
        updates=block.updates[updates:],
        steps=block.steps[steps:],
        failures=block.failures[failures:],
        dropped=0,
        busy={},
    )
    return done, rest


def _last(block: Schedule) -> int:
    """Return the instant of the last event in a block; -1 for an empty one."""
    return max(int(times.max(initial=-1)) for times in _instants(block))


def _is_empty(block: Schedule) -> bool:
    return not any(map(len, _instants(block))) and not block.dropped


def _instants(block: Schedule) -> tuple[Ints, ...]:
    """Return the instants of reads, updates, ends of steps and failures."""
    return (
        *(block.reads["time"], block.updates["time"], block.steps["end"]),
        block.failures["time"],
    )


def _instant(picoseconds: int) -> int:
    if picoseconds > LAST_INSTANT:
        raise InputError(
            "failures: the job lasts more than 2**63 - 1 picoseconds (106 days), the range of the "
            "clock: it has too much work, or fails too often to make progress; try other "
            "checkpoints"
        )
    return picoseconds

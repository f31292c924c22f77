"""Jobs whose nodes fail: their schedules, and what share of the time came to something.

Two things happen. Where every update needs a gradient of every worker (synchronous SGD), and
wherever a parameter server fails, the whole job stops: what it did since its newest checkpoint is
lost, everybody waits for the restart, and parameters, versions and the state of optimizers are
those of the checkpoint (`simulation.rollback`). Where workers go on without each other
(asynchronous SGD, bounded staleness, backup workers), one that fails loses the step under way and
the time until it is back, and parameters stay (`simulation.failures_kernel`); its failures pass
while the job works, not while all wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from paracosm.faults import JobFailures, Mtbf, failure_instants
from paracosm.results import FailureSummary
from paracosm.rng import FailureStream, integer_seed, stream_keys
from paracosm.simulation.rollback import Checkpoint, Restore, with_rollbacks
from paracosm.simulation.schedule import Rule, Schedule
from paracosm.simulation.system import System

Block = Schedule | Checkpoint | Restore
Life = Callable[[int, Callable[[System], System]], Iterator[Schedule]]
"""From a seed, and what makes of a system one whose workers fail, to a schedule that begins at 0.
It has to go on for as long as the job may."""


def stops_together(rule: Rule) -> bool:
    """Whether a job by this rule cannot do without any of its workers."""
    return rule.answers == "all"


class FailingJob:
    """A job with nodes that fail: `blocks` is its schedule, `summary` what came of it."""

    def __init__(
        self,
        failures: JobFailures,  # what failures do to it
        mtbf: Mtbf,
        *,
        workers: int,
        servers: int,
        tensors: int,
        rule: Rule,
        seed: int,  # decides who fails when, whatever the rule
    ) -> None:
        self._failures = failures
        self._mtbf = mtbf
        self._workers = workers
        self._servers = servers
        self._tensors = tensors
        self._together = stops_together(rule)
        self._seed = seed
        self._marks: list[_Work | Checkpoint | Restore] = []
        self._newest: Schedule | None = None

    def blocks(self, life: Life) -> Iterator[Block]:
        """Yield the schedule of the job, with what happens to all of it between the blocks.

        Each life draws durations, and failures of single workers, of its own.
        """
        failures = self._failures
        events = with_rollbacks(
            lambda number: life(self._seed_of(number), lambda own: self._failing(own, number)),
            failure_instants(
                self._mtbf, self._workers if self._together else 0, self._servers, self._seed
            ),
            workers=self._workers,
            tensors=self._tensors,
            restart=failures.restart,
            interval=failures.interval,
            cost=failures.cost,
            in_step=self._together,
        )
        for event in events:
            self._fold()
            if isinstance(event, Schedule):
                self._newest = event
            else:
                self._marks.append(event)
            yield event

    def summary(self, end: float) -> FailureSummary:
        """Return what failures have cost up to an instant in the newest block, in seconds."""
        last = round(end * 1e12)
        counted = _Counts()
        for mark in self._marks:
            counted.add(mark, last)
        if self._newest is not None:
            counted.add(_work(self._newest, last), last)
        failures, workers = self._failures, self._workers
        total = max(last, 1)
        away = min(counted.failures * round(failures.restart * 1e12), workers * total)
        saving, stopped = counted.saving / total, counted.stopped / total
        lost = counted.lost / total + counted.abandoned / total / workers
        restarting = stopped + away / total / workers
        running = last - counted.saving - counted.stopped
        made = counted.kept + counted.undone
        return FailureSummary(
            job_mtbf=None if failures.mtbf == inf else failures.mtbf,
            worker_mtbf=None if failures.worker_mtbf == inf else failures.worker_mtbf,
            interval=failures.interval,
            checkpoint_cost=failures.cost,
            restart_cost=failures.restart,
            stops=counted.stops,
            failures=counted.failures,
            checkpoints=counted.checkpoints,
            effective=max(0.0, 1 - saving - lost - restarting),
            lost=lost,
            saving=saving,
            restarting=restarting,
            waiting=stopped * (workers - 1) / workers,
            throughput=made / running * 1e12 if running > 0 else 0.0,
            goodput=counted.kept / total * 1e12,
        )

    def _seed_of(self, life: int) -> int:
        return integer_seed(self._seed, FailureStream.LIVES, life) if life else self._seed

    def _failing(self, system: System, life: int) -> System:
        """Return the system with workers that fail each by itself, where they do."""
        if self._failures.worker_mtbf == inf:
            return system
        keys = stream_keys(self._seed_of(life), FailureStream.WORKERS, self._workers)
        return replace(
            system,
            mtbf=self._failures.worker_mtbf,
            restart=self._failures.restart,
            failure_keys=keys,
        )

    def _fold(self) -> None:
        """Keep of the newest block what `summary` needs of it."""
        if self._newest is not None:
            self._marks.append(_work(self._newest, int(np.iinfo(np.int64).max)))
            self._newest = None


@dataclass(frozen=True)
class _Work:
    """What was done in a block."""

    steps: int  # that count
    abandoned: int  # picoseconds of steps that do not: lost with their workers, or too late
    failures: int  # of single workers


def _work(block: Schedule, last: int) -> _Work:
    steps = block.steps[block.steps["end"] <= last]
    counts = steps["accepted"] != 0
    spent = steps["end"][~counts] - steps["begin"][~counts]
    return _Work(int(counts.sum()), int(spent.sum()), block.failures)


@dataclass
class _Counts:
    """Picoseconds of the whole job or, abandoned, of one worker; steps of all workers."""

    saving: int = 0
    stopped: int = 0
    lost: int = 0
    abandoned: int = 0
    stops: int = 0
    failures: int = 0
    checkpoints: int = 0
    kept: int = 0
    unsaved: int = 0
    undone: int = 0

    def add(self, mark: _Work | Checkpoint | Restore, last: int) -> None:
        """Count what happened up to an instant."""
        if isinstance(mark, _Work):
            self.kept += mark.steps
            self.unsaved += mark.steps
            self.abandoned += mark.abandoned
            self.failures += mark.failures
        elif isinstance(mark, Checkpoint):
            self.saving += max(0, min(mark.end, last) - mark.begin)
            if mark.end <= last:
                self.checkpoints += 1
                self.unsaved = 0
        elif mark.failed <= last:
            self.stopped += min(mark.end, last) - mark.failed
            self.saving += mark.saving
            self.lost += mark.lost
            self.stops += mark.failures
            self.kept -= self.unsaved
            self.undone += self.unsaved
            self.unsaved = 0

"""Jobs whose nodes fail: their schedules and their effective share of the time.

Two things happen. Where every update needs a gradient of every worker (synchronous SGD), and
wherever a parameter server fails, the whole job stops: work since its newest checkpoint is lost,
all wait for the restart, and parameters, versions and the state of optimizers are those of the
checkpoint (`simulation.rollback`). Where workers continue without each other (asynchronous SGD,
bounded staleness, backup workers), one that fails loses its current step and the time until it is
back, and parameters stay (`simulation.failures_kernel`); its failures happen while the job runs,
not while all wait.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from paracosm.faults.node_failures import JobFailures, failure_instants
from paracosm.network.clock import LAST_INSTANT
from paracosm.results import FailureSummary
from paracosm.rng import FailureStream, integer_seed, stream_keys
from paracosm.simulation.rollback import Block, Checkpoint, Restore, with_rollbacks
from paracosm.simulation.rules import Rule
from paracosm.simulation.schedule import Schedule
from paracosm.simulation.system import System
from paracosm.training.failures.recovery import FailureCosts

Life = Callable[[int, Callable[[System], System]], Iterator[Schedule]]
"""From a seed, and what makes of a system one whose workers fail, to a schedule that begins at 0.
It has to go on for as long as the job may."""


def failing_schedule(
    life: Life,
    failures: JobFailures | None,
    *,
    workers: int,
    servers: int,
    tensors: int,
    rule: Rule,
    seed: int,
) -> Iterator[Block]:
    """Yield the schedule of a job, with events of the whole job between its blocks.

    Each life draws durations, and failures of single workers, of its own. When a node fails that
    stops the whole job, depends on the seed alone, so that designs meet the same failures.

    Args:
        life: makes a schedule of the job, as it is from its begin or a restart.
        failures: what they do to the job; None: nothing fails.
        workers, servers, tensors: how many there are.
        rule: by which the job updates.
        seed: decides who fails when.
    """
    if failures is None:
        return iter(life(seed, lambda system: system))
    job = failures

    def seed_of(number: int) -> int:
        return integer_seed(seed, FailureStream.LIVES, number) if number else seed

    def with_failures(system: System, number: int) -> System:
        if job.worker_mtbf == inf:
            return system
        keys = stream_keys(seed_of(number), FailureStream.WORKERS, workers)
        return replace(system, mtbf=job.worker_mtbf, restart=job.restart, failure_keys=keys)

    return with_rollbacks(
        lambda number: life(seed_of(number), lambda system: with_failures(system, number)),
        failure_instants(job.nodes, workers if rule.needs_all else 0, servers, seed),
        workers=workers,
        tensors=tensors,
        restart=job.restart,
        interval=job.interval,
        cost=job.cost,
        in_step=rule.needs_all,
    )


class FailureRecord:
    """The cost of failures to a run that follows a schedule."""

    def __init__(self, failures: JobFailures, workers: int) -> None:
        self._failures = failures
        self._workers = workers
        self._marks: list[_Work | Checkpoint | Restore] = []
        self._newest: Schedule | None = None

    def watch(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the same blocks, and record them."""
        for block in blocks:
            if self._newest is not None:
                self._marks.append(_work(self._newest, LAST_INSTANT))
                self._newest = None
            if isinstance(block, Schedule):
                self._newest = block
            else:
                self._marks.append(block)
            yield block

    def summary(self, end: float) -> FailureSummary:
        """Return the cost of failures up to an instant in the newest block, in seconds."""
        last = round(end * 1e12)
        counted = _Counts(self._workers)
        for mark in self._marks:
            counted.add(mark, last)
        if self._newest is not None:
            counted.add(_work(self._newest, last), last)
        failures = self._failures
        restart = round(failures.restart * 1e12)
        counted.failures = len(counted.failed)
        counted.away = sum(min(restart, last - instant) for instant in counted.failed)
        return counted.summary(
            last,
            1e12,
            job_mtbf=None if failures.mtbf == inf else failures.mtbf,
            worker_mtbf=None if failures.worker_mtbf == inf else failures.worker_mtbf,
            interval=failures.interval,
            checkpoint_cost=failures.cost,
            restart_cost=failures.restart,
        )


def with_lasting_blocks(blocks: Iterable[Block], kept: list[Schedule]) -> Iterator[Block]:
    """Yield the same blocks; `kept` collects those that no failure undoes."""
    saved = 0
    for block in blocks:
        if isinstance(block, Schedule):
            kept.append(block)
        elif isinstance(block, Checkpoint):
            saved = len(kept)
        else:
            del kept[saved:]
        yield block


@dataclass(frozen=True)
class _Work:
    """The work done in a block."""

    steps: int  # that count
    abandoned: int  # picoseconds of steps that do not: lost with their workers, or too late
    failed: list[int]  # when single workers did


def _work(block: Schedule, last: int) -> _Work:
    steps = block.steps[block.steps["end"] <= last]
    counts = steps["accepted"] != 0
    spent = steps["end"][~counts] - steps["begin"][~counts]
    failed = block.failures["time"]
    return _Work(int(counts.sum()), int(spent.sum()), failed[failed <= last].tolist())


@dataclass
class _Counts(FailureCosts):
    """The costs so far in picoseconds, steps since the newest checkpoint, and who failed when."""

    unsaved: int = 0
    failed: list[int] = field(default_factory=list)

    def add(self, mark: _Work | Checkpoint | Restore, last: int) -> None:
        """Count what happened up to an instant."""
        if isinstance(mark, _Work):
            self.kept += mark.steps
            self.unsaved += mark.steps
            self.abandoned += mark.abandoned
            self.failed += mark.failed
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

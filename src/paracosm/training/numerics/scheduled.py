"""Real gradients over a schedule of reads and updates that is known beforehand.

Durations that are modelled do not depend on values, and those of a recorded run are past, so a
schedule comes first and numerics after. Each tensor has a version of its own. A gradient is one at
the mixed snapshot of the versions that its step has read, and changes each tensor when the schedule
says so; what an update makes of gradients is the algorithm's `weight` and `direction`, as on the
engine.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError
from paracosm.network.clock import LAST_INSTANT
from paracosm.results.metrics import MetricSink
from paracosm.results.summaries import Staleness
from paracosm.simulation.rollback import Block, Checkpoint
from paracosm.simulation.schedule import Schedule, read_schedule
from paracosm.training.config import ScheduleTrainConfig, TrainConfig
from paracosm.training.numerics.prepare import prepare_numerics
from paracosm.training.numerics.store import Contribution, Gradient, Numerics, Rule, Store
from paracosm.training.privacy import Draw
from paracosm.training.record import (
    Ended,
    Metrics,
    Progress,
    RunRecord,
    TrainingResult,
    play_to_end,
    summarise,
)

_MOST = 1000  # steps, workers or tensors for each row of a schedule's file
_BINS = 100  # of a histogram of staleness, at most


def train_on_schedule(
    config: TrainConfig,  # what to train and how; its cluster names the workers
    blocks: Iterable[Block],  # consecutive: none has a row earlier than one before it
    tensors: Sequence[str],  # names by number; none: the parts of the configuration's servers
    seed: int = 0,  # of the initial model and each worker's batches, as in `train`
    metrics: MetricSink | None = None,  # records the metrics; by default in memory
    progress: Progress | None = None,  # called after every update
    backend: Backend = HERE,  # a cluster computes the gradients that wait together
) -> TrainingResult:
    """Train over a schedule.

    The run ends with its updates, at its virtual time, when it has reached its target, or with the
    schedule; an interrupt or divergence ends it as in `train`. An update of the run is
    one of every tensor. Steps that the schedule says were dropped are not computed unless they wait
    beside others. A `Checkpoint` saves parameters, versions and the state of optimizers; a
    `Restore` puts back what was saved last, and each worker goes on through its minibatches.

    Raises:
        InputError: the configuration cannot be used; the tensors are not the model's parameters;
            values decide what the algorithm does; the schedule contradicts itself.
    """
    cluster = config.resolve_cluster()
    config.check(cluster)
    algorithm, workers = config.algorithm, cluster.workers
    if config.timing_only:
        raise InputError("timing_only: over a schedule there is nothing but gradients to compute")
    if algorithm.rule(len(workers)) is None:
        raise InputError(
            f"{algorithm} does more than a schedule of reads and updates can describe: leave the "
            "schedule out, or choose asgd, ssp, ssgd, ..."
        )
    if config.privacy_of("clients"):
        raise InputError(
            "privacy: a schedule updates tensors separately, so it cannot clip a client's whole "
            "change: use examples(...), or leave out the schedule or profile"
        )
    metrics = Metrics() if metrics is None else metrics
    servers = len(cluster.servers) or 1
    numerics = prepare_numerics(config, seed, len(workers), servers, tensors, backend=backend)
    try:
        run = _Run(config, numerics, workers, tensors, metrics, progress)
        status = run.follow(blocks)
        summary = summarise(
            config,
            seed,
            cluster,
            run.record,
            numerics,
            status=status,
            end=run.now,
            servers=servers,
            dropped=run.dropped,
            durations={"schedule": "who reads and updates what, and when, was given"},
        )
        summary = replace(summary, staleness=run.staleness())
        average = None if run.record.average is None else run.record.average.value
        return TrainingResult(
            summary,
            None,
            None,
            metrics,
            numerics.flat(run.parameters()),
            average=None if average is None else numerics.flat(average),
        )
    finally:
        numerics.close()


def train_over_file(
    config: ScheduleTrainConfig,
    seed: int,
    metrics: MetricSink | None = None,
    progress: Progress | None = None,
    backend: Backend = HERE,
) -> TrainingResult:
    """Train over the schedule in a file, by as many workers as it has; see `train_on_schedule`.

    Where the configuration says nothing of it, the run ends with the schedule.
    """
    path = config.schedule  # that `Schedule.write` has written
    schedule = read_schedule(path)
    if not len(schedule.updates):
        raise InputError(f"{path}: the schedule has no updates")
    both, counts = (schedule.reads, schedule.updates), []
    for name in ("worker", "step", "tensor"):
        counts.append(1 + max(int(rows[name].max(initial=0)) for rows in both))
        if counts[-1] > _MOST * (len(both[0]) + len(both[1]) + len(schedule.steps)):
            raise InputError(f"{path}: {name} {counts[-1] - 1:,} is too large for this schedule")
    workers = counts[0]
    updates = config.updates
    if updates is None and config.until_time is None:
        updates = _whole_updates(schedule)
        config.check_recipe(updates)
    coarse, tensors = config.on_workers(workers, updates), schedule.tensors
    result = train_on_schedule(coarse, [schedule], tensors, seed, metrics, progress, backend)
    return replace(result, schedule=schedule)


def _whole_updates(schedule: Schedule) -> int:
    newest = np.zeros(1 + int(schedule.updates["tensor"].max()), np.int64)
    np.maximum.at(newest, schedule.updates["tensor"], schedule.updates["version"])
    return max(1, int(newest.min()))


@dataclass(eq=False, slots=True)
class _Step:
    parts: list[Any]  # by tensor, as it was read
    versions: list[int]
    unread: int
    not_updated: int
    gradient: Gradient | None = None
    ages: int = 0  # staleness, added up over the tensors that it has updated


class _Run:
    def __init__(
        self,
        config: TrainConfig,
        numerics: Numerics,
        workers: Sequence[str],
        tensors: Sequence[str],
        sink: MetricSink,
        progress: Progress | None,
    ) -> None:
        algorithm = config.algorithm
        self.now = 0.0  # virtual time
        self.dropped = 0
        self.record = RunRecord(config, numerics, sink, progress, lambda: self.now, self.parameters)
        self._config = config
        self._numerics = numerics
        self._workers = workers
        self._until = inf if config.until_time is None else config.until_time
        initial = numerics.initial()
        self._initial = [initial[part] for part in numerics.parts]
        # Of what `join` makes; None where that is the only part itself
        is_whole = len(self._initial) == 1 and not tensors
        self._parts = [None] if is_whole else list(numerics.parts)
        self._names = tensors or [f"part {part}" for part in range(len(self._initial))]
        self._ages: list[Counter[int]] = [Counter() for _ in self._initial]
        is_outer = algorithm.outer() is not None
        self._stores = [
            Store(
                part,
                algorithm.outer() or numerics.rule(),
                _not_recorded,
                numerics.real,
                algorithm,
                len(workers),
                numerics.outer_recipe(index) if is_outer else numerics.recipe,
            )
            for index, part in enumerate(self._initial)
        ]
        self._sends_changes = algorithm.outer() is not None
        self._own_rules: dict[tuple[int, int], Rule] = {}  # by worker and tensor, where it does
        self._steps: dict[tuple[int, int], _Step] = {}  # by worker and number, those under way
        self._begun = [0] * len(workers)  # how many steps of each worker
        self._saved = [store.save() for store in self._stores]
        self._count_behind()

    def parameters(self) -> Any:
        return self._numerics.join([store.parameters for store in self._stores])

    def staleness(self) -> dict[str, Staleness]:
        """Return the staleness of the gradients that went into each tensor, by its name."""
        return {
            name: _distribution(ages)
            for name, ages in zip(self._names, self._ages, strict=True)
            if ages
        }

    def follow(self, blocks: Iterable[Block]) -> str:
        """Execute the schedule; return the run's status."""
        return play_to_end(self.record, lambda interrupted: self._follow(blocks, interrupted))

    def _follow(self, blocks: Iterable[Block], interrupted: list[bool]) -> None:
        following = _Followed(blocks)
        for what, rows in events(following):
            if interrupted:
                break
            if what == "update":
                self._update(rows)
            elif what == "read":
                self._read(*rows[0])
            elif what == "drop":
                self._drop(*rows[0])
            elif what == "save":
                self._saved = [store.save() for store in self._stores]
                self.record.saved()
            else:
                self._restore()
        self.now = max(self.now, following.end)

    def _read(self, time: int, worker: int, number: int, tensor: int, version: int) -> None:
        """Read a tensor for a worker's step; after the last one, request its gradient."""
        store = self._store(tensor)
        if store.version != version:
            raise InputError(
                f"schedule: worker {worker} reads version {version} of {self._names[tensor]} at "
                f"{time / 1e12:.12g} s, when there is version {store.version}"
            )
        step = self._steps.get((worker, number)) or self._step(worker, number)
        if step.gradient is not None:
            raise InputError(
                f"schedule: step {number} of worker {worker} reads {self._names[tensor]} at "
                f"{time / 1e12:.12g} s, after its last read"
            )
        step.parts[tensor] = store.parameters
        step.versions[tensor] = version
        step.unread -= 1
        if not step.unread:
            self._ask(worker, step)

    def _update(self, rows: list[tuple[int, ...]]) -> None:
        time, _, _, tensor, version, _ = rows[0]
        store, record = self._store(tensor), self.record
        now, before = time / 1e12, store.version
        if now > self._until:
            self.now = self._until
            raise Ended
        self.now = now
        if version != before + 1:
            raise InputError(
                f"schedule: version {version} of {self._names[tensor]} at {now:.12g} s follows "
                f"version {before}"
            )
        part, counts = self._parts[tensor], self._ages[tensor]
        contributions: list[Contribution] = []
        taken: list[Contribution] = []  # of steps that have now updated every tensor
        ages: list[float] = []
        for _, worker, number, _, _, read in rows:
            step = self._steps.get((worker, number)) or self._step(worker, number)
            gradient = step.gradient or self._ask(worker, step)
            if step.versions[tensor] != read:
                raise InputError(
                    f"schedule: step {number} of worker {worker} updates {self._names[tensor]} as "
                    f"of version {read}, having read version {step.versions[tensor]}"
                )
            made = Contribution(gradient, gradient, part, read, store)
            if self._sends_changes:
                made.part, made.payload = None, self._change(worker, tensor, made, read)
            contributions.append(made)
            counts[before - read] += 1
            step.ages += before - read
            step.not_updated -= 1
            if not step.not_updated:
                taken.append(made)
                ages.append(step.ages / len(self._stores))
                del self._steps[worker, number]
        store.apply(contributions)
        record.released(contributions)
        if version == record.updates + 1:
            self._behind -= 1
        is_last = not self._behind
        if taken:
            record.gradients(record.updates + is_last, taken, ages)
        if is_last:
            record.updated()
            self._count_behind()
            if record.updates >= self._config.most_updates:
                raise Ended

    def _count_behind(self) -> None:
        """Count the tensors that have not yet had their part in the next update of the run."""
        self._behind = sum(store.version <= self.record.updates for store in self._stores)

    def _drop(self, time: int, worker: int, number: int) -> None:
        self._step(worker, number)
        self._forget(worker, number)
        self.dropped += 1

    def _forget(self, worker: int, number: int) -> None:
        """Never compute the gradient of a step, but take its minibatch."""
        step = self._steps.pop((worker, number))
        (step.gradient or self._ask(worker, step)).pending.discard()

    def _restore(self) -> None:
        """Restore what was saved last; steps under way are lost."""
        for store, saved in zip(self._stores, self._saved, strict=True):
            store.restore(saved)
        for worker, number in list(self._steps):
            self._forget(worker, number)
        self._own_rules.clear()
        self.record.restored(min(store.version for store in self._stores))
        self._count_behind()

    def _store(self, tensor: int) -> Store:
        if tensor >= len(self._stores):
            raise InputError(
                f"schedule: it has a tensor of number {tensor}, the model {len(self._stores)} "
                "tensors or parts"
            )
        return self._stores[tensor]

    def _step(self, worker: int, number: int) -> _Step:
        """Return a step of a worker; as it begins, earlier ones have read what they will read."""
        if worker >= len(self._workers):
            raise InputError(
                f"schedule: it has a worker of number {worker}, the cluster "
                f"{len(self._workers)} workers"
            )
        while self._begun[worker] <= number:
            last = self._steps.get((worker, self._begun[worker] - 1))
            if last is not None and last.gradient is None:
                self._ask(worker, last)
            count = len(self._stores)
            step = _Step(self._initial.copy(), [0] * count, count, count)
            self._steps[worker, self._begun[worker]] = step
            self._begun[worker] += 1
        if (worker, number) not in self._steps:
            raise InputError(f"schedule: step {number} of worker {worker} continues after its end")
        return self._steps[worker, number]

    def _ask(self, worker: int, step: _Step) -> Gradient:
        flat = self._numerics.join(step.parts)
        numerics = self._numerics
        pending, size = numerics.request(worker, flat), numerics.batch_of(worker)
        step.gradient = Gradient(
            self._workers[worker],
            worker,
            flat,
            step.versions,
            size,
            pending,
            weight=numerics.weight_of(worker),
            draws=(Draw(worker, {size: 1}),),
        )
        step.parts = []
        return step.gradient

    def _change(self, worker: int, tensor: int, gradient: Contribution, version: int) -> Any:
        rule = self._own_rules.setdefault((worker, tensor), self._numerics.rule())
        read, factor = gradient.read_parameters, self._numerics.recipe.lr_factor(version)
        shrink = self._numerics.recipe.shrink(gradient.whole)
        value = gradient.value if shrink == 1 else shrink * gradient.value
        return read - rule(read, value, factor)


def _not_recorded(store: Store, contributions: Sequence[Contribution], ages: Sequence[int]) -> None:
    """Do not record an update: the run does, after that of the last tensor."""


Event = tuple[Literal["read", "update", "drop", "save", "restore"], list[tuple[int, ...]]]


def events(blocks: Iterable[Block]) -> Iterator[Event]:
    """Yield what happens in a schedule, in order, however it is divided into blocks.

    A read (time, worker, step, tensor, version); an update, all rows of a tensor's version (time,
    worker, step, tensor, version, read); a drop (end, worker, step). At one instant a read comes
    before an update as soon as the version that it names is there, and a drop after both. What
    happens to the whole job, which saves or restores its parameters, comes between blocks.
    """
    reads: deque[tuple[int, ...]] = deque()
    drops: deque[tuple[int, ...]] = deque()
    held: list[tuple[int, ...]] = []  # an update whose last rows may be in the next block
    made: Counter[int] = Counter()  # by tensor, its version
    saved = made.copy()

    def before(now: int) -> Iterator[Event]:
        while drops or reads:
            is_read = reads and (
                reads[0][0] < now or (reads[0][0] == now and reads[0][4] <= made[reads[0][3]])
            )
            if is_read and not (drops and drops[0][0] < reads[0][0]):
                yield "read", [reads.popleft()]
            elif drops and drops[0][0] < now:
                yield "drop", [drops.popleft()]
            else:
                return

    def update(rows: list[tuple[int, ...]]) -> Iterator[Event]:
        yield from before(rows[0][0])
        made[rows[0][3]] = rows[0][4]
        yield "update", rows

    def all_so_far() -> Iterator[Event]:
        nonlocal held
        if held:
            yield from update(held)
            held = []
        yield from before(LAST_INSTANT)

    for block in blocks:
        if not isinstance(block, Schedule):
            yield from all_so_far()
            if isinstance(block, Checkpoint):
                saved = made.copy()
                yield "save", []
            else:
                made = saved.copy()
                yield "restore", []
            continue
        reads.extend(block.reads.tolist())
        late = block.steps[block.steps["accepted"] == 0]
        drops.extend(sorted(late[["end", "worker", "step"]].tolist()))
        groups = [
            list(rows)
            for _, rows in groupby([*held, *block.updates.tolist()], key=itemgetter(3, 4))
        ]
        held = groups.pop() if groups else []
        for rows in groups:
            yield from update(rows)
    yield from all_so_far()


class _Followed:
    """Blocks of a schedule, and the virtual time at which those that were seen end."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = blocks
        self.end = 0.0

    def __iter__(self) -> Iterator[Block]:
        for block in self._blocks:
            self.end = block.end / 1e12
            yield block


def _distribution(ages: Counter[int]) -> Staleness:
    width = -(-(max(ages) + 1) // _BINS)
    counts = [0] * (max(ages) // width + 1)
    for age, count in ages.items():
        counts[age // width] += count
    mean = sum(age * count for age, count in ages.items()) / ages.total()
    return Staleness(mean=mean, max=max(ages), width=width, counts=counts)

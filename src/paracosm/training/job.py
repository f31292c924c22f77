"""One run: what counts as an update, what is measured of it, when it is over.

Rows of the long table (node, name, value, step) that `train` writes, to anything with a `metric`
method, such as a run folder:

- at each update, node = the worker whose gradient it was, step = the update's number (from 1):
  `minibatch_loss`, `staleness`;
- at each update besides, node = "job": `examples` (consumed so far);
- at each evaluation, node = "evaluation", step = the number of updates so far: `loss` (over the
  training set), `test_loss`, `accuracy` (over the test set), `examples`; of large sets, over the
  examples that `evaluate_examples` allows;
- at the end, node = a worker or server, step = the number of updates: `utilisation.compute`,
  `utilisation.send`, `utilisation.receive`, fractions of the virtual time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from paracosm.cluster import Cluster
from paracosm.engine import Simulator
from paracosm.simulation.schedule import Schedule
from paracosm.training.config import TrainConfig
from paracosm.training.roles import Team
from paracosm.training.store import Contribution, Numerics, Store

_EVALUATIONS = 60  # in a run, unless it says how often

Progress = Callable[[int, float], None]
"""Called after every update with the number of updates and the virtual time."""


@dataclass(frozen=True)
class Divergence:
    """The first gradient whose loss exploded or was not a number."""

    update: int
    worker: str
    staleness: int
    loss: float

    def __str__(self) -> str:
        what = "is not finite" if not math.isfinite(self.loss) else f"exploded to {self.loss:.3g}"
        return (
            f"the loss {what} at update {self.update}, by a gradient of {self.worker} "
            f"that was {self.staleness} updates old"
        )


class _Evaluations:
    """When to evaluate: every so many updates, or so much virtual time where that ends the run."""

    def __init__(self, config: TrainConfig) -> None:
        by_time = config.until if config.updates is None and config.evaluate_every is None else None
        self._seconds = None if by_time is None else by_time / _EVALUATIONS
        self._updates = config.evaluate_every or max(1, config.most_updates // _EVALUATIONS)
        self._next = self._seconds or 0.0

    def due(self, updates: int, now: float) -> bool:
        if self._seconds is None:
            return updates % self._updates == 0
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class Diverged(Exception):  # noqa: N818 - not an error of the program: it ends a run
    """The run ends because its loss exploded."""


class Job(Team):
    """A run and what was recorded of it."""

    def __init__(
        self,
        config: TrainConfig,
        seed: int,
        cluster: Cluster,
        numerics: Numerics,
        sim: Simulator,
        sink: MetricSink,
        progress: Progress | None,
    ) -> None:
        super().__init__(
            sim,
            cluster,
            config.resolve_topology(),
            numerics,
            seed,
            config.compute_distribution(),
            config.update_time,
            config.batch,
            config.most_updates,
            config.algorithm.work,
            config.algorithm.serve,
        )
        self.config = config
        self.updates = 0
        self.examples = 0
        self.staleness_total = 0
        self.contributions = 0
        self.end: float | None = None
        self.divergence: Divergence | None = None
        self.final: dict[str, float] = {}
        self.stores: list[Store] = []
        self._metric = sink.metric
        self._progress = progress
        self._evaluations = _Evaluations(config)
        self._newest: tuple[str, int] | None = None
        self._started = time.perf_counter()

    @property
    def wall_time(self) -> float:
        return time.perf_counter() - self._started

    def new_store(self, parameters: Any) -> Store:
        """Return a store whose updates this job is told of."""
        store = Store(
            *(parameters, self.numerics.rule(), self.updated, self.numerics.real),
            *(self.config.algorithm, len(self.workers)),
        )
        self.stores.append(store)
        return store

    def parameters(self) -> Any:
        """Return the flat vector that the run has reached: of the servers, or the peers' mean."""
        if self.topology == "peers":
            return sum(store.parameters for store in self.stores) / len(self.stores)
        return self.numerics.join([store.parameters for store in self.stores])

    def updated(
        self, store: Store, contributions: Sequence[Contribution], staleness: Sequence[int]
    ) -> None:
        """Record an update of one store.

        Contributions are recorded at the first server, each once; the last one makes the update.
        """
        if store is self.stores[0] or self.topology != "server":
            step = store.version if self.topology == "server" else self.updates + 1
            self._record(step, contributions, staleness)
        if self.topology == "server" and min(s.version for s in self.stores) == self.updates:
            return
        self.updates += 1
        if self.numerics.real and self._evaluations.due(self.updates, self._sim.now):
            self.evaluate()
        if self.divergence is not None and not self.config.keep_going:
            raise Diverged
        if self._progress is not None:
            self._progress(self.updates, self._sim.now)
        if self.updates >= self.last_update and self.topology != "server":
            self._sim.stop()

    def _record(
        self, step: int, contributions: Sequence[Contribution], staleness: Sequence[int]
    ) -> None:
        now = self.end = self._sim.now
        wall = self.wall_time
        self.contributions += len(contributions)
        self.staleness_total += sum(staleness)
        for contribution, age in zip(contributions, staleness, strict=True):
            worker = contribution.worker
            self.examples += contribution.gradient.examples
            self._metric(now, wall, worker, "staleness", age, step)
            if self.numerics.real:
                loss = contribution.gradient.loss
                self._metric(now, wall, worker, "minibatch_loss", loss, step)
                self._judge(step, worker, age, loss)
        self._metric(now, wall, "job", "examples", self.examples, step)

    def _judge(self, step: int, worker: str, age: int, loss: float) -> None:
        """Note the first loss that exploded; written so that one that is not a number counts."""
        self._newest = (worker, age)
        if self.divergence is None and not loss <= self.config.loss_limit:
            self.divergence = Divergence(step, worker, age, loss)

    def adopt(self, schedule: Schedule) -> None:
        """Record the updates of a schedule that was played without this job.

        Several servers make the same updates, each of its part: those of the first tensor count.
        """
        own = schedule.updates["tensor"] == 0
        rows, ages = schedule.updates[own], schedule.staleness[own]
        wall, batch, names, metric = self.wall_time, self.config.batch, self.workers, self._metric
        columns = ((rows["time"] / 1e12).tolist(), rows["worker"].tolist(), ages.tolist())
        steps = rows["version"].tolist()
        following = [*steps[1:], 0]
        for number, (now, worker, age) in enumerate(zip(*columns, strict=True)):
            metric(now, wall, names[worker], "staleness", age, steps[number])
            if following[number] != steps[number]:
                metric(now, wall, "job", "examples", (number + 1) * batch, steps[number])
        self.updates = self.last_update
        self.contributions = len(rows)
        self.examples = self.contributions * batch
        self.staleness_total = int(ages.sum())
        self.dropped = schedule.dropped
        self.end = float(rows["time"][-1]) / 1e12
        if self._progress is not None:
            self._progress(self.updates, self.end)

    def evaluate(self) -> None:
        """Evaluate the parameters as they are now, unless that was done at this update."""
        if self.final.get("step") == self.updates:
            return
        metrics = self.numerics.evaluate(self.parameters())
        now, wall = self._sim.now, self.wall_time
        for name, value in metrics.items():
            self._metric(now, wall, "evaluation", name, value, self.updates)
        self._metric(now, wall, "evaluation", "examples", self.examples, self.updates)
        self.final = {**metrics, "step": self.updates}
        if self._newest is not None:
            self._judge(self.updates, *self._newest, metrics["loss"])


class MetricRow(NamedTuple):
    """One measurement; times in seconds."""

    virtual_time: float
    wall_time: float
    node: str
    name: str
    value: float
    step: int


class MetricSink(Protocol):
    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None: ...


class Metrics:
    """A sink that keeps the rows in memory."""

    def __init__(self) -> None:
        self.rows: list[MetricRow] = []

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        self.rows.append(MetricRow(virtual_time, wall_time, node, name, value, step))

    def series(self, name: str) -> list[MetricRow]:
        """Return the rows called `name`, in the order in which they were made."""
        return [row for row in self.rows if row.name == name]

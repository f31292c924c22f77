"""The record of a run (rows, updates, divergence, and target), and its result.

Rows of the long table (node, name, value, step; docs/run-folder.md) go to anything with a `metric`
method, such as a run folder. An update of the job is one of every tensor or of every server's part.
Where a gradient changes several tensors, each at a time of its own, its rows stand at the last of
them, and its staleness is the mean over them; of several servers or fragments on the engine, the
first one's rows count.
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from threading import current_thread, main_thread
from typing import Any, NamedTuple

import numpy as np

from paracosm.cluster import Cluster
from paracosm.cluster.description import describe_cluster
from paracosm.engine import Recording
from paracosm.errors import InputError
from paracosm.results import ClientQuality, ThroughputRow, TrainingSummary
from paracosm.results.metrics import MetricSink
from paracosm.simulation.schedule import Schedule
from paracosm.timeline import Timeline
from paracosm.training.by_client import Kind, quality_of
from paracosm.training.config import TrainConfig
from paracosm.training.learning_rate import describe_learning_rate
from paracosm.training.numerics.store import Contribution, Gradient, Numerics
from paracosm.training.target import FirstPassage

AT_ONCE = 100_000
"""Updates at one instant, or ten of each worker, after which a run that ends by time never will."""

_EVALUATIONS = 60  # in a run, unless it says how often

_RESOLUTION = 50
"""Evaluations of a run to a target are at most this part of its updates apart, unless it says how
often: the time to the target is then known to 2 %, however many updates it takes."""

Progress = Callable[[int, float], None]
"""Called after every update with the number of updates and the virtual time."""


class MetricRow(NamedTuple):
    """One measurement; times in seconds."""

    virtual_time: float
    wall_time: float
    node: str
    name: str
    value: float
    step: int


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


@dataclass(frozen=True)
class Divergence:
    """The first gradient whose loss diverged or was not a number."""

    update: int
    worker: str
    staleness: float
    loss: float

    def __str__(self) -> str:
        change = "is not finite" if not math.isfinite(self.loss) else f"rose to {self.loss:.3g}"
        return (
            f"the loss {change} at update {self.update}, by a gradient of {self.worker} "
            f"that was {self.staleness:.4g} updates old"
        )


class Ended(Exception):  # noqa: N818 - not an error of the program: it ends a run
    """Raised to end a run: its loss diverged, or it has reached its target."""


class _Evaluations:
    """Decides when to evaluate, by updates, or by virtual time if that ends the run.

    Towards a target it depends on no other end of the run, so that `train` and every rung of a plan
    evaluate the same parameters.
    """

    def __init__(self, config: TrainConfig) -> None:
        is_by_time = config.updates is None and config.evaluate_every is None
        end = config.until_time if is_by_time else None
        self._seconds = None if end is None else end / _EVALUATIONS
        self._updates = config.evaluate_every or max(1, config.most_updates // _EVALUATIONS)
        self._next = self._seconds or 0.0
        self._is_relative = config.target is not None and config.evaluate_every is None

    def due(self, updates: int, now: float) -> bool:
        if self._is_relative:
            if updates < self._next:
                return False
            self.continue_from(updates)
            return True
        if self._seconds is None:
            return updates % self._updates == 0
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True

    def continue_from(self, updates: int) -> None:
        """Count from so many updates, made or restored, to the next evaluation towards a target."""
        if self._is_relative:
            self._next = updates + max(1, updates // _RESOLUTION)


class RunRecord:
    """The state and results of a run so far.

    Attributes:
        updates: of the job.
        examples: that went into them.
        contributions: gradients that went into them; `staleness_total` the sum over these.
        end: the virtual time of the last update; None before the first.
        divergence: None while the loss is fine.
        passage: of the target; None where a run has none.
        final: the metrics of the newest evaluation, and the update ("step") at which it was made.
        accountant: of privacy; None where nothing is hidden.
        average: of the parameters, which is evaluated in their place; None without one.
        by_client: how well each client is served at the end; None where all share one set.
    """

    def __init__(
        self,
        config: TrainConfig,
        numerics: Numerics,
        sink: MetricSink,
        progress: Progress | None,
        clock: Callable[[], float],  # returns the virtual time
        parameters: Callable[[], Any],  # returns the flat vector that the run has reached
        bytes_sent: Callable[[], float] | None = None,  # returns them, where they are of interest
        counts_sent: bool = False,  # whether what is sent says something of what was sent before
    ) -> None:
        self.updates = 0
        self.examples = 0
        self.contributions = 0
        self.staleness_total = 0.0
        self.end: float | None = None
        self.divergence: Divergence | None = None
        self.passage = None if config.target is None else FirstPassage(config.target)
        self.final: dict[str, float] = {}
        has_average = config.ema is not None and numerics.real
        self.accountant = numerics.accountant()
        self.average = MovingAverage(config.ema or 0.0) if has_average else None
        self.by_client: ClientQuality | None = None
        self._config = config
        self._has_clients = config.clients is not None
        self._numerics = numerics
        self._metric = sink.metric
        self._progress = progress
        self._clock = clock
        self._parameters = parameters
        self._bytes_sent = bytes_sent
        # Then gradients that are dropped show in later messages, and so in updates.
        self._counts_sent = counts_sent and config.privacy_of("examples") is not None
        self._evaluations = _Evaluations(config)
        self._newest: tuple[str, float] | None = None
        self._moved_at, self._before = -1.0, 0  # when the clock moved last, after how many updates
        ends_by_time = config.until_time is not None and config.updates is None
        self._most_at_once = max(AT_ONCE, 10 * config.workers) if ends_by_time else sys.maxsize
        self._started = time.perf_counter()

    @property
    def wall_time(self) -> float:
        return time.perf_counter() - self._started

    @property
    def status(self) -> str:
        """The status of a run that ends now without interrupt."""
        if self.divergence is not None:
            return "diverged"
        return "stopped" if self.passage and self.passage.reached_at is None else "done"

    def gradients(
        self, step: int, contributions: Sequence[Contribution], staleness: Sequence[float]
    ) -> None:
        """Record the gradients that went into update `step`, and how stale they were."""
        now = self.end = self._clock()
        wall, metric, is_real = self.wall_time, self._metric, self._numerics.real
        self.contributions += len(contributions)
        self.staleness_total += sum(staleness)
        for contribution, age in zip(contributions, staleness, strict=True):
            gradient = contribution.gradient
            worker = gradient.worker
            self.examples += gradient.examples
            metric(now, wall, worker, "staleness", age, step)
            if self._has_clients:
                metric(now, wall, worker, "client", gradient.client, step)
            if is_real:
                loss = gradient.loss
                metric(now, wall, worker, "minibatch_loss", loss, step)
                self._judge(step, worker, age, loss)
        metric(now, wall, "job", "examples", self.examples, step)

    def released(self, contributions: Sequence[Contribution]) -> None:
        """Count the privacy loss of an update of any part of the parameters."""
        if self.accountant is not None and not self._counts_sent:
            self.accountant.count([contribution.gradient.draws for contribution in contributions])

    def sent(self, gradient: Gradient) -> None:
        """Count the privacy loss of a message, where it counts before any update."""
        if self.accountant is not None and self._counts_sent:
            self.accountant.count([gradient.draws])

    def _judge(self, step: int, worker: str, age: float, loss: float) -> None:
        """Note the first loss that exploded; written so that one that is not a number counts."""
        self._newest = (worker, age)
        if self.divergence is None and not loss <= self._config.loss_limit:
            self.divergence = Divergence(step, worker, age, loss)

    def updated(self) -> None:
        """Count an update of the job, whose gradients have been recorded.

        Raises:
            Ended: the run is over with it.
        """
        self.updates += 1
        if self.average is not None:
            self.average.update(self._parameters())
        now = self._clock()
        if self._numerics.real and self._evaluations.due(self.updates, now):
            self.evaluate()
        if self.divergence is not None and not self._config.keep_going:
            raise Ended
        if self._progress is not None:
            self._progress(self.updates, now)
        if now > self._moved_at:
            self._moved_at, self._before = now, self.updates
        elif self.updates - self._before > self._most_at_once:
            raise InputError(
                f"virtual time does not advance from {now:g} s, after {self._most_at_once:,} "
                "updates at "
                "that instant: give computing a duration (--compute), or end the run by --updates"
            )
        if self.passage is not None and self.passage.reached_at is not None:
            raise Ended

    def saved(self) -> None:
        """Record that the current parameters have been saved."""
        if self.average is not None:
            self.average.save()

    def note(self, node: str, name: str, value: float) -> None:
        """Record an event between two updates."""
        self._metric(self._clock(), self.wall_time, node, name, value, self.updates)

    def restored(self, updates: int) -> None:
        """Note that the parameters are again those that were saved, after so many updates.

        Counters and metrics are kept; a target met by lost parameters must be met again.
        """
        self.updates = updates
        self._evaluations.continue_from(updates)
        self.final.pop("step", None)
        if self.average is not None:
            self.average.restore()
        if self.passage is not None:
            self.passage.interrupt()

    def evaluate(self) -> None:
        """Evaluate the parameters as they are now, unless that was done at this update."""
        if not self._numerics.real or self.final.get("step") == self.updates:
            return
        average = None if self.average is None else self.average.value
        metrics = self._numerics.evaluate(self._parameters() if average is None else average)
        now, wall = self._clock(), self.wall_time
        for name, value in metrics.items():
            self._metric(now, wall, "evaluation", name, value, self.updates)
        self._metric(now, wall, "evaluation", "examples", self.examples, self.updates)
        if self._config.lr_changes:
            recipe = self._numerics.recipe
            rate = recipe.lr * recipe.lr_factor(self.updates)
            self._metric(now, wall, "evaluation", "learning_rate", rate, self.updates)
        if self.accountant is not None:
            epsilon = self.accountant.epsilon()
            self._metric(now, wall, "evaluation", "epsilon", epsilon, self.updates)
        if (clip := self._numerics.adaptive_clip) is not None:
            self._metric(now, wall, "evaluation", "clip", clip, self.updates)
        if self._bytes_sent is not None:
            self._metric(now, wall, "job", "bytes_sent", self._bytes_sent(), self.updates)
        self.final = {**metrics, "step": self.updates}
        if self._newest is not None:
            self._judge(self.updates, *self._newest, metrics["loss"])
        if self.passage is not None:
            metric = self.passage.target.metric
            if metric not in metrics:
                raise InputError(
                    f'until "{self.passage.target}": the evaluations have no {metric}, '
                    f"only {' and '.join(metrics)}"
                )
            self.passage.see(now, self.updates, metrics[metric])

    def evaluate_clients(self) -> None:
        """Evaluate the last parameters on the examples that each client has, if it has its own."""
        average = None if self.average is None else self.average.value
        parameters = self._parameters() if average is None else average
        numerics, now, wall = self._numerics, self._clock(), self.wall_time
        scores = numerics.evaluate_clients(parameters)
        for client, loss, accuracy in scores:
            self._metric(now, wall, "client", "client_loss", loss, client)
            if accuracy is not None:
                self._metric(now, wall, "client", "client_accuracy", accuracy, client)
            examples = numerics.examples_of(client)
            self._metric(now, wall, "client", "client_examples", examples, client)
        if scores:
            kind: Kind = "test" if numerics.has_own_tests else "training"
            self.by_client = quality_of(scores, numerics.clients, kind)

    def adopt(self, schedule: Schedule, workers: Sequence[str], updates: int) -> None:
        """Record the `updates` of a schedule in which nothing was computed.

        Several servers make the same updates, each of its part: those of the first tensor count.
        """
        own_updates = schedule.updates["tensor"] == 0
        rows, ages = schedule.updates[own_updates], schedule.staleness[own_updates]
        wall, metric = self.wall_time, self._metric
        batches = np.array(self._config.batches(len(workers)))
        examples = np.cumsum(batches[rows["worker"]])
        columns = ((rows["time"] / 1e12).tolist(), rows["worker"].tolist(), ages.tolist())
        steps = rows["version"].tolist()
        following = [*steps[1:], 0]
        for number, (now, worker, age) in enumerate(zip(*columns, strict=True)):
            metric(now, wall, workers[worker], "staleness", age, steps[number])
            if following[number] != steps[number]:
                metric(now, wall, "job", "examples", int(examples[number]), steps[number])
        self.updates = updates
        self.contributions = len(rows)
        self.examples = int(examples[-1])
        self.staleness_total = int(ages.sum())
        self.end = float(rows["time"][-1]) / 1e12
        if self._progress is not None:
            self._progress(self.updates, self.end)


class MovingAverage:
    """The exponential moving average of the parameters.

    average <- decay average + (1 - decay) theta after each update of the run; the first sets it to
    theta, so no bias correction is needed. It is what `torch.optim.swa_utils.AveragedModel` keeps
    with `get_ema_multi_avg_fn(decay)`. Polyak, Juditsky, "Acceleration of Stochastic Approximation
    by Averaging", 1992, has the plain mean.
    """

    def __init__(self, decay: float) -> None:
        self.value: Any = None  # in the form of the parameters; None before the first update
        self._decay = decay
        self._saved: Any = None

    def update(self, parameters: Any) -> None:
        """Include the parameters after an update; they are never changed in place."""
        import torch

        old, weight = self.value, 1 - self._decay
        if old is None:
            self.value = parameters
        elif isinstance(parameters, tuple):
            pairs = zip(old, parameters, strict=True)
            self.value = tuple(torch.lerp(average, new, weight) for average, new in pairs)
        else:
            self.value = torch.lerp(old, parameters, weight)

    def save(self) -> None:
        """Note the average as it is, with a checkpoint of the parameters."""
        self._saved = self.value

    def restore(self) -> None:
        """Go back to the average of the newest checkpoint."""
        self.value = self._saved


def play_to_end(
    record: RunRecord, play: Callable[[list[bool]], None], stop: Callable[[], None] = lambda: None
) -> str:
    """Evaluate, play a run, evaluate where it ended; return its status.

    Args:
        record: of the run.
        play: the run; it is given a list that is empty until Ctrl-C ends it.
        stop: ends `play` where it does not look at the list.
    """
    is_interrupted = False
    record.evaluate()
    try:
        with _interrupt_stops(stop) as interrupted:
            play(interrupted)
        is_interrupted = bool(interrupted)
    except KeyboardInterrupt:
        is_interrupted = True
    except Ended:
        pass
    record.evaluate()
    if not is_interrupted and record.divergence is None:
        record.evaluate_clients()
    return "interrupted" if is_interrupted and record.divergence is None else record.status


@contextmanager
def _interrupt_stops(stop: Callable[[], None]) -> Iterator[list[bool]]:
    """Make Ctrl-C stop the run at a safe point; a second one interrupts at once."""
    interrupted: list[bool] = []

    def interrupt(number: int, frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(True)
        stop()

    usual = signal.default_int_handler
    # Leave a signal that is handled elsewhere or ignored, and threads, alone.
    ours = signal.getsignal(signal.SIGINT) is usual and current_thread() is main_thread()
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        if ours:
            signal.signal(signal.SIGINT, usual)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    summary: TrainingSummary  # the key figures by the names that `summary.json` uses
    recording: Recording | None  # the durations that were measured; None when they were modelled
    timeline: Timeline | None  # every span of the run; None when it was not recorded
    metrics: MetricSink  # recorded the metrics
    # The flat vector that the run ended with (of length zero in timing-only mode)
    parameters: Any = field(repr=False)
    # Who read and updated what; None where the engine ran and kept none
    schedule: Schedule | None = field(default=None, repr=False)
    # The flat vector that was evaluated in place of the parameters; None where these were
    average: Any = field(default=None, repr=False)


def summarise(
    config: TrainConfig,
    seed: int,
    cluster: Cluster,
    record: RunRecord,
    numerics: Numerics,
    *,
    status: str,
    end: float,  # virtual time
    servers: int,
    dropped: int,  # gradients that were not applied
    durations: Mapping[str, str],  # source of each kind of time
) -> TrainingSummary:
    """Return the summary of a run that has ended."""
    # A run that a time ends lasts until then, any other until its last update.
    lasted = end if end == config.until_time else record.end
    rate = record.examples / lasted if lasted else None
    row = ThroughputRow(
        workers=len(cluster.workers),
        steps_per_second=record.contributions / lasted if lasted else None,
        examples_per_second=rate,
    )
    passage = record.passage
    return TrainingSummary(
        status=status,
        algorithm=str(config.algorithm),
        workers=len(cluster.workers),
        servers=servers,
        topology=config.resolve_topology(),
        cluster=describe_cluster(cluster),
        model=config.model,
        data=config.data,
        seed=seed,
        updates=record.updates,
        examples=record.examples,
        dropped=dropped,
        final_loss=record.final.get("loss"),
        final_test_loss=record.final.get("test_loss"),
        final_accuracy=record.final.get("accuracy"),
        mean_staleness=(
            record.staleness_total / record.contributions if record.contributions else None
        ),
        virtual_time=end,
        examples_per_second=rate,
        throughput=[row],
        wall_time=record.wall_time,
        lookahead=numerics.describe(),
        epsilon=None if record.accountant is None else record.accountant.epsilon(),
        privacy=None if record.accountant is None else record.accountant.describe(),
        learning_rate=describe_learning_rate(
            numerics.recipe.lr,
            config.lr_schedule,
            config.warmup,
            config.last_update,
            numerics.recipe.lr_factor,
            record.updates,
        ),
        durations={**durations, "gradients": "computed" if numerics.real else "none (timing only)"},
        divergence=None if record.divergence is None else asdict(record.divergence),
        lr=None if not numerics.real else str(config.lr),
        chance=numerics.chance,
        target=None if passage is None else str(passage.target),
        reached_at=None if passage is None else passage.reached_at,
        reached_updates=None if passage is None else passage.reached_updates,
        best=None if passage is None else passage.best,
        by_client=record.by_client,
    )

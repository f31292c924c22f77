"""A run on the engine in which nodes fail: its lives, its checkpoints, and the cost of failures.
The whole job stops when a server fails, and with recovery "restart" when any worker fails. Work
since its newest checkpoint and work in progress is lost. After the restart all begin again, from
the parameters, versions and optimizers of the checkpoint, or of the beginning. The rules are those
of `simulation.rollback`:

- each life of the job is a simulation of its own, with nothing under way at its begin;
- a checkpoint is due after so much work since the last one, and saved at the end of the instant of
  the next update; no worker computes meanwhile, so that the clock of the engine stands still;
- a failure during a checkpoint makes it worthless, one during a restart begins the restart again.

So virtual time is the engine's, and the pauses so far. Configured faults come at their
virtual times, or at the end of the pause that holds them; random failures of single workers pass
while the job works. What ends at the instant of a failure has ended. How long a slow node computes
is settled when it begins: a checkpoint that comes meanwhile does not shift the slow period.
"""

from collections.abc import Coroutine, Mapping, Sequence
from inspect import CORO_CREATED, getcoroutinestate
from math import inf
from typing import Any

from paracosm.cluster import Cluster
from paracosm.engine import DeadlockError, Simulator, Worker
from paracosm.errors import InputError
from paracosm.faults.models import Lose, Slow
from paracosm.faults.node_failures import Mtbf
from paracosm.faults.strikes import Periods
from paracosm.results import FailureSummary
from paracosm.results.metrics import MetricSink
from paracosm.rng import TrainingStream, generator
from paracosm.simulation.schedule import BusyTimes
from paracosm.training.availability import check_known, make_availability
from paracosm.training.config import TrainConfig
from paracosm.training.failures.failing_nodes import FailingServer, FailingWorker
from paracosm.training.failures.failure_queue import (
    Clock,
    Failure,
    FailureQueue,
    PlacedTimeline,
    strikes_of,
)
from paracosm.training.failures.recovery import FailureCosts, Failures
from paracosm.training.job import Job
from paracosm.training.numerics.store import Contribution, Numerics, Saved, Store
from paracosm.training.record import Progress
from paracosm.units import format_duration

_WITHOUT_PROGRESS = 10_000
"""Failures beyond those of `_PER_UPDATE`, and as many again for every hundred workers, that a job
may have before it is given up."""
_PER_UPDATE = 100
"""Failures for each update, and one more for each worker, while a job still makes progress."""


class FailingJob(Job):
    """A run whose nodes fail."""

    worker_kind = FailingWorker
    server_kind = FailingServer

    def __init__(
        self,
        failures: Failures,
        config: TrainConfig,
        seed: int,
        cluster: Cluster,
        numerics: Numerics,
        sim: Simulator,  # of which every life has one like it
        sink: MetricSink,
        progress: Progress | None,
    ) -> None:
        names = (*cluster.workers, *cluster.servers)
        self._clock = Clock()
        inner = sim.timeline
        self._timeline = None if inner is None else PlacedTimeline(inner, self._clock, names)
        self._log = sim.log
        self._cluster = cluster
        self.elastic = failures.recovery == "elastic"
        simulator = self._simulator()
        super().__init__(config, seed, cluster, numerics, simulator, sink, progress, self.elastic)
        self.resend_after = failures.resend_after
        self.resent = self.dropped_examples = 0
        self._busy: BusyTimes = {}
        self._off: dict[str, float] = {}
        self._failures = failures
        self._costs = FailureCosts(len(self.state.workers))
        self._sink = sink
        self._until = inf if config.until_time is None else config.until_time
        self._is_stopped = self._is_due = False
        self._lost_messages = self._requested = self._gradients = self._lost_examples = 0
        self._chances = {
            name: generator(seed, TrainingStream.LOST_MESSAGES, number)
            for number, name in enumerate(names)
        }
        servers = self.state.servers if self.state.topology == "server" else ()
        nodes = (self.state.workers, servers, seed)
        self._slow, self._losses = (
            Periods(strikes_of(kind, failures, *nodes)) for kind in (Slow, Lose)
        )
        who = failures.availability
        self._availability = make_availability(who, len(self.state.workers), seed) if who else None
        if self._availability is not None and self._until < inf:
            check_known(self._availability, self._until, "worker")
        self._queue = FailureQueue(failures, self._clock, *nodes, self._availability)
        self._away: dict[str, float] = {}  # workers, until when
        self._listening: list[Coroutine[Any, Any, None]] = []  # daemons of this life's nodes
        # Most updates so far, and failures beyond those that they allow
        self._without_progress = (0, 0)
        self._saved: list[Saved] = [store.save() for store in self.stores]
        self._at_save = (0.0, 0, 0)  # the engine's clock, updates, contributions

    def play(self) -> None:
        """Run the job until its end, or `stop`.

        Raises:
            InputError: it deadlocks, or makes no progress because of failures.
        """
        try:
            while (first := self._queue.upcoming()).leaves and first.time == 0:
                self._away[first.node] = first.back
                self._note_absence(self._queue.take())
            self._begin_life()
            while (failure := self._live()) is not None:
                if not self._restart(failure):
                    break
        except DeadlockError as error:
            raise self._standstill(error) from None
        finally:
            for body in self._listening:
                if getcoroutinestate(body) == CORO_CREATED:
                    body.close()  # or Python complains of a coroutine that was never awaited
            self._count_away()
            self._slow.at(self.now)  # so that it counts those that have begun

    def stop(self) -> None:
        """End the run as soon as possible."""
        self._is_stopped = True
        self.state.sim.stop()

    def busy_times(self) -> BusyTimes:
        before = self._busy
        return {
            name: {
                what: spent + before.get(name, {}).get(what, 0.0) for what, spent in times.items()
            }
            for name, times in super().busy_times().items()
        }

    def off_times(self) -> Mapping[str, float]:
        return self._off

    @property
    def now(self) -> float:
        return self._clock.virtual(self.state.sim.now)

    def failure_summary(self, end: float) -> FailureSummary:
        """Return what failures have cost up to the end, in seconds of virtual time."""
        failures, costs = self._failures, self._costs
        costs.kept = self.record.contributions - costs.undone
        alone = failures.nodes.worker if failures.recovery != "restart" else inf
        return costs.summary(
            end,
            job_mtbf=None if failures.job_mtbf == inf else failures.job_mtbf,
            worker_mtbf=None if alone == inf else alone,
            interval=failures.interval,
            checkpoint_cost=failures.cost,
            restart_cost=None if failures.nodes == Mtbf() else failures.restart,
            lost_gradients=round(self._lost_examples * self._gradients / max(1, self._requested)),
            slowdowns=self._slow.begun,
            lost_messages=self._lost_messages,
            resent_messages=self.resent,
            faults=[str(fault) for fault in failures.faults],
        )

    # the interface of its nodes: `failing_nodes.Conditions`

    def stretched(self, node: str, work: float) -> float:
        return self._slow.stretched(node, self.now, work)

    def loses(self, source: Worker, target: str) -> bool:
        faults = self._losses.at(self.now, source.name, target, "")
        if not faults or source.ports is self.state.sim.workers[target].ports:
            return False
        arrives = 1.0
        for fault in faults:
            assert isinstance(fault.model, Lose)
            arrives *= 1 - fault.model.percent / 100
        is_lost = bool(self._chances[source.name].random() >= arrives)
        self._lost_messages += is_lost
        return is_lost

    def requested(self, sizes: Sequence[int]) -> None:
        self._requested += sum(sizes)
        self._gradients += len(sizes)

    def discarded(self, examples: int, seconds: float) -> None:
        self._lost_examples += examples
        self._costs.abandoned += seconds

    def is_back(self, worker: FailingWorker) -> None:
        del self._away[worker.name]
        self._was_away(worker)
        self._row(self.now, worker.name, "restart", self.state.sim.now - worker.begun_away)

    def worker_named(self, name: str) -> FailingWorker | None:
        found = self.state.sim.workers[name]
        return found if isinstance(found, FailingWorker) else None

    # What a job does

    def updated(
        self, store: Store, contributions: Sequence[Contribution], staleness: Sequence[int]
    ) -> None:
        super().updated(store, contributions, staleness)
        self._slow.has_advanced()
        self._losses.has_advanced()
        interval = self._failures.interval
        if interval is None or self._is_due or self.state.sim.now - self._at_save[0] < interval:
            return
        if self.record.updates >= self.state.last_update:
            return  # nothing is left to be saved for
        if self._failures.in_step and len({each.version for each in self.stores}) > 1:
            return
        self._is_due = True
        self.state.sim.stop()

    # Lives

    def _simulator(self) -> Simulator:
        return Simulator(log=self._log, network=self._cluster, timeline=self._timeline)

    def _begin_life(self) -> None:
        sim = self.state.sim
        self._listening.clear()
        self.add_nodes(sim)
        for name, node in sim.workers.items():
            assert isinstance(node, FailingWorker | FailingServer)
            bodies = {"drop_messages": node.drop_messages()}
            if isinstance(node, FailingServer):
                bodies["welcome"] = node.welcome()
                if self.elastic:
                    bodies["gather"] = node.gather()
            for what, body in bodies.items():
                sim.spawn(body, name=f"{name}.{what}", daemon=True)
            self._listening += bodies.values()
        for name, back in self._away.items():
            self._stop_worker(name, back)
        self._queue.begin_life()

    def _live(self) -> Failure | None:
        sim = self.state.sim
        while True:
            failure = self._queue.upcoming()
            end = max(sim.now, self._clock.engine(min(failure.time, self._until)))
            sim.run(until=None if end == inf else end)
            if self._is_due and not self._has_ended():
                sim.run(until=sim.now)  # the rest of the instant
            if self._has_ended():
                return None
            if self._is_due:
                if (failed := self._pause_to_save()) is not None:
                    return failed
            elif sim.now < end:
                raise self._standstill(None)
            elif self._until <= failure.time:
                return None
            else:
                self._queue.take()
                if self._queue.stops_job(failure):
                    return failure
                self._fail_alone(failure)

    def _has_ended(self) -> bool:
        return self.state.is_over or self._is_stopped

    def _fail_alone(self, failure: Failure) -> None:
        """Stop a worker that the others can do without."""
        self._count_failure()
        back = max(failure.back, self.now, self._away.get(failure.node, 0.0))
        if failure.leaves:
            self._note_absence(failure)
        else:
            self._costs.failures += 1
            self._row(self.now, failure.node, "failure", failure.back - failure.time)
        self._away[failure.node] = back
        self._stop_worker(failure.node, back)

    def _stop_worker(self, name: str, back: float) -> None:
        nodes = self.state.sim.workers
        worker = nodes[name]
        assert isinstance(worker, FailingWorker)
        worker.fail(max(self.state.sim.now, self._clock.engine(back)))
        if (brought := self.state.all_reduces.leave(name)) is not None:
            self.discarded(brought.gradient.examples, worker.seconds_in_push())
        for node in nodes.values():
            assert isinstance(node, FailingWorker | FailingServer)
            if isinstance(node, FailingServer):
                node.leaves(name)
            node.forget_messages()

    def _pause_to_save(self) -> Failure | None:
        """Save a checkpoint; return the failure that has made it worthless."""
        self._is_due = False
        costs, begin = self._costs, self.now
        end = begin + self._failures.cost
        failure = self._queue.take_until(min(end, self._until))
        if failure is not None or end > self._until:
            end = self._until if failure is None else failure.time
        else:
            self._saved = [store.save() for store in self.stores]
            self.record.saved()
            self._at_save = (self.state.sim.now, self.record.updates, self.record.contributions)
            costs.checkpoints += 1
            self._row(begin, "job", "checkpoint", self._failures.cost)
        costs.saving += end - begin
        self._mark("checkpoint", begin, end)
        self._clock.pause(self.state.sim.now, end)
        return failure

    def _restart(self, failure: Failure) -> bool:
        costs, record, begin = self._costs, self.record, failure.back
        self._note_stop(failure)
        while (again := self._queue.take_until(min(begin, self._until))) is not None:
            self._note_stop(again)
            begin = max(begin, again.back)
        costs.lost += self.state.sim.now - self._at_save[0]
        costs.undone += record.contributions - self._at_save[2]
        self._lost_examples = self._requested - record.examples - self.dropped_examples
        for store, saved in zip(self.stores, self._saved, strict=True):
            store.restore(saved)
        record.restored(self._at_save[1])
        self._at_save = (0.0, record.updates, record.contributions)
        end = min(begin, self._until)
        costs.stopped += end - failure.time
        self._mark("restart", failure.time, end)
        if begin > self._until:
            self._clock.pause(self.state.sim.now, end)
            return False
        self._busy = self.busy_times()
        self._count_away()
        if self.state.compression is not None:
            self.state.compression.forget()
        self._clock.begin(begin)
        self.state = self.state.next_life(self._simulator(), self.parameters())
        self._begin_life()
        self._row(begin, "job", "restart", begin - failure.time)
        return True

    def _count_away(self) -> None:
        for node in self.state.sim.workers.values():
            if isinstance(node, FailingWorker) and node.is_away:
                self._was_away(node)

    def _was_away(self, worker: FailingWorker) -> None:
        away = self.state.sim.now - worker.begun_away
        self._costs.away += away
        self._off[worker.name] = self._off.get(worker.name, 0.0) + away
        if self._timeline is not None:
            self._timeline.span(
                worker.name, "down", "stopped", worker.begun_away, self.state.sim.now
            )

    # What is noted

    def _note_stop(self, failure: Failure) -> None:
        self._costs.stops += 1
        self._count_failure()
        self._row(failure.time, failure.node, "failure", failure.back - failure.time)

    def _note_absence(self, failure: Failure) -> None:
        self._costs.absences += 1
        self._row(self.now, failure.node, "away", failure.back - failure.time)

    def _mark(self, name: str, begin: float, end: float) -> None:
        if self._timeline is not None and begin < end:
            for node in self.state.sim.workers:
                self._timeline.inner.span(node, "down", name, begin, end)

    def _row(self, time: float, node: str, name: str, value: float) -> None:
        self._sink.metric(time, self.record.wall_time, node, name, value, self.record.updates)

    def _count_failure(self) -> None:
        most, failures = self._without_progress
        updates = self.record.updates
        allowed = max(0, updates - most) * (_PER_UPDATE + len(self.state.workers))
        failures = max(0, failures + 1 - allowed)
        self._without_progress = (max(most, updates), failures)
        if failures > _WITHOUT_PROGRESS + _WITHOUT_PROGRESS * len(self.state.workers) // 100:
            raise InputError(
                f"the job makes no progress: nodes failed or left {failures:,} times more than "
                f"{_PER_UPDATE + len(self.state.workers)} for each of {updates:,} updates: make "
                "failures rarer, or restarts and checkpoints more frequent"
            )

    def _standstill(self, deadlock: DeadlockError | None) -> InputError:
        if self._availability is not None and self.now >= self._availability.end[0]:
            check_known(self._availability, inf, "worker")
        gone = [name for name, back in self._away.items() if back == inf]
        unsent = self._lost_messages > 0 and self.resend_after is None
        waiting = (
            [] if deadlock is None else [each for each in deadlock.waiting if each[0] not in gone]
        )
        why = [f"{name} never comes back" for name in gone[:1]]
        why += ["lost messages are never resent (give --resend-after 100ms)"] * unsent
        who = f"{waiting[0][0]} waits for {waiting[0][1]}" if waiting else "no worker is left"
        return InputError(
            f"the run stands still at {format_duration(self.now)}, after {self.record.updates:,} "
            f"updates: {', '.join([who, *why])}"
        )

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

from collections.abc import Coroutine
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from math import inf
from typing import Any, NamedTuple

from paracosm.cluster import Cluster
from paracosm.engine import DeadlockError, Simulator
from paracosm.errors import InputError
from paracosm.faults.node_failures import Mtbf
from paracosm.results import FailureSummary
from paracosm.results.metrics import MetricSink
from paracosm.simulation.schedule import BusyTimes
from paracosm.training.availability import check_known, make_availability
from paracosm.training.config import TrainConfig
from paracosm.training.failures.conditions import Conditions
from paracosm.training.failures.failing_nodes import FailingServer, FailingWorker
from paracosm.training.failures.failure_queue import (
    Clock,
    Failure,
    FailureQueue,
    PlacedTimeline,
)
from paracosm.training.failures.recovery import FailureCosts, Failures
from paracosm.training.job import Job
from paracosm.training.numerics.store import Numerics, Saved
from paracosm.training.record import Progress
from paracosm.units import format_duration

_WITHOUT_PROGRESS = 10_000
"""Failures beyond those of `_PER_UPDATE`, and as many again for every hundred workers, that a job
may have before it is given up."""
_PER_UPDATE = 100
"""Failures for each update, and one more for each worker, while a job still makes progress."""


class _Checkpoint(NamedTuple):
    """The newest, or the beginning of the job or of a life."""

    stores: list[Saved]
    time: float  # on the engine's clock
    updates: int
    contributions: int


class FailingJob:
    """The lives of a job whose nodes fail."""

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
        self._failures = failures
        self._clock = Clock()
        self._costs = FailureCosts(len(cluster.workers))
        inner = sim.timeline
        self._timeline = None if inner is None else PlacedTimeline(inner, self._clock, names)
        self._simulator = partial(Simulator, log=sim.log, network=cluster, timeline=self._timeline)
        workers = cluster.workers
        servers = cluster.servers if config.resolve_topology() == "server" else ()
        self.conditions = Conditions(
            failures, self._clock, self._costs, names, workers, servers, seed
        )
        self.conditions.is_back = self._is_back
        self.job = Job(
            config, seed, cluster, numerics, self._simulator(), sink, progress, self.conditions
        )
        self.job.after_update = self._after_update
        self.conditions.stores = self.job.stores
        self._sink = sink
        self._until = inf if config.until_time is None else config.until_time
        self._is_stopped = self._is_due = False
        who = failures.availability
        self._availability = make_availability(who, len(workers), seed) if who else None
        if self._availability is not None and self._until < inf:
            check_known(self._availability, self._until, "worker")
        self._queue = FailureQueue(
            failures, self._clock, workers, servers, seed, self._availability
        )
        self._away: dict[str, float] = {}  # workers, until when
        self._busy: BusyTimes = {}  # in earlier lives
        self.off_times: dict[str, float] = {}  # for how long workers were stopped, by name
        self._listening: list[Coroutine[Any, Any, None]] = []  # daemons of this life's nodes
        # Most updates so far, and failures beyond those that they allow
        self._without_progress = (0, 0)
        self._saved = _Checkpoint([store.save() for store in self.job.stores], 0.0, 0, 0)

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
            self.conditions.count_slowdowns(self.now)

    def stop(self) -> None:
        """End the run as soon as possible."""
        self._is_stopped = True
        self.job.state.sim.stop()

    def busy_times(self) -> BusyTimes:
        before = self._busy
        return {
            name: {
                resource: spent + before.get(name, {}).get(resource, 0.0)
                for resource, spent in times.items()
            }
            for name, times in self.job.busy_times().items()
        }

    @property
    def now(self) -> float:
        return self.job.now

    def failure_summary(self, end: float) -> FailureSummary:
        """Return what failures have cost up to the end, in seconds of virtual time."""
        failures, costs, conditions = self._failures, self._costs, self.conditions
        costs.kept = self.job.record.contributions - costs.undone
        alone = failures.nodes.worker if failures.recovery != "restart" else inf
        return costs.summary(
            end,
            job_mtbf=None if failures.job_mtbf == inf else failures.job_mtbf,
            worker_mtbf=None if alone == inf else alone,
            interval=failures.interval,
            checkpoint_cost=failures.cost,
            restart_cost=None if failures.nodes == Mtbf() else failures.restart,
            lost_gradients=conditions.lost_gradients,
            slowdowns=conditions.slowdowns,
            lost_messages=conditions.lost_messages,
            resent_messages=conditions.resent,
            faults=[str(fault) for fault in failures.faults],
        )

    def _is_back(self, worker: str, since: float) -> None:
        del self._away[worker]
        self._was_away(worker, since)
        self._row(self.now, worker, "restart", self.job.state.sim.now - since)

    def _after_update(self) -> None:
        """End the instant if a checkpoint is due after this update."""
        job, interval = self.job, self._failures.interval
        self.conditions.has_updated()
        if interval is None or self._is_due or job.state.sim.now - self._saved.time < interval:
            return
        if job.record.updates >= job.state.last_update:
            return  # nothing is left to be saved for
        if self._failures.in_step and len({store.version for store in job.stores}) > 1:
            return
        self._is_due = True
        job.state.sim.stop()

    # Lives

    def _begin_life(self) -> None:
        sim = self.job.state.sim
        self._listening.clear()
        self.job.add_nodes(sim)
        for name, node in sim.workers.items():
            assert isinstance(node, FailingWorker | FailingServer)
            bodies = {"drop_messages": node.drop_messages()}
            if isinstance(node, FailingServer):
                bodies["welcome"] = node.welcome()
                if self.conditions.elastic:
                    bodies["gather"] = node.gather()
            for daemon, body in bodies.items():
                sim.spawn(body, name=f"{name}.{daemon}", daemon=True)
            self._listening += bodies.values()
        for name, back in self._away.items():
            self._stop_worker(name, back)
        self._queue.begin_life()

    def _live(self) -> Failure | None:
        sim = self.job.state.sim
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
        return self.job.state.is_over or self._is_stopped

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
        nodes = self.job.state.sim.workers
        worker = nodes[name]
        assert isinstance(worker, FailingWorker)
        worker.fail(max(self.job.state.sim.now, self._clock.engine(back)))
        if (brought := self.job.state.all_reduces.leave(name)) is not None:
            self.conditions.discard(brought.gradient.examples, worker.seconds_in_push())
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
            self.job.record.saved()
            stores = [store.save() for store in self.job.stores]
            counts = self.job.record.updates, self.job.record.contributions
            self._saved = _Checkpoint(stores, self.job.state.sim.now, *counts)
            costs.checkpoints += 1
            self._row(begin, "job", "checkpoint", self._failures.cost)
        costs.saving += end - begin
        self._mark("checkpoint", begin, end)
        self._clock.pause(self.job.state.sim.now, end)
        return failure

    def _restart(self, failure: Failure) -> bool:
        costs, record, begin = self._costs, self.job.record, failure.back
        self._note_stop(failure)
        while (again := self._queue.take_until(min(begin, self._until))) is not None:
            self._note_stop(again)
            begin = max(begin, again.back)
        costs.lost += self.job.state.sim.now - self._saved.time
        costs.undone += record.contributions - self._saved.contributions
        conditions = self.conditions
        kept = record.examples + conditions.dropped_examples
        conditions.lost_examples = conditions.requested - kept
        for store, saved in zip(self.job.stores, self._saved.stores, strict=True):
            store.restore(saved)
        record.restored(self._saved.updates)
        self._saved = _Checkpoint(self._saved.stores, 0.0, record.updates, record.contributions)
        end = min(begin, self._until)
        costs.stopped += end - failure.time
        self._mark("restart", failure.time, end)
        if begin > self._until:
            self._clock.pause(self.job.state.sim.now, end)
            return False
        self._busy = self.busy_times()
        self._count_away()
        if self.job.state.compression is not None:
            self.job.state.compression.forget()
        self._clock.begin(begin)
        self.job.state = self.job.state.next_life(self._simulator(), self.job.parameters())
        self._begin_life()
        self._row(begin, "job", "restart", begin - failure.time)
        return True

    def _count_away(self) -> None:
        for node in self.job.state.sim.workers.values():
            if isinstance(node, FailingWorker) and node.is_away:
                self._was_away(node.name, node.begun_away)

    def _was_away(self, worker: str, since: float) -> None:
        now = self.job.state.sim.now
        self._costs.away += now - since
        self.off_times[worker] = self.off_times.get(worker, 0.0) + now - since
        if self._timeline is not None:
            self._timeline.span(worker, "down", "stopped", since, now)

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
            for node in self.job.state.sim.workers:
                self._timeline.inner.span(node, "down", name, begin, end)

    def _row(self, time: float, node: str, name: str, value: float) -> None:
        record = self.job.record
        self._sink.metric(time, record.wall_time, node, name, value, record.updates)

    def _count_failure(self) -> None:
        most, failures = self._without_progress
        updates, workers = self.job.record.updates, len(self.job.state.workers)
        allowed = max(0, updates - most) * (_PER_UPDATE + workers)
        failures = max(0, failures + 1 - allowed)
        self._without_progress = (max(most, updates), failures)
        if failures > _WITHOUT_PROGRESS + _WITHOUT_PROGRESS * workers // 100:
            raise InputError(
                f"the job makes no progress: nodes failed or left {failures:,} times more than "
                f"{_PER_UPDATE + workers} for each of {updates:,} updates: make failures rarer, "
                "or restarts and checkpoints more frequent"
            )

    def _standstill(self, deadlock: DeadlockError | None) -> InputError:
        if self._availability is not None and self.now >= self._availability.end[0]:
            check_known(self._availability, inf, "worker")
        gone = [name for name, back in self._away.items() if back == inf]
        unsent = self.conditions.lost_messages > 0 and self.conditions.resend_after is None
        waiting = (
            [] if deadlock is None else [wait for wait in deadlock.waiting if wait[0] not in gone]
        )
        why = [f"{name} never comes back" for name in gone[:1]]
        why += ["lost messages are never resent (give --resend-after 100ms)"] * unsent
        who = f"{waiting[0][0]} waits for {waiting[0][1]}" if waiting else "no worker is left"
        return InputError(
            f"the run stands still at {format_duration(self.now)}, after "
            f"{self.job.record.updates:,} updates: {', '.join([who, *why])}"
        )

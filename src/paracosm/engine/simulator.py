"""The simulator: who takes part, and how long it runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from heapq import heapify, heappush
from inspect import iscoroutine
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from paracosm.cluster import Cluster
from paracosm.engine.errors import DeadlockError
from paracosm.engine.flows import Flows
from paracosm.engine.future import Awaitable, Future, all_of, any_of, as_future
from paracosm.engine.messages import Ports, Transfer, complete, deliver
from paracosm.engine.observer import Observer
from paracosm.engine.recording import Recording, Replay
from paracosm.engine.scheduler import Halt, Scheduler, seconds
from paracosm.engine.walker import Continuation, Task, Walker
from paracosm.engine.worker import Worker
from paracosm.errors import InputError
from paracosm.network import Stations

if TYPE_CHECKING:
    import numpy as np

    from paracosm.timeline import Timeline

__all__ = ["Network", "Simulator"]

W = TypeVar("W", bound=Worker)


class Network(Protocol):
    """What says how long messages take; `paracosm.cluster.Cluster` does, which also says how they
    share ports. A network of another kind is shared serially.

    It may also have `node(name)`: workers on one node share its ports and have its speed.
    """

    def link(self, source: str, target: str, /) -> Any:
        """Return the link: `occupancy(size)` and `propagation(size)` in seconds, `duplex`."""


class Simulator(Scheduler):
    """A simulation: add workers, start it, read the clock.

    Args:
        log: print a line for every event.
        network: how long messages take that are sent with a size.
        timeline: records every compute, send, receive and wait.
        seed: of all random numbers that the engine draws.
        recording: measured durations to be replayed, or the file that holds them.

    Attributes:
        now: the virtual time, in seconds.
        workers: all workers by name, in the order in which they were added.
        recording: the durations that were measured (or replayed) in this run.
    """

    def __init__(
        self,
        log: bool = False,
        network: Network | None = None,
        timeline: Timeline | None = None,
        *,
        seed: int = 0,
        recording: Recording | str | Path | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.timeline = timeline
        self.seed = seed
        self.workers: dict[str, Worker] = {}
        self.recording = Recording()
        if isinstance(recording, (str, Path)):
            recording = Recording.load(recording)
        self._replay = None if recording is None else Replay(recording)
        self._living: dict[Walker, None] = {}
        self._ports_of_nodes: dict[str, Ports] = {}
        self._stations = Stations(network) if isinstance(network, Cluster) else None
        is_fair = self._stations is not None and self._stations.sharing == "fair"
        self._flows = Flows(self, self._stations) if is_fair and self._stations else None
        self._spawned = 0
        self._until: Future | None = None
        self._started = self._looping = self._stopping = self._over = False
        # Chosen here, once, so that a run that nobody observes pays nothing.
        self._observer = None if timeline is None and not log else Observer(self, timeline, log)
        self.complete: Callable[[Transfer], Continuation | None] = complete
        self._deliver: Callable[[Transfer], None] = deliver
        if self._observer is not None:
            self.complete = self._observer.complete
            self._deliver = self._observer.deliver

    # Who takes part

    def add_worker(
        self,
        name: str,
        worker: type[W] | Callable[..., W],
        /,
        *args: Any,
        daemon: bool = False,
        **kwargs: Any,
    ) -> W:
        """Add the worker that `worker(*args, **kwargs)` makes, and return it.

        Where `worker` is a class, `name` and `sim` are set before its `__init__`, which may use
        them. In a simulation that runs already, it starts at once.

        Args:
            name: how others send to it; unique.
            worker: a subclass of `Worker`, or a function that makes one.
            args: for `worker`.
            daemon: whether it may still wait when everything else is over, as servers do.
            kwargs: for `worker`.

        Raises:
            InputError: the name is taken, or what is made is not a worker, or already has a name.
        """
        if isinstance(worker, type) and not issubclass(worker, Worker):
            raise InputError(f"add_worker: {worker.__name__} is no subclass of Worker")
        if name in self.workers:
            raise InputError(f'there is a worker called "{name}" already')
        if isinstance(worker, type):
            kind = cast("type[W]", worker)
            made = kind.__new__(kind, *args, **kwargs)
            made._join_simulation(self, name, daemon)
            kind.__init__(made, *args, **kwargs)
        else:
            made = worker(*args, **kwargs)
            if not isinstance(made, Worker):
                raise InputError(f"add_worker: {worker!r} made {made!r}, which is no Worker")
            if hasattr(made, "name"):
                raise InputError(f'{made!r} takes part already; make another one for "{name}"')
            made._join_simulation(self, name, daemon)
        self.workers[name] = made
        self._enter(made)
        return made

    def spawn(
        self, body: Coroutine[Any, Any, Any], name: str | None = None, daemon: bool = False
    ) -> Walker:
        """Let a coroutine run beside the workers, from now on, and return its walker.

        Raises:
            InputError: `body` is not a coroutine.
        """
        if not iscoroutine(body):
            raise InputError(f"spawn takes a coroutine, as a call of an `async def`, not {body!r}")
        self._spawned += 1
        task = Task(body)
        task._join_simulation(self, name or f"{body.__name__}-{self._spawned}", daemon)
        self._enter(task)
        return task

    def _enter(self, walker: Walker) -> None:
        self._living[walker] = None
        self._over = False
        if self._started:
            self._begin(walker)

    def _begin(self, walker: Walker) -> None:
        self._ready.append((walker._begin_walking(), None))

    def _place(self, name: str) -> tuple[Ports, float, int]:
        """Return the ports, the speed and the index of the worker that is being added."""
        find = getattr(self.network, "node", None)
        if find is None:
            return Ports(), 1.0, len(self.workers)
        node = find(name)
        ports = self._ports_of_nodes.setdefault(node.name, Ports())
        return ports, node.speed, len(self.workers)

    def _leaves_group(self, source: str, target: str) -> bool:
        """Whether messages between the two go through the outer ports of their nodes."""
        return self._stations is not None and self._stations.leaves_group(source, target)

    def _transfers_under_way(self) -> list[Transfer]:
        """Return the transfers that hold their ports or flow through them, in order of request."""
        found = [what for _, _, call, what in self.near if call == self.complete]
        if self._flows is not None:
            found.extend(self._flows.under_way.values())
        return sorted(found, key=lambda transfer: transfer.number)

    def _anything_left(self) -> bool:
        if self._flows is not None and not self._ready and len(self.near) == self._flows.stale:
            return any(call or not what.stale for _, _, call, what in self._events)
        return super()._anything_left()

    def _generator(self, *key: int) -> np.random.Generator:
        from paracosm.rng import generator  # NumPy is loaded when something is drawn

        return generator(self.seed, *key)

    # How long it runs

    def start(self) -> None:
        """Run until nothing is left to happen. See `run`."""
        self.run()

    def run(self, until: float | Awaitable | Callable[[], bool] | None = None) -> None:
        """Run until nothing is left to happen, or `stop` is called, or `until`.

        A run that ended early goes on with the next call.

        Args:
            until: a time, in seconds: what happens at it still happens; or a future, walker or
                transfer: until it is done; or a condition: until it holds, looked at after each
                event.

        Raises:
            DeadlockError: nothing is left to happen, but walkers that are not daemons wait.
            InputError: it has run to its end before, or it is running, or the time is past.
            Exception: whatever a walker raised, with the walker's name and the virtual time in a
                note, and the original traceback.
        """
        if self._looping:
            raise InputError("the simulation is running: start it from outside of its walkers")
        if self._over:
            raise InputError(
                f"the simulation has run to its end, at {self.now:g} s: make a new Simulator"
            )
        if not self._started:
            self._started = True
            for walker in list(self._living):
                if not walker.done:
                    self._begin(walker)
        self._looping = True
        try:
            dry = self._run_until(until)
        except BaseException as error:
            self._explain(error)
            raise
        finally:
            self._looping = self._stopping = False
            self._current = self._until = None
            if self._observer is not None:
                self._observer.pause()
        if dry:
            self._end()

    def _run_until(self, until: Any) -> bool:
        """Run, and return whether nothing is left to happen."""
        if until is None:
            return self._loop()
        if isinstance(until, Awaitable):
            self._until = as_future(until)
            self._until.add_callback(self._stop_at)
            return self._loop()
        if callable(until):
            return self._loop_until(until)
        time = seconds("run: until", until)
        if time < self.now:
            raise InputError(f"run: until {time:g} s is past, it is {self.now:g} s")
        mark = (time, inf, _halt, None)
        heappush(self._events, mark)
        dry = self._loop()
        if mark in self._events:  # it was stopped before
            self._events.remove(mark)
            heapify(self._events)
            return dry
        if not self._anything_left():
            return True  # time passes as long as something happens, and no longer
        self.now = time
        return False

    def _stop_at(self, future: Future) -> None:
        if future is self._until:  # and not one of an earlier run, which was stopped before
            self.stop()

    def _loop_until(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._ready:
                self._ready.append((_STOP, None))
            elif self._events or self.near:
                # Right behind the next event: no other one can have a number in between.
                time, number, _, _ = min(heap[0] for heap in (self._events, self.near) if heap)
                heappush(self._events, (time, number + 0.5, _halt, None))
            else:
                return True
            self._loop()
        return False

    def stop(self) -> None:
        """End the run as soon as the walker that runs blocks; another `run` goes on from there."""
        if self._looping and not self._stopping:
            self._stopping = True
            self._ready.appendleft((_STOP, None))

    def _end(self) -> None:
        """Nothing is left to happen: find out whether that is the end or a deadlock."""
        waiting = [walker for walker in self._living if not walker.daemon]
        if waiting:
            raise DeadlockError(self.now, [(w.name, w._waits_for()) for w in waiting])
        self._over = True

    def _finished(self, continuation: Any, result: object, cancelled: bool = False) -> None:
        if not isinstance(continuation, Continuation):
            raise RuntimeError("a function given to call_later raised StopIteration or Cancelled")
        self._leave(continuation.walker, result, cancelled)

    def _leave(self, walker: Walker, result: object, cancelled: bool = False) -> None:
        del self._living[walker]
        walker._end_walking(result, cancelled)
        if self._observer is not None:
            self._observer.left(walker)

    def _running(self) -> Continuation:
        """Return the continuation of the walker that runs."""
        current: Continuation | None = self._current
        if current is None:
            raise InputError(
                "only a walker of a running simulation can await this: do so in the `run` of a "
                "worker, or in a coroutine given to Simulator.spawn"
            )
        return current

    def _explain(self, error: BaseException) -> None:
        """Add to the error who raised it and when, if it was the walker that ran last."""
        if not isinstance(self._current, Continuation):
            return
        walker = self._current.walker
        if walker._has_ended() or isinstance(error, InputError):
            error.add_note(f"raised in {walker.name} at the virtual time {self.now:g} s")
            self._leave(walker, None)
            self._over = True

    # Things to wait for

    def future(self, name: str = "a future") -> Future:
        """Return a new future; `name` appears in the report of a deadlock."""
        return Future(self, name)

    def timeout(self, delay: float, value: object = None) -> Future:
        """Return a future that gets `value` in `delay` seconds.

        Raises:
            InputError: the delay is negative or not finite.
        """
        future = Future(self, f"the end of {delay:g} s")
        self.call_later(delay, future.set_result, value)
        return future

    def any(self, *things: Awaitable) -> Future:
        """Return the future of the first of futures, walkers and transfers that is done.

        Its result is that thing; of several at one instant, the one that was done first.

        Raises:
            InputError: something else is among them, or nothing.
        """
        return any_of(self, things)

    def all(self, *things: Awaitable) -> Future:
        """Return the future of all of the results of futures, walkers and transfers, in order.

        Raises:
            InputError: something else is among them.
        """
        return all_of(self, things)

    # The names in the paper

    addWorker = add_worker  # noqa: N815


class _Stop:
    """Something to be resumed that leaves the loop instead."""

    def send(self, _: object) -> None:
        raise Halt


_STOP = _Stop()


def _halt(_: object) -> None:
    raise Halt

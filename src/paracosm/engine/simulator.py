"""The simulator: its workers, and the run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from heapq import heapify, heappush
from inspect import iscoroutine
from math import inf, nan
from numbers import Integral
from pathlib import Path
from reprlib import Repr
from time import perf_counter
from types import SimpleNamespace, coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from paracosm.cluster import Link
from paracosm.engine.events import Halt, seconds
from paracosm.engine.processes import Awaitable, Continuation, DeadlockError, Future, Process, Task
from paracosm.engine.transfers import (
    Endpoint,
    Mailbox,
    Route,
    Transfer,
    TransferScheduler,
    complete,
    deliver,
)
from paracosm.errors import InputError, shown, unknown
from paracosm.network.serial import request
from paracosm.timing.distribution import Distribution
from paracosm.timing.parse import load_recording, save_recording

if TYPE_CHECKING:
    from paracosm.timeline import Timeline

W = TypeVar("W", bound="Worker")


class Network(Protocol):
    """The times of messages, such as `paracosm.cluster.Cluster`, which also defines how they share
    ports. A network of another kind is shared serially.

    It may also have `node(name)`: workers on one node share its ports and have its speed.
    """

    def link(self, source: str, target: str, /) -> Any:
        """Return the link: `occupancy(size)` and `propagation(size)` in seconds, `duplex`."""


class Simulator(TransferScheduler):
    """A simulation: add workers, start it, read the clock.

    Args:
        log: print a line for every event.
        network: the times of messages with a size.
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
        _check("the seed must be a whole number", Integral, seed)
        super().__init__(network)
        self.log = log
        self.timeline = timeline
        self.seed = seed
        self.workers: dict[str, Worker] = {}
        self.recording = Recording()
        if isinstance(recording, (str, Path)):
            recording = Recording.load(recording)
        self._replay = None if recording is None else Replay(recording)
        self._living: dict[Process, None] = {}
        self._spawned = 0
        self._until: Future | None = None
        self._started = self._looping = self._stopping = self._over = False
        # Chosen here, once, so that an unobserved run pays nothing.
        self._observer = None if timeline is None and not log else Observer(self, timeline, log)
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
            daemon: whether it may still wait when everything else is over, as servers do.

        Raises:
            InputError: the name is taken, or what is made is not a worker, or already has a name.
        """
        _check("add_worker: the name must be a text", str, name)
        if not callable(worker) or (isinstance(worker, type) and not issubclass(worker, Worker)):
            told = getattr(worker, "__name__", repr(worker))
            raise InputError(f"add_worker: {told} is not a subclass of Worker")
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
                raise InputError(f"add_worker: {worker!r} made {made!r}, which is not a Worker")
            if hasattr(made, "name"):
                raise InputError(f'{made!r} takes part already; make another one for "{name}"')
            made._join_simulation(self, name, daemon)
        self.workers[name] = made
        self._enter(made)
        return made

    def spawn(
        self, body: Coroutine[Any, Any, Any], name: str | None = None, daemon: bool = False
    ) -> Process:
        """Run a coroutine as a process of its own, from now on, and return the process."""
        if not iscoroutine(body):
            raise InputError(f"spawn takes a coroutine, as a call of an `async def`, not {body!r}")
        self._spawned += 1
        task = Task(body)
        task._join_simulation(self, name or f"{body.__name__}-{self._spawned}", daemon)
        self._enter(task)
        return task

    def _enter(self, process: Process) -> None:
        self._living[process] = None
        self._over = False
        if self._started:
            self._ready.append((process._begin(), None))

    def _generator(self, *key: int) -> np.random.Generator:
        from paracosm.rng import generator  # NumPy is loaded when something is drawn

        return generator(self.seed, *key)

    def start(self) -> None:
        """Run until no events are left. See `run`."""
        self.run()

    def run(self, until: float | Awaitable | Callable[[], bool] | None = None) -> None:
        """Run until no events are left, or `stop` is called, or `until`.

        A run that ended early continues with the next call.

        Args:
            until: a time, in seconds, whose events still happen; or a future, process or transfer:
                until it is done; or a condition: until it holds, checked after each event.

        Raises:
            DeadlockError: no events are left, but processes that are not daemons wait.
            InputError: it has run to its end before, or it is running, or the time is past.
            Exception: whatever a process raised, with the process's name and the virtual time in a
                note, and the original traceback.
        """
        if self._looping:
            raise InputError("the simulation is running: start it from outside of its processes")
        if self._over:
            raise InputError(
                f"the simulation has run to its end, at {self.now:g} s: make a new Simulator"
            )
        if not self._started:
            self._started = True
            for process in list(self._living):
                if not process.done:
                    self._ready.append((process._begin(), None))
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
            waiting = [process for process in self._living if not process.daemon]
            if waiting:
                raise DeadlockError(self.now, [(w.name, w._waits_for()) for w in waiting])
            self._over = True

    def _run_until(self, until: Any) -> bool:
        """Run, and return whether no events are left."""
        if until is None:
            return self._loop()
        if isinstance(until, Awaitable):
            self._until = until._as_future()
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
        """End the run as soon as the process that runs blocks; another `run` goes on from there."""
        if self._looping and not self._stopping:
            self._stopping = True
            self._ready.appendleft((_STOP, None))

    def _leave(self, process: Process, result: object, cancelled: bool = False) -> None:
        del self._living[process]
        process._end(result, cancelled)
        if self._observer is not None:
            self._observer.left(process)

    def _explain(self, error: BaseException) -> None:
        """Add the process that ran last and the time to an error that it raised."""
        if not isinstance(self._current, Continuation):
            return
        process = self._current.process
        if process._has_ended() or isinstance(error, InputError):
            error.add_note(f"raised in {process.name} at the virtual time {self.now:g} s")
            self._leave(process, None)
            self._over = True

    addWorker = add_worker  # noqa: N815 - the name in the paper


def _halt(_: object) -> None:
    raise Halt


_STOP = SimpleNamespace(send=_halt)  # something to be resumed that leaves the loop instead
Result = TypeVar("Result")
_INF = float("inf")


class Worker(Endpoint):
    """A computer of the simulation. Subclass it and define `async def run(self)`.

    Sending, receiving and computing are independent of one another; `paracosm.network` defines how
    transfers share the ports.

    Attributes:
        mailbox: what has arrived and was not received.
        ports: its two ports, with their statistics.
        speed: of its node, relative; `execute` divides durations by it.

    The names of Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect",
    tables 2 and 3, where they differ from ours, are aliases: `recvNB` is `recv_nb`.
    """

    __slots__ = (
        "__computed",
        "__computing_until",
        "__index",
        "__rng",
        "__routes",
        "__samplers",
        "speed",
    )

    sim: Simulator
    speed: float

    def _join_simulation(self, sim: Any, name: str, daemon: bool) -> None:
        super()._join_simulation(sim, name, daemon)
        self.ports, self.speed = sim._locate(name)
        self.__index = len(sim.workers)
        self.__routes: dict[str, Route] = {}
        self.mailbox = Mailbox(self)
        self.__samplers: dict[int, tuple[Distribution, Callable[[], float]]] = {}
        self.__rng: np.random.Generator | None = None
        self.__computed = self.__computing_until = 0.0

    # Sending

    def send(
        self,
        to: str,
        data: Any = None,
        *,
        delay: float | None = None,
        size: float | None = None,
        tag: Any = None,
    ) -> Transfer:
        """Start a transfer to the worker called `to` without waiting; it may be awaited.

        Args:
            to: the receiver's name.
            data: any object; the receiver gets the same one, not a copy.
            delay: seconds for which the transfer holds the ports; on a fairly shared cluster, how
                long it takes, whatever else flows. By default it follows from the network's link;
                without a network it is 0.
            size: bytes.
            tag: the kind of message, by which `recv` can select it. Compared with `==`.

        Raises:
            InputError: there is no such worker, or the delay or size is negative or not finite.
        """
        try:
            route = self.__routes[to]
        except (KeyError, TypeError):  # of what has no hash
            route = self.__open_route(to)
        sim = route.sim
        transfer = Transfer()
        transfer.route = route
        transfer.data = data
        transfer.tag = tag
        transfer.arrived = nan
        transfer.awaited = None
        transfer.propagation = 0.0
        if size is None:
            transfer.size = 0.0
        elif size.__class__ is float and 0.0 <= size < _INF:
            transfer.size = size
        else:
            transfer.size = _bytes(size)
        given = delay
        if delay is None:
            if route.local:
                # Within its node a message arrives at once.
                transfer.number = sim._tick()
                transfer.occupancy = 0.0
                transfer.began = sim.now
                sim._deliver(transfer)
                return transfer
            delay = route.time(transfer)
        elif delay.__class__ is not float or not 0.0 <= delay < _INF:
            delay = seconds("send: the delay", delay)
        transfer.occupancy = delay
        number = transfer.number = sim._tick()
        outgoing, incoming = route.outgoing, route.incoming
        if outgoing.busy is None and incoming.busy is None and route.plain:
            # `request` for the common case: both ports are free.
            outgoing.busy = incoming.busy = transfer
            now = transfer.began = sim.now
            heappush(sim.near, (now + delay, number, sim.complete, transfer))
        else:
            transfer.began = nan
            if route.flow is None:
                request(transfer)
            else:
                transfer.occupancy = nan
                route.flow.request(transfer, None if given is None else delay)
        return transfer

    def __open_route(self, to: str) -> Route:
        target = self.sim.workers.get(to) if isinstance(to, str) else None
        if target is None:
            raise unknown("worker", to, self.sim.workers)
        network = self.sim.network
        link = None if network is None else network.link(self.name, to)
        route = self.__routes[to] = Route(self, target, link, self.sim._flows)
        return route

    def use_link(self, to: str, link: Link) -> None:
        """Send messages to the worker called `to` over `link` from now on.

        It replaces the cluster's link in this direction alone, such as for a client that a server
        reaches through its own port and the client's line. The ports of both nodes keep their
        bandwidth.

        Args:
            to: the receiver's name.
            link: full duplex, of finite bandwidth; the cluster's rule of sharing applies.

        Raises:
            InputError: there is no such worker, no link joins the two nodes or one of half duplex,
                or the cluster serves packets.
            RuntimeError: a message is on its way there.
        """
        _check("use_link: the link must be a Link", Link, link)
        route = (self.__routes.get(to) if isinstance(to, str) else None) or self.__open_route(to)
        route.use(link)

    # Receiving

    @coroutine
    def recv(
        self, source: str | None = None, tag: Any = None, timeout: float | None = None
    ) -> Generator[None, Any, Any]:
        """Wait for a message and return what was sent.

        Messages are received in order of arrival; with `source` or `tag`, the first one that
        matches. Messages that do not match stay.

        Args:
            source: the name of the sender; any by default.
            tag: of the message; any by default.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: no such message came in time. One that comes later is not lost.
            InputError: there is no worker called `source`, or the timeout is no number of seconds.
        """
        mailbox = self.mailbox
        messages = mailbox.messages
        if messages:
            if source is None and tag is None:
                return messages.popleft().data
            transfer = mailbox.take(source, tag)
            if transfer is not None:
                return transfer.data
        if source is None and timeout is None and mailbox.first is None and not mailbox.receivers:
            # `Mailbox.receive` for the common case: one process waits for anybody, without end.
            continuation = self.sim._current or self.sim._running()
            continuation.wait_queue = mailbox
            mailbox.first = continuation
            mailbox.first_tag = tag
            transfer = yield
            return transfer.data
        transfer = yield from self.mailbox.receive(source, tag, timeout)
        return transfer.data

    @coroutine
    def recv_transfer(
        self, source: str | None = None, tag: Any = None, timeout: float | None = None
    ) -> Generator[None, Any, Transfer]:
        """Do as `recv`, but return the transfer, with its source, tag, size and times."""
        transfer = self.mailbox.take(source, tag)
        if transfer is None:
            transfer = yield from self.mailbox.receive(source, tag, timeout)
        return transfer

    def recv_nb(self, source: str | None = None, tag: Any = None, default: Any = None) -> Any:
        """Return what was sent in a message that has arrived, or `default`, without waiting."""
        transfer = self.mailbox.take(source, tag)
        return default if transfer is None else transfer.data

    # Computing

    @coroutine
    def compute(self, duration: float) -> Generator[float, None, None]:
        """Compute for `duration` seconds of virtual time, whatever the node's speed."""
        if duration.__class__ is not float or not 0.0 <= duration < _INF:
            duration = seconds("compute: the duration", duration)
        sim = self.sim
        self.__computed += duration
        self.__computing_until = sim.now + duration
        if sim._observer is not None:
            sim._observer.computing(self)
        try:
            yield duration
        except BaseException:
            self.__computed -= self.__computing_until - sim.now
            self.__computing_until = sim.now
            raise
        finally:
            if sim._observer is not None:
                sim._observer.computed(self)

    @coroutine
    def compute_unless(
        self, duration: float, *, source: str | None = None, tag: Any = None
    ) -> Generator[Any, Any, bool]:
        """Compute for `duration` seconds, but stop as soon as a matching message arrives, which
        `recv` then returns. Return whether the computation was completed.
        """
        duration = seconds("compute_unless: the duration", duration)
        mailbox = self.mailbox
        if mailbox.holds(source, tag):
            return False
        sim = self.sim
        continuation = sim._running()
        mailbox.watchers += ((continuation, source, tag),)
        continuation.wait_queue = mailbox
        timer = sim.call_later(
            duration, lambda process: mailbox.release(process, True), continuation
        )
        self.__computed += duration
        self.__computing_until = sim.now + duration
        if sim._observer is not None:
            sim._observer.computing(self)
        try:
            in_time: bool = yield
        finally:
            if timer.cancel():
                self.__computed -= self.__computing_until - sim.now
                self.__computing_until = sim.now
            if sim._observer is not None:
                sim._observer.computed(self)
        return in_time

    async def execute(
        self,
        function: Callable[..., Result],
        *args: Any,
        duration: float | Distribution | Callable[[], float] | None = None,
    ) -> Result:
        """Call `function(*args)` now, let virtual time pass for it, and return its result.

        The time is divided by the speed of the worker's node, whatever its source.

        Args:
            function: what is really computed.
            args: its arguments.
            duration: seconds on a node of speed 1: a number; a distribution, from which each
                worker draws with a generator of its own; a function that returns the next duration;
                or None: the real time of the call, or its time in the recording that the simulation
                replays.

        Raises:
            InputError: the duration is negative or not finite, or the recording is at its end.
        """
        if duration is None:
            start = perf_counter()
            result = function(*args)
            taken = perf_counter() - start
            if self.sim._replay is not None:
                taken = self.sim._replay.next_of(self.name)
            self.sim.recording.add(self.name, taken)
        else:
            result = function(*args)
            taken = self.__draw(duration)
        if self.sim._observer is not None:
            self.sim._observer.name_next(self, getattr(function, "__name__", "compute"))
        await self.compute(taken if self.speed == 1.0 else taken / self.speed)
        return result

    def __draw(self, duration: float | Distribution | Callable[[], float]) -> float:
        if isinstance(duration, (int, float)):
            return duration
        if not isinstance(duration, Distribution):
            given = duration() if callable(duration) else duration
            return seconds("execute: the duration", given)
        # By identity: distributions may be large, and equal ones need not share a stream.
        samplers = self.__samplers
        if id(duration) not in samplers:
            rng = self.sim._generator(self.__index, len(samplers))
            samplers[id(duration)] = duration, duration.sampler(rng)
        return samplers[id(duration)][1]()

    @property
    def rng(self) -> np.random.Generator:
        """A random generator of this worker's own; the same seed gives the same numbers."""
        if self.__rng is None:
            self.__rng = self.sim._generator(self.__index)
        return self.__rng

    @property
    def compute_time(self) -> float:
        """For how many seconds it has computed, up to now."""
        return self.__computed - max(0.0, self.__computing_until - self.sim.now)

    recvNB = recv_nb  # noqa: N815 - the name in the paper


def _check(wanted: str, kind: type, given: object) -> None:
    if not isinstance(given, kind):
        raise InputError(f"{wanted}, not {shown(given)}")


def _bytes(size: Any) -> float:
    try:
        number = float(size)
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not 0.0 <= number < _INF:
        raise InputError(f"send: the size must be finite, 0 or more bytes, not {shown(size)}")
    return number


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 40


class Observer:
    """Records spans in a timeline, prints a line for every event (`log`), or both.

    A run never checks whether it is observed. An observed simulation has other functions in the
    places that are called anyway: around the `send` of each continuation, and for the end of a
    transfer. Only `compute` checks for an observer.
    """

    def __init__(self, sim: Simulator, timeline: Timeline | None, log: bool) -> None:
        self._sim = sim
        self._append = timeline.append if timeline is not None else lambda span: None
        self._log = log
        # What goes on now, by who does it: node, resource, name, begin.
        self._waits: dict[Process, tuple[str, float]] = {}
        self._computes: dict[Worker, tuple[str, float]] = {}
        self._names: dict[Worker, str] = {}
        self._recorded_until: dict[int, float] = {}

    def watch(self, continuation: Continuation) -> None:
        process, send = continuation.process, continuation.send

        def observed(value: object) -> float | None:
            self._waited(process)
            sleep = send(value)
            now = self._sim.now
            if sleep is not None:
                self._waits.pop(process, None)
                if self._log:
                    verb = "computes" if process in self._computes else "sleeps"
                    self._line(process.name, f"{verb} for {sleep:g} s")
            else:
                reason = process._waits_for()
                self._waits[process] = reason, now
                if self._log:
                    self._line(process.name, f"waits for {reason}")
            return sleep

        continuation.send = observed

    def name_next(self, worker: Worker, name: str) -> None:
        self._names[worker] = name

    def computing(self, worker: Worker) -> None:
        self._computes[worker] = self._names.pop(worker, "compute"), self._sim.now

    def computed(self, worker: Worker) -> None:
        if worker in self._computes:
            name, began = self._computes.pop(worker)
            self._span(worker.name, "compute", name, began)

    def complete(self, transfer: Transfer) -> Continuation | None:
        self._transferred(transfer)
        self._recorded_until.pop(transfer.number, None)
        if not transfer.propagation:
            self._arrives(transfer)
        return complete(transfer)

    def deliver(self, transfer: Transfer) -> None:
        self._arrives(transfer)
        deliver(transfer)

    def withdrawn(self, transfer: Transfer) -> None:
        self._transferred(transfer)
        self._recorded_until.pop(transfer.number, None)

    def _arrives(self, transfer: Transfer) -> None:
        if self._log:
            tag = "" if transfer.tag is None else f" tagged {transfer.tag!s}"
            self._line(
                transfer.target, f"gets {_SHORT.repr(transfer.data)}{tag} from {transfer.source}"
            )

    def left(self, process: Process) -> None:
        self._waited(process)
        if self._log:
            self._line(process.name, "is cancelled" if process.cancelled else "is done")

    def pause(self) -> None:
        """Record what is in progress up to now; the run may end here, or continue."""
        now = self._sim.now
        for process, (what, since) in list(self._waits.items()):
            self._span(process.name, "wait", what, since)
            self._waits[process] = what, now
        for worker, (name, began) in list(self._computes.items()):
            self._span(worker.name, "compute", name, began)
            self._computes[worker] = name, now
        for transfer in self._sim._transfers_under_way():
            self._transferred(transfer)
            self._recorded_until[transfer.number] = now

    def _waited(self, process: Process) -> None:
        if process in self._waits:
            what, since = self._waits.pop(process)
            self._span(process.name, "wait", what, since)

    def _transferred(self, transfer: Transfer) -> None:
        began = self._recorded_until.get(transfer.number, transfer.began)
        name = "message" if transfer.tag is None else str(transfer.tag)
        self._span(transfer.source, "send", name, began, transfer.number)
        self._span(transfer.target, "receive", name, began, transfer.number)

    def _span(self, node: str, resource: str, name: str, began: float, flow: int = -1) -> None:
        if began < self._sim.now:
            self._append((node, resource, name, began, self._sim.now, flow))

    def _line(self, name: str, what: str) -> None:
        print(f"{self._sim.now:12.6f}  {name}  {what}")


class Recording:
    """The seconds that the measured calls of each worker took, in order, by the worker's name.

    `Simulator.recording` holds what a run measures. Given to another one with
    `Simulator(recording=...)`, the same calls take the same virtual time again.
    """

    def __init__(self, durations: Mapping[str, Iterable[float]] | None = None) -> None:
        self.durations = {name: list(values) for name, values in (durations or {}).items()}

    def add(self, worker: str, duration: float) -> None:
        """Record that the next call of `worker` took `duration` seconds."""
        self.durations.setdefault(worker, []).append(duration)

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file; `paracosm.timing.parse` describes it."""
        save_recording(path, self.durations)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Return the recording that `save` wrote, equal to the bit."""
        return cls(load_recording(path))


class Replay:
    """A recording, and the position of each worker in it."""

    def __init__(self, recording: Recording) -> None:
        self._durations = recording.durations
        self._left = {name: iter(series) for name, series in recording.durations.items()}

    def next_of(self, worker: str) -> float:
        if worker not in self._left:
            raise unknown("worker of the recording", worker, self._durations)
        for duration in self._left[worker]:
            return duration
        raise InputError(
            f"the recording holds {len(self._durations[worker])} durations of {worker}, and the "
            "run asks for one more: replay it with the program that it was recorded with"
        )

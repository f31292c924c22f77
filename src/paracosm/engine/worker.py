"""Workers: walkers that are computers. They send, receive and compute.

The names of Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect",
tables 2 and 3, where they differ from ours, are aliases: `recvNB` is `recv_nb`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappush
from math import nan
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from paracosm.engine.messages import Mailbox, Ports, Route, Transfer, hand_over
from paracosm.engine.scheduler import seconds
from paracosm.engine.walker import Continuation, Walker
from paracosm.errors import InputError, unknown
from paracosm.network.serial import request
from paracosm.timing import Distribution

if TYPE_CHECKING:
    import numpy as np

    from paracosm.engine.simulator import Simulator

__all__ = ["Worker"]

Result = TypeVar("Result")
_INF = float("inf")


class Worker(Walker):
    """A computer of the simulation. Subclass it and define `async def run(self)`.

    Sending, receiving and computing go on independently of one another; `paracosm.network` says how
    transfers share the ports.

    Attributes:
        mailbox: what has arrived and was not received.
        ports: its two ports, with their statistics.
        speed: of its node, relative; `execute` divides durations by it.
    """

    __slots__ = (
        "__computed",
        "__computing_until",
        "__index",
        "__rng",
        "__routes",
        "__samplers",
        "mailbox",
        "ports",
        "speed",
    )

    mailbox: Mailbox
    ports: Ports
    speed: float

    def _join_simulation(self, sim: Simulator, name: str, daemon: bool) -> None:
        super()._join_simulation(sim, name, daemon)
        self.ports, self.speed, self.__index = sim._place(name)
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
        """Ask for a transfer to the worker called `to`, and go on at once.

        Args:
            to: the receiver's name.
            data: any object; the receiver gets the same one, not a copy.
            delay: for how long the transfer holds the ports, in seconds; on a cluster that is
                shared fairly, how long it takes, whatever else flows. Without it, the link of the
                simulation's network says so; without a network it takes no time.
            size: bytes.
            tag: what kind of message it is; `recv` can choose by it. Compared with `==`.

        Returns:
            The transfer, which may be awaited: it is done when the message has arrived.

        Raises:
            InputError: nobody is called so, or the delay or size is negative or not finite.
        """
        try:
            route = self.__routes[to]
        except KeyError:
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
        elif 0.0 <= size < _INF:
            transfer.size = size
        else:
            raise InputError(f"send: the size must be finite, 0 or more bytes, not {size!r}")
        given = delay
        if delay is None:
            if route.local:
                return hand_over(transfer)
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
        target = self.sim.workers.get(to)
        if target is None:
            raise unknown("worker", to, self.sim.workers)
        network = self.sim.network
        link = None if network is None else network.link(self.name, to)
        route = self.__routes[to] = Route(self, target, link, self.sim._flows)
        return route

    # Receiving

    @coroutine
    def recv(
        self, source: str | None = None, tag: Any = None, timeout: float | None = None
    ) -> Generator[None, Any, Any]:
        """Wait for a message and return what was sent.

        Messages are received in the order in which they arrive; with `source` or `tag`, the first
        one that fits is, and the others stay. The search passes over those that do not fit.

        Args:
            source: the name of the sender; anybody by default.
            tag: what the message was tagged with; anything by default.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: no such message came in time. One that comes later is not lost.
            InputError: nobody is called `source`, or the timeout is no number of seconds.
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
            # `Mailbox.receive` for the common case: one walker waits for anybody, without end.
            continuation = self.sim._current or self.sim._running()
            continuation.place = mailbox
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
        """Do as `recv`, but return the transfer, which knows its source, tag, size and times."""
        transfer = self.mailbox.take(source, tag)
        if transfer is None:
            transfer = yield from self.mailbox.receive(source, tag, timeout)
        return transfer

    def recv_nb(self, source: str | None = None, tag: Any = None, default: Any = None) -> Any:
        """Return what was sent in a message that is already there, or `default`; do not wait."""
        transfer = self.mailbox.take(source, tag)
        return default if transfer is None else transfer.data

    # Computing

    @coroutine
    def compute(self, duration: float) -> Generator[float, None, None]:
        """Compute for `duration` seconds of virtual time, as it is: the node's speed is not asked.

        Raises:
            InputError: the duration is negative or not finite.
        """
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
        """Compute for `duration` seconds, but stop as soon as a message that fits is there.

        The message is not received; `recv` gives it.

        Returns:
            Whether the computation came to its end.

        Raises:
            InputError: the duration is negative or not finite.
        """
        duration = seconds("compute_unless: the duration", duration)
        if self.mailbox.holds(source, tag):
            return False
        sim = self.sim
        continuation = sim._running()
        self.mailbox.watch((continuation, source, tag))
        timer = sim.call_later(duration, self.__computed_in_time, continuation)
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

    def __computed_in_time(self, continuation: Continuation) -> None:
        self.mailbox.release(continuation, True)

    async def execute(
        self,
        function: Callable[..., Result],
        *args: Any,
        duration: float | Distribution | Callable[[], float] | None = None,
    ) -> Result:
        """Call `function(*args)` now, let the time that it takes pass, and return its result.

        The time is divided by the speed of the worker's node, wherever it comes from.

        Args:
            function: what is really computed.
            args: its arguments.
            duration: seconds on a node of speed 1: a number; a distribution, from which each
                worker draws with a generator of its own; a function that gives the next duration;
                or None: the real time that the call took, or that it took in the recording that
                the simulation replays.

        Raises:
            InputError: the duration is negative or not finite, or the recording is at its end.
        """
        if duration is None:
            replay = self.sim._replay
            if replay is not None:
                result = function(*args)
                taken = replay.next_of(self.name)
            else:
                start = perf_counter()
                result = function(*args)
                taken = perf_counter() - start
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
            return duration()
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

    recvNB = recv_nb  # noqa: N815

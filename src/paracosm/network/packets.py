"""Packets in Python: streams at a port are served in turn, a quantum at a time.

A stream is what one node sends to one other; its messages travel in order. Its long-run rate is the
max-min fair one (`paracosm.network.fair`), and one port limits it, of several the first. **That
port serves the streams that it limits in turn, `quantum` bytes of each, at their combined rate.**
Ports that do not limit a stream let it pass at once; docs/cluster-file.md compares the rule with
the others and has its sources. As in Shreedhar, Varghese, "Efficient Fair Queuing using Deficit
Round Robin", 1995, a turn is a quantum of bytes; packets are cut at its end, so there is no
deficit.

A message arrives when its last turn is over, but not before its narrowest port could have carried
all of it: a burst from a fast port is stretched by a slow one. Streams that begin at one instant
are queued in the order of their requests, behind one that has just used up its turn. A stream that
another port limits from now on is queued last there, with the rest of its turn.

Nothing is simulated a quantum at a time: while the same streams wait at a port, the first end
follows from what each still has to send, and all whole rounds until then are one subtraction. The
bytes of 1/1024 ps are forgiven at the end of a turn as at that of a message.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from math import ceil, floor, inf
from operator import itemgetter
from typing import Self

from paracosm.network.clock import FORGIVEN, LAST_INSTANT, whole_instant
from paracosm.network.fair import FairConnection, FairRoute, FairTraffic


class _Message:
    """A message under way: bytes that are left, and how many of them it may send in its turn."""

    __slots__ = ("earliest", "left", "number", "queue", "route", "stream", "turn")

    def __init__(
        self, number: int, earliest: int, stream: Hashable, left: float, turn: float
    ) -> None:
        self.number = number  # of its request
        self.earliest = earliest  # instant at which its narrowest port could have brought it
        self.stream = stream
        self.left = left
        self.turn = turn
        self.queue: _Queue | None = None
        self.route: FairRoute | None = None


class _Queue:
    """The streams that a port serves in turn.

    Attributes:
        waiting: the one that is served, then the others in their order.
        level: bytes/ps that each has in the long run.
        rate: bytes/ps of the one that is served.
        since: ps; everything else is as of then.
        ahead: bytes that were served by then and not yet given to anybody.
        last, until: the message that ends first, and the bytes that the port serves until then.
        due: the instant of that.
        ended: the stream whose message ended last, when, and what was left of its turn.
    """

    __slots__ = (
        *("ahead", "due", "ended", "is_changed", "last", "level", "quantum", "rate", "since"),
        *("until", "waiting"),
    )

    def __init__(self, quantum: float) -> None:
        self.quantum = quantum
        self.waiting: deque[_Message] = deque()
        self.level = self.rate = self.ahead = self.until = 0.0
        self.since = 0
        self.due = LAST_INSTANT
        self.last: _Message | None = None
        self.ended: tuple[Hashable, int, float] = (None, -1, 0.0)
        self.is_changed = False

    def become(self, old: "_Queue", messages: dict[_Message, _Message]) -> None:
        """Take over all of another queue, with other messages in place of its own."""
        self.waiting = deque(messages[message] for message in old.waiting)
        self.level, self.rate, self.since, self.ahead = old.level, old.rate, old.since, old.ahead
        self.last = old.last and messages[old.last]
        self.until, self.due, self.ended = old.until, old.due, old.ended
        self.is_changed = old.is_changed

    def serve(self, now: int) -> None:
        """Distribute what the port has served by now, before which no message has ended."""
        amount = self.ahead + self.rate * (now - self.since)
        self.since, self.ahead = now, 0.0
        waiting, quantum, slack, turns = self.waiting, self.quantum, self.rate * FORGIVEN, 0
        while waiting and amount > 0.0:
            if turns == len(waiting):
                rounds = floor((amount + slack) / (len(waiting) * quantum))
                for message in waiting:
                    message.left -= rounds * quantum
                amount -= rounds * (len(waiting) * quantum)
            head = waiting[0]
            if amount < head.turn - slack or head.left <= head.turn + slack:
                part = min(amount, head.left)
                head.left -= part
                head.turn -= part
                return
            amount -= head.turn
            self._end_turn()
            turns += 1

    def find_end(self) -> None:
        """Find the message that ends first if nothing changes, and when."""
        quantum, slack, turns = self.quantum, self.rate * FORGIVEN, 0.0
        for message in self.waiting:
            turns += message.turn
        self.until, self.last = inf, None
        before = 0.0
        for place, message in enumerate(self.waiting):
            end = before + message.left
            if message.left > message.turn + slack:
                over = message.left - message.turn
                rounds = ceil((over - slack) / quantum) - 1
                end = turns + (rounds * len(self.waiting) + place) * quantum
                end += over - rounds * quantum
            if end < self.until:
                self.until, self.last = end, message
            before += message.turn
        self.due = LAST_INSTANT
        if self.last is not None and self.rate > 0:
            self.due = whole_instant(self.since, (self.until - self.ahead) / self.rate)

    def end_first(self, now: int) -> _Message:
        """Remove the message that ends now."""
        message, quantum, slack = self.last, self.quantum, self.rate * FORGIVEN
        assert message is not None
        served = self.ahead + self.rate * (now - self.since)
        self.since, self.ahead = now, max(0.0, served - self.until)
        if message.left > message.turn + slack:
            for other in self.waiting:
                other.left -= other.turn
                other.turn = quantum
            rounds = ceil((message.left - slack) / quantum) - 1
            for other in self.waiting:
                other.left -= rounds * quantum
        while self.waiting[0] is not message:
            self._end_turn()
        self.waiting.popleft()
        self.ended = message.stream, now, message.turn - message.left
        self.is_changed = True
        self.find_end()
        return message

    def enter(self, message: _Message, now: int) -> None:
        """Enqueue a stream, or continue in the turn of its last message if that ended just now."""
        self.serve(now)
        self.is_changed = True
        stream, instant, rest = self.ended
        goes_on = message.queue is None and instant == now and message.stream == stream
        message.queue = self
        if goes_on and rest > self.rate * FORGIVEN:
            message.turn = rest
            self.waiting.appendleft(message)
            self.ended = (None, -1, 0.0)
        else:
            self.waiting.append(message)

    def leave(self, message: _Message, now: int) -> None:
        """Remove a stream that another port limits from now on."""
        self.serve(now)
        self.is_changed = True
        self.waiting.remove(message)

    def _end_turn(self) -> None:
        head = self.waiting[0]
        head.left -= head.turn
        head.turn = self.quantum
        self.waiting.rotate(-1)


class PacketTraffic(FairTraffic):
    """Streams that share stations a quantum at a time; used like `FairTraffic`.

    Args:
        quantum: bytes.
        capacities: bytes/s of the stations.
    """

    def __init__(self, quantum: float, capacities: Iterable[float] = ()) -> None:
        self._quantum = quantum
        self._queues: list[_Queue] = []
        self._in_use: dict[_Queue, None] = {}  # those with waiting streams
        self._under_way: dict[int, _Message] = {}
        self._late: list[tuple[int, int, int]] = []  # served, but not there yet: a heap by instant
        super().__init__(capacities)

    def copy(self) -> Self:
        new = super().copy()
        routes = dict(zip(self._routes.values(), new._routes.values(), strict=True))
        queues = {old: _Queue(old.quantum) for old in self._queues}
        new._queues = list(queues.values())
        new._in_use = {queues[old]: None for old in self._in_use}
        new._under_way, messages = {}, dict[_Message, _Message]()
        for name, old in self._under_way.items():
            message = _Message(old.number, old.earliest, old.stream, old.left, old.turn)
            message.queue = old.queue and queues[old.queue]
            message.route = old.route and routes[old.route]
            new._under_way[name] = messages[old] = message
        for old_queue, queue in queues.items():
            queue.become(old_queue, messages)
        new._late = self._late.copy()
        return new

    def add_station(self, capacity: float) -> None:
        super().add_station(capacity)
        self._queues.append(_Queue(self._quantum))

    def send(self, message: int, connection: FairConnection, demand: float, now: int) -> None:
        connection.message = message
        self.request(message, connection.route, demand, now, connection)

    def request(
        self, message: int, route: FairRoute, demand: float, now: int, stream: Hashable = None
    ) -> None:
        """Start `demand` bytes of a stream over a route."""
        bandwidth = min(station.bandwidth for station in route.stations)
        earliest = whole_instant(now, demand / bandwidth)
        number, quantum = self._requests, self._quantum
        self._under_way[message] = _Message(number, earliest, stream, demand, quantum)
        super().request(message, route, inf, now)

    def next_end(self) -> int:
        if self._done:
            return self._done_at
        late = self._late[0][0] if self._late else LAST_INSTANT
        return min([late, *(queue.due for queue in self._in_use)])

    def settle(self, now: int) -> None:
        self._gather(now)
        if not self._touched:
            return
        super().settle(now)
        routes = [route for route in self._routes.values() if route.flows]
        coming: list[tuple[int, _Message, _Queue]] = []
        for route in routes:
            queue = self._queues[route.limit]
            for _, number, message in route.flows:
                if self._under_way[message].queue is not queue:
                    coming.append((number, self._under_way[message], queue))
        for _, entering, queue in sorted(coming, key=itemgetter(0)):
            if entering.queue is not None:
                entering.queue.leave(entering, now)
            queue.enter(entering, now)
            self._in_use[queue] = None
        for route in routes:
            queue = self._queues[route.limit]
            if queue.level != route.rate:
                queue.serve(now)
                queue.level, queue.is_changed = route.rate, True
        for queue in list(self._in_use):
            if queue.is_changed:
                queue.serve(now)
                queue.is_changed = False
                queue.rate = queue.level * len(queue.waiting)
                queue.find_end()
            if not queue.waiting:
                del self._in_use[queue]

    def _enter(self, message: int, number: int, route: FairRoute, demand: float, now: int) -> None:
        self._under_way[message].route = route
        super()._enter(message, number, route, demand, now)

    def _gather(self, now: int) -> None:
        for queue in self._in_use:
            while queue.due <= now:
                self._end(queue.end_first(now), now)
        while self._late and self._late[0][0] <= now:
            heappush(self._done, heappop(self._late)[1:])
            self._done_at = now

    def _end(self, message: _Message, now: int) -> None:
        route = message.route
        assert route is not None
        flow = next(flow for flow in route.flows if flow[1] == message.number)
        route.flows.remove(flow)
        heapify(route.flows)
        del self._under_way[flow[2]]
        if message.earliest > now:
            heappush(self._late, (message.earliest, *flow[1:]))
        else:
            heappush(self._done, flow[1:])
            self._done_at = now
        self._leave(route)

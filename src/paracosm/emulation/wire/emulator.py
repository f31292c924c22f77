"""The emulated ranks: answer every message of the real ones as gloo would, at the right time."""

from __future__ import annotations

import time
from collections.abc import Callable

from paracosm.cluster.link import Sharing
from paracosm.emulation.communication import Communication
from paracosm.emulation.peers import Peers
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.records import Collective, Exchange, Group, Note, Record
from paracosm.emulation.wire.announcements import Announcements, Vector
from paracosm.emulation.wire.answers import Flow
from paracosm.emulation.wire.connection import Buffer, Connection, Loop, Outgoing, Pair
from paracosm.emulation.wire.links import Hops, MeasuredLink, Pace
from paracosm.emulation.wire.messages import GroupState, Messages
from paracosm.emulation.wire.operations import REDUCTIONS, Channel, Entries, Operation, RealSide
from paracosm.emulation.wire.protocol import kind_of, tag_of
from paracosm.emulation.wire.rings import Rings, as_operation
from paracosm.emulation.wire.schedules import Broadcast, Members
from paracosm.emulation.wire.sources import Sources, UnknownError, send
from paracosm.emulation.wire.store import group_name

_STALL = 10.0  # seconds without progress after which the user is notified
_AGAIN = 1e-3  # seconds until what another real rank has to say first is looked for again
_LAST = 0.05  # seconds for which data may come on other connections after one has closed
_LATE = 0.1  # seconds after which an operation whose end does not show is taken to be over


class Emulator:
    """Plays the emulated members of all groups, on the thread of a loop."""

    def __init__(
        self,
        loop: Loop,  # calls everything here
        communication: Communication,  # how long messages among emulated ranks take
        peers: Peers,  # when emulated ranks come to an operation
        announcements: Announcements,  # what real ranks say of their reductions
        record: Callable[[Record], None],  # is given records
        measured: bool,  # whether skipped messages take what the real rank's link takes
        pace: Sharing | None,  # of the real ranks' own links; None where these take what they take
    ) -> None:
        self.failed = False  # something was not as gloo has it, or a real rank went too early
        self._loop = loop
        self._communication = communication
        self._peers = peers
        self._record = record
        self._answers = loop.answers
        self._link = MeasuredLink() if measured else None
        is_answered = pace in ("fair", "serial") and communication.is_uniform
        self._pace = Pace(pace, loop.answers if is_answered else None)
        self._is_told = False
        self._announcements = announcements
        self._sources = Sources(announcements)
        self._groups: dict[str, GroupState] = {}
        self._messages = Messages(
            *(loop, communication, peers, announcements, self._pace, record, self._fail)
        )
        self._moved: dict[int, list[int]] = {}  # by global rank: sent, received, messages
        self._accounted: dict[int, tuple[int, ...]] = {}

    @property
    def connections(self) -> int:
        return sum(len(state.connections) for state in self._groups.values())

    @property
    def is_alone(self) -> bool:
        return bool(self._groups) and not self.connections

    def add(self, pair: Pair) -> None:
        group = pair.group
        before = self._groups.get(group.name)
        if before is not None and before.connections:
            state = before
        else:  # a group that is made again begins with its first operation
            members = group.members or range(group.size)
            hops = Hops(self._communication, members, self._link)
            numbers = before.numbers if before is not None else {}
            if before is not None and before.answered is not None:
                before.next_number(group.real[0])  # which also counts what was answered elsewhere
                before.numbers[group.real[0]] -= 1
            state = GroupState(group, members, hops, numbers=numbers)
            self._groups[group.name] = state
            self._answer_rings(state)
            for real in group.real:
                who = state.members[real]
                self._record(Group(who, group.name, group.size, group.members, "gloo"))
        state.connections.add(Connection(pair, self._loop, self, state.answered))

    def _answer_rings(self, state: GroupState) -> None:
        """Have the rings of a group with one real member answered without Python, where possible.

        Modelled ports that messages share may be Python's, and among more than two members what
        messages take is measured by Python's own.
        """
        group, is_paced = state.group, self._pace.sharing is not None
        is_python = is_paced and self._pace.answers is None
        is_python = is_python or (self._link is not None and group.size > 2)
        if self._answers is None or len(group.real) != 1 or group.size < 2 or is_python:
            return
        real, rank = group.real[0], state.members[group.real[0]]
        added = self._communication.added
        ports = self._pace.ports(rank)
        assert not isinstance(ports, Ports)
        state.answers = self._answers
        state.answered = self._answers.group(
            group.name,
            group_name(group.name),
            (rank, real),
            group.size,
            (added("all_gather"), added("all_reduce")),
            self._peers.may_be_late,
            is_paced,
            state.numbers.get(real, 0),
            self._announcements.vectors_file(rank),
            Rings(state, self._peers, added, ports, self._unexpected, self._ended),
        )

    def _unexpected(self, state: GroupState, operation: Operation, text: str) -> None:
        self._fail(f"{self._named(state, operation)}: {text}")

    def _ended(self) -> None:
        if not self._is_told and not self._is_busy():
            self._peers.resumed(time.monotonic())

    def _is_busy(self) -> bool:
        if any(state.operations for state in self._groups.values()):
            return True
        return self._answers is not None and bool(self._answers.under_way())

    def _operations(self, state: GroupState) -> list[Operation]:
        """Return all operations of a group under way, those answered elsewhere as they stand."""
        operations = list(state.operations.values())
        if self._answers is not None and state.answered is not None:
            under_way = self._answers.under_way()
            mine = [snapshot for snapshot in under_way if snapshot.group == state.answered]
            operations += [as_operation(state, snapshot, self._peers) for snapshot in mine]
        return operations

    def check_progress(self) -> None:
        """End operations whose end is not visible, and report those that make no progress."""
        now = time.monotonic()
        for state in self._groups.values():
            for operation in self._operations(state):
                last = max(side.last for side in operation.reals.values())
                is_open = any(operation.is_open(real) for real in operation.reals)
                if not is_open and now - last > _LATE:
                    self._finish(state, operation)
                elif is_open and any(
                    channel.due or channel.due_in for channel in operation.channels.values()
                ):
                    continue  # an instant is known at which one of its messages goes on
                elif is_open and now - last > _STALL and operation.slot not in state.told:
                    state.told.append(operation.slot)
                    waits = f"makes no progress: {_waits_for(operation)}"
                    self._note(False, f"{self._named(state, operation)} {waits}")

    def account(self) -> None:
        cpu = time.process_time()
        for state in self._groups.values():
            for connection in state.connections:
                self._count(state, connection)
        moved = {real: tuple(numbers) for real, numbers in self._moved.items()}
        if moved == self._accounted:
            return
        self._accounted = moved
        for real, (sent, received, messages) in sorted(self._moved.items()):
            self._record(Exchange(real, sent, received, messages, cpu))

    def finish_all(self) -> None:
        for state in self._groups.values():
            for operation in self._operations(state):
                state.operations[operation.slot] = operation
                self._finish(state, operation)

    # --- what comes on connections ---

    def on_send_ready(self, connection: Connection, slot: int, length: int) -> None:
        connection.expect(slot, length)
        self._posted(connection, slot, length, is_ours=False)

    def on_recv_ready(self, connection: Connection, slot: int, length: int) -> None:
        self._posted(connection, slot, length, is_ours=True)

    def _posted(self, connection: Connection, slot: int, length: int, is_ours: bool) -> None:
        now = time.monotonic()
        state = self._groups[connection.pair.group.name]
        if slot >> 56 == 0:
            begin = self._messages.wanted if is_ours else self._messages.announced
            begin(state, connection, slot, length)
            return
        operation, channel, side = self._part_of(state, connection, slot, length, now)
        if not is_ours and operation.is_awaited(channel, length):
            channel.announced += 1
            side.last = now
            return  # we have been ready for it: nothing follows from that
        real, emulated = connection.pair.real, connection.pair.emulated
        if is_ours:
            index, ends = operation.received_as(connection.pair, channel.asked), (emulated, real)
        else:
            index, ends = operation.sent_as(connection.pair, channel.announced), (real, emulated)
        if unexpected := operation.unexpected(*ends, index, length):
            self._fail(f"{self._named(state, operation)}: {unexpected}")
            return
        side.last = now
        if is_ours:
            channel.asked += 1
            channel.wanted.append(length)
        else:
            channel.announced += 1
            channel.halves[index % 2] = length
            if channel.accepted < channel.announced:
                channel.lengths.append(length)
        operation.learn_root(channel)
        self._serve(state, operation, channel, now)

    def on_data(self, connection: Connection, slot: int, length: int) -> Buffer | None:
        if slot >> 56 == 0:
            return self._messages.keep(connection, slot, length)
        state = self._groups[connection.pair.group.name]
        operation = state.operations[slot]
        buffer = self._sources.keep(operation, operation.channels[connection], length)
        if buffer is not None and operation.kind in ("all_gather", "all_to_all"):
            self._loop.at(0.0, self._advance, state, operation)  # what goes back may begin
        return buffer

    def on_received(self, connection: Connection, slot: int, length: int) -> None:
        now = time.monotonic()
        state = self._groups[connection.pair.group.name]
        pair = connection.pair
        if slot >> 56 == 0:
            self._messages.received(state, connection, slot, length)
            return
        operation = state.operations[slot]
        channel, side = operation.channels[connection], operation.reals[pair.real]
        index = operation.sent_as(pair, channel.arrived)
        channel.arrived += 1
        operation.moved += 1
        side.sent += length
        side.longest = max(side.longest, length)
        side.last = now
        since = channel.ready.popleft() if channel.ready else None
        if since is not None and self._link is not None:
            self._link.took(length, now - since)
        operation.schedule.arrived(pair.real, pair.emulated, index, length, now)
        self._advance(state, operation)
        self._finish_if_complete(state, operation)

    def on_sent(self, connection: Connection, message: Outgoing) -> None:
        now = time.monotonic()
        state = self._groups[connection.pair.group.name]
        if message.slot >> 56 == 0:
            self._messages.sent(state, connection, message)
            return
        operation = state.operations.get(message.slot)
        if operation is None:
            return
        channel = operation.channels[connection]
        side = operation.reals[connection.pair.real]
        index = operation.received_as(connection.pair, channel.gone)
        channel.gone += 1
        operation.moved += 1
        side.received += message.length
        side.longest = max(side.longest, message.length)
        side.last = now
        self._sources.passed_on(operation, channel, index)
        if operation.world == 2 and operation.is_ring:  # one half may be over with that
            while self._accept(state, operation, channel, now):
                pass
        self._finish_if_complete(state, operation)

    def on_closed(self, connection: Connection, broken: str | None) -> None:
        pair = connection.pair
        state = self._groups[pair.group.name]
        state.connections.discard(connection)
        self._count(state, connection)
        rank = state.members[pair.real]
        peer = state.members[pair.emulated]
        if broken is not None:
            self._fail(f"between rank {rank} and emulated rank {peer}: {broken}")
        for operation in self._operations(state):
            if pair.real in operation.reals and operation.is_open(pair.real):
                at = time.monotonic() + _LAST
                self._loop.at(at, self._bytes_left, state, operation.slot, pair.real)
        message = self._messages.close(connection)
        if message is not None and not self.failed:
            self._fail(
                f"rank {rank} closed the connection in the middle of a {message} with rank {peer}"
            )

    def _bytes_left(self, state: GroupState, slot: int, real: int) -> None:
        for operation in self._operations(state):
            if operation.slot == slot and not self.failed and operation.is_open(real):
                self._fail(
                    f"rank {state.members[real]} closed the connection in the middle of "
                    f"{self._named(state, operation)} ({_moved(operation, real)})"
                )

    def resumed(self, now: float) -> None:
        self._is_told = True
        self._peers.resumed(now)

    def iteration_ended(self, now: float) -> None:
        self._peers.iteration_ended(now)

    # --- an operation's progress ---

    def _part_of(
        self, state: GroupState, connection: Connection, slot: int, length: int, now: float
    ) -> tuple[Operation, Channel, RealSide]:
        operation = state.operations.get(slot)
        real = connection.pair.real
        if operation is None:
            kind = kind_of(slot)
            added = self._communication.added(kind)
            entries = Entries(self._peers, state.members, now, added)
            members = Members(state.group.size, state.group.real, entries.of, state.hops.split)
            vector, root = self._announced(state, slot, real)
            operation = Operation(kind, tag_of(slot), slot, members, entries, vector, root)
            state.operations[slot] = operation
        elif real not in operation.reals:
            self._compare(state, operation, real)
        channel = operation.channels.get(connection)
        if channel is None:
            channel = operation.channels[connection] = Channel(connection)
        side = operation.reals.get(real)
        if side is None:
            side = operation.reals[real] = RealSide(now, state.next_number(real), now)
        return operation, channel, side

    def _announced(self, state: GroupState, slot: int, real: int) -> tuple[Vector | None, int]:
        """Return what a real member reduces, and the root of its broadcast; fail without."""
        kind, tag, name = kind_of(slot), tag_of(slot), state.group.name
        vector, root, lacks = None, None, ""
        if kind in REDUCTIONS:
            vector = self._announcements.vector(name, real, tag)
            lacks = "length of its vector" if vector is None else ""
        elif kind == "broadcast":
            root = self._announcements.root(name, real, tag)
            lacks = "root" if root is None else ""
        if lacks:
            self._fail(
                f"{kind} {tag} of the group {name}: rank {state.members[real]} did not announce "
                f"the {lacks}, which gloo's messages lack: start it with PARACOSM_SERVED as "
                "paracosm emulate serve prints it"
            )
        return vector, root or 0

    def _compare(self, state: GroupState, operation: Operation, real: int) -> None:
        """Fail where another real member reduces another size, or has another root."""
        name, tag, differ = state.group.name, operation.tag, ""
        if operation.vector is not None:
            vector = self._announcements.vector(name, real, tag)
            if vector is not None and vector.size != operation.vector.size:
                sizes = f"{operation.vector.size:,} and {vector.size:,} bytes"
                differ = f"give vectors of {sizes}"
        elif isinstance(operation.schedule, Broadcast):
            root = self._announcements.root(name, real, tag)
            if root not in (None, operation.schedule.root):
                differ = f"broadcast from ranks {operation.schedule.root} and {root} of the group"
        if differ:
            self._fail(f"{self._named(state, operation)}: real ranks {differ}")

    def _advance(self, state: GroupState, operation: Operation) -> None:
        if operation.slot not in state.operations:
            return
        now = time.monotonic()
        for channel in list(operation.channels.values()):
            if channel.wanted or channel.lengths or operation.sends_more(channel):
                self._serve(state, operation, channel, now)

    def _serve(self, state: GroupState, operation: Operation, channel: Channel, now: float) -> None:
        accepted = channel.accepted
        while self._accept(state, operation, channel, now):
            pass
        if channel.accepted > accepted and operation.is_urgent(channel):
            channel.connection.flush()  # the real rank sends while we do the rest
        while self._answer(state, operation, channel, now):
            pass

    def _accept(
        self, state: GroupState, operation: Operation, channel: Channel, now: float
    ) -> bool:
        pair = channel.connection.pair
        announced = channel.accepted < channel.announced
        if not announced and (self._pace.sharing or not self._sends_more(operation, channel)):
            return False
        index = operation.sent_as(pair, channel.accepted)
        length = channel.lengths[0] if announced else operation.length_ahead(channel)
        due = channel.due_in
        if due is None:
            at = operation.schedule.accept_at(pair.emulated, pair.real, index)
            if at is None:
                return False
            due = state.there(self._pace, pair, False, length, max(at, now))
            if due.done > now and announced:
                channel.due_in = due
        if due.done > now:
            self._await(due, state, operation, channel)
            return False
        channel.due_in = None
        if announced:
            channel.lengths.popleft()
        channel.ready.append(now if announced else None)
        channel.accepted += 1
        channel.connection.accept(operation.slot, length)
        return True

    def _sends_more(self, operation: Operation, channel: Channel) -> bool:
        # The link is measured by messages that were announced before we accepted them.
        if self._link is not None and operation.world > 2 and not channel.halves:
            return False
        return operation.sends_more(channel)

    def _answer(
        self, state: GroupState, operation: Operation, channel: Channel, now: float
    ) -> bool:
        if not channel.wanted:
            return False
        pair = channel.connection.pair
        if operation.is_behind(channel):
            return False
        length = channel.wanted[0]
        index = operation.received_as(pair, channel.sent)
        due = channel.due
        if due is None:
            at = operation.schedule.send_at(pair.emulated, pair.real, index, length)
            if at is None:
                return False
            due = state.there(self._pace, pair, True, length, max(at, now))
            channel.due = due
        if due.done > now:
            self._await(due, state, operation, channel)
            return False
        try:
            source = self._sources.of(state.group, operation, channel, index, length)
        except UnknownError:
            self._fail(
                f"{self._named(state, operation)}: what emulated rank "
                f"{state.members[pair.emulated]} would contribute ({length:,} bytes) is unknown: "
                "make it real as well (--rank)"
            )
            return False
        if source is None:
            if operation.kind == "broadcast":
                self._loop.at(now + _AGAIN, self._advance, state, operation)
            return False
        channel.due = None
        channel.wanted.popleft()
        channel.sent += 1
        send(channel.connection, operation.slot, length, source, at_once=operation.is_last(index))
        return True

    def _await(
        self, due: Span | Flow, state: GroupState, operation: Operation, channel: Channel
    ) -> None:
        """Look at a channel again when something is due, which may move meanwhile."""

        def again() -> None:
            if operation.slot in state.operations:
                self._serve(state, operation, channel, time.monotonic())

        due.on_earlier = lambda: self._loop.at(due.done, again)
        self._loop.at(due.done, again)

    # --- ends ---

    def _finish_if_complete(self, state: GroupState, operation: Operation) -> None:
        channels, reals = operation.channels.values(), operation.reals
        if operation.is_under_way:
            return
        if any(channel.is_open or channel.accepted > channel.arrived for channel in channels):
            return
        if all(real in reals and operation.is_complete(real) for real in state.group.real):
            self._finish(state, operation)

    def _finish(self, state: GroupState, operation: Operation) -> None:
        if state.operations.pop(operation.slot, None) is None:
            return
        for real, side in operation.reals.items():
            peer = state.members[side.peer] if side.peer >= 0 else -1
            identity = side.number, operation.kind, operation.size(real), peer
            entered, done = max(side.asked, operation.entries.last), max(side.last, side.asked)
            times = side.asked, entered, side.asked, done
            self._record(Collective(state.members[real], state.group.name, *identity, *times))
        self._sources.finished(operation)
        self._ended()

    def _count(self, state: GroupState, connection: Connection) -> None:
        connection.count()
        moved = self._moved.setdefault(state.members[connection.pair.real], [0, 0, 0])
        moved[0] += connection.sent
        moved[1] += connection.received
        moved[2] += connection.messages
        connection.sent = connection.received = connection.messages = 0

    def _named(self, state: GroupState, operation: Operation) -> str:
        real = next(iter(operation.reals))
        named = f"{operation.kind} number {operation.reals[real].number}"
        return named if len(self._groups) == 1 else f"{named} of the group {state.group.name}"

    def _fail(self, text: str) -> None:
        if self.failed:
            return  # what follows from the first failure
        self.failed = True
        self._note(True, text)
        self._loop.stop()

    def _note(self, grave: bool, text: str) -> None:
        self._record(Note(-1, grave, text))


def _moved(operation: Operation, real: int) -> str:
    side = operation.reals[real]
    expected = operation.expected(real)
    moved = side.sent + side.received
    if expected is not None and operation.is_ring:
        return f"{_amount(moved)} of {_amount(sum(expected) * operation.segment)} moved"
    return f"{_amount(moved)} moved"


def _amount(size: int) -> str:
    return f"{size / (1 << 20):.3g} MiB" if size >= 100_000 else f"{size:,} bytes"


def _waits_for(operation: Operation) -> str:
    parts = []
    for channel in operation.channels.values():
        pair = channel.connection.pair
        if channel.arrived < channel.announced:
            count = channel.announced - channel.arrived
            parts.append(f"{count} messages from rank {pair.real} of the group")
        if channel.gone < channel.asked:
            parts.append(f"{channel.asked - channel.gone} messages to rank {pair.real}")
    return ", ".join(parts) or "the real rank has more to send or to receive"

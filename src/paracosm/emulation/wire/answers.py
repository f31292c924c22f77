"""The emulated ranks' answers without Python: `answer.c`, and what it asks Python for."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any, Protocol

from paracosm.cluster.link import Sharing
from paracosm.emulation.compiled_c import compiled
from paracosm.emulation.cost import Cost
from paracosm.emulation.wire.protocol import KINDS
from paracosm.errors import InputError

_SOURCES = ("answer.c",)
_FOREIGN, _CLOSED, _WRITABLE, _BEGIN, _HOPS, _UNEXPECTED, _WRONG_LENGTH, _ENDED, _PACE = range(9)
_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
)
_OPEN = 256  # operations under way that are asked for


class Flow(ctypes.Structure):
    """A message on a modelled link of a real rank, as `answer_ports.h` has it."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("done", "ready", "fixed", "left", "after")),
        ("pool", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("phase", "is_mine")),
        *((name, ctypes.c_double) for name in ("start", "ahead_left", "ahead_start")),
        *((name, ctypes.c_int32) for name in ("ahead_phase", "number")),
    )
    done: float  # when it is there, as far as is known: later messages may move that
    phase: int
    on_earlier: Callable[[], None] | None = None  # never called: none moves it to before


_DONE = 3  # a phase
_SHARINGS: dict[Sharing, int] = {"fair": 1, "serial": 2}


class Snapshot(ctypes.Structure):
    """An operation that is answered there; counts are of messages, as in `operations.Channel`."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("slot", "size", "element", "sent", "received")),
        ("number", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("announced", "accepted", "arrived")),
        *((name, ctypes.c_int64) for name in ("asked", "begun", "gone")),
        *((name, ctypes.c_double) for name in ("asked_at", "last")),
        *((name, ctypes.c_int32) for name in ("is_due", "group")),
    )
    slot: int
    size: int  # bytes, as `records.Collective` counts them
    element: int  # bytes of an element; 0 where nothing is reduced
    sent: int  # bytes that the real member has sent, and received
    received: int
    number: int  # counts the collectives of the group
    announced: int
    accepted: int
    arrived: int
    asked: int
    begun: int
    gone: int
    asked_at: float  # when its first message came
    last: float  # when something was last announced or moved
    is_due: int  # whether an instant is known at which it goes on
    group: int


class Connected(Protocol):
    """The rest of a connection, whose frames that are no ring's come here."""

    def feed(self, frames: memoryview) -> None: ...
    def expect(self, slot: int, length: int) -> None: ...
    def write(self) -> None: ...
    def close(self) -> None: ...


class Asked(Protocol):
    """Answers what has to be known of a group that `Answers.group` was given."""

    def entries(self, kind: str, asked: float) -> Sequence[float]: ...
    def hops(self, kind: str, size: int) -> Sequence[tuple[float, float]]: ...
    def paces(self, kind: str, size: int) -> Sequence[tuple[int, Flow]]: ...
    def unexpected(
        self, connection: Any, operation: Snapshot, is_ours: bool, length: int
    ) -> None: ...
    def ended(self) -> None: ...


@cache
def group_key(name: str) -> int:
    """Return the number of a group's name in announcements of vectors."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def answers_of(record: Callable[[str], None], note: Callable[[str], None]) -> Answers | None:
    """Return what answers in the place of Python, or None with a note where it cannot be made.

    `record` is called with lines of records.
    """
    try:
        if sys.platform != "linux":
            raise InputError(f"it needs Linux, not {sys.platform}")
        return Answers(compiled(Path(__file__).parent, _SOURCES, asked="wire mode"), record)
    except InputError as error:
        note(
            f"{error}. Emulated ranks answer in Python, which makes each collective some 0.1 to "
            "0.8 ms longer"
        )
        return None


class Answers:
    """One for a process: its state is the library's."""

    def __init__(self, library: Path, record: Callable[[str], None]) -> None:
        self._record = record
        self._c: Any = ctypes.CDLL(str(library))
        self._c.answer_next_number.restype = ctypes.c_int64
        self._c.answer_text.restype = ctypes.c_size_t
        self._connected: dict[int, Connected] = {}
        self._asked: dict[int, Asked] = {}
        self._callback = _CALL(self._called)
        self._failure: BaseException | None = None
        self._snapshots = (Snapshot * _OPEN)()
        self._wait = self._c.answer_wait

    def start(self, descriptor: int) -> None:
        """Begin anew; `wait` returns when `descriptor` can be read."""
        if self._c.answer_start(self._callback, descriptor):
            raise OSError("epoll_ctl")

    def group(
        self,
        name: str,
        stored: str,
        ranks: tuple[int, int],
        size: int,
        added: tuple[float, float],
        may_be_late: bool,
        is_paced: bool,
        number: int,
        vectors: Path,
        asked: Asked,
    ) -> int:
        """Take over the rings of a group that has one real member; return its number here.

        Args:
            name: of the group in records.
            stored: its name in the announcements of vectors, which are in the file `vectors`.
            ranks: the real member's global rank, and its rank in the group.
            size: how many members.
            added: seconds by which every all-gather and all-reduce begins late.
            may_be_late: whether emulated members may be.
            is_paced: whether messages of the real member take what its modelled links do.
            number: collectives that the group has had.
            vectors: the file.
            asked: answers what has to be known.
        """
        handle = self._c.answer_group(
            ctypes.c_uint64(group_key(stored)),
            dumps(name).encode(),
            *ranks,
            size,
            int(may_be_late),
            int(is_paced),
            *map(ctypes.c_double, added),
            ctypes.c_int64(number),
            bytes(vectors),
        )
        self._asked[handle] = asked
        return int(handle)

    def connect(self, descriptor: int, group: int, peer: int, rest: Connected) -> int:
        """Take over a connection between the real member and an emulated one."""
        number = int(self._c.answer_link(descriptor, group, peer))
        if number < 0:
            raise OSError("epoll_ctl")
        self._connected[number] = rest
        return number

    def close(self, number: int) -> None:
        self._c.answer_close(number)
        self._connected.pop(number, None)

    def may_write(self, number: int) -> bool:
        """Whether no frame from there is incomplete on a connection."""
        return bool(self._c.answer_may_write(number))

    def wrote(self, number: int, is_inside: bool, wants_room: bool) -> None:
        """Say whether a frame of Python's is incomplete, and whether `write` is to be called."""
        self._c.answer_python_writes(number, is_inside, wants_room)

    def counts(self, number: int) -> tuple[int, int, int]:
        """Return bytes of data sent and received, and messages, since the last call."""
        counted = (ctypes.c_uint64 * 3)()
        self._c.answer_counts(number, counted)
        return counted[0], counted[1], counted[2]

    def next_number(self, group: int) -> int:
        return int(self._c.answer_next_number(group))

    def ports(self, sharing: Sharing) -> AnsweredPorts:
        """Return the modelled links of a real rank, which rings answered here share."""
        return AnsweredPorts(self._c, sharing)

    def under_way(self) -> list[Snapshot]:
        count = self._c.answer_open(self._snapshots, _OPEN)
        return [Snapshot.from_buffer_copy(snapshot) for snapshot in self._snapshots[:count]]

    def record(self) -> None:
        """Record what has ended since the last call."""
        text = ctypes.c_void_p()
        size = self._c.answer_text(ctypes.byref(text))
        if size:
            self._record(ctypes.string_at(text, size).decode())

    def stop(self) -> None:
        self._c.answer_stop()

    def wait(self, until: float) -> None:
        """Serve until an instant, until there is something for Python, or until `stop`."""
        self._wait(ctypes.c_double(until))
        self.record()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _called(self, what: int, number: int, value: int, length: int, data: int) -> None:
        try:
            self._serve(what, number, value, length, data)
        except BaseException as error:  # none may leave a callback; `wait` raises it
            self._failure = error
            self.stop()

    def _serve(self, what: int, number: int, value: int, length: int, data: int) -> None:
        if what == _BEGIN:
            place = (ctypes.c_double * length).from_address(data)
            place[:] = list(self._asked[number].entries(KINDS[value], place[0]))
        elif what == _HOPS:
            latency, busy = zip(*self._asked[number].hops(KINDS[value], length), strict=True)
            array = ctypes.c_double * len(latency)
            self._c.answer_hops(
                number, value, ctypes.c_uint64(length), len(latency), array(*latency), array(*busy)
            )
        elif what == _PACE:
            (in_port, inwards), (out_port, out) = self._asked[number].paces(KINDS[value], length)
            ways = in_port, ctypes.byref(inwards), out_port, ctypes.byref(out)
            self._c.answer_pace(number, value, ctypes.c_uint64(length), *ways)
        elif what == _ENDED:
            self._asked[number].ended()
        elif number not in self._connected:
            return
        elif what == _FOREIGN:
            self._connected[number].feed(memoryview(ctypes.string_at(data, length)))
        elif what == _WRITABLE:
            self._connected[number].write()
        elif what == _CLOSED:
            self._connected[number].close()
        elif what == _WRONG_LENGTH:
            self._connected[number].expect(value, length)
        elif what == _UNEXPECTED:
            snapshot = Snapshot.from_buffer_copy(ctypes.string_at(data, ctypes.sizeof(Snapshot)))
            asked = self._asked[snapshot.group]
            asked.unexpected(self._connected[number], snapshot, bool(value), length)


class AnsweredPorts:
    """The links of a real rank, as `ports.Ports`, which rings that are answered in C share.

    For messages that each need one direction of a link and are as fast as that: fair or serial.
    """

    def __init__(self, library: Any, sharing: Sharing) -> None:
        self._c = library
        self._sharing = _SHARINGS[sharing]
        self._ports: dict[str, int] = {}
        self._pools: dict[Hashable, int] = {}
        self._under_way: list[Flow] = []

    def ask(self, pool: Hashable, now: float, ready: float, cost: Cost) -> Flow:
        """Give a message that is ready at an instant to its link; of a pool one moves at a time."""
        port, flow = self.need(pool, cost)
        flow.ready = ready
        self._under_way = [other for other in self._under_way if other.phase != _DONE]
        self._under_way.append(flow)  # where it has to stay until it is done
        self._c.answer_ask(port, ctypes.byref(flow), ctypes.c_double(now))
        return flow

    def need(self, pool: Hashable, cost: Cost) -> tuple[int, Flow]:
        """Return the number of the link that a message needs, and what it needs of it."""
        if cost.link not in self._ports:
            self._ports[cost.link] = self._c.answer_port(self._sharing if cost.link else 0)
        number = self._pools.setdefault(pool, len(self._pools))
        flow = Flow(fixed=cost.fixed, left=cost.busy, after=cost.after, pool=number)
        return self._ports[cost.link], flow

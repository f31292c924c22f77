"""gloo's frames, and what is not one: refused, named, and without a trace in memory.

Each test runs twice: answered by Python alone, and with `answer.c`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.emulation.communication import NoCommunication
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import Cost
from paracosm.emulation.peers import peers_of
from paracosm.emulation.records import Collective, Note, Record, RecordReader
from paracosm.emulation.wire.announcements import AnnouncementWriter, Vector, vectors_file
from paracosm.emulation.wire.answers import answers_of
from paracosm.emulation.wire.connection import Loop, Pair, WireGroup
from paracosm.emulation.wire.emulator import Emulator
from paracosm.emulation.wire.protocol import (
    DATA,
    RECV_READY,
    SEND_READY,
    BrokenError,
    data_header,
    kind_of,
    notice,
    read_header,
    tag_of,
)
from paracosm.emulation.wire.segments import layout_of, messages_of


def slot(kind: int, tag: int) -> int:
    return kind << 56 | tag << 24


ALL_GATHER, ALL_REDUCE, BARRIER = 2, 4, 7

_is_compiled = False


@pytest.fixture(params=["python", "compiled"], autouse=True, scope="module")
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    global _is_compiled
    _is_compiled = request.param == "compiled"
    yield _is_compiled
    _is_compiled = False


def test_header_by_hand() -> None:
    # 48 bytes, opcode 2, slot 04 00000005 000000, offset 0, length 12, offset 0.
    raw = struct.pack("<6Q", 48, 2, 0x0400000005000000, 0, 12, 0)
    assert notice(SEND_READY, slot(ALL_REDUCE, 5), 12) == raw
    opcode, found, length = read_header(raw, 0)
    assert (opcode, length) == (SEND_READY, 12)
    assert (kind_of(found), tag_of(found)) == ("all_reduce", 5)
    assert tag_of(77) == 77
    assert kind_of(77) == "send"
    assert read_header(data_header(77, 3), 0)[0] == DATA


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((48, 9, 0, 0, 0, 0), "expected opcode 1, 2 or 3 of a gloo message, not 9"),
        ((48, 0, 0, 0, 0, 0), r"not 0 \(SEND_BUFFER\)"),
        ((48, 2, 0, 0, 1 << 41, 0), "expected a length of 0 to 1,099,511,627,776 bytes"),
        ((47, 1, 0, 0, (1 << 64) - 1, 0), "bytes, not -1"),
        ((50, 1, 0, 0, 3, 0), "expected a SEND_UNBOUND_BUFFER of 51 bytes in all, not 50"),
        ((48, 3, 9 << 56, 0, 3, 0), "expected an operation of kind 0 to 8, not 9"),
    ],
)
def test_headers_that_gloo_does_not_send(numbers: tuple[int, ...], text: str) -> None:
    with pytest.raises(BrokenError, match=text):
        read_header(struct.pack("<6Q", *numbers), 0)


@dataclass
class Served:
    """A group of real and emulated ranks, with the real ranks' ends of the connections."""

    ends: dict[int, socket.socket] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    emulator: Emulator | None = None

    def read(self, peer: int, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self.ends[peer].recv(count - len(found))
            if not piece:
                raise ConnectionError
            found += piece
        return found

    def read_to_end(self, peer: int) -> bytes:
        found = b""
        with contextlib.suppress(ConnectionError):
            while piece := self.ends[peer].recv(1 << 16):
                found += piece
        return found

    def is_silent(self, peer: int) -> bool:
        """Return whether nothing comes for a while."""
        return not select.select([self.ends[peer]], [], [], 0.05)[0]

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not until():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    @property
    def notes(self) -> list[str]:
        return [one.text for one in self.records if isinstance(one, Note) and one.grave]


@contextlib.contextmanager
def serve(
    world: int,
    hop: float = 0.0,
    pace: bool = False,
    vector: Vector | None = None,
    tag: int = 0,
    busy: float = 0.0,
) -> Iterator[Served]:
    """Emulate ranks 1 to world - 1 for a rank 0 that the test plays, and what that announces."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _serve(Path(folder), world, hop, pace, vector, tag, busy)


def _serve(
    folder: Path,
    world: int,
    hop: float,
    pace: bool,
    vector: Vector | None,
    tag: int,
    busy: float,
) -> Iterator[Served]:
    writer = AnnouncementWriter(folder / "rank0.announced")
    if vector is not None:
        writer.vector("group", 0, tag, vector)
    answers = None
    served = Served()
    if _is_compiled:
        file = folder / "records"
        reader = RecordReader(file)

        def record(text: str) -> None:
            with file.open("a") as opened:
                opened.write(text)
            served.records.extend(reader.more())

        answers = answers_of(record, pytest.fail)
    config = EmulateConfig.model_validate({"script": "x.py", "world_size": world, "mode": "wire"})
    loop = Loop(answers)
    announced: Any = _Announced(vector, vectors_file(folder / "records", 0))
    served.emulator = Emulator(
        loop,
        _Links(hop, busy),
        peers_of(config, 0, 0),
        announced,
        served.records.append,
        measured=False,
        pace="fair" if pace else None,
    )
    group = WireGroup("group", world, (0,), tuple(range(world)))
    for peer in range(1, world):
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        served.ends[peer] = theirs
        served.emulator.add(Pair(ours, group, 0, peer))
    thread = threading.Thread(target=loop.run, args=(served.emulator.check_progress,))
    thread.start()
    try:
        yield served
    finally:
        loop.stop()
        thread.join(10)
        for end in served.ends.values():
            end.close()
    assert not thread.is_alive()


class _Announced:
    def __init__(self, vector: Vector | None, file: Path) -> None:
        self._vector = vector
        self._file = file

    def vectors_file(self, rank: int) -> Path:
        return self._file

    def vector(self, group: str, member: int, tag: int) -> Vector | None:
        return self._vector

    def copy(self, group: str, member: int, tag: int) -> None:
        """Nothing is announced but vectors."""

    message = pipeline = copy


class _Links(NoCommunication):
    """Messages of the same time each."""

    is_uniform = True

    def __init__(self, seconds: float, busy: float) -> None:
        super().__init__()
        self._seconds, self._busy = seconds, busy

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        link = "nic out" if rank == source else "nic in"
        return Cost(0.0, self._busy, link, self._seconds)

    def added(self, kind: str) -> float:
        return 0.0


def test_all_reduce_of_two_as_gloo_plays_it() -> None:
    # 4 segments of 64 KiB: rank 0 sends 2 and 3, then 0 and 1; it receives 0 and 1, then 2 and 3.
    at, length = slot(ALL_REDUCE, 0), 1 << 16
    with serve(2, vector=Vector(4 * length, 1, bytes(1))) as served:
        end = served.ends[1]
        for _ in range(2):
            end.sendall(notice(RECV_READY, at, length) + notice(SEND_READY, at, length))
        got = b""
        segments = [bytes([i]) * length for i in (1, 2)]
        expected = notice(RECV_READY, at, length)
        answer = notice(SEND_READY, at, length) + data_header(at, length)
        got = served.read(1, 2 * (len(expected) + len(answer) + length))
        assert got.startswith(2 * expected)  # what gloo has posted does not wait behind data
        assert got.count(answer + bytes(length)) == 2  # nothing is added
        end.sendall(data_header(at, length) + segments[0])
        assert served.is_silent(1)  # the second half begins when the first is over
        end.sendall(data_header(at, length) + segments[1])
        # Two more are accepted ahead, as gloo posts them.
        assert served.read(1, 2 * len(expected)) == 2 * expected
        for _ in range(2):
            end.sendall(notice(RECV_READY, at, length) + notice(SEND_READY, at, length))
        got = served.read(1, 2 * (len(answer) + length))
        assert got == b"".join(answer + segment for segment in segments)  # the sum is ours alone
        for segment in segments:
            end.sendall(data_header(at, len(segment)) + segment)
        served.wait(lambda: any(isinstance(one, Collective) for one in served.records))
    done = next(one for one in served.records if isinstance(one, Collective))
    assert (done.kind, done.size, done.group) == ("all_reduce", 4 << 16, "group")
    assert served.notes == []


def test_short_messages_of_two_are_all_awaited_at_once(compiled: bool) -> None:
    # Python saves waiting for notices; there, two are awaited, as in gloo.
    at, length = slot(ALL_REDUCE, 0), 256
    with serve(2, vector=Vector(4 * length, 1, bytes(1))) as served:
        served.ends[1].sendall(notice(RECV_READY, at, length))
        answer = notice(SEND_READY, at, length) + data_header(at, length) + bytes(length)
        expected = (2 if compiled else 4) * notice(RECV_READY, at, length) + answer
        assert served.read(1, len(expected)) == expected
        assert served.is_silent(1)


def test_of_two_that_gather_ours_sends_back_what_has_come() -> None:
    at, length = slot(ALL_GATHER, 0), 1 << 16
    with serve(2) as served:
        end = served.ends[1]
        for _ in range(2):
            end.sendall(notice(SEND_READY, at, length) + notice(RECV_READY, at, length))
        assert served.read(1, 96) == 2 * notice(RECV_READY, at, length)
        for i in (1, 2):
            half = bytes([i]) * length
            end.sendall(data_header(at, length) + half[:-1])
            assert served.is_silent(1)
            end.sendall(half[-1:])
            whole = notice(SEND_READY, at, length) + data_header(at, length) + half
            assert served.read(1, len(whole)) == whole
    assert served.notes == []


def test_few_elements_in_a_large_world_end_in_good_order() -> None:
    # 5 elements in 400 segments: rank 0 sends 6 messages to the last rank, and receives 8.
    world, at, length = 200, slot(ALL_REDUCE, 0), 4
    messages = messages_of(layout_of("all_reduce", world, 5 * length, length)[0], 0)
    with serve(world, vector=Vector(5 * length, length, bytes(length))) as served:
        before, after = served.ends[world - 1], served.ends[1]
        after.sendall(notice(RECV_READY, at, length) * len(messages.receives))
        before.sendall(notice(SEND_READY, at, length) * len(messages.sends))
        for _ in messages.sends:
            assert served.read(world - 1, 48) == notice(RECV_READY, at, length)
            before.sendall(data_header(at, length) + bytes(length))
        served.read(1, (96 + length) * len(messages.receives))
        emulator = served.emulator
        assert emulator is not None
        before.close()
        after.close()
        served.wait(lambda: emulator.connections == world - 3)
        served.wait(lambda: any(isinstance(one, Collective) for one in served.records))
    assert served.notes == []
    assert next(one.size for one in served.records if isinstance(one, Collective)) == 5 * length


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n" * 4, "expected opcode 1, 2 or 3"),
        (notice(9, 0, 0), "not 9 (none of gloo's)"),
        (data_header(slot(ALL_REDUCE, 0), 100), "expected no data before it is announced"),
        (
            notice(SEND_READY, slot(ALL_REDUCE, 0), 100) + data_header(slot(ALL_REDUCE, 0), 101),
            "expected 100 bytes, as announced, but 101 came",
        ),
        (notice(SEND_READY, slot(ALL_REDUCE, 0), 1 << 63), "expected a length of 0 to"),
    ],
)
def test_what_gloo_does_not_send_is_named_and_the_connection_closed(raw: bytes, text: str) -> None:
    with serve(3, vector=Vector(600, 1, bytes(1))) as served:
        served.ends[2].sendall(raw)
        served.read_to_end(2)
    assert len(served.notes) == 1
    assert served.notes[0].startswith("between rank 0 and emulated rank 2: ")
    assert text in served.notes[0]


def test_unexpected_messages_name_the_operation_and_what_was_expected() -> None:
    with serve(4, vector=Vector(32 << 10, 4, bytes(4)), tag=3) as served:
        served.ends[1].sendall(notice(SEND_READY, slot(ALL_REDUCE, 3), 4096))
        served.wait(lambda: bool(served.notes))
    assert served.notes[0] == (
        "all_reduce number 0: message 0 of 4,096 bytes from rank 0 to rank 1 of the group was not "
        "expected: in gloo's all_reduce among 4 ranks send to the rank before them only"
    )


def test_a_vector_that_was_not_announced_ends_the_run() -> None:
    with serve(2) as served:
        served.ends[1].sendall(notice(SEND_READY, slot(ALL_REDUCE, 3), 4096))
        served.wait(lambda: bool(served.notes))
    assert "rank 0 did not announce the length of its vector" in served.notes[0]


def test_a_message_that_is_longer_than_a_segment_is_not_as_announced() -> None:
    with serve(2, vector=Vector(400, 4, bytes(4))) as served:
        served.ends[1].sendall(notice(SEND_READY, slot(ALL_REDUCE, 0), 104))
        served.wait(lambda: bool(served.notes))
    assert "cuts 400 bytes into segments of 100" in served.notes[0]


def test_a_long_message_takes_no_memory() -> None:
    at = slot(3 + 2, 0)  # scatter: nothing of it is sent back
    with serve(2) as served:
        end = served.ends[1]
        size = 256 << 20
        end.sendall(notice(SEND_READY, at, size))
        assert served.read(1, 48) == notice(RECV_READY, at, size)
        tracemalloc.start()
        piece = bytes(1 << 20)
        end.sendall(data_header(at, size))
        for _ in range(64):
            end.sendall(piece)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 8 << 20
    assert served.notes == []


@given(st.lists(st.integers(1, 200), max_size=40), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_frames_may_come_in_any_pieces(cuts: list[int], barriers: int) -> None:
    frames = b""
    for tag in range(barriers):
        at = slot(BARRIER, tag)
        frames += notice(RECV_READY, at, 0) + notice(SEND_READY, at, 0) + data_header(at, 0)
    expected = 3 * 48 * barriers
    with serve(2) as served:
        begin = 0
        for cut in cuts:
            served.ends[1].sendall(frames[begin : begin + cut])
            begin += cut
        served.ends[1].sendall(frames[begin:])
        assert len(served.read(1, expected)) == expected
    assert served.notes == []


@given(st.binary(min_size=1, max_size=400))
@settings(max_examples=30, deadline=None)
def test_garbage_is_no_trouble(raw: bytes) -> None:
    with serve(2) as served:
        served.ends[1].sendall(raw)
        served.ends[1].shutdown(socket.SHUT_WR)
        served.read_to_end(1)
    assert len(served.notes) <= 1


def test_a_paced_message_takes_its_links_time() -> None:
    at = slot(BARRIER, 0)
    with serve(2, hop=0.1, pace=True) as served:
        begin = time.monotonic()
        served.ends[1].sendall(notice(RECV_READY, at, 0))
        assert len(served.read(1, 96)) == 96
        assert time.monotonic() - begin >= 0.1
        served.ends[1].sendall(notice(SEND_READY, at, 0))
        assert len(served.read(1, 48)) == 48
        assert time.monotonic() - begin >= 0.2


def test_paced_rings_pass_one_way_of_the_link_one_after_the_other() -> None:
    at, length, busy = slot(ALL_REDUCE, 0), 1 << 10, 0.04
    data = data_header(at, length) + bytes(length)
    with serve(2, pace=True, busy=busy, vector=Vector(4 * length, 1, bytes(1))) as served:
        end = served.ends[1]
        for _ in range(2):  # halves
            begin = time.monotonic()
            end.sendall(2 * (notice(RECV_READY, at, length) + notice(SEND_READY, at, length)))
            came = []  # of each way one, and another: the ways share nothing
            for number in (1, 2):
                came.append(served.read(1, 96 + len(data)))
                assert time.monotonic() - begin >= number * busy
            both = b"".join(came)
            assert both.count(notice(RECV_READY, at, length)) == 2
            assert both.count(notice(SEND_READY, at, length) + data) == 2
            end.sendall(2 * data)
        served.wait(lambda: any(isinstance(one, Collective) for one in served.records))
    assert served.notes == []


def test_skipped_hops_take_their_time() -> None:
    # In an all-gather of 4, rank 0's messages 4 and 5 began with rank 1: two hops to rank 3.
    at = slot(2, 0)
    with serve(4, hop=0.1) as served:
        begin = time.monotonic()
        for _ in range(2):
            served.ends[1].sendall(notice(SEND_READY, at, 8))
        served.read(1, 96)
        served.ends[1].sendall((data_header(at, 8) + b"real 0, ") * 2)
        for hops in range(3):
            served.ends[3].sendall(notice(RECV_READY, at, 8) * 2)
            assert served.read(3, 208).count(b"real 0, ") == 2  # as if each had the same
            assert time.monotonic() - begin >= 0.1 * hops

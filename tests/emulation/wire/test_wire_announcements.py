"""What real ranks say of their reductions, and how the emulator reads it."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paracosm.emulation.rank.announce import neutral, noise
from paracosm.emulation.wire.announcements import (
    Announcements,
    AnnouncementWriter,
    Message,
    Vector,
    announcements_file,
)

GROUP = "default_pg/0//cpu//0"


def test_each_member_is_asked_for_what_it_announced(tmp_path: Path) -> None:
    records = tmp_path / "emulator.records"
    found = Announcements(records, (0, 2))
    assert found.vector(GROUP, 0, 0) is None  # no rank has started
    first, third = (AnnouncementWriter(announcements_file(records, rank)) for rank in (0, 2))
    small, large = Vector(40, 4, bytes(4)), Vector(1 << 24, 8, bytes(8))
    first.vector("0", 0, 0, small)
    third.vector("7", 1, 0, large)  # in a group of its own
    assert found.vector(GROUP, 0, 0) == small
    assert found.vector(GROUP, 0, 0) is None
    assert found.vector("default_pg/0//7//cpu//0", 1, 0) == large
    first.vector("0", 0, 0, large)  # the group is made again
    assert found.vector(GROUP, 0, 0) == large
    found.close()


def test_messages_are_found_in_their_order(tmp_path: Path) -> None:
    records = tmp_path / "emulator.records"
    found = Announcements(records, (0,))
    writer = AnnouncementWriter(announcements_file(records, 0))
    up, again, down = Message("torch.int64", b""), Message("torch.float32", b""), Message("f", b"x")
    writer.message("0", (0, 1), 5, up)
    writer.message("0", (1, 0), 5, down)
    writer.message("0", (0, 1), 5, again)
    assert found.message(GROUP, (0, 1), 5) == up
    assert found.message(GROUP, (0, 1), 5) == again
    assert found.message(GROUP, (0, 1), 5) is None
    assert found.message(GROUP, (1, 0), 5) == down
    found.close()


def test_copies_are_read_once_and_leave_nothing(tmp_path: Path) -> None:
    records = tmp_path / "emulator.records"
    found = Announcements(records, (0,))
    writer = AnnouncementWriter(announcements_file(records, 0))
    writer.copy("0", 0, 3, b"abc")
    writer.copy("0", 0, 4, b"de")
    assert bytes(found.copy(GROUP, 0, 4) or b"") == b"de"
    assert bytes(found.copy(GROUP, 0, 3) or b"") == b"abc"
    assert found.copy(GROUP, 0, 3) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank0.announced",
        "rank0.vectors",
    ]
    found.close()


def test_a_line_that_is_not_whole_waits_for_its_rest(tmp_path: Path) -> None:
    records = tmp_path / "emulator.records"
    path = announcements_file(records, 0)
    found = Announcements(records, (0,))
    line = '[["root", "0", 0, 5], [3]]\n'
    path.write_text(line[:20])
    assert found.root("0//cpu//0", 0, 5) is None
    path.write_text(line)
    assert found.root("0//cpu//0", 0, 5) == 3
    writer = AnnouncementWriter(path)
    writer.part("0", 0, 4, 3, b"abc")  # of an all-gather: passed over
    writer.vector("0", 0, 5, Vector(40, 4, bytes(4)))
    vectors = path.with_suffix(".vectors")
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-1])
    assert found.vector("0//cpu//0", 0, 5) is None
    vectors.write_bytes(whole)
    assert found.vector("0//cpu//0", 0, 5) == Vector(40, 4, bytes(4))
    found.close()


def test_noise_is_small_and_never_of_whole_numbers() -> None:
    numbers = torch.frombuffer(bytearray(noise(torch.bfloat16)), dtype=torch.bfloat16)
    assert 1e-4 < numbers.abs().mean() < 1e-2
    assert noise(torch.int64) == noise(torch.bool) == b""


KINDS = dist.ReduceOp.RedOpType


@pytest.mark.parametrize(
    ("operator", "dtype", "expected"),
    [
        (KINDS.SUM, torch.float32, bytes(4)),
        (KINDS.AVG, torch.float64, bytes(8)),
        (KINDS.PRODUCT, torch.int16, struct.pack("<h", 1)),
        (KINDS.PRODUCT, torch.float32, struct.pack("<f", 1.0)),
        (KINDS.MIN, torch.float32, struct.pack("<f", math.inf)),
        (KINDS.MAX, torch.float64, struct.pack("<d", -math.inf)),
        (KINDS.MIN, torch.int32, struct.pack("<i", 2**31 - 1)),
        (KINDS.MAX, torch.int8, struct.pack("<b", -128)),
        (KINDS.MAX, torch.uint8, bytes(1)),
        (KINDS.BAND, torch.uint8, b"\xff"),
        (KINDS.BAND, torch.int32, b"\xff" * 4),
        (KINDS.BOR, torch.int32, bytes(4)),
        (KINDS.BXOR, torch.int64, bytes(8)),
    ],
)
def test_neutral_elements(operator: object, dtype: torch.dtype, expected: bytes) -> None:
    assert neutral(int(operator), dtype) == expected  # type: ignore[call-overload]

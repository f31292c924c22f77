"""What real ranks say of their reductions, and how the emulator reads it."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paracosm.emulation.rank.announce import neutral
from paracosm.emulation.wire.announcements import (
    Announcements,
    AnnouncementWriter,
    Vector,
    announcements_file,
)


def test_each_member_is_asked_for_what_it_announced(tmp_path: Path) -> None:
    records = tmp_path / "emulator.records"
    found = Announcements(records, (0, 2))
    assert found.take("default_pg/0//cpu//0", 0, 0) is None  # no rank has started
    first, third = (AnnouncementWriter(announcements_file(records, rank)) for rank in (0, 2))
    small, large = Vector(40, 4, bytes(4)), Vector(1 << 24, 8, bytes(8))
    first.write("0", 0, 0, small)
    third.write("7", 1, 0, large)  # in a group of its own
    assert found.take("default_pg/0//cpu//0", 0, 0) == small
    assert found.take("default_pg/0//cpu//0", 0, 0) is None
    assert found.take("default_pg/0//7//cpu//0", 1, 0) == large
    first.write("0", 0, 0, large)  # the group is made again
    assert found.take("default_pg/0//cpu//0", 0, 0) == large
    found.close()


def test_a_line_that_is_not_whole_waits_for_its_rest(tmp_path: Path) -> None:
    records = tmp_path / "emulator.records"
    path = announcements_file(records, 0)
    found = Announcements(records, (0,))
    path.write_text("0 5 40 4 000")
    assert found.take("0//cpu//0", 0, 5) is None
    path.write_text("0 5 40 4 00000000 0\n")
    assert found.take("0//cpu//0", 0, 5) == Vector(40, 4, bytes(4))
    found.close()


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

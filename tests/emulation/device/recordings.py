"""Recordings that are written down, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paracosm.emulation.device.recording import (
    COLLECTIVE,
    OP,
    STEP,
    Call,
    Recording,
    RecordingWriter,
)
from paracosm.graphs.graph import PHASES, Op

Row = tuple[object, ...]
Storage = tuple[int, int, int, int, int, int, int, int]
"""The columns of `paracosm.emulation.device.recording.Storages`."""


def recording(
    rows: Sequence[Row],
    *,
    rank: int = 0,
    world: int = 2,
    groups: Mapping[str, tuple[int, ...]] | None = None,
    storages: Sequence[Storage] = (),
) -> Recording:
    """Return a recording of requests.

    A row is (OP, stream, name or `Op`, phase or nothing), (COLLECTIVE, stream, Call, number), or
    (kind, stream, number).
    """
    writer = RecordingWriter(rank, world, "h100-sxm", "torch 2.13.0")
    writer.groups.update(groups or {"all": tuple(range(world))})
    for kind, stream, *rest in rows:
        assert isinstance(kind, int)
        assert isinstance(stream, int)
        if kind == OP:
            op = rest[0] if isinstance(rest[0], Op) else Op(str(rest[0]), "", 0, 8, 8)
            phase = str(rest[1]) if len(rest) > 1 else "forward"
            writer.add(kind, stream, code=writer.op_code(op), phase=PHASES.index(phase))
        elif kind == COLLECTIVE:
            call, number = rest
            assert isinstance(call, Call)
            assert isinstance(number, int)
            writer.add(kind, stream, code=writer.call_code(call), number=number)
        else:
            number = rest[0] if rest else -1
            assert isinstance(number, int)
            writer.add(kind, stream, number=number)
    return writer.recording(storages)


def iterations(rows: Sequence[Row], count: int = 3) -> list[Row]:
    """Return the requests of iterations of equal rows, each with its end."""
    return [row for _ in range(count) for row in (*rows, (STEP, 0))]

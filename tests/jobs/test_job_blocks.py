"""Programs put together from blocks, against the same tasks taken down one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.jobs import Codebook, ProgramWriter
from paracosm.jobs.writer import HERE, Block, BlockWriter, ProgramOfBlocks, last_on


def writers() -> tuple[BlockWriter, ProgramWriter]:
    books = Codebook(), Codebook(), Codebook()
    return BlockWriter(*books), ProgramWriter(*books)


def two_rows() -> Block:
    """A task that waits for an anchor and the last task on the lane, and one that waits for it."""
    writer, _ = writers()
    writer.add("a", "compute", 1.0, [("before", 1), (last_on("compute"), 0)], step="forward")
    row = writer.add("b", "send", 2.0, [(HERE, 0)], kind="send", role="next", size=7)
    writer.allocate(5, 0)
    writer.allocate(1, 0)
    writer.release(6, row)
    writer.mark("sent", row)
    return writer.block()


def test_a_block_is_placed_again_and_again() -> None:
    block = two_rows()
    program = ProgramOfBlocks()
    assert [program.place(block, 0), program.place(block, 1, {"before": 0})] == [0, 2]
    assert program.place(block, 2, {"before": 1}) == 4
    placed = program.program({"parameters": 3})
    rows = [
        placed.dependencies[placed.offsets[row] : placed.offsets[row + 1]].tolist()
        for row in range(6)
    ]
    # Anchors that are not there are left out; what two anchors have in common stands once.
    assert rows == [[], [0], [0, 1], [2], [2], [4]]
    assert placed.microbatch.tolist() == [0, 0, 1, 1, 2, 2]
    assert placed.size.tolist() == [0, 7] * 3
    assert placed.allocated.tolist() == [6, 0] * 3
    assert placed.released.tolist() == [0, 6] * 3
    assert placed.resident == 3


def test_marks_are_anchors_of_later_blocks() -> None:
    writer, _ = writers()
    writer.add("c", "compute", 1.0, [("sent", 0)])
    program = ProgramOfBlocks()
    program.place(two_rows())
    program.place(two_rows())
    program.place(writer.block())
    placed = program.program()
    assert placed.dependencies[placed.offsets[4] :].tolist() == [3]


def test_an_empty_program() -> None:
    program = ProgramOfBlocks().program()
    assert len(program) == 0
    assert program.offsets.tolist() == [0]


@given(st.lists(st.lists(st.integers(0, 20), max_size=4), min_size=1, max_size=12))
def test_one_block_is_what_is_taken_down(dependencies: list[list[int]]) -> None:
    blocks, rows = writers()
    for row, before in enumerate(dependencies):
        earlier = [each for each in before if each < row]
        blocks.add(f"t{row % 3}", "compute", row / 2, [(HERE, each) for each in earlier])
        rows.add(f"t{row % 3}", "compute", row / 2, earlier)
    program = ProgramOfBlocks()
    program.place(blocks.block(), -1)
    one, other = program.program(), rows.program()
    for column in set(vars(other)) - {"holdings", "on_host", "throughout"}:
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column))
        assert getattr(one, column).dtype == getattr(other, column).dtype


def test_unknown_kinds_and_steps_are_refused() -> None:
    writer, _ = writers()
    with pytest.raises(InputError, match='unknown kind of task "recieve": did you mean "receive"'):
        writer.add("a", "compute", 1.0, kind="recieve")
    with pytest.raises(InputError, match='unknown step "foreward": did you mean "forward"'):
        writer.add("a", "compute", 1.0, step="foreward")

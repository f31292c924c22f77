"""Recordings as files, and their parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import iterations, recording

from paracosm.emulation.device.recording import (
    COLLECTIVE,
    HOST,
    MEMORY,
    OP,
    STREAM,
    WAIT,
    Assumption,
    Call,
    Recording,
    iterations_of,
    load_recording,
)
from paracosm.errors import InputError

ALL_REDUCE = Call("all_reduce", 1000, "all")
ROWS = [(OP, 0, "aten.mm"), (COLLECTIVE, 0, ALL_REDUCE, 0), (WAIT, 0, 0), (STREAM, 0)]


def equal(one: Recording, other: Recording) -> bool:
    columns = ("kind", "code", "stream", "phase", "number", "module", "again")
    of_storages = ("size", "first", "last", "kind", "stream", "module", "handed_to", "read")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
        and all(
            np.array_equal(getattr(one.storages, name), getattr(other.storages, name))
            for name in of_storages
        )
        and (one.ops, one.calls, dict(one.groups)) == (other.ops, other.calls, dict(other.groups))
        and (one.assumed, one.notes) == (other.assumed, other.notes)
        and (one.modules, one.allocator, one.batch) == (other.modules, other.allocator, other.batch)
    )


storages = st.lists(
    st.tuples(
        st.integers(1, 2**40),
        st.integers(0, 11),
        st.integers(0, 12),
        st.integers(0, len(MEMORY) - 1),
        st.integers(0, 5),
        st.integers(-1, 1),
        st.integers(-1, 1),
        st.integers(0, 12),
    ).map(lambda row: (*row[:2], max(row[1:3]), *row[3:])),
    max_size=20,
)


@given(storages)
def test_what_is_saved_is_read_back(tmp_path_factory: pytest.TempPathFactory, held: list) -> None:
    path = tmp_path_factory.mktemp("recording") / "device.parquet"
    made = recording(iterations(ROWS), storages=held)
    made = replace(made, assumed=(Assumption("a loss is 1", "train.py:3", 2),), notes=("a note",))
    made = replace(made, modules=("a", "b.0"), allocator="expandable_segments:True", batch=4)
    made.save(path)
    assert equal(load_recording(path), made)


def test_iterations_end_with_a_step() -> None:
    made = recording(iterations(ROWS, 4))
    assert made.steps.tolist() == [4, 9, 14, 19]
    assert [len(each) for each in iterations_of(made)] == [5, 5]  # the first two also prepare
    assert len(iterations_of(recording(iterations(ROWS, 1)))) == 1


def test_peers_are_those_of_messages() -> None:
    send, receive = Call("send", 8, "all", 1), Call("recv", 8, "all", 3)
    rows = [(COLLECTIVE, 0, send, 0), (COLLECTIVE, HOST, receive, 1), *ROWS]
    assert recording(iterations(rows), world=4).peers == {1, 3}


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "device.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="the recording of a script on a device is cut off"):
        load_recording(path)


def test_a_number_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "device.parquet"
    made = recording(iterations(ROWS))
    replace(made, ops=()).save(path)
    with pytest.raises(InputError, match="damaged: no such op"):
        load_recording(path)

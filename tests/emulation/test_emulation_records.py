from __future__ import annotations

import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from paracosm.emulation.records import (
    Collective,
    Exchange,
    Group,
    Iteration,
    Note,
    Record,
    RecordReader,
    RecordWriter,
    Wait,
)

ALL: list[Record] = [
    Group(0, "0", 4, (0, 1, 2, 3), "gloo"),
    Collective(0, "0", 7, "all_reduce", 4096, -1, 1.5, 1.6, 1.55, 2.25, 1, "train.py:12"),
    Wait(0, 1.75, 2.25),
    Iteration(0, 3, 2.5, 0.75, 1 << 30),
    Exchange(0, 10, 20, 3, 0.125),
    Note(-1, True, 'a "stray" connection, with brackets [and] ümlauts'),
]


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "records")
    for record in ALL:
        writer.append(record)
    writer.close()
    assert RecordReader(tmp_path / "records").more() == ALL


def test_a_line_that_is_cut_off_is_read_when_it_is_complete(tmp_path: Path) -> None:
    whole, file = tmp_path / "whole", tmp_path / "records"
    writer = RecordWriter(whole)
    for record in ALL:
        writer.append(record)
    writer.close()
    content = whole.read_bytes()
    reader = RecordReader(file)
    assert reader.more() == []
    found: list[Record] = []
    for end in (5, 60, 61, 200, len(content)):
        file.write_bytes(content[:end])
        found += reader.more()
    assert found == ALL


def test_a_note_reaches_the_disk_at_once(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "records")
    writer.append(ALL[-1])
    assert RecordReader(tmp_path / "records").more() == ALL[-1:]
    writer.close()


def test_records_after_the_end_are_dropped(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "records")
    writer.close()
    writer.append(ALL[0])
    writer.flush()
    assert RecordReader(tmp_path / "records").more() == []


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "records")
    threads = [
        threading.Thread(
            target=lambda rank=rank: [writer.append(Wait(rank, i, i + 1)) for i in range(500)]
        )
        for rank in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    read = RecordReader(tmp_path / "records").more()
    for rank in range(4):
        own = [record.begin for record in read if isinstance(record, Wait) and record.rank == rank]
        assert own == list(range(500))


@given(st.floats(allow_nan=False, allow_infinity=False), st.text())
def test_times_and_texts_survive_to_the_bit(time: float, text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records"
        writer = RecordWriter(path)
        records: list[Record] = [Wait(0, time, time), Note(0, False, text)]
        for record in records:
            writer.append(record)
        writer.close()
        assert RecordReader(path).more() == records

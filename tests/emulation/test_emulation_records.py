from __future__ import annotations

import subprocess
import sys
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


def test_a_process_that_is_killed_leaves_all_but_its_last_instants(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from paracosm.emulation.records import RecordWriter, Wait\n"
        "now = 0.0\ntime.monotonic = lambda: now\n"
        "writer = RecordWriter(Path(sys.argv[1]))\n"
        "for i in range(300):\n    writer.append(Wait(0, i, i + 1))\n"
        "now = 0.6\nwriter.append(Wait(0, 300, 301))\nwriter.append(Wait(0, 301, 302))\n"
        "print('there', flush=True)\ntime.sleep(60)\n"
    )
    file = tmp_path / "records"
    command = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert RecordReader(file).more() == [Wait(0, i, i + 1) for i in range(301)]


def test_a_handler_of_signals_may_record_in_the_midst_of_a_record(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "records")
    with writer._lock:  # where a signal finds the main thread
        writer.append(ALL[-1])
    assert RecordReader(tmp_path / "records").more() == ALL[-1:]
    writer.close()

"""Files that notice damage, folders of one writer, processes that end with their parent."""

from __future__ import annotations

import errno
import gzip
import io
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.files import (
    SEAL,
    Lock,
    check_seal,
    open_unpacked,
    read_at_most,
    replacing,
    sealing,
    temporary_folder,
)

TABLE = pa.table({"value": [float(value) for value in range(200)], "name": ["a", "b"] * 100})


def sealed(path: Path, form: str) -> bytes:
    with sealing(path) as file:
        if form == "parquet":
            pq.write_table(TABLE, file)
        else:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
                writer.write_table(TABLE)
    return path.read_bytes()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_other_readers_do_not_see_the_checksum(tmp_path: Path, form: str) -> None:
    path = tmp_path / "table"
    assert sealed(path, form).count(SEAL) == 1
    check_seal(path)
    found = pq.read_table(path) if form == "parquet" else pa.ipc.open_file(str(path)).read_all()
    assert found.equals(TABLE)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path, form: str) -> None:
    path = tmp_path / "table"
    data = bytearray(sealed(path, form))
    chosen = random.Random(0)
    seal = range(data.index(SEAL), data.index(SEAL) + len(SEAL))
    for place in range(len(data) - 10):  # the last bytes say that it is such a file at all
        if place in seal:
            continue
        bit = 1 << chosen.randrange(8)
        data[place] ^= bit
        path.write_bytes(data)
        with pytest.raises(InputError, match="do not match its checksum"):
            check_seal(path)
        data[place] ^= bit


@given(st.binary(max_size=64))
def test_files_without_a_checksum_pass(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("files") / "some"
    path.write_bytes(data)
    check_seal(path)


def test_a_gzipped_file_is_closed_with_what_it_is_read_from(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"abc"))
    with open_unpacked(tmp_path / "a.gz") as file:
        packed = file.fileobj  # type: ignore[attr-defined]
        assert file.read() == b"abc"
    assert packed.closed


def test_a_second_writer_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    with Lock(tmp_path), pytest.raises(InputError, match=f"process {os.getpid()} is writing"):
        Lock(tmp_path)
    assert list(tmp_path.iterdir()) == []
    Lock(tmp_path).release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from paracosm.files import Lock;"
        "lock = Lock(pathlib.Path(sys.argv[1])); print(flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(InputError, match=f"process {process.pid} is writing to this folder"):
            Lock(tmp_path)
        process.kill()
    Lock(tmp_path).release()


def test_a_full_disk_is_an_error_of_the_machine_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"), replacing(path) as file:
            file.write_bytes(bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_a_file_that_was_read_has_its_name(tmp_path: Path) -> None:
    broken = OSError(errno.EIO, "Input/output error", "source")
    with pytest.raises(OSError, match="'source'"), replacing(tmp_path / "file"):
        raise broken


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="a device or a pipe"), replacing(pipe) as file:
        file.write_text("more")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_what_killed_processes_leave_goes_with_the_next_one(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from paracosm.files import replacing, temporary_folder\n"
        "with temporary_folder(sys.argv[1]), replacing(sys.argv[2]) as file:\n"
        "    file.write_text('half'); print(flush=True); time.sleep(600)"
    )
    path = tmp_path / "file"
    command = [sys.executable, "-c", program, str(tmp_path), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        own = tmp_path / f"paracosm-{os.geteuid()}"
        (of_first,) = own.iterdir()
        with temporary_folder(str(tmp_path)) as second, replacing(path) as file:
            file.write_text("whole")
            assert sorted(own.iterdir()) == sorted([of_first, second])
        # The first is under way, and what it has made is left alone.
        assert of_first.is_dir()
        assert (tmp_path / f".file.{process.pid}").read_text() == "half"
        process.kill()
    with temporary_folder(str(tmp_path)) as third, replacing(path) as file:
        file.write_text("again")
        assert list(own.iterdir()) == [third]
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "again"


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time;"
        "from paracosm.backends import Backend\n"
        "def wait(path):\n"
        "    pathlib.Path(path).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "list(Backend(jobs=2).each(wait, [(each,) for each in sys.argv[1:]]))"
    )
    files = [tmp_path / "0", tmp_path / "1"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, files)], stderr=subprocess.DEVNULL
    ) as process:
        while not all(file.exists() and file.read_text() for file in files):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    workers = [int(file.read_text()) for file in files]
    deadline = time.monotonic() + 20
    while any(map(is_running, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"


def test_a_read_makes_no_room_for_more_than_a_file_holds() -> None:
    class Held(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert 0 <= size <= 1 << 20
            return super().read(size)

    content = bytes(range(256)) * 10_000
    assert read_at_most(Held(content), 1 << 30) == content
    assert read_at_most(Held(content), 1_500_000) == content[:1_500_000]
    assert read_at_most(Held(content), 0) == b""

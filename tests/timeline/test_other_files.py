"""Files that users give for traces: each is refused in one line that says what it is."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import pytest

from paracosm.cli import main

EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]}).encode()


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag, len(content)]) + content


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(TRACE)
        archive.addfile(member, io.BytesIO(TRACE))
    return file.getvalue()


# Two planes of XLA: one with a number, one without.
PLANES = [field(0x12, b"/host:metadata"), b"\x08\x81\x01" + field(0x12, b"/device:TPU:0")]

FILES: dict[str, tuple[bytes, str]] = {
    "xplane.pb": (b"".join(field(0x0A, plane) for plane in PLANES), "a profile of XLA"),
    "other.xplane.pb": (b"".join(field(0x0A, each) for each in PLANES[::-1]), "a profile of XLA"),
    "report.nsys-rep": (b"anything", "a report of Nsight Systems: record"),
    "kernels.ncu-rep": (b"NVR\0anything", "a report of Nsight Compute"),
    "empty.json": (b"", "the file is empty"),
    "empty.json.gz": (gzip.compress(b""), "the file is empty"),
    "twice.json.gz": (gzip.compress(gzip.compress(TRACE)), "packed with gzip more than once"),
    "trace.zip": (zipped("trace.json", TRACE), "a zip archive: unpack it"),
    "model.pt": (zipped("archive/data.pkl", pickle.dumps({})), "what torch.save wrote"),
    "old.pt": (pickle.dumps({"a": 1}, protocol=2), "a pickle"),
    "trace.tar": (tarred(), "a tar archive"),
    "trace.tar.gz": (gzip.compress(tarred()), "a tar archive"),
    "trace.json.zst": (b"\x28\xb5\x2f\xfd....", "packed with Zstandard"),
    "trace.json.bz2": (b"BZh91AY&SY", "packed with bzip2"),
    "trace.json.xz": (b"\xfd7zXZ\0", "packed with xz"),
    "page.json": (b"\n<!DOCTYPE html><html>404</html>", "a web page"),
    "login.json": (b"<html><head>Sign in</head></html>", "a web page"),
    "pointer.json": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
    "lines.json": (b"\n".join([json.dumps(EVENT).encode()] * 3), "(NDJSON)"),
    "wide.json": (TRACE.decode().encode("utf-16"), "text in UTF-16: write it in UTF-8"),
    "wide_le.json": (TRACE.decode().encode("utf-16-le"), "text in UTF-16"),
    "wide_be.json": (TRACE.decode().encode("utf-16-be"), "text in UTF-16"),
    "run.parquet": (b"PAR1....", "a Parquet file"),
}
COMMANDS = (("replay",), ("graph", "import"), ("profile", "import"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused_for_what_it_is(
    name: str, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, said = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    out = [] if command == ("replay",) else ["--out", str(tmp_path / "out")]
    assert main([*command, str(path), *out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"paracosm: {path}: ")
    assert said in line


def test_a_database_of_nsight_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer)")
    connection.commit()
    connection.close()
    assert main(["replay", str(path)]) == 2
    assert "an SQLite database, such as nsys export writes: record" in capsys.readouterr().err


def test_the_trace_of_a_run_is_that_of_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(TRACE)
    assert main(["trace", str(path)]) == 2
    assert "a file: give the folder of a run" in capsys.readouterr().err

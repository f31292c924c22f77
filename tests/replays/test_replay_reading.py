"""Traces that several processes read: the same to the bit, the same error, nothing left behind."""

from __future__ import annotations

import gzip
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError
from paracosm.replays import parts as traced_parts
from paracosm.replays.account import Account
from paracosm.replays.parts import read_parts
from paracosm.replays.reading import SHARE, backend_for
from paracosm.timeline.kineto import rows as kineto_rows
from paracosm.timeline.kineto.rows import Rows

DLRM = sorted((Path(__file__).parents[1] / "data" / "kineto" / "dlrm").glob("*.json.gz"))


def plain(value: Any) -> Any:
    """Return all that a value is made of, as what can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return [(field.name, plain(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value


@pytest.mark.parametrize("large", [1 << 20, 100])
def test_processes_come_to_the_same_to_the_bit(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_parts, "LARGE", large)
    (one, notes), (other, others_notes) = (
        ([plain(part) for part in read_parts(DLRM, account=account, backend=backend)], account)
        for backend, account in ((HERE, Account()), (Backend(jobs=2), Account()))
    )
    assert one == other, "they differ"  # their difference would take pytest hours to show
    assert notes.notes == others_notes.notes


def test_the_first_bad_file_is_named_whoever_reads_it(tmp_path: Path) -> None:
    for number in (3, 4):
        (tmp_path / f"rank{number}.json").write_text('{"traceEvents": [{"ph": "X", "ts": 1')
    paths = [*DLRM[:3], *sorted(tmp_path.glob("*.json")), *DLRM[5:]]
    errors = []
    for backend in (HERE, Backend(jobs=2)):
        with pytest.raises(InputError) as raised:
            next(read_parts(paths, backend=backend))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    assert errors[0].startswith(f"{tmp_path / 'rank3.json'}: cut off at byte 36")


def test_all_files_are_gone_through_twice() -> None:
    shares: list[float] = []
    list(read_parts(DLRM[:1], alone=True, passed=shares.append))
    assert shares == [1, 2]
    shares.clear()
    list(read_parts(DLRM, passed=shares.append))
    assert shares == [number / 8 for number in range(1, 17)]


def test_few_or_short_files_are_read_by_one_process(tmp_path: Path) -> None:
    paths = [tmp_path / "rank0.json", tmp_path / "rank1.json"]
    for path in paths:
        path.touch()
        os.truncate(path, int(1.1 * SHARE))
    assert backend_for(DLRM) is HERE
    assert backend_for(paths[:1]) is HERE
    assert backend_for([*paths, tmp_path / "not there"]).jobs == min(joblib.cpu_count(), 2)


def test_spans_on_disk_are_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_rows, "CHUNK", 2)
    monkeypatch.setattr(kineto_rows, "HELD", 4)
    written = Rows(tmp_path)
    for number in range(7):
        written.append(number, 1, *[0] * 7)
    sent = pickle.dumps(written)
    assert len(list(tmp_path.iterdir())) == 1
    received = pickle.loads(sent)
    assert not list(tmp_path.iterdir())
    assert received.all()["begin"].tolist() == [0, 1, 2, 3, 4, 5, 6]


def processes_of(group: int) -> set[int]:
    """Return the processes of a group that still run."""
    running = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has just ended
            continue
        if int(of_group) == group and state != "Z":
            running.add(int(path.parent.name))
    return running


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(joblib.cpu_count() < 2, reason="one process reads on one core")
def test_an_interrupt_leaves_no_processes(tmp_path: Path) -> None:
    trace = gzip.decompress(DLRM[0].read_bytes())
    for number in range(400):
        header = b'"rank": %d, "world_size": 400' % number
        of_rank = trace.replace(b'"rank": 0, "world_size": 8', header, 1)
        (tmp_path / f"rank{number}.json.gz").write_bytes(gzip.compress(of_rank, 6))
    program = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "replay", *sorted(map(str, tmp_path.glob("*.gz")))]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        while len(processes_of(run.pid)) < 3:
            assert run.poll() is None
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert said.strip() == "paracosm: interrupted"
    until = time.monotonic() + 20
    while processes_of(run.pid):  # loky's own, of resources, looks whether it is still needed
        assert time.monotonic() < until
        time.sleep(0.1)

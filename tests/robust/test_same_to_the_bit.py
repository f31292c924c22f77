"""Every computed result twice: beside a processor hog, under another hash seed, with other jobs."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tried_commands import COMMANDS, DATA, Process, arguments, files

pytestmark = pytest.mark.slow

MATRIX = DATA / "matrices" / "gr_30_30.mtx.gz"
COMPUTED = {
    **{
        name: COMMANDS[name]
        for name in (
            *("train", "train, a sweep", "train, timing only", "relax", "relax tune"),
            *("predict", "plan", "replay", "graph capture"),
        )
    },
    "train ad-psgd": "train --algorithm ad-psgd --workers 4 --updates 200 --out {out}",
    "train fedbuff": 'train --algorithm "fedbuff(steps=3)" --workers 4 --updates 60 --out {out}',
    "train, many": "train --workers 24 --updates 200 --lookahead auto --model mlp --out {out}",
    "relax, a spectrum": f"relax --matrix {MATRIX} --processors 4 --time 1ms --out {{out}}",
}
"""Commands that measure nothing of this machine."""

WALL = {"wall_time", "started", "captured_in", "digest"}
"""Keys of what was measured all the same, and of the checksum of a summary, which includes it."""


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Keep processors busy."""
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for each in busy:
        each.start()
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.join()


def _spin() -> None:
    while True:
        pass


def results(out: Path) -> dict[str, Any]:
    """Return all that a command has written but for wall times and pages, by name of the file."""
    found: dict[str, Any] = {}
    for path in sorted(out.parent.rglob("*")):
        name = str(path.relative_to(out.parent))
        match path.suffix:
            case _ if path.is_dir():
                continue
            case ".json" | ".jsonl":
                found[name] = [_timeless(json.loads(row)) for row in _documents(path)]
            case ".parquet":
                table = pq.read_table(path)
                kept = [column for column in table.column_names if column not in WALL]
                found[name] = table.select(kept).to_pydict()
            case ".html" | ".png":
                found[name] = None
            case _:
                found[name] = path.read_bytes()
    return found


def _documents(path: Path) -> list[str]:
    text = path.read_text()
    return sorted(text.splitlines()) if path.suffix == ".jsonl" else [text]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in WALL}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return files(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("name", COMPUTED)
def test_neither_load_nor_hashes_nor_jobs_change_a_bit(
    name: str, places: dict[str, str], tmp_path: Path
) -> None:
    outs = [tmp_path / which / "out" for which in ("quiet", "busy")]
    for out, seed, jobs, load in zip(outs, ("1", "2"), ("2", "1"), (0, 2), strict=True):
        out.parent.mkdir()
        typed = arguments(COMPUTED[name].replace("--jobs 2", f"--jobs {jobs}"), places, out)
        with hogs(load):
            process = Process(typed, tmp_path / "tmp", {"PYTHONHASHSEED": seed})
            assert process.wait() == 0, process.said
    quiet, busy = map(results, outs)
    assert quiet.keys() == busy.keys()
    differing = [file for file in quiet if repr(quiet[file]) != repr(busy[file])]
    assert not differing, [(quiet[file], busy[file]) for file in differing]

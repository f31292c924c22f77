"""Collectives that backend mode has recorded, beside those that torch.profiler has counted."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from paracosm.emulation.records import Collective, Group, Record

FOLDER = Path(__file__).parents[3] / "benchmarks" / "published_scripts"


@pytest.fixture(scope="module")
def counting() -> dict[str, Any]:
    pytest.importorskip("torch")
    before = sys.path[:]
    sys.path.insert(0, str(FOLDER))
    try:
        return runpy.run_path(str(FOLDER / "published_scripts.py"), run_name="counting")
    finally:
        sys.path[:] = before


def collective(number: int, kind: str, size: int) -> Collective:
    return Collective(0, "pair", number, kind, size, -1, 0.0, 0.0, 0.0, 0.0)


def test_bytes_are_those_that_a_rank_gives(counting: dict[str, Any]) -> None:
    records: list[Record] = [
        Group(0, "pair", 2, (0, 1), "gloo"),
        collective(0, "all_gather", 80),  # of both ranks
        collective(1, "all_reduce", 100),
        collective(2, "reduce_scatter", 60),  # an all-reduce to gloo
    ]
    counts = counting["recorded"](records)
    assert counts == {"all_gather": (1, 40), "reductions": (2, 160)}
    assert counting["compared"](counts, counts) == "the same: 3, 200 bytes"
    more = {**counts, "barrier": (1, 0)}
    assert counting["compared"](more, counts) == "barrier: (1, 0) real, (0, 0) emulated"

"""Outputs of all collectives against those of real gloo processes that hold the same data."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import collective_cases
import pytest
import torch

EVERYDAY, WORLDS = 3, (2, 3)  # ranks; every day an odd number of them
REAL = [
    pytest.param(world, rank, marks=[] if world == EVERYDAY else [pytest.mark.slow])
    for world in WORLDS
    for rank in range(world)  # which rank is real
]
TIME_LIMIT = 100  # seconds

Results = dict[str, dict[int, dict[str, Any]]]
"""By whose they are, "gloo" or "ours", by the real rank, and by the case."""


@cache
def results(world: int, folder: Path) -> Results:
    """Run all cases in a world, once."""
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, collective_cases.__file__, str(folder), str(world)],
        check=True,
        timeout=TIME_LIMIT,
        env=environment,
    )
    return {
        whose: {
            rank: torch.load(folder / f"{whose}{world}.{rank}.pt", weights_only=False)
            for rank in range(world)
        }
        for whose in ("gloo", "ours")
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize(("world", "rank"), REAL)
@pytest.mark.parametrize("name", collective_cases.cases())
def test_outputs_are_those_of_gloo(name: str, world: int, rank: int, folder: Path):
    of = results(world, folder)
    expected, result = of["gloo"][rank][name], of["ours"][rank][name]
    assert not isinstance(expected, str), expected
    assert not isinstance(result, str), result
    assert len(result) == len(expected)
    for ours, real in zip(result, expected, strict=True):
        if isinstance(real, torch.Tensor):
            assert ours.dtype == real.dtype
            torch.testing.assert_close(ours, real)
        elif isinstance(real, list) and all(isinstance(each, torch.Tensor) for each in real):
            torch.testing.assert_close(ours, real)
        else:
            assert ours == real

"""Outputs of all collectives against those of real gloo processes that hold the same data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import collective_cases
import pytest
import torch

WORLDS = (2, 3)
REAL = [(world, rank) for world in WORLDS for rank in range(world)]  # which rank is real
TIME_LIMIT = 100  # seconds

Results = dict[tuple[int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, collective_cases.__file__, str(folder), *map(str, WORLDS)],
        check=True,
        timeout=TIME_LIMIT,
        env=environment,
    )
    return folder


@pytest.fixture(scope="module")
def of_gloo(folder: Path) -> Results:
    return _results(folder, "gloo")


@pytest.fixture(scope="module")
def of_ours(folder: Path) -> Results:
    return _results(folder, "ours")


def _results(folder: Path, whose: str) -> Results:
    files = {(world, rank): folder / f"{whose}{world}.{rank}.pt" for world, rank in REAL}
    return {which: torch.load(file, weights_only=False) for which, file in files.items()}


@pytest.mark.parametrize(("world", "rank"), REAL)
@pytest.mark.parametrize("name", collective_cases.cases())
def test_outputs_are_those_of_gloo(
    name: str, world: int, rank: int, of_gloo: Results, of_ours: Results
):
    expected, result = of_gloo[world, rank][name], of_ours[world, rank][name]
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

"""Outputs of all collectives against those of real gloo processes that hold the same data."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import collective_cases
import pytest
import torch
from emulated_world import world_of

WORLDS = (2, 3)
TIME_LIMIT = 100  # seconds

Results = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def of_gloo(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("gloo")
    subprocess.run(
        [sys.executable, collective_cases.__file__, str(folder), *map(str, WORLDS)],
        check=True,
        timeout=TIME_LIMIT,
    )
    return {world: torch.load(folder / f"gloo{world}.pt", weights_only=False) for world in WORLDS}


@pytest.fixture(scope="module")
def of_ours(tmp_path_factory: pytest.TempPathFactory) -> Results:
    results = {}
    for world in WORLDS:
        with world_of(world, tmp_path_factory.mktemp("ours")):
            results[world] = collective_cases.run(world)
    return results


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", collective_cases.cases())
def test_outputs_are_those_of_gloo(name: str, world: int, of_gloo: Results, of_ours: Results):
    expected, result = of_gloo[world][name], of_ours[world][name]
    assert not isinstance(expected, str), expected
    assert not isinstance(result, str), result
    assert len(result) == len(expected)
    for ours, real in zip(result, expected, strict=True):
        if isinstance(real, torch.Tensor):
            assert ours.dtype == real.dtype
            torch.testing.assert_close(ours, real)
        else:
            assert ours == real

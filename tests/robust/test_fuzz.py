"""The command line under a few hundred unsound commands and damaged files; thousands when slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import fuzz


def bad(number: int, seed: int, folder: Path) -> list[str]:
    return [
        f"{outcome.kind}: {case.arguments} ({case.what}): {outcome.said[-300:]}"
        for case, outcome in fuzz(number, seed, folder)
        if outcome.is_bad
    ]


def test_what_is_unsound_runs_or_is_refused_in_one_line(tmp_path: Path) -> None:
    assert bad(300, 0, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_so_do_thousands(tmp_path: Path, seed: int) -> None:
    assert bad(1500, seed, tmp_path) == []

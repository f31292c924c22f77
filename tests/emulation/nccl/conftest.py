"""Worlds of the shim, which are closed when a test ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_world import ShimWorld


@pytest.fixture(scope="session", autouse=True)
def _compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture
def world(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ShimWorld]]:
    """Return what makes a world of the shim; without a C compiler it fails, and says so."""
    with contextlib.ExitStack() as open_ones:

        def make(ranks: int = 4, groups: Any = None, **config: Any) -> ShimWorld:
            folder: Path = tmp_path_factory.mktemp("shim")
            members = {"0": range(ranks), **(groups or {})}
            made = ShimWorld(folder, monkeypatch, members, world_size=ranks, **config)
            open_ones.enter_context(made.table)
            return made

        yield make

"""Running scripts as real ranks, in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_processes import SCRIPTS, Ran, start

from paracosm.emulation.config import EmulateConfig, Setting
from paracosm.emulation.records import RecordReader


@pytest.fixture
def run_rank(tmp_path: Path) -> Callable[..., Ran]:
    """Run a script as an emulated job's real rank."""

    def run(script: str, *arguments: str, interpreter: tuple[str, ...] = (), **fields: Any) -> Ran:
        name = script if script.startswith("module:") else str(SCRIPTS / script)
        if fields.get("mode") != "wire":
            fields = {"live": True, **fields}
        config = EmulateConfig.model_validate(
            {"script": name, "arguments": arguments, "world_size": 4, **fields}
        )
        rank = config.rank[0]
        records = tmp_path / "rank.records"
        told = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0" if config.world == 1 else "1",
            **Setting(config, 0, rank, records).environment(),
        }
        module = ["-m", "paracosm.emulation.rank.main"]
        done = start([sys.executable, *interpreter, *module, name, *arguments], **told)
        return Ran(done.returncode, done.stdout, done.stderr, RecordReader(records).more())

    return run


@pytest.fixture
def run_alone(tmp_path: Path) -> Callable[..., Ran]:
    """Run a script with PyTorch's own gloo as the only rank, and without Paracosm."""

    def run(script: str, *arguments: str) -> Ran:
        told = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        done = start([sys.executable, str(SCRIPTS / script), *arguments], **told)
        return Ran(done.returncode, done.stdout, done.stderr, [])

    return run

"""A world of emulated ranks within the tests' own process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.backend.group import register
from paracosm.emulation.backend.runtime import Runtime
from paracosm.emulation.config import EmulateConfig, Setting
from paracosm.emulation.cost import FREE, Cost
from paracosm.emulation.peers import peers_of
from paracosm.emulation.rank.objects import replace_object_collectives
from paracosm.emulation.rank.observe import Waits
from paracosm.emulation.records import Record, RecordReader, RecordWriter


@dataclass
class Given:
    """A communication model whose costs a test sets."""

    costs: Cost = FREE

    def cost(self, kind: str, members: Sequence[int], *rest: int) -> Cost:
        """Return the same for everything."""
        return self.costs

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        """Return nothing."""
        return FREE

    def added(self, kind: str) -> float:
        """Return nothing."""
        return 0.0


@dataclass
class World:
    """A world, its runtime and its communication model."""

    runtime: Runtime
    communication: Given
    file: Path

    def records(self) -> list[Record]:
        """Return all records so far."""
        self.runtime.record_ended(time.monotonic() + 1e-3)  # futures are done a little before
        self.runtime.recorder.flush()
        return RecordReader(self.file).more()

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the records of one kind."""
        return [record for record in self.records() if isinstance(record, kind)]


@contextlib.contextmanager
def world_of(
    size: int, folder: Path, rank: int = 0, asked: str = "gloo", **options: Any
) -> Iterator[World]:
    """Initialise torch.distributed with emulated ranks, and leave nothing of it behind.

    Args:
        size: ranks of the world.
        folder: for records.
        rank: which one is real.
        asked: what the script would have asked for.
        options: of `EmulateConfig`.
    """
    config = EmulateConfig(script=Path("train.py"), world_size=size, rank=(rank,), **options)
    file = folder / "records"
    setting = Setting(config, 0, rank, file)
    communication = Given()
    recorder, peers = RecordWriter(file), peers_of(config, rank, 0)
    waits = Waits(recorder, rank, peers.resumed)
    runtime = Runtime(setting, recorder, communication, peers, waits)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("broadcast_object_list", "scatter_object_list", "recv_object_list"):
            for module in (dist, c10d):
                patch.setattr(module, name, getattr(c10d, name))
        runtime.asked_backend = asked
        register(runtime)
        replace_object_collectives((rank,), runtime.refuse, runtime.may_receive)
        dist.init_process_group("paracosm", store=dist.HashStore(), rank=rank, world_size=size)
        try:
            yield World(runtime, communication, file)
        finally:
            dist.destroy_process_group()
            runtime.close()
            runtime.recorder.close()

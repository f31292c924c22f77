"""Kill -9 in the middle of database writes: what `add` has returned for is there."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from forked import forked

from paracosm.profiling.database import ProfileDatabase

sys.path.append(str(Path(__file__).parents[1] / "profiling"))
from some_timings import timing

BATCH = 40  # timings of one `add`


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_no_committed_timing_is_lost(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "profiles.db"
    ProfileDatabase.open(path, create=True).close()
    moments = random.Random(5)
    committed = set[str]()
    for life in range(kills):
        told, tell = os.pipe()

        def add_for_ever(life: int = life, tell: int = tell) -> int:
            with ProfileDatabase.open(path) as database:
                # Few pages in memory, so that the file itself is written within a transaction.
                database._connection.execute("PRAGMA cache_size = 5")
                for number in range(1_000_000):
                    names = [f"{life}.{number}.{place}" for place in range(BATCH)]
                    database.add(timing(name) for name in names)
                    os.write(tell, f"{life}.{number}\n".encode())
            return 0

        child = forked(add_for_ever)
        os.close(tell)
        first = os.read(told, 1)  # it has begun to write
        time.sleep(moments.uniform(0, 0.05))
        child.kill()
        said = first
        while more := os.read(told, 1 << 16):
            said += more
        os.close(told)
        committed |= set(said.decode().splitlines())
        with ProfileDatabase.open(path) as database:
            database.check()
            of_batch = Counter(stored.key.rpartition(".")[0] for stored in database.timings())
        assert committed <= of_batch.keys()
        assert set(of_batch.values()) <= {BATCH}
    assert len(committed) >= kills

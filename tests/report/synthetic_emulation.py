"""Emulated jobs made up for the tests: the files and the summary are real, the training is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.delays import summarise_delays
from paracosm.emulation.records import Collective, Exchange, Group, Iteration, Note, Record, Wait
from paracosm.emulation.result import timeline_of
from paracosm.emulation.summary import summarise
from paracosm.studies.run_folder import RunFolder

START = 5_000.0  # seconds of the monotonic clock
DELAYS = np.linspace(0.0, 8e-3, 9)
BUCKET = 25_000_000


def job(
    rank: int = 0, iterations: int = 60, delay: float = 0.0, buckets: int = 6, seed: int = 0
) -> list[Record]:
    """Return a data-parallel job: forward 20 ms, a bucket every 5 ms, 4 ms each on two workers."""
    rng = np.random.default_rng([seed, rank])
    records: list[Record] = [Group(rank, "0", 8, tuple(range(8)), "gloo")]
    now, number = START, 0
    for iteration in range(iterations):
        begun = now + (1.0 if iteration == 0 else 0.0)
        ready = begun + 0.020 * rng.lognormal(0, 0.02)
        free, last = [0.0, 0.0], 0.0
        for bucket in range(buckets):
            ready += 0.005 * rng.lognormal(0, 0.02)
            worker = bucket % 2
            taken = max(ready, free[worker])
            free[worker] = taken + 0.004 + delay
            times = (ready, ready + 0.001, taken, free[worker])
            records.append(
                Collective(
                    *(rank, "0", number, "all_reduce", BUCKET, -1),
                    *times,
                    worker,
                    "train.py:42",
                )
            )
            number += 1
            last = max(last, free[worker])
        records.append(Wait(rank, ready, last + 0.0002))
        norm = last + 0.002
        records += [
            Collective(
                rank, "0", number, "all_gather", 64, -1, norm, norm, norm, norm + 0.001, 0, ""
            ),
            Wait(rank, norm, norm + 0.001),
        ]
        number += 1
        now = norm + 0.005
        records.append(Iteration(rank, iteration, now, 0.9 * (now - START), 800_000_000))
    return records


def make_emulation(
    path: Path,
    status: str | None = "done",
    with_delays: bool = False,
    restarts: int = 1,
    ranks: tuple[int, ...] = (0,),
    records: list[Record] | None = None,
    asked: dict[str, Any] | None = None,
    **changed: Any,
) -> RunFolder:
    """Write a run; `status` None leaves it unfinished, `changed` goes over its summary."""
    asked = {
        "script": "train.py",
        "world_size": 8,
        "rank": list(ranks),
        "mode": "wire" if len(ranks) > 1 else "backend",
        "latency": 25e-6,
        "bandwidth": 1.25e9,
        **(asked or {}),
    }
    config = EmulateConfig.model_validate(asked)
    run = RunFolder.create(path, {"seed": 0, "emulate": asked})
    if records is None:
        records = [each for rank in ranks for each in job(rank, delay=1e-3 * rank)]
        if config.mode == "wire":
            records += [Exchange(rank, 10**9, 10**9, 4_000, 2.5) for rank in ranks]
        records.append(Note(0, False, "gloo of PyTorch 2.99 is untested"))
    for rank in ranks * restarts:
        ends = [
            record.end
            for record in records
            if isinstance(record, Iteration) and record.rank == rank
        ]
        for number, end in enumerate(ends):
            since = ends[number - 1] if number else START
            for name, value in (("iteration_time", end - since), ("exposed", 0.007), ("cpu", 0.9)):
                run.metric(end - START, end - START, f"rank{rank}", name, value, number)
    if status is None:
        run.close()
        return run
    summary = summarise(config, records, {"failed": 3, "interrupted": None}.get(status, 0))
    if with_delays:
        runs = [summarise(config, job(delay=each), 0) for each in DELAYS.tolist()]
        listed, knee = summarise_delays("all_reduce", DELAYS.tolist(), runs)
        summary = replace(summary, delays=listed, knee=knee)
    run.finish({**summary, **changed}, timeline_of(records))
    return run

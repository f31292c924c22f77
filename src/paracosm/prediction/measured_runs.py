"""Training steps that others have measured, beside what this version predicts for them.

`measured_runs.csv` is written by `benchmarks/accuracy/stacks.py --write`, and every row names who
published it, and under which licence. None of them sets a duration; an answer from the catalogue
shows those that are nearest to it, so that a reader sees how far such answers are off.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paracosm.cluster.hardware import load_catalogue
from paracosm.graphs.transformer import Transformer
from paracosm.prediction.config import PredictConfig
from paracosm.results import MeasuredRun

FILE = Path(__file__).with_name("measured_runs.csv")

NEAREST = 3  # runs beside an answer

OTHER_DEVICE, OTHER_GENERATION, OTHER_STACK, OTHER_NUMBERS, OTHER_KIND = 1.0, 3.0, 1.0, 1.0, 3.0
"""How far runs are apart that differ so, in the unit of the logarithm of their parameters: one of
another generation of devices is as near as a model of a twentieth of the size."""


@dataclass(frozen=True)
class _Known:
    """What a row is compared by."""

    run: MeasuredRun
    stack: str  # of ours
    parameters: int
    sequence: int
    kind: tuple[bool, bool]  # whether it has experts, and adapters that alone are trained


def nearest_runs(
    model: Transformer, devices: int, hardware: str, stack: str, *, float8: bool
) -> list[MeasuredRun]:
    """Return the measured runs that are nearest to a job, the nearest first.

    Args:
        model: its sizes.
        devices: their number.
        hardware: the name of the device.
        stack: the name of the software.
        float8: whether products are of numbers of one byte.
    """
    numbers = "fp8" if float8 else "bf16"
    known = load_catalogue().devices

    def generation(name: str) -> str | None:
        return known[name].generation if name in known else None

    def distance(row: _Known) -> float:
        device = 0.0
        if row.run.hardware != hardware:
            same = generation(hardware) is not None
            same = same and generation(row.run.hardware) == generation(hardware)
            device = OTHER_DEVICE if same else OTHER_GENERATION
        return (
            device
            + OTHER_STACK * (row.stack != stack)
            + OTHER_NUMBERS * (row.run.numbers != numbers)
            + OTHER_KIND * (row.kind != (model.experts > 0, model.adapter > 0))
            + abs(math.log(row.parameters / model.parameters))
            + abs(math.log(row.run.devices / devices)) / 2
            + abs(math.log(row.sequence / model.sequence)) / 2
        )

    return [row.run for row in sorted(_load(), key=distance)[:NEAREST]]


def measured_like(config: PredictConfig, workers: int) -> list[MeasuredRun]:
    """Return the measured runs nearest to a prediction of hardware; none for captured models."""
    model, hardware = config.architecture, config.catalogued
    if model is None or hardware is None:
        return []
    float8 = bool(config.jobs[-1][1].float8) if config.is_on_cluster else False
    return nearest_runs(model, workers, hardware.name, config.software_name, float8=float8)


@cache
def _load() -> Sequence[_Known]:
    with FILE.open(encoding="utf-8", newline="") as lines:
        return [
            _Known(
                run=MeasuredRun(
                    model=row["model_name"] + (" (LoRA)" if "adapter=" in row["model"] else ""),
                    devices=int(row["devices"]),
                    hardware=row["device"],
                    software=row["software"],
                    numbers=row["numbers"],
                    seconds=float(row["seconds"]),
                    predicted=float(row["predicted"]),
                    source=f"{row['published']} ({row['licence']})",
                ),
                stack=row["stack"],
                parameters=int(row["parameters"]),
                sequence=int(row["sequence"]),
                kind=(row["experts"] != "0", "adapter=" in row["model"]),
            )
            for row in csv.DictReader(lines)
        ]

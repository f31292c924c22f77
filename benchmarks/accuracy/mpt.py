"""Measured training throughput of MPT models beside what is predicted of it by datasheets.

    python benchmarks/accuracy/mpt.py [FOLDER] [--fit]

FOLDER has `training_throughput.csv`, rows of llm-foundry's README (sizes of the model, GPUs,
batches, tokens/s of a GPU); without it, `mpt` in the folder that PARACOSM_DATA names. Two numbers
of a device, what products and what attention reach on its tensor cores, are from the rows of the
models of 125 million and 3 billion parameters; `--fit` prints them, efficiencies.py writes them.
Predicted are the rows of all other models.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from printing import folder_of, mape, print_table, signed
from scipy.optimize import least_squares

from paracosm.cluster.hardware.catalogue import find_hardware
from paracosm.cluster.hardware.efficiency import Efficiencies, Efficiency, load_efficiencies
from paracosm.cluster.hardware.stacks import find_stack
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, Graph
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import parse_strategy
from paracosm.jobs.strategies.work import OF_GPUS, Replica
from paracosm.profiling.datasheets import durations_on
from paracosm.simulation import replay_job
from paracosm.units import format_duration

__all__ = ["FITTED", "Row", "read_rows", "tensor_efficiencies"]

FITTED = ("125m", "3b")
DEVICES = {"h100_80gb": "h100-sxm", "a100_80gb": "a100-sxm-80gb", "a100_40gb": "a100-sxm-40gb"}
VOCABULARY = 50_368
LAUNCH = 5e-6  # seconds
SOURCE = (
    "whole iterations of MPT 125m and 3b (llm-foundry, scripts/train/benchmarking/README.md, 2024)"
)
OUTLIER = 0.1  # of a logarithm, from which on a residual counts less than its square


@dataclass(frozen=True)
class Row:
    """A measured configuration."""

    name: str  # of the model, "13b"
    model: Transformer
    device: str  # in the catalogue
    gpus: int
    micro_batch: int
    accumulation: int
    sharding: str  # "fsdp" or "zero2"
    recompute: bool
    batch: int  # examples of an iteration, of all GPUs
    rate: float  # tokens/s of a GPU

    @property
    def seconds(self) -> float:
        return self.batch * self.model.sequence / self.gpus / self.rate


def read_rows(file: Path) -> list[Row]:
    """Return the rows in half precision; those in float8 are left out.

    Raises:
        InputError: a column that is missing, or a GPU that the catalogue does not have.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        try:
            return [_row(each) for each in csv.DictReader(lines) if "fp8" not in each["precision"]]
        except (KeyError, ValueError) as error:
            raise InputError(f"{file}: {error!r}") from None


def _row(entry: Mapping[str, str]) -> Row:
    sizes = (int(entry[key]) for key in ("layers", "d_model", "heads", "sequence"))
    return Row(
        name=entry["model"],
        model=Transformer(*sizes, VOCABULARY, bias=False, recipe="eager"),
        device=DEVICES[entry["gpu"]],
        gpus=int(entry["gpus"]),
        micro_batch=int(entry["micro_batch"]),
        accumulation=int(entry["accumulation"]),
        sharding="fsdp" if entry["sharding"] == "FULL_SHARD" else "zero2",
        recompute=entry["activation_checkpointing"] == "True",
        batch=int(entry["global_batch"]),
        rate=float(entry["tokens_per_second_per_gpu"]),
    )


def predicted(row: Row, table: Efficiencies) -> float:
    """Return the seconds of an iteration by the datasheet and a table of efficiencies."""
    hardware = find_hardware(row.device)
    graph = transformer_graph(row.model, row.micro_batch)
    stack = find_stack("llm-foundry")
    durations = durations_on(graph, hardware, stack=stack, efficiencies=table)
    seconds = np.array([0.0 if duration is None else duration.duration for duration in durations])[
        graph.op
    ]
    text = f"{row.sharding}, microbatches={row.accumulation}"
    strategy = parse_strategy(text + (", recompute" if row.recompute else ""), row.gpus)
    replica = Replica(graph, seconds, True, LAUNCH, interference=OF_GPUS)
    job = build_job(replica, hardware.cluster(row.gpus), strategy)
    return float(replay_job(job).makespan)


def _spared(graph: Graph) -> np.ndarray:
    """Return which nodes are not computed again: the last ones of a layer, which nothing needs."""
    last = np.array([name.endswith(("mlp.down", "mlp.add")) for name in graph.names])[graph.name]
    return np.asarray(last & (graph.phase == PHASES.index("forward")))


def _at_peak(row: Row) -> tuple[float, float]:
    """Return the seconds of an iteration that products and attention would take at the peak."""
    graph = transformer_graph(row.model, row.micro_batch)
    # Layers are computed again before their backward pass.
    again = np.array([name.startswith("h.") for name in graph.names])[graph.name]
    again &= (graph.phase == PHASES.index("forward")) & ~_spared(graph)
    flops = graph.flops * np.where(again & row.recompute, 2, 1) * row.accumulation
    attends = np.array(["attention" in op.name for op in graph.ops])[graph.op]
    peak = find_hardware(row.device).device.peak("bfloat16")
    return float(flops[~attends].sum()) / peak, float(flops[attends].sum()) / peak


def tensor_efficiencies(rows: Sequence[Row], table: Efficiencies) -> Efficiencies:
    """Return a table with what products and attention reach, from the rows of `FITTED`."""
    devices = dict(table.devices)
    for device in sorted({row.device for row in rows}):
        own = [row for row in rows if row.device == device and row.name in FITTED]
        if own:
            devices[device] = devices.get(device, {}) | _fit(own, table, device)
    return table.model_copy(update={"devices": devices})


def _fit(rows: Sequence[Row], table: Efficiencies, device: str) -> dict[str, Efficiency]:
    """Return the two shares with the least robust error of the logarithm of the rows' times."""
    start = (0.6, 0.4)
    memory = table.find(device, "elementwise")[0].memory
    own = table.devices.get(device, {}) | _entries(start, memory, 0.0)
    guess = table.model_copy(update={"devices": table.devices | {device: own}})
    products, attention = np.array([_at_peak(row) for row in rows]).T
    # Little is hidden behind anything else, so that what is not computed stays what it is.
    whole = np.array([predicted(row, guess) for row in rows])
    rest = whole - products / start[0] - attention / start[1]
    measured = np.array([row.seconds for row in rows])

    def residuals(shares: np.ndarray) -> np.ndarray:
        times = np.maximum(rest + products / shares[0] + attention / shares[1], 1e-9)
        return np.asarray(np.log(times / measured))

    found = least_squares(
        residuals, start, bounds=((0.05, 0.05), (1.0, 1.0)), loss="soft_l1", f_scale=OUTLIER
    )
    sizes = sorted(np.abs(found.fun))
    spread = float(sizes[min(math.ceil((len(sizes) + 1) * 0.9), len(sizes)) - 1])
    return _entries((float(found.x[0]), float(found.x[1])), memory, spread)


def _entries(shares: tuple[float, float], memory: float, spread: float) -> dict[str, Efficiency]:
    """Products on tensor cores reach as much of the memory's bandwidth as element-wise ops do."""
    return {
        name: Efficiency(
            compute=round(share, 4),
            memory=round(memory, 4) if name == "tensor product" else 1.0,
            spread=round(spread, 3),
            ops=0,
            source=SOURCE,
        )
        for name, share in zip(("tensor product", "attention"), shares, strict=True)
    }


def main() -> int:
    """Print the rows that are predicted, and mean errors by model and device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of training_throughput.csv")
    parser.add_argument("--fit", action="store_true", help="what products and attention reach")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "mpt", "measured throughput")
    if folder is None:
        return 2
    rows, table = read_rows(folder / "training_throughput.csv"), load_efficiencies()
    if parsed.fit:
        table = tensor_efficiencies(rows, table)
        for device, classes in table.devices.items():
            for name in ("tensor product", "attention"):
                if name in classes:
                    print(device, name, classes[name].compute, classes[name].spread)
    report([row for row in rows if row.name not in FITTED], table)
    return 0


def report(rows: Sequence[Row], table: Efficiencies) -> list[float]:
    """Print every row and the mean errors; return the errors."""
    times = [predicted(row, table) for row in rows]
    errors = [time / row.seconds - 1 for row, time in zip(rows, times, strict=True)]
    print_table(
        ("model", "GPUs", "tokens", "measured", "predicted", "error"),
        (
            (
                row.name,
                f"{row.gpus} x {row.device}",
                str(row.model.sequence),
                format_duration(row.seconds),
                format_duration(time),
                signed(error),
            )
            for row, time, error in zip(rows, times, errors, strict=True)
        ),
        left=2,
    )
    print()
    groups = {
        f"{name}, {device}": [
            error
            for row, error in zip(rows, errors, strict=True)
            if (row.name, row.device) == (name, device)
        ]
        for name, device in sorted({(row.name, row.device) for row in rows})
    }
    print_table(
        ("", "rows", "mean error", "worst"),
        (
            (name, str(len(found)), f"{mape(found):.1%}", f"{max(map(abs, found)):.1%}")
            for name, found in (groups | {"all": errors}).items()
        ),
    )
    return errors


if __name__ == "__main__":
    sys.exit(main())

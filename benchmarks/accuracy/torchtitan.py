"""Llama 3.1 on 8 to 512 H100 as torchtitan's authors measured it, beside what is predicted.

    python benchmarks/accuracy/torchtitan.py [FOLDER]

FOLDER has llama3_h100_*.csv; without it, the folder `torchtitan` of the one that the variable
PARACOSM_DATA names.

Three numbers are set by three rows, those on 8 GPUs: the share of its peak that a matrix product
reaches in bfloat16 (compiled) and in float8 (compiled, float8), and the share of the memory's
bandwidth that kernels reach that no compiler has fused (neither). All else is from the catalogue of
hardware, or published: flash attention's share of the peak is 335 of 989 Tflop/s (Dao,
"FlashAttention-2", 2023, section 4.1, on an H100). The rows on more GPUs are predicted.

Where a pipeline has no number of micro-batches in the table, it is that of its ranks, torchtitan's
default; its gradients are reduced, and parameters gathered, once in an iteration
(`reshard_after_forward` is off with pipelines), which is ZeRO's first stage.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from printing import folder_of, mape, print_table, signed

from paracosm.cluster.hardware.catalogue import find_hardware
from paracosm.cluster.hardware.efficiency import Efficiencies, Efficiency, load_efficiencies
from paracosm.cluster.hardware.stacks import find_stack
from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer, architecture, transformer_graph
from paracosm.jobs.strategies.strategy import Strategy, parse_strategy
from paracosm.jobs.strategies.work import OF_GPUS, Replica
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.prediction.memory import device_memory
from paracosm.profiling.datasheets import durations_on

HARDWARE = "hgx-h100-96gb"
MODELS = {
    "llama3.1-8b": "llama-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.1-405b": "llama-405b",
}
ATTENTION = 335 / 989.5
OTHERS = "Phantora (2025) says 2.9% in the mean and 8.5% at worst of eight such rows"
FEWEST = 8  # GPUs of the rows that set efficiencies
GIB = 1 << 30


@dataclass(frozen=True)
class Row:
    """A measured run."""

    label: str
    model: Transformer
    strategy: Strategy
    micro_batch: int
    tokens_per_second: float  # of one GPU
    memory: float  # bytes of one GPU

    @property
    def eager(self) -> bool:
        return self.model.recipe == "eager"


@dataclass(frozen=True)
class Shares:
    """What is set by the rows on the fewest GPUs."""

    product: float = 0.7  # of the peak in bfloat16
    float8: float = 0.5  # of the peak in float8
    eager: float = 0.6  # of the memory's bandwidth, by kernels that nobody has fused


def main() -> int:
    """Print what the rows on 8 GPUs set, and errors of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of tables")
    folder = folder_of(parser.parse_args(), "torchtitan", "measured runs")
    if folder is None:
        return 2
    rows = [row for file in sorted(folder.glob("llama3_h100_*.csv")) for row in read_rows(file)]
    if not rows:
        print(f"{folder}: no runs: files llama3_h100_*.csv")
        return 2
    few = [row for row in rows if row.strategy.ranks == FEWEST]
    shares = fitted(few)
    print(
        f"set by {len(few)} rows on {FEWEST} GPUs: products reach {shares.product:.1%} of the peak "
        f"in bfloat16, {shares.float8:.1%} in float8; eager kernels {shares.eager:.1%} of the "
        "memory's bandwidth"
    )
    found = [(row, predicted(row, shares)) for row in rows]
    reserved = [reserved_bytes(prediction) for _, prediction in found]
    print_table(
        ("run", "measured", "predicted", "error", "memory", "predicted", "error"),
        (
            (
                row.label + (" *" if row in few else ""),
                f"{row.tokens_per_second:.0f}",
                f"{rate(row, each):.0f}",
                signed(rate(row, each) / row.tokens_per_second - 1),
                f"{row.memory / GIB:.1f} GiB",
                f"{size / GIB:.1f} GiB",
                signed(size / row.memory - 1),
            )
            for (row, each), size in zip(found, reserved, strict=True)
        ),
    )
    errors = [rate(r, p) / r.tokens_per_second - 1 for r, p in found if r not in few]
    held = [size / r.memory - 1 for (r, _), size in zip(found, reserved, strict=True)]
    print(
        f"\nrows that set nothing: {len(errors)}, mean error {mape(errors):.1%}, "
        f"worst {max(map(abs, errors)):.1%}; {OTHERS}"
    )
    print(f"memory, of which nothing is set: mean error {mape(held):.1%} of {len(held)} rows")
    return 0


def read_rows(file: Path) -> list[Row]:
    """Return the runs of a table.

    Raises:
        InputError: a column that is missing, or a value that is no number.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        return [_row(entry, f"{file}, line {reader.line_num}") for entry in reader]


def _row(entry: Mapping[str, str], where: str) -> Row:
    try:
        model = architecture(MODELS[entry["model"]], int(entry["sequence"]))
        compiled, float8 = entry["compile"] == "yes", entry["float8"] == "yes"
        ways = dict(part.strip().split("=") for part in entry["parallelism"].split(","))
        words = [f"dp={ways['fsdp']}"]
        again = {"selective": "selective", "full": "yes"}[entry["activation_checkpointing"]]
        words.append(f"recompute={again}")
        words += ["float8=yes"] * float8
        if "tp" in ways:
            words += [f"tp={ways['tp']}", "sp=yes"]
            words += ["async_tp=yes"] * (entry["async_tp"] == "yes")
        microbatches = int(ways.get("pp", 1))
        if microbatches > 1:
            schedule = entry["schedule"].removesuffix("-1f1b")
            words += [f"pp={microbatches}", f"microbatches={microbatches}", schedule, "zero=1"]
            words += ["first_bucket=1TB", "bucket=1TB"]
        else:
            words.append("zero=3")
        label = f"{entry['model']} on {entry['gpus']}, {'compiled' if compiled else 'eager'}"
        for key, title in (("float8", "float8"), ("async_tp", "async TP")):
            label += f", {title}" if entry[key] == "yes" else ""
        return Row(
            label=label + (f", {entry['schedule']}" if entry["schedule"] else ""),
            model=replace(
                model, recipe="compiled" if compiled else "eager", loss="separate", weights="single"
            ),
            strategy=parse_strategy(", ".join(words), int(entry["gpus"])),
            micro_batch=int(entry["local_batch"]) // microbatches,
            tokens_per_second=float(entry["tokens_per_second_per_gpu"]),
            memory=float(entry["memory_gib"]) * GIB,
        )
    except KeyError as error:
        raise InputError(f"{where}: lacks or does not know {error}") from None
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def predicted(row: Row, shares: Shares) -> JobPrediction:
    """Predict an iteration of a run."""
    hardware = find_hardware(HARDWARE)
    device = hardware.device
    peaks = dict(device.peak_tflops)
    peaks["float8"] *= shares.float8 / shares.product  # one share of either peak
    device = device.model_copy(update={"peak_tflops": peaks})
    hardware = replace(hardware, device=device)
    graph = transformer_graph(row.model, row.micro_batch, row.strategy.split())
    table = _efficiencies(hardware.name, shares, eager=row.eager)
    stack = find_stack("llm-foundry")  # whose products and attention are the table's, not kernels
    durations = durations_on(graph, hardware, stack=stack, efficiencies=table)
    times = np.array([0.0 if duration is None else duration.duration for duration in durations])
    replica = Replica(graph, times[graph.op], interference=OF_GPUS)
    return predict_job(replica, hardware.cluster(row.strategy.ranks), row.strategy)


def _efficiencies(name: str, shares: Shares, *, eager: bool) -> Efficiencies:
    """Return the catalogue's efficiencies of an H100, with those that are set here."""
    known = load_efficiencies()
    own = dict(known.devices["h100-sxm"])

    def share(**values: float) -> Efficiency:
        return Efficiency(**values, spread=0.0, ops=0, source="whole iterations of torchtitan")

    memory = known.find(name, "tensor product")[0].memory
    own |= {
        "tensor product": share(compute=shares.product, memory=memory),
        "product": share(compute=shares.product),
        "attention": share(compute=ATTENTION),
    }
    if eager:
        own |= dict.fromkeys(("elementwise", "reduction"), share(memory=shares.eager))
    return known.model_copy(update={"devices": {**known.devices, name: own}})


def reserved_bytes(prediction: JobPrediction) -> int:
    """Return the bytes that PyTorch's allocator reserves on the fullest GPU."""
    memory = device_memory(prediction, find_hardware(HARDWARE).device)
    assert memory is not None
    return memory.reserved


def rate(row: Row, prediction: JobPrediction) -> float:
    """Return tokens/s of one GPU."""
    examples = row.micro_batch * row.strategy.microbatches * row.strategy.data
    tokens = examples * row.model.sequence
    return tokens / prediction.iteration_time / row.strategy.ranks


def fitted(rows: Sequence[Row]) -> Shares:
    """Return the shares at which the rows that set them are right: one after the other."""

    def set_by(row: Row, change: Callable[[float], Shares]) -> Shares:
        low, high = 0.05, 1.2
        for _ in range(20):
            middle = (low + high) / 2
            slow = rate(row, predicted(row, change(middle))) < row.tokens_per_second
            low, high = (middle, high) if slow else (low, middle)
        return change((low + high) / 2)

    (plain,) = (row for row in rows if not row.eager and not row.strategy.float8)
    (short,) = (row for row in rows if not row.eager and row.strategy.float8)
    (eager,) = (row for row in rows if row.eager)
    shares = set_by(plain, lambda value: Shares(product=value))
    shares = set_by(short, lambda value: replace(shares, float8=value))
    return set_by(eager, lambda value: replace(shares, eager=value))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error)
        sys.exit(2)

"""Memory of training ranks, as others published it, beside what is predicted as a list.

    python benchmarks/accuracy/memory.py [FOLDER] [--of SOURCE ...] [--rows]

FOLDER has the folders `stacks` (e2e_*.csv) and `torchtitan` (llama3_h100_*.csv); without it, the
folder that PARACOSM_DATA names. Nothing is fitted: what holds memory, and how much, is from the
code of the frameworks. Beside the prediction stands a constant: what ranks hold in multiples of
their parameters, gradients and the optimizer's state, in the mean of the other models of a source.

torchtitan and DeepSpeed report what PyTorch's allocator reserves on the fullest rank. Megatron's
functional tests report what tensors hold at most on the last rank. What a table does not say is as
in the tests' own files (`tests/functional_tests/test_cases/*/model_config.yaml`): the vocabulary,
and that attention writes its scores ("unfused") unless ranks share a sequence.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import published_steps
import torchtitan
from printing import folder_of, mape, print_table, signed

from paracosm.cluster.hardware import find_hardware
from paracosm.cluster.hardware.device_memory import WORKSPACE
from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.prediction.memory import device_memory
from paracosm.results.summaries import DeviceMemory

GIB = 1 << 30

TESTS = "megatron_core_ci"
VOCABULARIES = {"gpt3_7b": "131073", "gpt3_15b": "256000"}
"""Of Megatron's tests, where it is not that of GPT-2: by how the test's name begins."""
GPT2 = "50257"

UNTIED = ("7b", "15b", "uneven_pipeline", "account_for")
"""Parts of names of tests whose head has weights of its own."""

PUBLIC = {"llama4-scout cut to 2 layers": {"ffn": "8192", "vocab": "202048"}}
"""What configurations of models say that a table leaves out."""


@dataclass(frozen=True)
class Row:
    """A measured rank."""

    source: str
    label: str
    model_name: str
    model: Transformer
    strategy: Strategy
    micro_batch: int
    device: str  # of the catalogue
    measured: float  # bytes
    is_reserved: bool  # by the allocator, on the fullest rank; else in tensors, on the last one


@dataclass(frozen=True)
class Result:
    """A row with its prediction, in bytes; None where no other model has a row."""

    row: Row
    predicted: float
    states: float
    verdict: str
    constant: float | None = None

    def error(self, size: float) -> float:
        return size / self.row.measured - 1


def main() -> int:
    """Print mean errors by source; what could not be asked, and why."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="with stacks and torchtitan")
    parser.add_argument("--of", nargs="+", help="whose rows: torchtitan, pytorch_and_others, ...")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "", "measured memory")
    if folder is None:
        return 2
    rows, refused = list[Row](), Counter[tuple[str, str]]()
    for file in sorted([*folder.glob("torchtitan/llama3*.csv"), *folder.glob("stacks/e2e_*.csv")]):
        source = "torchtitan" if file.parent.name == "torchtitan" else file.stem[4:]
        if parsed.of is None or source in parsed.of:
            found, left = read_rows(file, source)
            rows += found
            refused.update(left)
    if not rows:
        print(f"{folder}: no rows with memory: files stacks/e2e_*.csv, torchtitan/llama3_*.csv")
        return 2
    results = list[Result]()
    for row in rows:
        try:
            results.append(predicted(row))
        except InputError as error:
            refused[row.source, str(error)[:80]] += 1
    results = [replace(result, constant=_constant(result, results)) for result in results]
    if parsed.rows:
        _print_rows(results)
    _print_sources(results)
    print(f"\nnot asked: {sum(refused.values())} rows")
    print_table(
        ("", "why", "rows"),
        ((source, why, str(count)) for (source, why), count in sorted(refused.items())),
        left=2,
    )
    return 0


def read_rows(file: Path, source: str) -> tuple[list[Row], Counter[tuple[str, str]]]:
    """Return the rows of a table that have memory and can be asked, and why others cannot."""
    if source == "torchtitan":
        return [_of_torchtitan(row) for row in torchtitan.read_rows(file)], Counter()
    found, refused = list[Row](), Counter[tuple[str, str]]()
    with file.open(encoding="utf-8", newline="") as lines:
        for entry in csv.DictReader(lines):
            if not entry["memory_gib"]:
                continue
            try:
                found.append(_of_stack(entry, source))
            except InputError as error:
                refused[source, str(error)] += 1
    return found, refused


def _of_torchtitan(row: torchtitan.Row) -> Row:
    name = row.label.split(" ")[0]
    return Row(
        *("torchtitan, 2024", row.label, name, row.model, row.strategy),
        *(row.micro_batch, torchtitan.HARDWARE, row.memory, True),
    )


def _of_stack(entry: Mapping[str, str], source: str) -> Row:
    """Raise InputError for what is no decoder, or says too little."""
    name = entry["model"]
    known = dict(entry) | PUBLIC.get(name, {}) | {"step_s": entry["step_s"] or "1"}
    is_test = source == TESTS
    if is_test:
        test = name.rpartition("/")[2]
        if not test.startswith("gpt3") or "_mla" in test:
            raise InputError("no decoder of attention and perceptrons alone")
        if entry["offload"] or "offload" in test:
            raise InputError("activations on the host")
        vocabulary = (v for start, v in VOCABULARIES.items() if test.startswith(start))
        known["vocab"] = entry["vocab"] or next(vocabulary, GPT2)
        known["ffn"] = entry["ffn"] or str(4 * int(entry["width"]))
        known["model"] = test  # of which "gpt3" says its norms and positions
        known["task"] = "pretrain"  # how long small ones take is not asked
    row = published_steps.row_of(known, source)
    model, strategy = row.model, row.strategy
    if is_test:
        divides = entry["sp"] == "yes" and strategy.tensor > 1
        strategy = replace(strategy, sequence=divides)
    if is_test and model.experts and row.strategy.context == 1:
        raise InputError("experts beside attention that writes scores")
    if "torchtitan" in entry["stack"]:
        # Its loss is compiled from August 2025 on, of PyTorch 2.9.
        is_new = entry["stack_version"].startswith(("torch 2.9", "2025"))
        model = replace(model, loss="fused" if is_new else "separate")
    if "Liger" in entry["stack"]:
        model = replace(model, loss="chunked", recipe="compiled")  # its kernels are fused
    if is_test and any(part in name for part in UNTIED):
        model = replace(model, tied=False)
    if is_test and row.strategy.context == 1 and not model.experts and "memory_speed" not in name:
        model = replace(model, recipe="megatron", loss="in place")
    return Row(
        source=f"{source}: {row.stack}",
        label=f"{name}, {entry['gpus']} {row.device}, {row.numbers}, {strategy}",
        model_name=name,
        model=model,
        strategy=strategy,
        micro_batch=row.micro_batch,
        device=row.device,
        measured=float(entry["memory_gib"]) * GIB,
        is_reserved=not is_test,
    )


def predicted(row: Row) -> Result:
    """Predict the memory of a row."""
    job, memory = _job(row)
    program = job.schedule.job.programs[job.schedule.job.program[-1]]
    size = float(memory.reserved)
    if not row.is_reserved:
        last = job.strategy.ranks - 1
        peak = next(e.peak_memory or 0 for e in job.equal_ranks if last in e.ranks)
        size = peak + 2.0 * WORKSPACE  # PyTorch's, and that of Transformer Engine
    return Result(row, size, float(program.resident), memory.verdict)


def _job(row: Row) -> tuple[JobPrediction, DeviceMemory]:
    """Return the job and its memory. How long ops take says only in which order things happen."""
    hardware = find_hardware(row.device)
    graph = transformer_graph(row.model, row.micro_batch, row.strategy.split())
    seconds = 1e-6 + graph.flops / hardware.device.peak("bfloat16") + graph.bytes_written / 1e12
    rates = hardware.host_rates(row.strategy.ranks)
    replica = Replica(graph, np.asarray(seconds, dtype=np.float64), host_rates=rates)
    job = predict_job(replica, hardware.cluster(row.strategy.ranks), row.strategy)
    memory = device_memory(job, hardware.device)
    assert memory is not None
    return job, memory


def _constant(one: Result, results: Sequence[Result]) -> float | None:
    """Return what the mean of other models would be, in multiples of the states."""
    shares = [
        math.log(result.row.measured / result.states)
        for result in results
        if result.row.source == one.row.source and result.row.model_name != one.row.model_name
    ]
    return one.states * math.exp(sum(shares) / len(shares)) if shares else None


def _print_rows(results: Sequence[Result]) -> None:
    print_table(
        ("rank", "measured", "predicted", "error", "constant", "verdict"),
        (
            (
                result.row.label[:150],
                f"{result.row.measured / GIB:.2f} GiB",
                f"{result.predicted / GIB:.2f} GiB",
                signed(result.error(result.predicted)),
                "" if result.constant is None else signed(result.error(result.constant)),
                result.verdict,
            )
            for result in results
        ),
    )
    print()


def _print_sources(results: Sequence[Result]) -> None:
    groups = defaultdict[str, list[Result]](list)
    for result in results:
        groups[result.row.source].append(result)
        groups["all"].append(result)
    print_table(
        ("", "rows", "error", "bias", "worst", "constant", "do not fit"),
        (_line(name, group) for name, group in sorted(groups.items())),
    )


def _line(name: str, group: Sequence[Result]) -> tuple[str, ...]:
    errors = [each.error(each.predicted) for each in group]
    constant = [each.error(each.constant) for each in group if each.constant is not None]
    return (
        name,
        str(len(group)),
        f"{mape(errors):.1%}",
        signed(sum(errors) / len(errors)),
        f"{max(map(abs, errors)):.1%}",
        f"{mape(constant):.1%}" if constant else "",
        str(sum(each.verdict == "does not fit" for each in group)),
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error)
        sys.exit(2)

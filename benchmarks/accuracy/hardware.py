"""Iterations that others measured beside what the hardware's datasheet says of them.

    python benchmarks/accuracy/hardware.py [FOLDER] [--of SOURCE ...]

FOLDER is the one that has `neusight`, `pollux`, `sailor`, `vtrain` and `mpt`, each as the benchmark
of that name reads it; without it, the one that PARACOSM_DATA names. No row that is predicted sets
an efficiency: a model of NeuSight is predicted without the op latencies of its family, and a second
time with those of other GPUs alone; T4 and GH200 have no measured efficiencies at all; those of
tensor cores are from two models of MPT that are not predicted.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mpt
import numpy as np
import vtrain
from efficiencies import predicted_wholes
from layer_profiles.plan import read_plan
from printing import folder_of, mape, print_table, signed

from paracosm.cluster.hardware import Hardware, find_hardware, load_efficiencies
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, Graph, Op
from paracosm.graphs.transformer import architecture, transformer_graph
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import OF_GPUS, Replica
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.run import run_prediction
from paracosm.profiling.datasheets import durations_on
from paracosm.simulation import replay_job
from paracosm.units import format_duration

LAUNCH = 5e-6  # seconds of the host for an op
ADAPTERS = 4  # of a machine of vTrain's, as its own configuration has it
JOBS = {
    "cifar10": ("pollux_models:resnet18_of_cifar", "3x32x32"),
    "imagenet": ("resnet50", "3x224x224"),
}
"""Of Pollux; its bert answers questions, with another head than the catalogue's models."""
PLACEMENTS = {"1": 1, "4": 4, "44": 8, "4444": 16}


@dataclass(frozen=True)
class Result:
    """An iteration on a device."""

    source: str
    device: str
    what: str
    measured: float  # seconds
    predicted: float
    inside: bool | None = None  # whether the interval has the measured one; None without interval

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def main() -> int:
    """Print every row, and mean errors by source and device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of measurements")
    parser.add_argument("--of", nargs="+", choices=SOURCES, default=SOURCES, help="whose rows")
    parsed = parser.parse_args()
    folder = folder_of(parsed, ".", "measurements")
    if folder is None:
        return 2
    try:
        results = [each for name in parsed.of for each in SOURCES[name](folder / name)]
    except (InputError, OSError) as error:
        print(error)
        return 2
    print_table(
        ("source", "device", "what", "measured", "predicted", "error"),
        (
            (
                *(result.source, result.device, result.what),
                *map(format_duration, (result.measured, result.predicted)),
                signed(result.error),
            )
            for result in results
        ),
        left=3,
    )
    print()
    keys = sorted({(result.source, result.device) for result in results})
    groups = {
        f"{source}, {device}": [e for e in results if (e.source, e.device) == (source, device)]
        for source, device in keys
    }
    print_table(
        ("", "rows", "mean error", "bias", "worst", "in the interval"),
        (_line(name, group) for name, group in (groups | {"all": results}).items()),
    )
    return 0


def _line(name: str, group: Sequence[Result]) -> tuple[str, ...]:
    errors = [each.error for each in group]
    known = [each.inside for each in group if each.inside is not None]
    return (
        name,
        str(len(group)),
        f"{mape(errors):.1%}",
        signed(sum(errors) / len(errors)),
        f"{max(map(abs, errors)):.1%}",
        f"{sum(known)} of {len(known)}" if known else "",
    )


def of_neusight(folder: Path) -> Iterator[Result]:
    """Yield whole models in single precision on one GPU, by two tables of efficiencies."""
    wholes = predicted_wholes(folder)
    for each in wholes:
        yield Result(
            *("neusight", each.device, each.model, each.measured, each.predicted, each.inside)
        )
    for each in wholes:
        yield Result(
            *("neusight, by other GPUs", each.device, each.model, each.measured, each.by_others),
            each.inside_by_others,
        )


def of_pollux(folder: Path) -> Iterator[Result]:
    """Yield steps of DDP on nodes of four T4; those of one GPU are single devices."""
    for job, (model, shape) in JOBS.items():
        with (folder / job / "placements.csv").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["placement"] in PLACEMENTS]
        for row in rows:
            gpus, batch = PLACEMENTS[row["placement"]], int(row["local_bsz"])
            config = PredictConfig(
                model=model,
                shape=shape,
                batch=batch,
                hardware="t4",
                optimizer="sgd(momentum=0.9)",
                **({"workers": gpus, "strategy": "ddp"} if gpus > 1 else {}),
            )
            summary = run_prediction(config, seed=0).summary
            measured, interval = float(row["step_time"]), summary["interval"]
            inside = interval["low"] <= measured <= interval["high"]
            what = f"{job}, batch {batch}, {gpus} GPUs"
            yield Result("pollux", "t4", what, measured, summary["iteration_time"], inside)


def of_sailor(folder: Path) -> Iterator[Result]:
    """Yield plans of OPT-350M on GH200 without pipelines: a node of four splits each layer.

    Sizes in llm_info.json are of 4 bytes a number, and each layer keeps one score for every pair of
    tokens: single precision, attention that is not fused, no dropout.
    """
    hardware = find_hardware("gh200")
    model = replace(architecture("opt-350m"), recipe="megatron", fused_qkv=True)
    for file in sorted(folder.glob("validation/*/OPT-350/*/plan*.json")):
        plan = read_plan(file)
        if len(plan.stages) > 1 or plan.measured is None:
            continue
        (stage,) = plan.stages
        tensor = stage.workers[0].tensor
        strategy = Strategy(
            data=plan.replicas,
            tensor=tensor,
            microbatches=plan.microbatches,
            bucket=math.inf if plan.replicas > 1 else Strategy.bucket,
            first_bucket=math.inf if plan.replicas > 1 else Strategy.first_bucket,
        )
        graph = _in_single_precision(transformer_graph(model, plan.microbatch, tensor))
        what = f"{file.stem}, {plan.gpus} GPUs, micro-batches of {plan.microbatch}"
        seconds = job_seconds(graph, hardware, strategy)
        yield Result("sailor", "gh200", what, plan.measured.iteration, seconds)


def _in_single_precision(graph: Graph) -> Graph:
    """Return a graph with numbers of four bytes in place of two, and without dropout."""
    updates = set(graph.op[graph.phase == PHASES.index("optimizer")].tolist())

    def wider(op: Op) -> Op:
        times = 0 if "dropout" in op.name and "add" not in op.name else 2
        return replace(
            op,
            arguments=op.arguments.replace('"float16"', '"float32"'),
            bytes_read=times * op.bytes_read,
            bytes_written=times * op.bytes_written,
        )

    ops = tuple(op if code in updates else wider(op) for code, op in enumerate(graph.ops))
    return replace(graph, ops=ops, storages=replace(graph.storages, size=2 * graph.storages.size))


def of_vtrain(folder: Path) -> Iterator[Result]:
    """Yield plans of Megatron-LM on 256 and 512 A100."""
    found = find_hardware("a100-sxm-80gb")
    assert found.node is not None
    hardware = replace(found, node=found.node.model_copy(update={"cards": ADAPTERS}))
    for file in sorted(folder.glob("ground_truth_*.csv")):
        for row in vtrain.read_rows(file):
            plan = row.plan
            graph = transformer_graph(plan.model, plan.micro_batch, plan.tensor, plan.pipeline)
            seconds = job_seconds(graph, hardware, plan.strategy)
            yield Result("vtrain", hardware.name, vtrain.label(row), row.measured, seconds)


def of_mpt(folder: Path) -> Iterator[Result]:
    """Yield models of MPT with FSDP that set no efficiency."""
    table = load_efficiencies()
    for row in mpt.read_rows(folder / "training_throughput.csv"):
        if row.name not in mpt.FITTED:
            what = f"{row.name}, {row.gpus} GPUs, {row.model.sequence} tokens"
            yield Result("mpt", row.device, what, row.seconds, mpt.predicted(row, table))


SOURCES: Mapping[str, Callable[[Path], Iterator[Result]]] = {
    "neusight": of_neusight,
    "pollux": of_pollux,
    "sailor": of_sailor,
    "vtrain": of_vtrain,
    "mpt": of_mpt,
}
"""Benchmarks by the names of their folders."""


def job_seconds(graph: Graph, hardware: Hardware, strategy: Strategy) -> float:
    """Return the seconds of an iteration of a job on nodes of the hardware."""
    durations: Iterable[float] = (
        0.0 if each is None else each.duration for each in durations_on(graph, hardware)
    )
    times = np.array(list(durations))[graph.op]
    replica = Replica(graph, times, True, LAUNCH, interference=OF_GPUS)
    job = build_job(replica, hardware.cluster(strategy.ranks), strategy)
    return float(replay_job(job).makespan)


if __name__ == "__main__":
    sys.exit(main())

"""Training steps of many software stacks, as others published them, beside what is predicted.

    python benchmarks/accuracy/stacks.py [FOLDER] [--of SOURCE ...] [--rows]

FOLDER has tables `e2e_*.csv`, a run a row: a model by its sizes, batches, how ranks share them, the
GPU, the stack, and the seconds of a step; without it, the folder `stacks` of the one that
PARACOSM_DATA names. No row sets anything: rates are from kernels that were timed alone
(`kernels.py`). Beside the prediction stand two simple ones: the constant share of the peak that
other models reach with the same device, type of numbers and stack, and that of the nearest row of
another model. `--rows` prints every row; `--write` stores all of them with what is predicted, for
answers to show those nearest to them (`measured_runs.py`).

`published_steps.py` reads the tables, and says what of a row is from elsewhere. MaxText computes
layers again where nothing says otherwise and the step would not fit.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
from measured_runs import write_measured_runs
from printing import folder_of, mape, print_table, signed
from published_steps import Question, Row, read_rows

from paracosm.cluster import Cluster
from paracosm.cluster.hardware import find_hardware, find_stack, load_efficiencies
from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.graphs.graph import PHASES
from paracosm.graphs.transformer import transformer_graph
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.work import NO_INTERFERENCE, OF_GPUS, Replica
from paracosm.prediction.job import predict_job, relative_interval
from paracosm.profiling.datasheets import NONE, common_error, durations_on, share_of_kernels
from paracosm.profiling.estimators.roofline import Estimate
from paracosm.simulation.replay import replay_job


@dataclass(frozen=True)
class Result:
    """A row with its predictions, in seconds; None where no other model has a row."""

    row: Row
    predicted: float
    inside: bool  # whether the 90 % interval has what was measured
    constant: float | None  # by the constant share of the peak
    nearest: float | None  # by that of the nearest row

    def error(self, seconds: float | None) -> float:
        return (self.predicted if seconds is None else seconds) / self.row.seconds - 1


def main() -> int:
    """Print mean errors by table, stack and device; what could not be asked, and why."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of tables e2e_*.csv")
    parser.add_argument("--of", nargs="+", help="whose rows: dgxc, maxtext, ...")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--write", action="store_true", help="write the rows that answers show")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "stacks", "measured steps")
    if folder is None:
        return 2
    rows, refused = list[Row](), Counter[tuple[str, str]]()
    for file in sorted(folder.glob("e2e_*.csv")):
        source = file.stem.removeprefix("e2e_")
        if parsed.of is None or source in parsed.of:
            found, left = read_rows(file, source)
            rows += found
            refused.update(left)
    if not rows:
        print(f"{folder}: no runs: files e2e_*.csv")
        return 2
    results = list[Result]()
    for row in rows:
        try:
            results.append(_result(row, rows))
        except InputError as error:
            refused[row.source, str(error).partition(":")[0]] += 1
    if parsed.write:
        write_measured_runs({result.row: result.predicted for result in results})
    if parsed.rows:
        _print_rows(results)
    _print_groups(results)
    print(f"\nnot asked: {sum(refused.values())} rows")
    print_table(
        ("", "why", "rows"),
        ((source, why, str(count)) for (source, why), count in sorted(refused.items())),
        left=2,
    )
    return 0


def _result(row: Row, rows: Sequence[Row]) -> Result:
    answer = predicted(row.question)
    if not answer.fits and row.stack == "maxtext" and not row.says_recompute:
        row = replace(row, strategy=replace(row.strategy, recompute=True))
        answer = predicted(row.question)
    alike = [
        other
        for other in rows
        if (other.device, other.numbers, other.stack) == (row.device, row.numbers, row.stack)
        and (other.model_name, other.task) != (row.model_name, row.task)
    ]
    constant = nearest = None
    if alike:
        share = math.exp(float(np.mean([math.log(other.utilisation) for other in alike])))
        constant = row.seconds * row.utilisation / share
        near = min(alike, key=lambda other: _distance(row, other))
        nearest = row.seconds * row.utilisation / near.utilisation
    return Result(row, answer.seconds, _is_inside(row, answer), constant, nearest)


def _is_inside(row: Row, answer: Answer) -> bool:
    """Whether the 90 % interval has what was measured. Its ends are those of an iteration in which
    all ops take so many times as long; no iteration takes longer than that many times as long."""
    low, high = answer.ends
    apart = row.seconds / answer.seconds
    if not low <= apart <= high:
        return False
    end = _iteration(row.question, high if apart > 1 else low)
    return row.seconds <= end if apart > 1 else row.seconds >= end


def _distance(row: Row, other: Row) -> float:
    """Return how far rows are apart in parameters, tokens of a sequence and devices."""
    return sum(
        abs(math.log(one / two))
        for one, two in (
            (row.model.parameters, other.model.parameters),
            (row.model.sequence, other.model.sequence),
            (row.strategy.ranks, other.strategy.ranks),
        )
    )


@dataclass(frozen=True)
class Answer:
    """The prediction of a run."""

    seconds: float
    fits: bool  # whether it fits into memory
    ends: tuple[float, float]  # of the 90 % interval of its ops, over their durations


@cache
def predicted(question: Question) -> Answer:
    """Return the prediction of a run."""
    replica, cluster, ends, memory = _replica(question)
    job = predict_job(replica, cluster, question.strategy)
    return Answer(job.iteration_time, (job.peak_memory or 0) <= memory, ends)


@cache
def _iteration(question: Question, factor: float) -> float:
    """Return the seconds of an iteration whose ops take so many times as long."""
    replica, cluster, _, _ = _replica(question)
    return replay_job(build_job(replica.times(factor), cluster, question.strategy)).makespan


@lru_cache(maxsize=1)
def _replica(question: Question) -> tuple[Replica, Cluster, tuple[float, float], float]:
    """Return one replica of a run, its cluster, the ends of the interval, and a device's memory."""
    hardware, strategy = find_hardware(question.hardware), question.strategy
    if question.slice and hardware.node is not None:
        hosts = hardware.node.cards * question.slice // hardware.node.count
        node = hardware.node.model_copy(update={"count": question.slice, "cards": hosts})
        hardware = replace(hardware, node=node)
    graph = transformer_graph(
        *(question.model, question.micro_batch, strategy.split()), train=question.task != "forward"
    )
    stack = find_stack(question.stack)
    durations = durations_on(graph, hardware, stack=stack)
    share = share_of_kernels(graph, durations)
    common = common_error(hardware, NONE, load_efficiencies(), stack, share)
    seconds = _seconds(graph, durations)
    if question.task == "without update":
        seconds[graph.phase == PHASES.index("optimizer")] = 0.0
    interference = OF_GPUS if hardware.device.kind == "gpu" else NO_INTERFERENCE
    return (
        Replica(
            *(graph, seconds),
            interference=interference,
            host_rates=hardware.host_rates(strategy.ranks),
        ),
        hardware.cluster(strategy.ranks),
        relative_interval(graph, durations, common, strategy),
        hardware.device.memory,
    )


def _seconds(graph: Graph, durations: Sequence[Estimate | None]) -> np.ndarray:
    return np.array([0.0 if duration is None else duration.duration for duration in durations])[
        graph.op
    ]


def _print_rows(results: Iterable[Result]) -> None:
    print_table(
        ("run", "strategy", "measured", "predicted", "error", "constant share", "nearest"),
        (
            (
                _label(result.row),
                str(result.row.strategy),
                f"{result.row.seconds:.3f} s",
                f"{result.predicted:.3f} s",
                signed(result.error(result.predicted)),
                "" if result.constant is None else signed(result.error(result.constant)),
                "" if result.nearest is None else signed(result.error(result.nearest)),
            )
            for result in results
        ),
        left=2,
    )
    print()


def _label(row: Row) -> str:
    return (
        f"{row.model_name} ({row.model.layers}) {row.numbers}, {row.strategy.ranks} {row.device}, "
        f"{row.stack_name[:24]}"
    )


def _print_groups(results: Sequence[Result]) -> None:
    groups = defaultdict[str, list[Result]](list)
    for result in results:
        row = result.row
        kind = "experts" if row.model.experts else "adapters" if row.model.adapter else "dense"
        kind = kind if row.model.causal else "encoder"
        groups[f"{row.source}: {row.stack}, {row.device}, {row.numbers}, {kind}"].append(result)
        groups[f"{row.source}: all"].append(result)
        groups["all"].append(result)
    print_table(
        ("", "rows", "error", "bias", "worst", "in interval", "constant share", "nearest row"),
        (_line(name, groups[name]) for name in sorted(groups)),
    )


def _line(name: str, group: Sequence[Result]) -> tuple[str, ...]:
    errors = [each.error(each.predicted) for each in group]
    constant = [each.error(each.constant) for each in group if each.constant is not None]
    nearest = [each.error(each.nearest) for each in group if each.nearest is not None]
    return (
        name,
        str(len(group)),
        f"{mape(errors):.1%}",
        signed(sum(errors) / len(errors)),
        f"{max(map(abs, errors)):.1%}",
        f"{sum(each.inside for each in group) / len(group):.0%}",
        f"{mape(constant):.1%}" if constant else "",
        f"{mape(nearest):.1%}" if nearest else "",
    )


if __name__ == "__main__":
    sys.exit(main())

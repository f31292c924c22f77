"""Plans of training on many GPUs from the times of single layers, beside what was measured.

    python benchmarks/accuracy/sailor.py [FOLDER] [--overhead BYTES]

FOLDER is as Sailor's repository has it: profiles_tmp.json (times of layers), llm_info.json (their
sizes), providers/multizone_bandwidths*.json (fitted bandwidths) and the measured plans,
validation/CLUSTER/MODEL/**/plan*.json; without it, the folder `sailor` of the one that the variable
PARACOSM_DATA names. docs/accuracy.md says what comes out.

Nothing is fitted on what is predicted. Beside the replay stand Sailor's own formulas, recomputed
(they err by 8.9 % on its plans of OPT-350M, the figure to beat), and the general strategies, whose
1F1B sends while it computes, which the engine that was measured does not.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from itertools import combinations, groupby
from pathlib import Path

from layer_profiles.folder import PlanComparison, read_folder
from printing import folder_of, mape_of_known, print_table, signed

from paracosm.errors import InputError
from paracosm.units import format_duration, format_size, parse_size


def main() -> int:
    """Print a table of every plan, mean absolute errors, and how well plans are ranked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of profiles and plans")
    parser.add_argument(
        "--overhead", help="bytes on a GPU besides what the layers need (by its kind)"
    )
    asked = parser.parse_args()
    path = folder_of(asked, "sailor", "plans")
    if path is None:
        return 2
    try:
        overhead = None if asked.overhead is None else parse_size(asked.overhead)
        folder = read_folder(path, overhead)
    except InputError as error:
        print(error)
        return 2
    for (cluster, model), group in groupby(
        folder.comparisons, key=lambda each: (each.cluster, each.model)
    ):
        plans = list(group)
        print(f"{model} on {cluster}: {len(plans)} plans")
        _print_iterations(plans)
        print("\nall-reduce of gradients, and memory of the fullest GPU")
        _print_parts(plans)
        print("\nmean absolute errors")
        _print_means(plans)
        print("\nranking")
        _print_ranking(plans)
    for file, reason in folder.left_out.items():
        print(f"left out: {file}: {reason}")
    return 0


def _print_iterations(plans: Sequence[PlanComparison]) -> None:
    head = ("plan", "GPUs", "stages", "data", "micro", "measured", "predicted", "error")
    rows = [
        (
            plan.plan.name,
            str(plan.plan.gpus),
            str(len(plan.plan.stages)),
            str(plan.plan.replicas),
            f"{plan.plan.microbatches} x {plan.plan.microbatch}",
            format_duration(plan.measured.iteration),
            format_duration(plan.iteration),
            *map(signed, (_error(plan), _sailor_error(plan), _strategies_error(plan))),
        )
        for plan in plans
    ]
    print_table((*head, "Sailor", "strategies"), rows)


def _print_parts(plans: Sequence[PlanComparison]) -> None:
    head = ("measured", "predicted", "error", "Sailor")
    rows = []
    for plan in plans:
        cells = ["-"] * 8
        if (measured := plan.measured.all_reduce) is not None:
            errors = (_reduce_error(plan, time) for time in (plan.all_reduce, _sailor(plan)[1]))
            cells[:4] = (*map(format_duration, (measured, plan.all_reduce)), *map(signed, errors))
        if (held := plan.measured.memory) is not None:
            errors = (bytes_held / held - 1 for bytes_held in (plan.memory, _sailor(plan)[2]))
            cells[4:] = (*map(format_size, (held, plan.memory)), *map(signed, errors))
        rows.append((plan.plan.name, *cells))
    print_table(("plan", *head, *head), rows)


def _print_means(plans: Sequence[PlanComparison]) -> None:
    fullest = [(plan, held) for plan in plans if (held := plan.measured.memory) is not None]
    errors: dict[str, tuple[list[float], list[float], list[float]]] = {
        "iteration": (
            [_error(plan) for plan in plans],
            [_sailor_error(plan) for plan in plans],
            [_strategies_error(plan) for plan in plans],
        ),
        **{
            f"iteration, micro-batches of {size}": (
                [_error(plan) for plan in plans if plan.plan.microbatch == size],
                [_sailor_error(plan) for plan in plans if plan.plan.microbatch == size],
                [_strategies_error(plan) for plan in plans if plan.plan.microbatch == size],
            )
            for size in sorted({plan.plan.microbatch for plan in plans})
        },
        "all-reduce": (
            [_reduce_error(plan, plan.all_reduce) for plan in plans],
            [_reduce_error(plan, _sailor(plan)[1]) for plan in plans],
            [],
        ),
        "all-reduce, half duplex": (
            [_reduce_error(plan, 2 * plan.all_reduce) for plan in plans],
            [_reduce_error(plan, 2 * _sailor(plan)[1]) for plan in plans],
            [],
        ),
        "memory": (
            [each.memory / held - 1 for each, held in fullest],
            [_sailor(each)[2] / held - 1 for each, held in fullest],
            [],
        ),
    }
    rows = [
        (name, str(sum(not math.isnan(error) for error in each[0])), *map(mape_of_known, each))
        for name, each in errors.items()
    ]
    print_table(("", "plans", "replay", "Sailor", "strategies"), rows)


def _print_ranking(plans: Sequence[PlanComparison]) -> None:
    """Print rank correlations, and how many pairs for the same GPUs and batch are in order."""
    from scipy.stats import kendalltau, spearmanr

    if len(plans) < 2:
        print("one plan is nothing to rank")
        return
    measured = [plan.plan.batch / plan.measured.iteration for plan in plans]
    for name, times in (
        ("replay", [plan.iteration for plan in plans]),
        ("Sailor", [_sailor(plan)[0] for plan in plans]),
    ):
        if any(map(math.isnan, times)):
            continue
        predicted = [plan.plan.batch / time for plan, time in zip(plans, times, strict=True)]
        pairs = [
            (measured[a] - measured[b]) * (predicted[a] - predicted[b]) > 0
            for a, b in combinations(range(len(plans)), 2)
            if _asked_alike(plans[a]) == _asked_alike(plans[b])
        ]
        print(
            f"{name}: examples/s: Kendall {kendalltau(measured, predicted).statistic:.2f}, "
            f"Spearman {spearmanr(measured, predicted).statistic:.2f}; {sum(pairs)} of "
            f"{len(pairs)} pairs with equal GPUs and batch in the right order"
        )


def _asked_alike(each: PlanComparison) -> tuple[int, int]:
    return each.plan.gpus, each.plan.batch


def _error(each: PlanComparison) -> float:
    return each.iteration / each.measured.iteration - 1


def _sailor_error(each: PlanComparison) -> float:
    return _sailor(each)[0] / each.measured.iteration - 1


def _sailor(each: PlanComparison) -> tuple[float, float, float]:
    """Return iteration, all-reduce and memory by Sailor's formulas; NaN where they say nothing."""
    if each.sailor is None:
        return math.nan, math.nan, math.nan
    return each.sailor.iteration, each.sailor.all_reduce, each.sailor.memory


def _strategies_error(each: PlanComparison) -> float:
    return math.nan if each.overlapped is None else each.overlapped / each.measured.iteration - 1


def _reduce_error(each: PlanComparison, predicted: float) -> float:
    """Return the error of an all-reduce; NaN where there is none to compare with.

    One replica reduces nothing: what was measured there is the engine's own time.
    """
    if each.measured.all_reduce is None or each.plan.replicas == 1:
        return math.nan
    return predicted / each.measured.all_reduce - 1


if __name__ == "__main__":
    sys.exit(main())

"""Megatron iterations on hundreds of A100 that vTrain measured, beside what is predicted of them.

    python benchmarks/accuracy/vtrain.py [FOLDER] [--few N] [--adapters N]

FOLDER has tables as vTrain publishes them (ground_truth_*.csv, one line for each plan: sizes of the
model, batches, ways of parallelism, milliseconds of an iteration); without it, the folder `vtrain`
of the one that the variable PARACOSM_DATA names.

Predicted twice: from first principles, that is from published rates of the hardware alone; and with
one factor on all that is computed, fitted to the first N plans of those on the fewest GPUs, which
are then left out of the score; each file for itself. docs/accuracy.md says what the rates are and
what comes out.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from printing import folder_of, mape, print_table, signed
from scipy.stats import spearmanr
from transformer_plans import A100, Plan, dgx_a100, predict_plan

from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer
from paracosm.units import format_duration

FIGURES = {"ground_truth_multi": 0.1473, "ground_truth_single": 0.0837}
"""Errors of vTrain itself on its files (Bang et al., MICRO 2024), to beat."""

WORST = 8  # plans that are shown
FEW = 3  # plans below which an order says nothing

PARTS: Mapping[str, Callable[[Plan], int]] = {
    "tensor": lambda plan: plan.tensor,
    "pipeline": lambda plan: plan.pipeline,
    "micro-batch": lambda plan: plan.micro_batch,
    "GPUs": lambda plan: plan.gpus,
}


@dataclass(frozen=True)
class Row:
    """A plan, and the seconds of its iteration as measured."""

    plan: Plan
    measured: float

    def error(self, seconds: float) -> float:
        """Of a prediction, relative to what was measured."""
        return seconds / self.measured - 1


def main() -> int:
    """Print errors from first principles and with a factor from a few small plans."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of tables")
    parser.add_argument("--few", type=int, default=3, help="small plans that the factor is from")
    parser.add_argument("--adapters", type=int, default=4, help="of 200 Gbit/s in a machine")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "vtrain", "measured iterations")
    if folder is None:
        return 2
    files = sorted(folder.glob("ground_truth_*.csv"))
    if not files:
        print(f"{folder}: no plans: files ground_truth_*.csv")
        return 2
    for file in files:
        if rows := read_rows(file):
            print(f"{file.name}: {len(rows)} plans", end="")
            print(
                f"; vTrain itself errs by {FIGURES[file.stem]:.1%}" if file.stem in FIGURES else ""
            )
            _report(rows, max(parsed.few, 1), parsed.adapters)
    return 0


def _report(rows: Sequence[Row], count: int, adapters: int) -> None:
    """Predict the plans of a file both ways, and print how far off that is."""
    first = predicted(rows, 1.0, adapters)
    fewest = min(row.plan.gpus for row in rows)
    few = [row for row in rows if row.plan.gpus == fewest][:count]
    slowdown = median(fitted(row, adapters) for row in few)
    rest = [row for row in rows if row not in few]
    scored = {"first principles": (rows, first)}
    if rest:
        scored[f"factor {slowdown:.3f}"] = (rest, predicted(rest, slowdown, adapters))
    _print_scores(scored)
    print(f"\nthe factor is from {', '.join(map(label, few))}")
    for title, part in PARTS.items():
        print()
        _print_groups(title, part, scored)
    print("\nthe largest errors from first principles")
    order = sorted(range(len(rows)), key=lambda index: -abs(rows[index].error(first[index])))
    print_table(
        ("plan", "measured", "predicted", "error"),
        (
            (
                label(rows[index]),
                format_duration(rows[index].measured),
                format_duration(first[index]),
                signed(rows[index].error(first[index])),
            )
            for index in order[:WORST]
        ),
    )
    print("\nwhich plan is the fastest?")
    _print_orders(rows, first)


def read_rows(file: Path) -> list[Row]:
    """Return the plans of a table.

    Raises:
        InputError: a column that is missing, or a value that is no number or no plan.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        return [_row(entry, f"{file}, line {reader.line_num}") for entry in reader]


def _row(entry: dict[str, str], where: str) -> Row:
    def number(name: str) -> int:
        return int(float(entry[name]))

    try:
        plan = Plan(
            model=Transformer(
                layers=number("# layers"),
                width=number("hidden size"),
                heads=number("attention heads"),
                sequence=number("sequence length"),
            ),
            batch=number("global batch"),
            micro_batch=number("micro batch"),
            tensor=number("tensor parallelism"),
            data=number("data parallelism"),
            pipeline=number("pipeline parallelism"),
        )
        measured = float(entry["iteration time (ms)"]) / 1e3
    except KeyError as error:
        raise InputError(f"{where}: lacks the column {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None
    if not measured > 0:
        raise InputError(f"{where}: iteration time (ms) must be above 0")
    return Row(plan, measured)


def predicted(rows: Iterable[Row], slowdown: float, adapters: int) -> list[float]:
    """Return seconds of every plan's iteration."""
    return [
        predict_plan(
            row.plan, A100, dgx_a100(row.plan.gpus, adapters, row.plan.tensor), slowdown
        ).seconds
        for row in rows
    ]


def fitted(row: Row, adapters: int) -> float:
    """Return the factor on all that is computed at which a plan's prediction is right."""
    low, high = 0.5, 4.0
    for _ in range(20):
        middle = (low + high) / 2
        (seconds,) = predicted([row], middle, adapters)
        low, high = (middle, high) if seconds < row.measured else (low, middle)
    return (low + high) / 2


def label(row: Row) -> str:
    """Return what tells a plan from the others, in few words."""
    plan = row.plan
    return (
        f"{plan.model.parameters / 1e9:.1f}B tp={plan.tensor} dp={plan.data} pp={plan.pipeline} "
        f"micro-batch {plan.micro_batch}"
    )


Scored = dict[str, tuple[Sequence[Row], Sequence[float]]]


def _errors(rows: Sequence[Row], times: Sequence[float]) -> list[float]:
    return [row.error(seconds) for row, seconds in zip(rows, times, strict=True)]


def _print_scores(scored: Scored) -> None:
    rows = []
    for name, (plans, times) in scored.items():
        errors = _errors(plans, times)
        magnitudes = sorted(map(abs, errors))
        rows.append(
            (
                name,
                str(len(plans)),
                f"{mape(errors):.1%}",
                f"{median(magnitudes):.1%}",
                signed(sum(errors) / len(errors)),
                f"{magnitudes[-1]:.1%}",
            )
        )
    print_table(("", "plans", "MAPE", "median", "bias", "worst"), rows)


def _print_groups(title: str, part: Callable[[Plan], int], scored: Scored) -> None:
    values = sorted({part(row.plan) for rows, _ in scored.values() for row in rows})
    lines = []
    for value in values:
        cells = [f"{title} {value}"]
        for rows, times in scored.values():
            errors = [
                row.error(seconds)
                for row, seconds in zip(rows, times, strict=True)
                if part(row.plan) == value
            ]
            cells += [str(len(errors)), f"{mape(errors):.1%}" if errors else "-"]
        lines.append(cells)
    print_table(("", *(cell for name in scored for cell in ("plans", name))), lines)


def _print_orders(rows: Sequence[Row], times: Sequence[float]) -> None:
    pairs = sorted(
        zip(rows, times, strict=True), key=lambda pair: (pair[0].plan.gpus, pair[0].plan.batch)
    )
    lines = []
    for (gpus, size), group in groupby(
        pairs, key=lambda pair: (pair[0].plan.gpus, pair[0].plan.model.parameters)
    ):
        known = list(group)
        chosen = min(known, key=lambda pair: pair[1])[0]
        best = min(known, key=lambda pair: pair[0].measured)[0]
        if len(known) < FEW:
            continue
        order = spearmanr([row.measured for row, _ in known], [seconds for _, seconds in known])
        lines.append(
            (
                f"{size / 1e9:.1f}B on {gpus} GPUs",
                str(len(known)),
                f"{order.statistic:.2f}",
                signed(chosen.measured / best.measured - 1),
                label(chosen),
            )
        )
    print_table(("model", "plans", "Spearman", "chosen plan over the best", "chosen"), lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error)
        sys.exit(2)

"""The next step of a trace from the steps before it.

    python benchmarks/accuracy/hta.py [FOLDER]

FOLDER has Kineto traces of single ranks, plain or gzipped, at any depth, of which those with two
steps or more are used; without it, the folder `hta` of the one that the variable PARACOSM_DATA
names. docs/accuracy.md says what comes out.

Of steps 1 to k the graph is made: calls, launches, kernels, and who waited for whom. The last step
is put behind them once more and all is replayed; the step that this adds is the prediction of step
k + 1. *mean* and *last* are the errors of the naive peers: the mean of the steps before, and the
last one. The k + 1st step is nowhere in what it is predicted from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from next_step import next_step_time
from printing import folder_of, mape, print_table, signed

from paracosm.errors import InputError
from paracosm.replays.job import job_of_traces
from paracosm.timeline.kineto.read import is_kineto, read_kineto
from paracosm.timeline.kineto.trace import KinetoTrace, steps_of
from paracosm.units import format_duration


@dataclass(frozen=True)
class Row:
    """One prediction: seconds of step `number`, and what it is compared with."""

    trace: str
    number: int
    before: int
    measured: float
    predicted: float
    mean: float
    last: float

    def error(self, value: float) -> float:
        """Return the relative error of a prediction."""
        return value / self.measured - 1


def main() -> int:
    """Print a row for every step that can be predicted, and mean absolute errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of traces")
    path = folder_of(parser.parse_args(), "hta", "traces")
    if path is None:
        return 2
    rows, left_out = rows_of(path)
    if not rows:
        print(f"{path}: no trace with two steps or more")
    else:
        print_rows(rows)
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    return 0 if rows else 2


def rows_of(folder: Path) -> tuple[list[Row], dict[str, str]]:
    """Return the predictions of all traces of a folder, and why others are left out."""
    rows: list[Row] = []
    left_out = {}
    for file in sorted(folder.rglob("*.json*")):
        name = str(file.relative_to(folder))
        if not is_kineto(file):
            continue
        try:
            trace = read_kineto(file)
            steps = len(steps_of(trace))
            rows += predictions(name, trace)
        except InputError as error:
            left_out[name] = str(error)
            continue
        if steps < 2:
            left_out[name] = f"{steps} steps"
    return rows, left_out


def predictions(name: str, trace: KinetoTrace) -> Iterator[Row]:
    """Yield the prediction of every step of a trace but the first."""
    steps = steps_of(trace)
    for k in range(1, len(steps)):
        before = steps[:k]
        traced = job_of_traces([trace], [step.number for step in before], alone=True)
        yield Row(
            trace=name,
            number=steps[k].number,
            before=k,
            measured=steps[k].duration,
            predicted=next_step_time(traced),
            mean=sum(step.duration for step in before) / k,
            last=before[-1].duration,
        )


def print_rows(rows: list[Row]) -> None:
    """Print all predictions, then their mean absolute errors by trace."""
    head = ("trace", "step", "from", "measured", "predicted", "error", "mean", "last")
    print_table(
        head,
        [
            (
                *(row.trace[:48], str(row.number), f"{row.before} steps"),
                *(format_duration(row.measured), format_duration(row.predicted)),
                *(signed(row.error(value)) for value in (row.predicted, row.mean, row.last)),
            )
            for row in rows
        ],
    )
    print("\nmean absolute errors")
    groups = {
        name: [row for row in rows if row.trace == name] for name in {r.trace: 0 for r in rows}
    }
    groups["all"] = rows
    print_table(
        ("trace", "steps", "replay", "mean", "last"),
        [
            (
                *(name[:48], str(len(group))),
                *(
                    f"{mape(each.error(getattr(each, what)) for each in group):.1%}"
                    for what in ("predicted", "mean", "last")
                ),
            )
            for name, group in groups.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(main())

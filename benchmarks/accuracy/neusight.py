"""Whole models on GPUs from the latencies of their ops, beside what was measured.

    python benchmarks/accuracy/neusight.py [FOLDER]

FOLDER has op latencies as NeuSight publishes them (a CSV and a JSON file of one name), of one GPU
or, in folders below it, of several; without it, the folder `neusight` of the one that the variable
PARACOSM_DATA names. docs/prediction.md says how the files are read.

Nothing is fitted on what is predicted. The floor of the timing method and the time that a launch
takes are read from the rows of the ops in the same file, not from the whole model's latency.
Beside the replay stands the naive one, the sum of all latencies; errors are given for the forward
and the backward pass as well, because these were measured apart.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from paracosm.errors import InputError
from paracosm.prediction.op_latencies import Comparison, mean_error, read_folder
from paracosm.units import format_duration


def main() -> int:
    """Print a table of every model, and mean absolute errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of op latencies")
    path = parser.parse_args().folder or _default()
    if path is None:
        print("no op latencies: give a folder, or set PARACOSM_DATA to the one that holds neusight")
        return 2
    try:
        folder = read_folder(path)
    except InputError as error:
        print(error)
        return 2
    _print_models(folder.comparisons)
    print()
    _print_means(folder.comparisons)
    for file, reason in folder.left_out.items():
        print(f"left out: {file}: {reason}")
    return 0


def _default() -> Path | None:
    data = os.environ.get("PARACOSM_DATA")
    return None if data is None else Path(data) / "neusight"


def _print_models(comparisons: Sequence[Comparison]) -> None:
    widths = (max(len(each.device) for each in comparisons), 28, 10, 10, 8, 8, 8, 8)
    header = ("GPU", "model", "measured", "predicted", "error", "sum", "forward", "backward")
    print(_line(header, widths))
    for each in comparisons:
        times = (each.measured.both, each.predicted.both)
        errors = (each.error, each.serial_error, _forward(each), _backward(each))
        cells = (*map(format_duration, times), *map(_signed, errors))
        print(_line((each.device, each.model, *cells), widths))


def _print_means(comparisons: Sequence[Comparison]) -> None:
    devices = sorted({each.device for each in comparisons})
    widths = (max(len(device) for device in [*devices, "training"]), 7, 8, 8, 8, 8)
    print("mean absolute errors")
    print(_line(("", "models", "replay", "sum", "forward", "backward"), widths, first=1))
    groups = [
        (device, [each for each in comparisons if each.device == device]) for device in devices
    ]
    groups += [
        ("training", [each for each in comparisons if each.measured.backward > 0]),
        ("inference", [each for each in comparisons if each.measured.backward == 0]),
        ("all", list(comparisons)),
    ]
    for name, group in groups:
        if group:
            means = (
                _mean(each.error for each in group),
                _mean(each.serial_error for each in group),
                _mean(_forward(each) for each in group),
                _mean(_backward(each) for each in group),
            )
            print(_line((name, str(len(group)), *means), widths, first=1))


def _line(cells: Sequence[str], widths: Sequence[int], first: int = 2) -> str:
    """Return cells in columns, the `first` ones flush left."""
    parts = (
        cell.ljust(width) if column < first else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(parts).rstrip()


def _forward(each: Comparison) -> float:
    return each.predicted.forward / each.measured.forward - 1


def _backward(each: Comparison) -> float:
    """Return the error of the backward pass; NaN of inference, which has none."""
    if each.measured.backward == 0:
        return math.nan
    return each.predicted.backward / each.measured.backward - 1


def _signed(error: float) -> str:
    return "-" if math.isnan(error) else f"{error:+.1%}"


def _mean(errors: Iterable[float]) -> str:
    known = [error for error in errors if not math.isnan(error)]
    return f"{mean_error(known):.1%}" if known else "-"


if __name__ == "__main__":
    sys.exit(main())

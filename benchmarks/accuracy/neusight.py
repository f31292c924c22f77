"""Whole models on one GPU and on several from the latencies of their ops, beside what was measured.

    python benchmarks/accuracy/neusight.py [FOLDER] [--bandwidth RATE]

FOLDER has op latencies as NeuSight publishes them (a CSV and a JSON file of one name), of one GPU
or, in folders below it, of several; without it, the folder `neusight` of the one that the variable
PARACOSM_DATA names. docs/accuracy.md says how the files are read.

Nothing is fitted on what is predicted. The floor of the timing method and the time that a launch
takes are read from the rows of the ops in the same file, not from the whole model's latency; how
much slower a device is in an iteration than where its ops were timed, from the other models on it.
"as timed" leaves that out. Beside the replay stands the naive one, the sum of all latencies; errors
are given for the forward and the backward pass as well, because these were measured apart.

Runs on several GPUs (-dp4, -tp4, -pp4_1) are predicted from the op latencies of one GPU, at other
batches where need be, and from what NCCL reckons that a link between such GPUs carries. No run on
several GPUs is looked at for that.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from op_latencies import Comparison, read_folder
from printing import folder_of, mape, mape_of_known, print_table, signed
from several_gpus import SeveralComparison, parse_name, read_several

from paracosm.cluster import Link
from paracosm.errors import InputError
from paracosm.units import format_bandwidth, format_duration, parse_bandwidth


def main() -> int:
    """Print a table of every model, and mean absolute errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of op latencies")
    parser.add_argument("--bandwidth", help="between two GPUs; by the GPU's name if not given")
    parsed = parser.parse_args()
    path = folder_of(parsed, "neusight", "op latencies")
    if path is None:
        return 2
    try:
        given = parsed.bandwidth
        folder = read_folder(path)
        several, left_out = read_several(
            path, None if given is None else Link(parse_bandwidth(given))
        )
    except InputError as error:
        print(error)
        return 2
    _print_models(folder.comparisons)
    print()
    _print_means(folder.comparisons)
    if several:
        print()
        _print_several(several)
    of_one = {
        file: reason
        for file, reason in folder.left_out.items()
        if parse_name(Path(file).stem) is None
    }
    for file, reason in sorted((of_one | left_out).items()):
        print(f"left out: {file}: {reason}")
    return 0


def _print_models(comparisons: Sequence[Comparison]) -> None:
    header = ("GPU", "model", "measured", "predicted", "error", "as timed", "sum")
    header = (*header, "forward", "backward")
    rows = []
    for comparison in comparisons:
        times = map(format_duration, (comparison.measured.both, comparison.predicted.both))
        kinds = (
            comparison.error,
            comparison.timed_error,
            comparison.serial_error,
            _forward(comparison),
            _backward(comparison),
        )
        errors = map(signed, kinds)
        rows.append((comparison.device, comparison.model, *times, *errors))
    print_table(header, rows, left=2)


def _print_several(several: Sequence[SeveralComparison]) -> None:
    """Print every run on several GPUs, and mean absolute errors by how they share the work."""
    header = ("GPUs", "run", "link", "measured", "predicted", "error", "sum")
    rows = []
    for each in several:
        name = f"{each.strategy.ranks} x {each.device}"
        times = map(format_duration, (each.measured, each.predicted))
        errors = map(signed, (each.error, each.serial_error))
        rows.append((name, each.model, format_bandwidth(each.link.bandwidth), *times, *errors))
    print_table(header, rows, left=2)
    print("\nmean absolute errors on several GPUs")
    groups = {
        "data parallel": [each for each in several if each.strategy.data > 1],
        "tensor parallel": [each for each in several if each.strategy.tensor > 1],
        "pipeline": [each for each in several if each.strategy.pipeline > 1],
        "all": list(several),
    }
    print_table(
        ("", "runs", "replay", "sum"),
        (
            (
                name,
                str(len(group)),
                f"{mape(each.error for each in group):.1%}",
                f"{mape(each.serial_error for each in group):.1%}",
            )
            for name, group in groups.items()
            if group
        ),
    )


def _print_means(comparisons: Sequence[Comparison]) -> None:
    devices = sorted({comparison.device for comparison in comparisons})
    groups = [
        (device, [comparison for comparison in comparisons if comparison.device == device])
        for device in devices
    ]
    groups += [
        (
            "training",
            [comparison for comparison in comparisons if comparison.measured.backward > 0],
        ),
        (
            "inference",
            [comparison for comparison in comparisons if comparison.measured.backward == 0],
        ),
        ("all", list(comparisons)),
    ]
    rows = [
        (
            name,
            str(len(group)),
            mape_of_known(each.error for each in group),
            mape_of_known(each.timed_error for each in group),
            mape_of_known(each.serial_error for each in group),
            mape_of_known(_forward(each) for each in group),
            mape_of_known(_backward(each) for each in group),
        )
        for name, group in groups
        if group
    ]
    print("mean absolute errors")
    print_table(("", "models", "replay", "as timed", "sum", "forward", "backward"), rows)


def _forward(each: Comparison) -> float:
    return each.predicted.forward / each.measured.forward - 1


def _backward(each: Comparison) -> float:
    """Return the error of the backward pass; NaN of inference, which has none."""
    if each.measured.backward == 0:
        return math.nan
    return each.predicted.backward / each.measured.backward - 1


if __name__ == "__main__":
    sys.exit(main())

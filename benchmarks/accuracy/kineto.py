"""A data loader with workers from a trace without; and the next step of each trace.

    python benchmarks/accuracy/kineto.py [FOLDER]

FOLDER has Kineto traces of a training loop, in folders whose names end in the number of workers of
the data loader (`resnet50_num_workers_0`, `..._4`); without it, the folder `kineto` of the one that
the variable PARACOSM_DATA names. docs/accuracy.md says what comes out.

From each trace with 0 workers the steps with workers are predicted by the what-if "data loading:
none": the training loop never waits for data, all else stays as it was traced. The measured
steps are those of all traces with workers, of which the median is taken: one of them in four or so
is a hiccup. *unchanged* is the error of saying that nothing changes, *subtracted* that of taking
the time of the data loading off, without a replay. The other way round nothing is predicted: a
trace with workers has not seen what they do.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from pathlib import Path

import hta
from printing import folder_of, mape, print_table, signed

from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.replays.job import job_of_traces
from paracosm.replays.outcome import outcome_of, replayed, traced_times
from paracosm.replays.run import changed
from paracosm.timeline.kineto.read import is_kineto, read_kineto
from paracosm.timeline.kineto.trace import KinetoTrace, steps_of
from paracosm.units import format_duration

Traces = dict[str, KinetoTrace]


def main() -> int:
    """Print the what-if for every trace without workers, then the next steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of traces")
    path = folder_of(parser.parse_args(), "kineto", "traces")
    if path is None:
        return 2
    without, with_workers = read(path)
    if without and with_workers:
        print_what_if(without, with_workers)
        print("\nthe next step, from the steps before")
    rows, left_out = hta.rows_of(path)
    if rows:
        hta.print_rows(rows)
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    if not rows:
        print(f"{path}: no trace with two steps or more")
    return 0 if rows else 2


def read(folder: Path) -> tuple[Traces, Traces]:
    """Return the traces without and with workers of the data loader, by name."""
    without: Traces = {}
    with_workers: Traces = {}
    for file in sorted(folder.rglob("*.json*")):
        workers = re.search(r"workers_(\d+)", str(file.relative_to(folder)))
        if workers is None or not is_kineto(file):
            continue
        try:
            trace = read_kineto(file)
        except InputError as error:
            print(f"left out: {error}")
            continue
        (with_workers if int(workers[1]) else without)[file.name] = trace
    return without, with_workers


def print_what_if(without: Traces, with_workers: Traces) -> None:
    """Print what is predicted of the steps with workers, and what they took."""
    measured = sorted(step.duration for trace in with_workers.values() for step in steps_of(trace))
    median = statistics.median(measured)
    print(
        f"with workers: {len(measured)} steps of {format_duration(measured[0])} to "
        f"{format_duration(measured[-1])}, median {format_duration(median)}"
    )
    rows, errors = [], []
    for name, trace in without.items():
        traced = job_of_traces([trace], alone=True)
        before = outcome_of(traced, traced_times(traced))
        asked = parse_change("data loading: none")
        after = outcome_of(traced, replayed(changed(traced, [asked])))
        loading = before.breakdowns[0].data_loading
        values = (after.iteration_time, before.iteration_time, before.iteration_time - loading)
        found = [value / median - 1 for value in values]
        rows.append(
            (
                *(name, format_duration(before.iteration_time), format_duration(loading)),
                *(format_duration(after.iteration_time), *(signed(error) for error in found)),
            )
        )
        errors.append(found)
    head = ("trace, 0 workers", "step", "loading", "predicted", "error", "unchanged", "subtracted")
    print_table(head, rows)
    means = [f"{mape(column):.1%}" for column in zip(*errors, strict=True)]
    print(f"mean absolute errors: {means[0]}; unchanged {means[1]}, subtracted {means[2]}")


if __name__ == "__main__":
    sys.exit(main())

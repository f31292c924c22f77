"""The end of every collective, and who waits for whom, from when each rank arrives.

    python benchmarks/accuracy/param.py [FOLDER]

FOLDER has the Kineto traces of all ranks of a step, one file each or all in a .tar.gz, as PARAM
publishes them for eight ranks of DLRM; without it, the folder `param` of the one that the variable
PARACOSM_DATA names. docs/accuracy.md says what comes out.

A collective is taken to begin when its last rank arrives, and to take a latency and a size over a
bandwidth, fitted to the *other* collectives of its kind. The end is compared with the mean of the
ends that the ranks have traced, whose spread (as far as clocks and profilers agree) is the error
that no prediction can beat. *alone* is the error of what one rank's trace says by itself: each
rank's own arrival, and the mean time that collectives of the kind took it.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from meetings import Meeting, meetings_of, transfer_by_others
from printing import folder_of, print_table

from paracosm.errors import InputError
from paracosm.replays.job import read_job
from paracosm.replays.traced import TracedJob
from paracosm.timeline.kineto import is_kineto


def main() -> int:
    """Print a row for every collective, then for every rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of traces")
    path = folder_of(parser.parse_args(), "param", "traces of several ranks")
    if path is None:
        return 2
    done = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, paths in sets_of(path, Path(scratch)).items():
            try:
                traced = read_job(paths)
            except InputError as error:
                print(f"left out: {name}: {error}")
                continue
            if len(traced.ranks) > 1:
                print(f"{name}: {len(traced.ranks)} ranks")
                print_collectives(meetings_of(traced))
                print_ranks(traced, meetings_of(traced))
                done += 1
    if not done:
        print(f"{path}: no traces of several ranks")
    return 0 if done else 2


def sets_of(folder: Path, scratch: Path) -> dict[str, list[Path]]:
    """Return the traces of each archive, and those that lie in each folder, by name."""
    found: dict[str, list[Path]] = {}
    for archive in sorted(folder.rglob("*.tar.gz")):
        inside = scratch / archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(inside, filter="data")
        found[archive.name] = traces_in(inside)
    for place in sorted({file.parent for file in folder.rglob("*.json*")}):
        found[place.name] = traces_in(place, deep=False)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def traces_in(folder: Path, deep: bool = True) -> list[Path]:
    """Return the Kineto traces of a folder."""
    files = folder.rglob("*.json*") if deep else folder.glob("*.json*")
    return [file for file in sorted(files) if is_kineto(file)]


def print_collectives(meetings: Sequence[Meeting]) -> None:
    """Print what each collective took, and how far its predicted end is from the traced ones."""
    rows, errors, alone, spreads = [], [], [], []
    for number, meeting in enumerate(meetings):
        predicted = transfer_by_others(meetings, number)
        spread = float(np.ptp(meeting.end))
        cells = [
            str(number),
            meeting.kind,
            f"{meeting.size:,}",
            str(meeting.last),
            us(meeting.transfer),
        ]
        if predicted is None:
            rows.append((*cells, "-", "-", us(spread), "-"))
            continue
        error = meeting.begin + predicted - float(meeting.end.mean())
        # One rank by itself: from its arrival, as long as the others of the kind took it.
        others = [
            other.end - other.arrive
            for at, other in enumerate(meetings)
            if at != number and other.kind == meeting.kind
        ]
        own = np.abs(meeting.arrive + np.mean(others, axis=0) - meeting.end).mean()
        rows.append((*cells, us(predicted), us(error), us(spread), us(float(own))))
        errors.append(abs(error))
        alone.append(float(own))
        spreads.append(spread)
    head = ("", "kind", "bytes", "last", "took", "predicted", "error of end", "spread", "alone")
    print_table(head, rows, left=2)
    if errors:
        print(
            f"error of the end: mean {us(float(np.mean(errors)))}, worst {us(max(errors))}; ends "
            f"apart by {us(float(np.mean(spreads)))}; a rank alone errs by "
            f"{us(float(np.mean(alone)))}"
        )


def print_ranks(traced: TracedJob, meetings: Sequence[Meeting]) -> None:
    """Print how long each rank waited, as predicted from arrivals, and how often it came last."""
    last = Counter(meeting.last for meeting in meetings)
    rows, errors = [], []
    for rank in traced.ranks:
        mine = [meeting for meeting in meetings if rank.rank in meeting.ranks]
        at = [each.ranks.index(rank.rank) for each in mine]
        predicted = sum(each.begin - each.arrive[i] for each, i in zip(mine, at, strict=True))
        waited = sum(each.waited[i] for each, i in zip(mine, at, strict=True))
        errors.append(abs(predicted - waited))
        rows.append((str(rank.rank), us(waited), us(predicted), str(last[rank.rank])))
    print()
    print_table(("rank", "waited", "predicted", "came last"), rows)
    print(f"error of the waiting: mean {us(float(np.mean(errors)))}")
    straggler, times = max(last.items(), key=lambda item: (item[1], -item[0]))
    print(f"the straggler: rank {straggler}, last at {times} of {len(meetings)} collectives")


def us(seconds: float) -> str:
    """Return a time in microseconds."""
    return f"{1e6 * seconds:,.1f} us"


if __name__ == "__main__":
    sys.exit(main())

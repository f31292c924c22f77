"""Table 1: all-reduce and all-gather between real ranks, and between one and emulated ones.

Both jobs are alive all the time; while one of them is measured, the other is stopped. They take
turns within every round, and what is compared are neighbours in time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jobs import PORT, Job, real_job, wire_job
from network import Network
from tables import Table, apart, middle, milliseconds, size_of, spread

from paracosm.profiling.links.measure import fit_line, link_of

__all__ = [
    *("PAPER", "SCRIPT", "Cell", "cells_of", "compare_calls", "measure_table1", "one_job"),
    "tables_of",
]

Say = Callable[[str], None]

KINDS = ("all_reduce", "all_gather")
SIZES = (1 << 10, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20)
LARGE = 256 << 10
AIM_RATIO, AIM_APART = 0.02, 0.12e-3
"""How far apart they may be: relative, from 256 kB up; seconds, what is smaller."""

PAPER = {  # microseconds; baseline and emulator
    "all_reduce": {
        1 << 10: (435.2, 418.8),
        4 << 10: (526.5, 511.0),
        32 << 10: (564.9, 552.3),
        256 << 10: (1326.0, 1314.0),
        2 << 20: (7661.0, 7655.0),
        16 << 20: (59.0e3, 58.9e3),
    },
    "all_gather": {
        1 << 10: (282.6, 276.2),
        4 << 10: (306.5, 300.2),
        32 << 10: (329.0, 322.6),
        256 << 10: (868.9, 859.6),
        2 << 20: (4928.0, 4929.0),
        16 << 20: (37.5e3, 37.5e3),
    },
}
"""Table 1 of the paper, up to the largest size that both have."""

SCRIPT = str(Path(__file__).with_name("collectives.py"))
BASELINE = "B"
MOST = 100  # calls of a turn


@dataclass(frozen=True)
class Cell:
    """One collective of one size.

    Attributes:
        kind, size: of it.
        calls: that were timed, of each job.
        mean, median: seconds of a call, (baseline, emulated): medians over rounds of a round's.
        ratios: emulated over baseline, of means, round by round.
        control: baseline over the baseline of the round before.
        apart: seconds by which means differ, round by round.
    """

    kind: str
    size: int
    calls: int
    mean: tuple[float, float]
    median: tuple[float, float]
    ratios: Sequence[float]
    control: Sequence[float]
    apart: Sequence[float]

    @property
    def aim(self) -> float | None:
        """What |ratio - 1| may be; None where the difference in seconds counts."""
        return AIM_RATIO if self.size >= LARGE else None

    @property
    def holds(self) -> bool:
        """Whether the aim is met."""
        if self.aim is None:
            return abs(middle(self.apart)) <= AIM_APART
        return abs(middle(self.ratios) - 1) <= self.aim


def measure_table1(network: Network, quick: bool, say: Say) -> dict[str, Any]:
    """Measure two ranks, then four; return what `tables_of` shows."""
    two = compare_calls(network, 2, {"E": {"communication": "none"}}, quick, say)
    if quick:
        return {"settings": [two]}
    link = link_of(fit_line(*_baseline(two["rows"])), "all_reduce", 2)
    given = {"latency": link.latency, "bandwidth": link.bandwidth, "pace": False}
    four = compare_calls(network, 4, {"E": {"communication": "measured"}, "G": given}, quick, say)
    return {"settings": [two, four]}


def _baseline(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[float]]:
    """Return sizes, and medians of the all-reduces of real ranks."""
    cells = [cell for cell in cells_of(rows) if cell.kind == "all_reduce"]
    return [cell.size for cell in cells], [cell.median[0] for cell in cells]


def compare_calls(
    network: Network,
    world: int,
    emulated: Mapping[str, Mapping[str, Any]],
    quick: bool,
    say: Say,
    kinds: Sequence[str] = KINDS,
    sizes: Sequence[int] = SIZES,
) -> dict[str, Any]:
    """Time collectives among real ranks and with emulated ones, in turns.

    Args:
        network: where.
        world: how many ranks.
        emulated: options of the emulation by name of the job.
        quick: fewer rounds and shorter turns.
        say: is told what is being measured.
        kinds, sizes: of the collectives.

    Returns:
        What was asked for, rows by turn, and whether the processes ran before others.
    """
    rounds, seconds = (3, 0.3) if quick else (12, 1.0)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        say(f"{world} ranks: starting all jobs")
        made = {BASELINE: real_job(network, world, [SCRIPT])}
        for place, (name, options) in enumerate(emulated.items(), start=1):
            made[name] = wire_job(network, world, [SCRIPT], options, port=PORT + place)
        jobs = {}
        for name, each in made.items():
            jobs[name] = stack.enter_context(one_job(each))
            jobs[name].pause()
        if world > 2:
            network.part_connections(0)
            stack.callback(network.join_connections)
        for kind in kinds:
            for size in sizes:
                say(f"{world} ranks: {kind} of {size_of(size)}")
                rows += _rounds(jobs, kind, size, rounds, seconds)
        first = all(job.first for job in jobs.values())
    return {"world": world, "emulated": emulated, "rows": rows, "first": first}


@contextmanager
def one_job(made: AbstractContextManager[Job]) -> Iterator[Job]:
    """Give a job of `collectives.py` when all its ranks have found each other."""
    with made as job:
        job.answers()
        yield job


def _rounds(
    jobs: Mapping[str, Job], kind: str, size: int, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure one collective in rounds, in each of which every job has a turn."""
    # What a call takes decides how many fit into a turn, the same number for both.
    once = max(statistics.median(_turn(job, kind, size, 1, 3)[0]) for job in jobs.values())
    count = max(3, min(MOST, round(seconds / once)))
    rows = []
    for number in range(rounds):
        order = list(jobs) if number % 2 == 0 else list(reversed(jobs))
        for name in order:
            times, cpu = _turn(jobs[name], kind, size, max(1, count // 10), count)
            rows.append(
                {
                    "job": name,
                    "kind": kind,
                    "size": size,
                    "round": number,
                    "calls": count,
                    "mean": statistics.fmean(times),
                    "median": statistics.median(times),
                    "least": min(times),
                    "largest": max(times),
                    "cpu": cpu,
                }
            )
    return rows


def _turn(
    job: Job, kind: str, size: int, warm: int, count: int
) -> tuple[list[float], dict[str, float]]:
    """Let a job go on for some calls; return their seconds, and processor time per call."""
    job.resume()
    before = job.cpu()
    times = job.ask(kind=kind, size=size, warm=warm, count=count)
    after = job.cpu()
    job.pause()
    calls = warm + count
    own, peer = ((late - early) / calls for early, late in zip(before, after, strict=True))
    return times, {"rank 0": own, "peer": peer}


def cells_of(rows: Sequence[Mapping[str, Any]], name: str = "E") -> list[Cell]:
    """Return one cell for each collective and size: an emulated job beside the real one."""
    cells = []
    for kind, size in dict.fromkeys((row["kind"], row["size"]) for row in rows):
        here = [row for row in rows if (row["kind"], row["size"]) == (kind, size)]
        base, emulated = ([row for row in here if row["job"] == each] for each in (BASELINE, name))
        for turns in (base, emulated):
            turns.sort(key=lambda row: row["round"])
        means = [[row["mean"] for row in turns] for turns in (base, emulated)]
        cells.append(
            Cell(
                kind=kind,
                size=size,
                calls=sum(row["calls"] for row in base),
                mean=(middle(means[0]), middle(means[1])),
                median=(
                    middle([row["median"] for row in base]),
                    middle([row["median"] for row in emulated]),
                ),
                ratios=[e / b for b, e in zip(*means, strict=True)],
                control=[late / early for early, late in pairwise(means[0])],
                apart=[e - b for b, e in zip(*means, strict=True)],
            )
        )
    return cells


def tables_of(measured: Mapping[str, Any]) -> list[Table]:
    """Return a table for every number of ranks and emulated job."""
    return [
        _table(setting, name) for setting in measured["settings"] for name in setting["emulated"]
    ]


HOPS = {
    "none": "",
    "measured": ", skipped hops as rank 0's own link (measured)",
    "given": ", skipped hops by a given link",
}
"""What is said of messages among emulated ranks, by communication model."""


def _table(setting: Mapping[str, Any], name: str) -> Table:
    world, options = setting["world"], setting["emulated"][name]
    emulated = "one" if world == 2 else {4: "three"}.get(world, str(world - 1))
    rows = []
    for cell in cells_of(setting["rows"], name):
        paper = PAPER[cell.kind].get(cell.size) if world == 2 else None
        given = "" if paper is None else f"{100 * (paper[1] / paper[0] - 1):+.1f} %"
        rows.append(
            [
                cell.kind.replace("_", "-"),
                size_of(cell.size),
                f"{cell.calls:,}",
                *map(milliseconds, cell.mean),
                *map(milliseconds, cell.median),
                apart(cell.ratios),
                spread(cell.control),
                f"{1e3 * middle(cell.apart):+.3f}",
                _aim(cell, world),
                given,
            ]
        )
    return Table(
        f"{world} real ranks (B), and one with {emulated} emulated (E)"
        + HOPS[options.get("communication", "given")],
        (
            *("collective", "size", "calls", "mean B (ms)", "mean E (ms)"),
            *("median B (ms)", "median E (ms)", "E/B (quartiles of rounds)"),
            *("B/B (quartiles)", "E - B (ms)", "aim", "paper's E/B"),
        ),
        rows,
    )


def _aim(cell: Cell, world: int) -> str:
    """Say what was aimed at, and whether it was met."""
    if cell.aim is not None and cell.kind == "all_reduce":
        return f"2 %: {'yes' if cell.holds else 'no'}"
    if cell.aim is None and world == 2:
        return f"0.12 ms: {'yes' if cell.holds else 'no'}"
    return ""

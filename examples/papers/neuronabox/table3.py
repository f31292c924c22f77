"""Table 3: iterations of data parallelism among real ranks, over the wire, and modelled.

Runs take turns, each in processes of its own: real, wire, backend, real, ... The links of the
backend are fitted to single all-reduces between real ranks, measured just before; nothing is fitted
to a run.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jobs import LIMIT, Job, backend_job, real_job, wire_job
from network import Network
from table1 import SCRIPT, one_job
from tables import Table, apart, middle, milliseconds, spread

from paracosm.profiling.links.measure import Line, fit_line, link_of

__all__ = ["FIXED", "PAPER", "REAL", "measure_table3", "ratios_of", "tables_of"]

Say = Callable[[str], None]

FIXED = ("communication-bound", "balanced", "compute-bound")
REAL = ("cnn", "mlp", "transformer")
AIMS = {"communication-bound": 0.015, "balanced": 0.015, "compute-bound": 0.04}
WAYS = ("real", "wire", "backend")
PAPER = {"BERT": (628, 629), "ResNet152": (1063, 1061), "DeepLight": (726, 727)}
"""Milliseconds, baseline and emulator."""

TRAIN = str(Path(__file__).with_name("train.py"))
FITTED = tuple(1 << power for power in range(14, 24))
"""Bytes of the all-reduces that the links are fitted to: those that buckets have, and around."""

WORLD = 2
WIRE = {"communication": "none", "compute_jitter": "measured"}


def measure_table3(network: Network, quick: bool, say: Say) -> dict[str, Any]:
    """Run all jobs in all ways, in rounds; return what `tables_of` shows."""
    calls = measure_calls(network, quick, say)
    link = fitted(calls)
    rounds, iterations = (2, 15) if quick else (10, 60)
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        for job in (*FIXED, *REAL):
            ways = ("real", "wire", "backend") if job in FIXED else ("real", "wire")
            for way in ways if number % 2 == 0 else reversed(ways):
                say(f"round {number + 1} of {rounds}: {job}, {way}")
                row = run_once(network, job, way, iterations, link)
                rows.append({"job": job, "way": way, "round": number, **row})
    return {
        "calls": {str(size): seconds for size, seconds in calls.items()},
        "link": {"latency": link.latency, "bandwidth": link.bandwidth, "worst": link.worst},
        "wire": WIRE,
        "rows": rows,
    }


def measure_calls(network: Network, quick: bool, say: Say) -> dict[int, float]:
    """Return the median seconds of single all-reduces between two real ranks, by size."""
    say("single all-reduces between real ranks, for the backend's links")
    found = {}
    with one_job(real_job(network, WORLD, [SCRIPT])) as job:
        for size in FITTED:
            count = max(5, min(100, round((0.3 if quick else 1.5) / (1e-4 + size / 1e8))))
            times = job.ask(kind="all_reduce", size=size, warm=3, count=count)
            found[size] = statistics.median(times)
    return found


def fitted(calls: Mapping[int, float]) -> Line:
    """Return the link that explains all-reduces between two ranks."""
    line = fit_line(list(calls), list(calls.values()))
    return link_of(line, "all_reduce", WORLD)


def run_once(network: Network, job: str, way: str, iterations: int, link: Line) -> dict[str, Any]:
    """Train once; return seconds of iterations, and processor time of rank 0 and of its peer."""
    with tempfile.TemporaryDirectory(prefix="neuronabox-") as folder:
        times = Path(folder) / "times.json"
        command = [TRAIN, "--job", job, "--iterations", str(iterations), "--times", str(times)]
        first = job in FIXED  # what computes would not let anything else run
        if way == "real":
            made = real_job(network, WORLD, command, first)
        elif way == "wire":
            made = wire_job(network, WORLD, command, WIRE, first=first)
        else:
            # The tables of the page were measured with transfers that take turns.
            links = {"latency": link.latency, "bandwidth": link.bandwidth, "sharing": "serial"}
            made = backend_job(network, WORLD, command, links, first)
        with made as started:
            started.answers()  # when all are past their first iterations
            peer = _watch(started)
        written = json.loads(times.read_text())
    seconds = written["seconds"]
    end = written["begin"] + sum(seconds)
    return {
        "mean": statistics.fmean(seconds),
        "median": statistics.median(seconds),
        "least": min(seconds),
        "largest": max(seconds),
        "iterations": len(seconds),
        "cpu": written["cpu"] / sum(seconds),
        "peer cpu": _used(peer, written["begin"], end),
        "first": started.first,
    }


def _watch(job: Job) -> list[tuple[float, float]]:
    """Wait for the end; return the processor time of rank 0's peer over time."""
    seen: list[tuple[float, float]] = []
    limit = time.monotonic() + LIMIT
    while all(rank.poll() is None for rank in job.ranks) and time.monotonic() < limit:
        try:
            seen.append((time.monotonic(), job.cpu()[1]))
        except OSError:  # it has just ended
            break
        time.sleep(0.05)
    job.wait()
    return seen


def _used(seen: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Return the share of a core that was used between two instants."""
    inside = [each for each in seen if begin <= each[0] <= end]
    if len(inside) < 2:
        return 0.0
    (first, early), (last, late) = inside[0], inside[-1]
    return (late - early) / (last - first)


def ratios_of(rows: Sequence[Mapping[str, Any]], job: str, way: str) -> list[float]:
    """Return mean iterations of a way over those of the real run of the same round."""
    real, other = (_means(rows, job, each) for each in ("real", way))
    return [other[number] / real[number] for number in sorted(real.keys() & other.keys())]


def _means(rows: Sequence[Mapping[str, Any]], job: str, way: str) -> dict[int, float]:
    return {row["round"]: row["mean"] for row in rows if (row["job"], row["way"]) == (job, way)}


def tables_of(measured: Mapping[str, Any]) -> list[Table]:
    """Return jobs with fixed-time compute, and those that compute."""
    rows = measured["rows"]
    link = measured["link"]
    fixed = [
        [
            job,
            *(f"{milliseconds(middle(_each(rows, job, way, 'mean')))}" for way in WAYS),
            apart(ratios_of(rows, job, "wire")),
            apart(ratios_of(rows, job, "backend")),
            f"{100 * AIMS[job]:g} %: " + ", ".join(_met(rows, job, way) for way in WAYS[1:]),
            _control(rows, job),
        ]
        for job in FIXED
    ]
    note = (
        f"The backend's links: {1e6 * link['latency']:.0f} us and "
        f"{link['bandwidth'] * 8 / 1e6:.0f} Mbit/s, fitted to single all-reduces of "
        f"{min(map(int, measured['calls'])) >> 10} kB to "
        f"{max(map(int, measured['calls'])) >> 20} MB between real ranks "
        f"({100 * link['worst']:.0f} % off at worst)."
    )
    computing = [
        [
            job,
            *(f"{milliseconds(middle(_each(rows, job, way, 'mean')))}" for way in ("real", "wire")),
            apart(ratios_of(rows, job, "wire")),
            _control(rows, job),
            *(_share(_each(rows, job, way, "peer cpu")) for way in ("wire", "real")),
            *(_share(_each(rows, job, way, "cpu")) for way in ("wire", "real")),
        ]
        for job in (*FIXED, *REAL)
    ]
    paper = ", ".join(f"{name} {b} and {e} ms" for name, (b, e) in PAPER.items())
    return [
        Table(
            "DDP with fixed-time compute, two ranks: milliseconds of an iteration",
            (
                *("job", "real", "wire", "backend", "wire/real (quartiles)"),
                *("backend/real (quartiles)", "aim: wire, backend", "real/real (quartiles)"),
            ),
            fixed,
            note,
        ),
        Table(
            "Processor time, and jobs that compute: milliseconds of an iteration, share of a core",
            (
                *("job", "real", "wire", "wire/real (quartiles)", "real/real (quartiles)"),
                *(
                    "emulator's CPU",
                    "real rank 1's CPU",
                    "rank 0's, wire",
                    "rank 0's, real",
                ),
            ),
            computing,
            f"The paper's, baseline and emulator: {paper}.",
        ),
    ]


def _each(rows: Sequence[Mapping[str, Any]], job: str, way: str, name: str) -> list[float]:
    return [row[name] for row in rows if (row["job"], row["way"]) == (job, way)]


def _met(rows: Sequence[Mapping[str, Any]], job: str, way: str) -> str:
    return "yes" if abs(middle(ratios_of(rows, job, way)) - 1) <= AIMS[job] else "no"


def _control(rows: Sequence[Mapping[str, Any]], job: str) -> str:
    """Return how far apart identical real runs are: each over the one of the round before."""
    means = list(_means(rows, job, "real").values())
    return spread([late / early for early, late in pairwise(means)])


def _share(shares: Sequence[float]) -> str:
    return f"{100 * middle(shares):.0f} %"

"""Training among real ranks, with emulated peers over the wire, and put together: how far apart?

    python benchmarks/emulation_training.py [--rounds 10] [--world 2] [--jobs NAME ...] [--ways ...]
    python benchmarks/emulation_training.py --again FILE

Every round runs each job three ways one after the other, in processes of their own: among real
ranks, in wire mode and in backend mode. The network is that of examples/papers/neuronabox: a
namespace for each rank and the emulator, links of 1 Gbit/s. What backend mode knows of the link is
what `paracosm emulate --calibrate-link` finds there between two ranks, before any training: nothing
is fitted to what is compared. Rank 0 has core 0 for itself, its peers share core 1. All run before
other processes of the machine (`chrt --rr 1`), whose load is said.

Jobs with fixed-time compute are those of examples/papers/neuronabox/train.py; the others compute:
`gpt`, after the shape of nanoGPT (DDP, AdamW, clipped gradients, two micro-batches), `fsdp2`, and
`encoder`, as a Trainer of Hugging Face's would train a tiny BERT. `encoder`, `cnn` and `embedding`,
the three kinds of the paper's table 3, run padded as well: each stage of the model takes a fixed
time, of which computing is a part. A difference is that of the runs of a round, with the interval
in which the mean of such differences lies with 95 % (Student's t).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import yaml
from scipy.special import stdtrit

sys.path.append(str(Path(__file__).parents[1] / "examples" / "papers" / "neuronabox"))

from jobs import real_job, wire_job
from network import FIRST, INSIDE, Network, Node, build, may_shape, start_inside
from run import environment
from table3 import FIXED, TRAIN, WIRE
from tables import Table, apart, middle, milliseconds, spread

COMPUTING = str(Path(__file__).with_name("emulation_jobs.py"))
THREE = ("encoder", "cnn", "embedding")
PADDED = "-padded"
JOBS = (*FIXED, "gpt", "fsdp2", *THREE, *(f"{job}{PADDED}" for job in THREE))
WAYS = ("real", "wire", "backend")
AIMS = {"communication-bound": 0.015, "balanced": 0.015, "compute-bound": 0.04}
RATE = 1000.0  # Mbit/s
PARACOSM = (
    *(sys.executable, "-c"),
    "import sys; from paracosm.cli import main; raise SystemExit(main(sys.argv[1:]))",
)


def main() -> int:
    """Print a table, and write what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--ways", nargs="+", choices=WAYS[1:], default=list(WAYS[1:]))
    parser.add_argument("--seconds", type=float, default=inf, help="after which no round begins")
    parser.add_argument("--out", type=Path, help="file for what was measured")
    parser.add_argument("--again", type=Path, help="print the table of such a file")
    options = parser.parse_args()
    ways = ("real", *options.ways)
    if options.again is not None:
        found = json.loads(options.again.read_text())
        print(table_of(found["rows"], found["world"]).markdown())
        return 0
    began = time.monotonic()
    if not os.environ.get(INSIDE):
        if not may_shape():
            print("emulation_training.py: needs network namespaces", file=sys.stderr)
            return 2
        start_inside(sys.argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left changed
    network = build(RATE)
    print(f"{environment()}\n{network.about}\n", flush=True)
    with short_slices():
        link = calibrate(network) if "backend" in ways else {}
        print(f"calibrated: {json.dumps(link)}\n", flush=True)
        rows: list[dict[str, Any]] = []
        for number in range(options.rounds):
            if time.monotonic() - began > options.seconds:
                break
            for job in options.jobs:
                for way in ways if number % 2 == 0 else reversed(ways):
                    seconds = run_once(network, options.world, job, way, options.iterations, link)
                    load = os.getloadavg()[0]
                    rows.append(
                        {"round": number, "job": job, "way": way, "s": seconds, "load": load}
                    )
                    print(
                        f"{number} {job} {way} {1e3 * seconds:.2f} ms, load {load:.1f}", flush=True
                    )
            if options.out is not None:
                about = {"environment": environment(), "network": network.about}
                found = {**about, "link": link, "world": options.world, "rows": rows}
                options.out.write_text(json.dumps(found))
    print(table_of(rows, options.world).markdown())
    return 0


def calibrate(network: Network) -> dict[str, Any]:
    """Return what `--calibrate-link` writes, between the nodes of ranks 0 and 1."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "link.yaml"
        started = [
            subprocess.Popen(
                [
                    *FIRST,
                    *_on_core(rank),
                    *node.prefix,
                    *PARACOSM,
                    *("calibrate", "link", str(file)),
                ],
                env=os.environ | _address(network, node, rank, 2),
                stdout=subprocess.DEVNULL,
            )
            for rank, node in enumerate(network.ranks[:2])
        ]
        for each in started:
            if each.wait(120):
                raise SystemExit("emulation_training.py: the link could not be calibrated")
        found: dict[str, Any] = yaml.safe_load(file.read_text())
        return found


def run_once(
    network: Network, world: int, job: str, way: str, iterations: int, link: Mapping[str, Any]
) -> float:
    """Train once; return the median seconds of an iteration after those that warm up."""
    arguments = ["--job", job.removesuffix(PADDED), "--iterations", str(iterations)]
    if job.endswith(PADDED):
        arguments.append("--padded")
    script = TRAIN if job in FIXED else COMPUTING
    if way == "backend":
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in link.items()]
        command = ["emulate", "--world-size", str(world), "--json", *flags, script, *arguments]
        done = subprocess.run(
            [*FIRST, *_on_core(0), *PARACOSM, *command],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return float(json.loads(done.stdout)["iteration_time"]["median"])
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        command = [script, *arguments, "--times", str(times)]
        options = WIRE if world == 2 else WIRE | {"communication": "measured"}
        made = (
            real_job(network, world, command)
            if way == "real"
            else wire_job(network, world, command, options)
        )
        with made as started:
            for place, process in enumerate(started.processes):
                os.sched_setaffinity(process.pid, {min(place, 1)})
            started.answers()
            if way == "wire" and world > 2:
                network.part_connections(0)
            started.wait()
        if way == "wire" and world > 2:
            network.join_connections()
        return statistics.median(json.loads(times.read_text())["seconds"])


SLICE = Path("/proc/sys/kernel/sched_rr_timeslice_ms")


@contextlib.contextmanager
def short_slices() -> Iterator[None]:
    """Let processes that run before others take turns each millisecond, as ordinary ones do."""
    before = SLICE.read_text()
    SLICE.write_text("1")
    try:
        yield
    finally:
        SLICE.write_text(before)


def _on_core(rank: int) -> tuple[str, ...]:
    """Return a command that gives a process the core of its rank."""
    return ("taskset", "-c", str(min(rank, 1)))


def _address(network: Network, node: Node, rank: int, world: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": network.ranks[0].address,
        "MASTER_PORT": "29617",
        "GLOO_SOCKET_IFNAME": node.interface,
        "OMP_NUM_THREADS": "1",
    }


def table_of(rows: Sequence[Mapping[str, Any]], world: int) -> Table:
    """Return medians, differences by round, and how far apart identical real runs are."""
    jobs = dict.fromkeys(row["job"] for row in rows)
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    lines = []
    for job in jobs:
        by_way = {
            way: [row["s"] for row in rows if (row["job"], row["way"]) == (job, way)]
            for way in ways
        }
        real = by_way["real"]
        ratios = {
            way: [other / own for other, own in zip(by_way[way], real, strict=True)]
            for way in ways[1:]
        }
        aim = 0.01 if job.endswith(PADDED) else AIMS.get(job, 0.05)
        met = ", ".join("yes" if abs(middle(ratios[way]) - 1) <= aim else "no" for way in ways[1:])
        lines.append(
            [
                *(job, str(len(real)), *(milliseconds(middle(by_way[way])) for way in ways)),
                *(f"{apart(ratios[way])}; mean {interval(ratios[way])}" for way in ways[1:]),
                *(f"{100 * aim:g} %: {met}", spread([each / middle(real) for each in real])),
            ]
        )
    loads = [row["load"] for row in rows]
    header = ("job", "rounds", *ways, *(f"{way}/real (quartiles); mean (95 %)" for way in ways[1:]))
    return Table(
        f"{world} ranks: milliseconds of an iteration, medians of rounds",
        (*header, f"aim: {', '.join(ways[1:])}", "real/its median (quartiles)"),
        lines,
        f"Load average from {min(loads):.1f} to {max(loads):.1f}.",
    )


def interval(ratios: Sequence[float]) -> str:
    """Return where the mean of differences lies with 95 %, per cent."""
    mean = statistics.fmean(ratios) - 1
    if len(ratios) < 2:
        return f"{100 * mean:+.1f} %"
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 * stdtrit(len(ratios) - 1, 0.975)
    return f"{100 * mean:+.1f} % ({100 * (mean - error):+.1f} to {100 * (mean + error):+.1f})"


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(code)

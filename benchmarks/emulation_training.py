"""Training among real ranks, with emulated peers over the wire, and put together: how far apart?

    python benchmarks/emulation_training.py [--rounds 10] [--world 2] [--jobs NAME ...]

Every round runs each job three ways one after the other, in processes of their own: among real
ranks, in wire mode and in backend mode. The network is that of examples/papers/neuronabox: a
namespace for each rank and the emulator, links of 1 Gbit/s. What backend mode knows of the link is
what `paracosm emulate --calibrate-link` finds there between two ranks, before any training: nothing
is fitted to what is compared. Rank 0 has core 0 for itself, its peers share core 1. All run before
other processes of the machine (`chrt --rr 1`), whose load is said.

Jobs with fixed-time compute are those of examples/papers/neuronabox/train.py; the others compute:
`gpt`, after the shape of nanoGPT (DDP, AdamW, clipped gradients, two micro-batches), `fsdp2`, and
`encoder`, as a Trainer of Hugging Face's would train a tiny BERT.
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
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).parents[1] / "examples" / "papers" / "neuronabox"))

from jobs import real_job, wire_job
from network import FIRST, INSIDE, Network, Node, build, may_shape, start_inside
from run import environment
from table3 import FIXED, TRAIN, WIRE
from tables import Table, apart, middle, milliseconds, spread

COMPUTING = str(Path(__file__).with_name("emulation_jobs.py"))
JOBS = (*FIXED, "gpt", "fsdp2", "encoder")
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
    parser.add_argument("--out", type=Path, help="file for what was measured")
    options = parser.parse_args()
    if not os.environ.get(INSIDE):
        if not may_shape():
            print("emulation_training.py: needs network namespaces", file=sys.stderr)
            return 2
        start_inside(sys.argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left changed
    network = build(RATE)
    print(f"{environment()}\n{network.about}\n", flush=True)
    with short_slices():
        link = calibrate(network)
        print(f"calibrated: {json.dumps(link)}\n", flush=True)
        rows: list[dict[str, Any]] = []
        for number in range(options.rounds):
            for job in options.jobs:
                for way in WAYS if number % 2 == 0 else reversed(WAYS):
                    seconds = run_once(network, options.world, job, way, options.iterations, link)
                    load = os.getloadavg()[0]
                    rows.append(
                        {"round": number, "job": job, "way": way, "s": seconds, "load": load}
                    )
                    print(
                        f"{number} {job} {way} {1e3 * seconds:.2f} ms, load {load:.1f}", flush=True
                    )
            if options.out is not None:
                found = {"link": link, "world": options.world, "rows": rows}
                options.out.write_text(json.dumps(found))
    print(table_of(rows, options.jobs, options.world).markdown())
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
    arguments = ["--job", job, "--iterations", str(iterations)]
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
            else wire_job(network, world, command, options, observed=True)
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


def table_of(rows: Sequence[Mapping[str, Any]], jobs: Sequence[str], world: int) -> Table:
    """Return medians, ratios by round, and how far apart identical real runs are."""
    lines = []
    for job in jobs:
        by_way = {
            way: [row["s"] for row in rows if (row["job"], row["way"]) == (job, way)]
            for way in WAYS
        }
        real = by_way["real"]
        ratios = {
            way: [other / own for other, own in zip(by_way[way], real, strict=True)]
            for way in WAYS[1:]
        }
        aim = AIMS.get(job, 0.05)
        met = ", ".join("yes" if abs(middle(ratios[way]) - 1) <= aim else "no" for way in WAYS[1:])
        lines.append(
            [
                *(job, *(milliseconds(middle(by_way[way])) for way in WAYS)),
                *(apart(ratios[way]) for way in WAYS[1:]),
                *(f"{100 * aim:g} %: {met}", spread([each / middle(real) for each in real])),
            ]
        )
    loads = [row["load"] for row in rows]
    header = ("job", *WAYS, "wire/real (quartiles)", "backend/real (quartiles)")
    return Table(
        f"{world} ranks: milliseconds of an iteration, medians of {len(rows) // len(lines) // 3} "
        "rounds",
        (*header, "aim: wire, backend", "real/its median (quartiles)"),
        lines,
        f"Load average from {min(loads):.1f} to {max(loads):.1f}.",
    )


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(code)

"""A pipeline of four stages on one core, and the same four stages as real processes: how far apart?

    python benchmarks/emulation_kinds.py [--rounds 3] [--schedule gpipe]

The script is examples/emulation/pipeline.py, unchanged: stages of 3, 2, 2 and 1 layers, whose
computing is padded by rests, so that two cores suffice for four real processes. Every round runs it
as four processes over gloo on the loopback interface, and by `paracosm emulate --kinds`, all of
whose processes have core 0 alone. What is known of the link is what `paracosm emulate
--calibrate-link` finds between two ranks, before. Beside it stands what one real stage alone says
(`--rank 0`), whose emulated neighbours compute as long as it does.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "examples" / "emulation" / "pipeline.py"
STAGES = 4
PARACOSM = (
    *("taskset", "-c", "0", sys.executable, "-c"),
    "import sys; from paracosm.cli import main; raise SystemExit(main(sys.argv[1:]))",
)
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def main() -> int:
    """Print the iteration times of each round, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="1f1b")
    parser.add_argument("--pad", type=float, default=4.0, help="ms of a layer")
    parser.add_argument("--ways", nargs="+", default=["real", "kinds", "rank 0"])
    options = parser.parse_args()
    arguments = ["--steps", str(options.steps), "--schedule", options.schedule]
    arguments += ["--pad", str(options.pad)]
    found: dict[str, list[float]] = {way: [] for way in options.ways}
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "link.yaml"
        _run([*PARACOSM, "emulate", "--calibrate-link", str(link), "--quiet"])
        print(f"calibrated: {' '.join(link.read_text().split())}", flush=True)
        for number in range(options.rounds):
            for way in options.ways:
                if way == "real":
                    seconds = real(arguments, Path(folder) / "times.json")
                else:
                    flags = ["--kinds"] if way == "kinds" else []
                    seconds = emulated(arguments, [*flags, "--calibration", str(link)])
                found[way].append(seconds)
                print(f"round {number + 1}: {way} {1e3 * seconds:.2f} ms", flush=True)
    medians = {way: statistics.median(seconds) for way, seconds in found.items()}
    for way, median in medians.items():
        apart = f", {median / medians['real'] - 1:+.1%}" if "real" in medians else ""
        print(f"{way}: {1e3 * median:.2f} ms{apart}")
    return 0


def real(arguments: Sequence[str], times: Path) -> float:
    """Return the median iteration time of four real processes, without the first iteration."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(STAGES)}
    command = [sys.executable, str(SCRIPT), *arguments, "--times", str(times)]
    ranks = [
        subprocess.Popen(
            command, env=ENVIRONMENT | where | {"RANK": str(rank)}, stdout=subprocess.DEVNULL
        )
        for rank in range(STAGES)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit("the real job failed")
    return statistics.median(json.loads(times.read_text()))


def emulated(arguments: Sequence[str], flags: Sequence[str]) -> float:
    """Return the median iteration time that `paracosm emulate` prints."""
    command = [*PARACOSM, "emulate", "--json", "--world-size", str(STAGES), *flags, str(SCRIPT)]
    done = _run([*command, *arguments])
    return float(json.loads(done)["iteration_time"]["median"])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())

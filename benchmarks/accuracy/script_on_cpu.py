"""Training scripts on this machine's processor: measured, and as recorded and played.

    python benchmarks/accuracy/script_on_cpu.py [NAME ...] [--budget SECONDS]

Each script of `small_trainings.py` is recorded by `paracosm emulate --hardware cpu-2-core`, which
computes nothing; its distinct ops are timed here, and the recording is played with these times and
with what the host takes of an op, as measured on a network of its own (`profiling/host_ops.py`).
Between the visits of ops the script's real iterations run, in one thread, pinned, with malloc that
keeps what it frees (as `paracosm profile ops` does), by processor time. *Run plainly* is the script
as anybody runs it, before and after, whose malloc gives memory back. Nothing is fitted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from printing import mape, percent, print_table, signed
from small_trainings import TRAININGS

from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.durations import recorded_graph
from paracosm.emulation.device.run import load_recordings
from paracosm.emulation.device.summary import Played, played
from paracosm.profiling import ProfileDatabase, Settings, profile
from paracosm.profiling.allocator import restart_pinned
from paracosm.profiling.environment import Clock, clock_for, pinned
from paracosm.profiling.host_ops import measure_host_ops
from paracosm.profiling.profiler import ops_to_profile
from paracosm.profiling.samples import typical

SCRIPT = Path(__file__).with_name("small_trainings.py")
HARDWARE = "cpu-2-core"
WARM_UP = 3
SHARE = 0.4  # of the time goes to real iterations


@dataclass
class Iterations:
    """Runs real iterations when called, until they have had their share of the time."""

    step: Callable[[], float]
    clock: Clock
    seconds: list[float] = field(default_factory=list)
    spent: float = 0.0
    begun: float = 0.0

    def __call__(self) -> None:
        with torch.enable_grad():
            if not self.begun:
                for _ in range(WARM_UP):
                    self.step()
                self.begun = time.monotonic()
            while self.spent < SHARE * (time.monotonic() - self.begun) or len(self.seconds) < 5:
                began = time.monotonic()
                self.step()  # the cache is as an iteration leaves it
                self.seconds += [self.clock.seconds(self.step) for _ in range(2)]
                self.spent += time.monotonic() - began


@dataclass(frozen=True)
class Row:
    name: str
    measured: float
    low: float
    high: float
    played: Played
    plain: float  # as anybody runs it: malloc with its defaults
    refused: int

    @property
    def error(self) -> float:
        return self.played.iteration_time / self.measured - 1

    @property
    def plain_error(self) -> float:
        return self.played.iteration_time / self.plain - 1


def main() -> None:
    restart_pinned()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(TRAININGS), metavar="NAME")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each script")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.names:
            rows.append(measure(name, Path(folder), asked.budget))
            print(f"{name}: {rows[-1].error:+.1%}", file=sys.stderr, flush=True)
    print_table(
        (
            *("script", "measured", "p10 to p90", "predicted", "error", "of the host"),
            *("run plainly", "error"),
        ),
        [
            (
                row.name,
                f"{1e3 * row.measured:.2f} ms",
                f"{signed(row.low / row.measured - 1)} {signed(row.high / row.measured - 1)}",
                f"{1e3 * row.played.iteration_time:.2f} ms",
                signed(row.error),
                f"{host_share(row.played):.1%}",
                f"{1e3 * row.plain:.2f} ms",
                signed(row.plain_error),
            )
            for row in rows
        ],
    )
    plain = percent(mape(row.plain_error for row in rows))
    print(f"mean absolute error {percent(mape(row.error for row in rows))}, run plainly {plain}")
    for row in rows:
        if row.refused:
            print(f"{row.name}: {row.refused} ops could not be timed alone")


def measure(name: str, folder: Path, budget: float) -> Row:
    """Record a script, time its ops and its real iterations in turn, and play it."""
    run, path = folder / name.replace(" ", "-"), folder / "ops.db"
    command = [sys.executable, "-m", "paracosm", "emulate", "--hardware", HARDWARE]
    command += ["--world-size", "1", "--out", str(run), "--quiet", "--output", "none"]
    subprocess.run([*command, str(SCRIPT), name], check=True, stdout=subprocess.DEVNULL)
    recordings = load_recordings(run)
    settings = Settings(budget=budget)
    with pinned("cpu", settings.threads, 0):
        real = Iterations(TRAININGS[name](), clock_for("cpu", settings.threads))
    ops = ops_to_profile(recorded_graph(recordings))
    plain = plainly(name, budget / 6)
    with ProfileDatabase.open(path, create=True) as database:
        database.add_links(measure_host_ops(settings.threads))
        done = profile(ops, settings, f"script {name}", database.add, between=real)
    plain += plainly(name, budget / 6)
    config = DeviceEmulateConfig.model_validate(
        {"hardware": HARDWARE, "world_size": 1, "script": SCRIPT, "db": path}
    )
    whole = played(config, recordings)
    path.unlink()  # the machine of the next minutes is another one
    low, high = np.percentile(real.seconds, (10, 90))
    return Row(
        name=name,
        measured=float(np.mean(typical(real.seconds))),
        low=float(low),
        high=float(high),
        played=whole,
        plain=float(np.mean(typical(plain))),
        refused=len(done.refused),
    )


def plainly(name: str, seconds: float) -> list[float]:
    """Run the script as anybody would, in one thread, and return the seconds of its steps."""
    untouched = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--seconds", str(seconds)],
        env={**untouched, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(line) for line in ran.stdout.splitlines()]


def host_share(whole: Played) -> float:
    timed = sum(
        float(whole.durations[0].seconds[code])
        for recording in (whole.recordings[0].iteration(len(whole.recordings[0].steps) - 1),)
        for code in recording.code[recording.kind == 0].tolist()
    )
    return 1 - timed / whole.iteration_time


if __name__ == "__main__":
    main()

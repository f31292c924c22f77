"""Try on this machine's NVIDIA GPU what has never run on one: `make gpu`.

    python release/gpu.py
    python release/gpu.py --only nccl,train

Prints a row for each check, with figures, within ten minutes. Exit status: 0 all passed, 1 one
failed, 3 there is no GPU, and nothing was tried. Each check takes the device, so that tests run
it on a CPU; what is measured of a GPU stands beside hand calculations and beside real runs.
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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import torch

from paracosm.cluster.hardware import load_catalogue

HERE = Path(__file__).parent
ROOT = HERE.parent
NO_GPU = 3  # exit status
LONGEST = 300  # seconds of a command, of which a GPU should need 20 to 80

MODEL = ("--model", "resnet50", "--batch", "32", "--shape", "3x224x224")
GPT = (str(ROOT / "examples" / "emulation" / "gpt.py"),)
SMALLER = ("--layers", "8", "--width", "1024", "--length", "1024", "--batch", "4")
DEVICE_TESTS = (
    "tests/profiling/test_profile.py::test_a_gpu_is_timed_by_the_same_code",
    "tests/emulation/backend/test_emulated_streams.py::test_streams_of_a_device",
)


class CheckError(Exception):
    """What a check found wrong, in a line."""


class Finding(NamedTuple):
    """Whether a check passed, and its figures in words."""

    passed: bool
    figures: str


def ops(
    device: str,
    folder: Path,
    model: Sequence[str] = MODEL,
    budget: str = "60s",
    limit: float = 0.15,
) -> Finding:
    """Time a model's ops and its real iterations in turn; predict the iteration from its ops."""
    of = (*model, "--device", device, "--db", "ops.db", "--json")
    timed = json.loads(_paracosm(folder, "profile", "ops", *of, "--budget", budget))
    predicted = json.loads(_paracosm(folder, "predict", *of))["iteration_time"]
    error = predicted / timed["iteration_time"] - 1
    passed = abs(error) <= limit and not timed["refused"]
    return Finding(
        passed,
        f"{timed['distinct_ops']} ops, {len(timed['refused'])} refused; an iteration takes "
        f"{_ms(timed['iteration_time'])}, predicted {_ms(predicted)} ({error:+.1%})",
    )


def collectives(
    device: str,
    folder: Path,
    flags: Sequence[str] = (),
    script: Sequence[str] = (str(HERE / "all_reduces.py"),),
    limit: float = 0.05,
) -> Finding:
    """All-reduce a megabyte in a modelled ring of four, and compare how long it lasts.

    By hand: each byte goes over a link of 1 GB/s 2 (4 - 1) / 4 times, in 2 (4 - 1) messages of
    100 us latency: 2.1 ms.
    """
    links = ("--world-size", "4", "--bandwidth", "8Gbit/s", "--latency", "100us")
    out = ("--algorithm", "ring", "--out", "run", "--force", "--quiet")
    _paracosm(folder, "emulate", *links, *out, *flags, *script, device)
    table = pq.read_table(folder / "run" / "collectives.parquet", columns=["begun", "done"])
    lasted = [end - begin for begin, end in zip(*(c.to_pylist() for c in table), strict=True)]
    expected = 1.5 * 1e6 / 1e9 + 6 * 100e-6
    errors = sorted(abs(seconds / expected - 1) for seconds in lasted[1:])
    if not errors:
        raise CheckError(f"{len(lasted)} collectives were recorded")
    typical = statistics.median(errors)
    figures = f"{len(lasted)} of {_ms(expected)}: off by {typical:.2%}, at most by {errors[-1]:.1%}"
    return Finding(typical <= limit, figures)


def delays(device: str, folder: Path) -> Finding:
    """Pass the time of collectives on streams, as backend mode does."""
    return collectives(device, folder, ("--device", device, "--sharing", "serial"))


def nccl(device: str, folder: Path) -> Finding:
    """Pass the time of collectives under PyTorch's own NCCL process group, by the library."""
    return collectives(device, folder, ("--nccl",))


def device_tests(device: str, folder: Path) -> Finding:
    """Run the tests that are skipped where there is no such device: none may be skipped."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *DEVICE_TESTS]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)
    last = (run.stdout.strip().splitlines() or [run.stderr[-200:]])[-1]
    return Finding(run.returncode == 0 and "skipped" not in last, last.strip("= "))


def train(device: str, folder: Path, updates: int = 300, limit: float = 0.01) -> Finding:
    """Train with gradients of the device, and compare the loss with that of the CPU's gradients."""
    losses, seconds = {}, {}
    for name in (device, "cpu"):
        begin = time.monotonic()
        model = ("--model", f"{HERE / 'on_device.py'}:net", "--data", "digits")
        flags = ("--workers", "4", "--updates", str(updates), "--seed", "1", "--json")
        answer = _paracosm(folder, "train", *model, *flags, CHECKED_DEVICE=name)
        losses[name], seconds[name] = json.loads(answer)["final_loss"], time.monotonic() - begin
    difference = losses[device] / losses["cpu"] - 1
    return Finding(
        abs(difference) <= limit,
        f"loss {losses[device]:.4f} after {updates} updates in {seconds[device]:.0f} s, by the "
        f"CPU's gradients {losses['cpu']:.4f} ({difference:+.2%})",
    )


def script(
    device: str,
    folder: Path,
    command: Sequence[str] = (*GPT, *SMALLER),
    hardware: str | None = None,
    budget: str = "60s",
    limit: float = 0.15,
) -> Finding:
    """Run a script for real; predict it by `emulate --hardware`, by datasheet and by timed ops."""
    real = real_rate(command, folder)
    name = hardware or hardware_named(torch.cuda.get_device_name())
    out = ("--world-size", "1", "--out", "recorded", "--force", "--json")
    _paracosm(folder, "emulate", "--hardware", name, *out, *command)
    sheet = _summary(folder / "recorded")
    timing = ("--recording", "recorded", "--device", device, "--db", "script.db")
    _paracosm(folder, "profile", "ops", *timing, "--budget", budget, "--quiet")
    asked = ("recorded", "--db", "script.db", "--out", "timed", "--force", "--quiet")
    _paracosm(folder, "emulate", *asked)
    by_ops = _summary(folder / "timed")
    errors = [summary["iteration_time"] * real - 1 for summary in (sheet, by_ops)]
    low, high = (sheet["interval"][end] for end in ("low", "high"))
    return Finding(
        abs(errors[1]) <= limit and low <= 1 / real <= high,
        f"{name}: an iteration takes {_ms(1 / real)}, by the datasheet {errors[0]:+.1%} "
        f"({_ms(low)} to {_ms(high)}), by its timed ops {errors[1]:+.1%}",
    )


def real_rate(command: Sequence[str], folder: Path, lines: int = 20) -> float:
    """Run a script as one rank until it has printed a line for each of some iterations.

    Returns the iterations a second, by the median time between lines of the later half.

    Raises:
        CheckError: it ended before.
    """
    environment = _environment(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="29511"
    )
    environment |= {"PYTHONUNBUFFERED": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    with (folder / "errors.txt").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        with _ended(process):
            assert process.stdout is not None
            times = [time.monotonic() for _ in zip(range(lines), process.stdout, strict=False)]
        if len(times) < lines:
            errors.seek(0)
            raise CheckError(f"the script ended after {len(times)} lines: {errors.read()[-300:]}")
    steps = [after - before for before, after in pairwise(times)]
    return 1 / statistics.median(steps[len(steps) // 2 :])


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    alarm = signal.signal(signal.SIGALRM, lambda *_: process.kill())
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        process.kill()
        process.wait()


def hardware_named(reported: str) -> str:
    """Return the catalogue's name of a device that its driver reports by a name.

    Raises:
        CheckError: it is none of the catalogue's.
    """
    for name, device in load_catalogue().devices.items():
        if reported in device.reported_as:
            return name
    raise CheckError(f'"{reported}" is not in the catalogue: describe it (paracosm hardware add)')


CHECKS = {
    "tests": device_tests,
    "ops": ops,
    "delays": delays,
    "nccl": nccl,
    "train": train,
    "script": script,
}


def row(name: str, device: str) -> tuple[bool, str]:
    """Run a check; return whether it passed, and a row of a Markdown table."""
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            passed, figures = CHECKS[name](device, Path(folder))
    except (CheckError, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
        passed, figures = False, " ".join(f"{type(error).__name__}: {error}".split())
    state = "passed" if passed else "FAILED"
    return passed, f"| {name} | {state} | {figures} | {time.monotonic() - begin:.0f} s |"


def _paracosm(folder: Path, *words: str, **variables: str) -> str:
    """Run a command, and return what it prints.

    Raises:
        CheckError: it did, with the end of what it says.
    """
    command = [sys.executable, "-m", "paracosm", *words]
    run = subprocess.run(
        command,
        cwd=folder,
        env=_environment(**variables),
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    if run.returncode:
        raise CheckError(f"paracosm {words[0]}: status {run.returncode}: {run.stderr[-400:]}")
    return run.stdout


def _environment(**variables: str) -> dict[str, str]:
    paths = (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def _summary(run: Path) -> Mapping[str, Any]:
    summary: Mapping[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"


def main() -> int:
    """Run the checks, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CHECKS), help=f"of {', '.join(CHECKS)}")
    names = parser.parse_args().only.split(",")
    if not torch.cuda.is_available():
        print(f"NO GPU HERE: SKIPPED: {', '.join(names)}: PyTorch {torch.__version__} sees none")
        return NO_GPU
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    print("| check | | figures | took |\n|---|---|---|---|", flush=True)
    all_passed = True
    for name in names:
        passed, line = row(name, "cuda")
        print(line, flush=True)
        all_passed = all_passed and passed
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())

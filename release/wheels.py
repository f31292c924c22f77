"""Try the wheel in fresh environments, as a user installs it: `make wheels`.

    python release/wheels.py
    python release/wheels.py --only core,lowest --python python3.12 --without-tests

Builds a source distribution and of it a wheel, makes each environment by uv, and there runs the
README's commands, those below of each extra, and tests. What an environment lacks must be refused
with the extra that brings it. Prints a row of a Markdown table for each environment; its exit
status is 1 where something failed. uv goes by the environment's variables, such as UV_FIND_LINKS.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from commands import commands_of, expanded  # noqa: E402 (beside the benchmarks)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"dev", "docs", "chakra"})
CONSTRAINED = ("--constraint", str(ROOT / "constraints.txt"))
LOWEST = ("--resolution", "lowest-direct")
LONGEST = 1800  # seconds of a command
LONG = "paracosm plan"  # a minute of what other commands compute, too
_DATA_SET = """import datasets
rows = {"x": [[float(i), 1.0] for i in range(40)], "label": [i % 2 for i in range(40)]}
part = datasets.Dataset.from_dict(rows)
datasets.DatasetDict({"train": part, "test": part}).save_to_disk("set")
"""
_RELAX = "paracosm relax --problem laplace2d:10 --processors 4 --time 'normal(10ms, 3ms)'"
_TUNE = (
    "paracosm relax tune --problem laplace2d:10 --processors 4 --trials 4 --seeds 2 "
    "--fault 'uniform(-100, 100) every 1000s' --checkpoint 'cost=1s' "
    "--tune 'alpha=1.05..20, omega=1s..500s'"
)
_TENSORFLOW = (
    "paracosm profile job --framework tensorflow examples/throughput/train_tensorflow.py "
    "--steps 10 --batch 64 --out tensorflow.profile"
)
_FRAME = "import paracosm; print(paracosm.train(timing_only=True, updates=9).to_pandas())"
OF_EXTRAS = {
    "report": [f"{_RELAX} --out runs/small", "paracosm report runs/small --images png"],
    "tune": [_TUNE],
    "tensorboard": [f"{_RELAX} --out runs/charted --tensorboard scalars"],
    "mlflow": [f"{_RELAX} --out runs/tracked --mlflow tracked"],
    "metis": [f"{_RELAX} --pattern 'graph(method=metis)'"],
    "protobuf": [
        "paracosm graph import tests/data/importers/convnet_sgd.pb --out tensorflow.graph",
        "paracosm graph export tensorflow.graph --out tensorflow.et",
    ],
    "onnx": ["paracosm graph import tests/data/importers/convnet.onnx --out onnx.graph"],
    "tensorflow": [_TENSORFLOW],
    "privacy": ["paracosm train --updates 20 --privacy 'examples(clip=1, noise=1.1)'"],
    "datasets": [
        f"python -c {shlex.quote(_DATA_SET)}",
        "paracosm train --data 'huggingface(inputs=x, targets=label)' --data-dir set --updates 5",
    ],
    "dask": [
        "paracosm train --timing-only --workers 2,4 --updates 9 --backend dask --out runs/dask"
    ],
    "notebook": [f"python -c {shlex.quote(_FRAME)}"],
}
"""Extra -> commands that use it; `torch` is used by the README's."""

TESTS = {
    "": [
        "tests/cluster",
        "tests/timing",
        "tests/network",
        "tests/results",
        "tests/test_columns.py",
    ],
    "torch": [
        *("tests/models", "tests/graphs/test_capture.py", "tests/training/numerics"),
        *("tests/emulation/backend", "tests/emulation/device/test_script_on_hardware.py"),
    ],
    "report": ["tests/report/test_report_images.py"],
    "tune": ["tests/study/test_study_tuning.py"],
    "tensorboard": ["tests/study/test_scalars.py"],
    "metis": ["tests/relaxation/patterns"],
    "protobuf": ["tests/graphs/test_graph_chakra.py"],
    "onnx": ["tests/graphs/importers/test_import_onnx.py"],
    "dask": ["tests/study/test_backends.py"],
    "notebook": ["tests/test_api.py"],
}
"""Extra -> tests of what uses it."""


class Environment(NamedTuple):
    """What is installed beside the wheel, and how it is chosen."""

    extras: Sequence[str]
    options: Sequence[str] = ()  # of `uv pip install`


# MLflow wants an older Arrow than the pinned one.
ENVIRONMENTS = {
    "core": Environment((), CONSTRAINED),
    "torch": Environment(("torch",), CONSTRAINED),
    "all": Environment([extra for extra in EXTRAS if extra != "mlflow"], CONSTRAINED),
    "newest": Environment(EXTRAS),
    "lowest": Environment(EXTRAS, LOWEST),
    # Beside other extras theirs cannot be installed.
    "lowest-tensorboard": Environment(("tensorboard",), LOWEST),
    "lowest-tensorflow": Environment(("tensorflow",), LOWEST),
    "torch-2.11": Environment(("torch",), ("torch==2.11.*",)),
    "torch-2.14": Environment(("torch",), ("torch==2.14.*",)),
}


class Outcome(NamedTuple):
    """Commands that did what they should, those refused for want of an extra, and failures."""

    passed: int
    refused: int
    failures: list[str]


def build(folder: Path) -> Path:
    """Build a source distribution, of it, without git, a wheel, and return the wheel."""
    _run([*_uv("build"), "--quiet", "--out-dir", str(folder), str(ROOT)], ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_commands(commands: Sequence[str], programs: Path, folder: Path) -> Outcome:
    """Run commands in a folder, by the programs in `programs`.

    One that is refused with the extra to install counts as refused, as do those that read what it
    would have written.
    """
    passed, refused, failures, unwritten = 0, 0, list[str](), set[str]()
    for command in commands:
        words = expanded(shlex.split(command), folder)
        if unwritten & set(words):
            answer = 'needs another: pip install "paracosm[...]"'
            status = 2
        else:
            words[0] = str(programs / words[0])
            done = _run(words, folder, check=False)
            status, answer = done.returncode, done.stderr
        if status == 0:
            passed += 1
        elif status == 2 and re.search(r'pip install "paracosm\[[a-z.]+\]"', answer):
            refused += 1
            unwritten |= {after for flag, after in pairwise(words) if flag in ("--out", "--db")}
        else:
            failures.append(f"{command}\n{answer[-2000:]}")
    return Outcome(passed, refused, failures)


def try_environment(
    name: str, python: str, wheel: Path, folder: Path, with_tests: bool
) -> tuple[str, list[str]]:
    """Make an environment in a folder and try the wheel there; return its row, and failures."""
    extras, options = ENVIRONMENTS[name]
    programs = folder / "venv" / "bin"
    begin = time.monotonic()
    _run([*_uv("venv"), "--quiet", "--python", python, str(folder / "venv")], ROOT)
    wanted = [f"{wheel}[{','.join(extras)}]" if extras else str(wheel)]
    if "lowest-direct" in options:  # of a wheel's own dependencies uv takes the newest
        optional = PROJECT["optional-dependencies"]
        wanted += [*PROJECT["dependencies"], *(line for name in extras for line in optional[name])]
    install = [*_uv("pip", "install"), "--quiet", "--python", str(programs / "python")]
    installed = _run([*install, *options, *wanted], ROOT, check=False)
    if installed.returncode:
        return f"| {name} | {python} | not installed | | | |", [installed.stderr]
    for part in ("examples", "tests"):
        (folder / part).symlink_to(ROOT / part)
    commands = ["paracosm --version", "paracosm doctor"]
    readme = commands_of((ROOT / "README.md").read_text())
    commands += [line for line in readme if not line.startswith(LONG)]
    for extra, lines in OF_EXTRAS.items():
        commands += [line for line in lines if extra in extras or not line.startswith("python")]
    outcome = try_commands(commands, programs, folder)
    failures = outcome.failures
    version = _run([str(programs / "paracosm"), "--version"], folder).stdout.split()[-1]
    if f"-{version}-" not in wheel.name:
        failures.append(f"--version: {version}, of {wheel.name}")
    tested = ""
    if with_tests:
        tools = [line for line in PROJECT["optional-dependencies"]["dev"] if _is_of_tests(line)]
        _run([*install, *tools], ROOT)
        paths = [path for extra in ("", *extras) for path in TESTS.get(extra, [])]
        pytest = [
            str(programs / "python"),
            "-m",
            "pytest",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
        ]
        done = _run([*pytest, *paths], ROOT, check=False)
        tested = done.stdout.strip().splitlines()[-1]
        if done.returncode:
            failures.append(done.stdout[-6000:] + done.stderr[-2000:])
    listed = _run([*_uv("pip", "list"), "--python", str(programs / "python")], ROOT).stdout
    versions = dict(re.findall(r"^(numpy|torch|numba)\s+(\S+)", listed, re.M))
    of = ", ".join(f"{package} {versions[package]}" for package in versions)
    print(listed if failures else "", file=sys.stderr)
    took = f"{time.monotonic() - begin:.0f} s"
    counts = f"{outcome.passed} done, {outcome.refused} refused, {len(outcome.failures)} failed"
    number = _run([str(programs / "python"), "-V"], folder).stdout.split()[-1]
    return f"| {name} | {number} | {of} | {counts} | {tested} | {took} |", failures


def _is_of_tests(requirement: str) -> bool:
    return requirement.startswith(("pytest", "hypothesis", "networkx", "simpy", "websockets"))


def _uv(*words: str) -> list[str]:
    return ["uv", *words]


def _run(
    command: Sequence[str], folder: Path, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST
    )
    if check and done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done


def main() -> int:
    """Try the environments, print a row for each, and say what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(ENVIRONMENTS), help="environments")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--without-tests", action="store_true")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        print(wheel.name, flush=True)
        for runner in (["--from"], ["pipx", "run", "--spec"]):
            command = [*_uv("tool", "run"), *runner, str(wheel), "paracosm", "--version"]
            answer = _run(command, Path(name)).stdout.strip()
            print(f"uvx {' '.join(runner)} WHEEL paracosm --version: {answer}", flush=True)
        for environment in options.only.split(","):
            folder = Path(name) / environment
            folder.mkdir()
            row, failures = try_environment(
                environment, options.python, wheel, folder, not options.without_tests
            )
            print(row, flush=True)
            print(*failures, sep="\n\n", file=sys.stderr, flush=True)
            failed = failed or bool(failures)
            subprocess.run(["rm", "-rf", str(folder)], check=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""A command of every verb that takes a while, and processes that run them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"

SWEEP = """
train: {workers: 2, lookahead: off, updates: 60}
over: {seed: [0, 1, 2]}
"""

TUNE = (
    'relax tune --problem laplace2d:8 --processors 4 --time "normal(10, 1)" --checkpoint cost=1s '
    '--fault "uniform(-100, 100) every 1000s" --tune "alpha=1.05..20, omega=1..500s" --seeds 4 '
    "--trials 5 --jobs 2 --out {out}"
)

COMMANDS: Mapping[str, str] = {
    "train": "train --workers 2 --updates 400 --lookahead off --out {out}",
    "train, a sweep": "train {sweep} --jobs 2 --out {out}",
    "train, timing only": "train --timing-only --workers 4 --updates 200000 --out {out}",
    "relax": "relax --problem laplace2d:60 --processors 4 --time 1ms --out {out}",
    "relax tune": TUNE,
    "relax measure": "relax measure --problem laplace2d:60 --threads 1 --repeats 2 "
    "--out {out}.json",
    "predict": "predict {profile} --workers 1..8 --bandwidth 1Gbit/s --out {out}",
    "plan": "plan {network} --model mlp --data digits --workers 1,2 --algorithm asgd,ssgd "
    '--lr 0.2,0.4 --bandwidth 10MB/s --target "loss <= 1.5" --seeds 2 --updates 160 '
    "--lookahead off --jobs 2 --out {out}",
    "profile ops": "profile ops --model mlp --budget 2s --db {out}.db",
    "profile job": "profile job mlp --framework pytorch --steps 300 --out {out}.profile",
    "measure link": "measure link --kinds host-copy,send-recv --sizes 1KiB,1MiB --seconds 0.3s "
    "--db {out}.db",
    "calibrate": "calibrate --seconds 0.2s --interval 100ms --out {out}.yaml",
    "calibrate link": "calibrate link {out}.yaml --seconds 50ms",
    "emulate": "emulate --world-size 4 --output none --out {out} {ddp} --steps 40",
    "emulate, on the wire": "emulate --world-size 4 --mode wire --output none --out {out} {ddp} "
    "--steps 40",
    "replay": 'replay {traces} --what-if "links: bandwidth 2x" --out {out}',
    "graph capture": "graph capture gpt-small --batch 4 --out {out}.graph",
    "report": "report {run} --images png --out {out}/report.html",
}
"""By what a test calls it. `{out}` is where it writes, alone a folder; others are `files`."""


def files(folder: Path) -> dict[str, str]:
    """Return what commands read, made in a folder or of the tests' data."""
    sys.path.append(str(ROOT / "tests" / "planning"))
    from profiled_network import save_network

    sweep = folder / "sweep.yaml"
    sweep.write_text(SWEEP)
    run = folder / "run"
    done = Process(["train", "--timing-only", "--updates", "20000", "--out", str(run)], folder)
    assert done.wait() == 0, done.said
    traces = sorted((DATA / "kineto" / "dlrm").glob("*.json.gz"))
    return {
        "sweep": str(sweep),
        "profile": str(DATA / "psthroughput" / "profile.json.gz"),
        "network": str(save_network(folder)),
        "ddp": str(ROOT / "examples" / "emulation" / "ddp.py"),
        "traces": shlex.join(map(str, traces)),
        "run": str(run),
    }


def arguments(command: str, places: Mapping[str, str], out: Path) -> list[str]:
    """Return what to type for a command."""
    return shlex.split(command.format(**places, out=out))


@dataclass
class Process:
    """The program under way, in a session of its own; what it starts carries its mark."""

    arguments: Sequence[str]
    folder: Path  # its folder of temporary files, and what it prints
    variables: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = (sys.executable, "-m", "paracosm")

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._mark = uuid.uuid4().hex
        self._begun = time.monotonic()
        own = {"TMPDIR": str(self.folder), "MARK": self._mark}
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self._said = self.folder / f"{self._mark}.err"
        self._printed = self.folder / f"{self._mark}.out"
        with self._said.open("wb") as said, self._printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [*self.command, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                env=os.environ | {"PYTHONPATH": path} | own | dict(self.variables),
                start_new_session=True,
            )

    def wait(self, seconds: float = 300) -> int:
        """Return its exit code; -N where signal N has killed it."""
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
            self.seconds = time.monotonic() - self._begun

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def printed(self) -> str:
        return self._printed.read_text(errors="replace")

    def left(self, patience: float = 20.0) -> list[str]:
        """Return the command lines of its children that are still there after some patience."""
        until = time.monotonic() + patience
        while (found := self.children()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def children(self) -> list[str]:
        """Return the process ids and command lines of all that carries its mark."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"MARK={self._mark}".encode() in (process / "environ").read_bytes():
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"{process.name}: {command.decode(errors='replace')}")
            except OSError:
                continue  # somebody else's, or gone by now
        return found

"""Published training scripts, as their authors wrote them: what does each do under emulation?

    python benchmarks/published_scripts/published_scripts.py FOLDER [--only NAME ...]

FOLDER holds checkouts of the repositories that `scripts.py` names, each under its name. What the
scripts import is installed beside this Python; a script whose imports are missing is left out.
Nothing of a script is changed: where it would fetch data or a pretrained model, made-up ones are
put in the way (`made_up`), and flags make it small.

Each runs as rank 0 of 8 and of 64 in backend mode, in wire mode and in backend mode as rank 0 of 2,
and among two real gloo processes (`real_rank.py`), where torch.profiler counts the collectives that
reach PyTorch: numbers and bytes are compared with those that backend mode has recorded. With
STORE_RESULTS=1 the rows go to benchmarks/results/emulation.json, from which docs/made_tables.py
writes the table of docs/tried-scripts.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from scripts import SCRIPTS, Script

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.records import Collective, Group, Record
from paracosm.emulation.result import result_of
from paracosm.emulation.run import run_job

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "emulation.json"
WAYS = {"backend 8": 8, "real 2": 2, "backend 2": 2, "backend 64": 64, "wire 2": 2}
PATIENCE = 600  # seconds for one run
NO_END = f"did not end in {PATIENCE} s"  # of a busy machine it says little, and is not stored
NEVER = "the script never called"  # of a script that failed before, its own error says more
Counts = dict[str, tuple[int, int]]  # of collectives by kind: how many, bytes that the rank gave


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--shown", action="store_true", help="with what the scripts print")
    options = parser.parse_args()
    for name in options.only:
        script = SCRIPTS[name]
        checkout = options.folder.resolve() / script.repository
        if not checkout.is_dir():
            print(f"{name}: no {checkout}", flush=True)
            continue
        if missing := [module for module in script.needs if find_spec(module) is None]:
            print(f"{name}: not installed: {', '.join(missing)}", flush=True)
            continue
        ended: dict[str, str] = {}  # by way
        counts: dict[str, Counts] = {}
        for way in options.ways:
            ended[way], counts[way] = run(script, checkout, way, options.shown)
            print(f"{name}, {way}: {ended[way]}", flush=True)
            if os.environ.get("STORE_RESULTS"):
                store(row_of(name, script, ended, counts))


@dataclass(frozen=True)
class Start:
    """How one process of a script starts: all that is the same whichever way it runs."""

    target: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    current: Path  # folder that it runs in
    work: Path  # folder for what is made on the way
    world: int
    machine: int  # ranks of one machine
    shown: bool

    def of_rank(self, rank: int) -> Start:
        """Return how one rank starts: its number is put in the place of {rank}."""
        texts = [text.replace("{rank}", str(rank)) for text in self.arguments]
        return replace(self, arguments=texts)


def run(script: Script, checkout: Path, way: str, shown: bool) -> tuple[str, Counts]:
    """Run a script one way; return how it ended, and the collectives of rank 0."""
    mode, world = way.split()[0], max(WAYS[way], script.fewest)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = checkout / script.path
        if script.stub:  # it runs before the script, in its process
            path = str(source)
            runs = f"runpy.run_path({path!r}, run_name='__main__')"
            if script.module:
                runs = f"runpy.run_module({script.module!r}, run_name='__main__', alter_sys=True)"
            stub, source = (HERE / "made_up" / script.stub).read_text(), work / "stubbed.py"
            argument = f"sys.argv[0], sys.path[0] = {path!r}, {str(Path(path).parent)!r}"
            source.write_text(f"{stub}\nimport runpy, sys\n{argument}\n{runs}\n")
        target = f"module:{script.module}" if script.module and not script.stub else str(source)
        script.data(work, world)
        machine = min(world, script.machine)
        changed = {"world": world, "machine": machine, "machines": world // machine}
        changed |= {"work": work, "checkout": checkout, "rank": "{rank}"}
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
        }
        for name, value in script.environment:
            environment[name] = value.format(**changed)
        search = [str(checkout / path) for path in script.search]
        environment["PYTHONPATH"] = os.pathsep.join([*search, os.environ.get("PYTHONPATH", "")])
        if not script.is_counted:
            environment["COUNT_COLLECTIVES"] = "0"
        start = Start(
            target,
            [argument.format(**changed) for argument in script.arguments],
            environment,
            checkout / script.folder if script.folder is not None else work,
            work,
            world,
            machine,
            shown,
        )
        return real(start) if mode == "real" else emulated(start.of_rank(0), mode)


def emulated(start: Start, mode: str) -> tuple[str, Counts]:
    """Run a script as `paracosm emulate --device cpu` does."""
    config = EmulateConfig(
        script=Path(start.target),
        arguments=tuple(start.arguments),
        world_size=start.world,
        mode="wire" if mode == "wire" else "backend",
        device="cpu",
        local_world_size=start.machine,
        output="stderr",
    )
    records: list[Record] = []
    said = start.work / "said"
    with printing_to(said), changed_surroundings(start.environment, start.current):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.alarm(PATIENCE)
        ended = run_job(config, 0, start.work, records.extend)
        signal.alarm(0)
    if ended.interrupted:
        return NO_END, {}
    summary = result_of(config, records, ended.exit_code, 0, ended.emulator).summary
    printed = said.read_text()
    if start.shown or summary.status == "failed":
        print(printed[-3000:])
    grave = [note["text"] for note in summary.notes if note["grave"]]
    if summary.status == "failed":
        code = f"exit code {ended.exit_code}"
        says = [text for text in grave if not (ended.exit_code and text.startswith(NEVER))]
        return f"refused: {says[0]}" if says else f"fails, {code}: {last_line(printed)}", {}
    counts = recorded(records) if mode == "backend" else {}
    return f"runs, {summary.iterations} iterations", counts


def _interrupt(*ignored: Any) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def printing_to(file: Path) -> Iterator[None]:
    """Send what processes print that are started now, on standard error, to a file."""
    kept = os.dup(2)
    with file.open("w") as out:
        os.dup2(out.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def changed_surroundings(environment: Mapping[str, str], where: Path) -> Iterator[None]:
    """Give processes that are started now an environment and a current folder."""
    before, here = dict(os.environ), Path.cwd()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(where)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        os.chdir(here)


def real(start: Start) -> tuple[str, Counts]:
    """Run a script as real processes, over gloo, with the CPU where it asks for CUDA devices."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = str(trial.getsockname()[1])
    work, machine = start.work, start.machine
    counted = work / "counts.json"
    ranks = []
    for rank in range(start.world):
        told = {"RANK": rank, "LOCAL_RANK": rank % machine, "WORLD_SIZE": start.world}
        told |= {"LOCAL_WORLD_SIZE": machine, "GROUP_RANK": rank // machine}
        told |= {"GROUP_WORLD_SIZE": start.world // machine}
        told |= {"ROLE_RANK": rank, "ROLE_WORLD_SIZE": start.world}
        variables = {name: str(value) for name, value in told.items()}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        arguments = start.of_rank(rank).arguments
        command = [sys.executable, str(HERE / "real_rank.py"), str(counted), start.target]
        with (work / f"rank{rank}.out").open("w") as out:
            ranks.append(
                subprocess.Popen(
                    [*command, *arguments],
                    env={**start.environment, **variables, **address},
                    cwd=start.current,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )
    codes = []
    try:
        for process in ranks:
            codes.append(process.wait(PATIENCE))
    except subprocess.TimeoutExpired:
        return NO_END, {}
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    said = (work / "rank0.out").read_text()
    if start.shown or any(codes):
        print(said[-3000:])
    if any(codes):
        return f"fails: {last_line(said)}", {}
    if not counted.exists():
        return "runs", {}
    return "runs", {kind: tuple(both) for kind, both in json.loads(counted.read_text()).items()}


def last_line(text: str) -> str:
    lines = [re.sub(r"^\[rank\d+\]:", "", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("USDT:")]  # the profiler's
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (errors or lines or ["nothing was printed"])[-1][:300]


# An all-reduce is what gloo makes of a reduce-scatter.
_KINDS = {"all_reduce": "reductions", "reduce_scatter": "reductions"}


def recorded(records: Sequence[Record]) -> Counts:
    """Return the collectives of a run in backend mode: how many of a kind, and bytes given."""
    sizes, counts = dict[str, int](), Counts()
    for record in records:
        if isinstance(record, Group):
            sizes[record.name] = record.size
        elif isinstance(record, Collective):
            size = record.size
            if record.kind in ("all_gather", "gather", "scatter"):  # bytes of all ranks
                size //= sizes[record.group]
            kind = _KINDS.get(record.kind, record.kind)
            count, total = counts.get(kind, (0, 0))
            counts[kind] = count + 1, total + size
    return counts


def row_of(
    name: str, script: Script, ended: Mapping[str, str], counts: Mapping[str, Counts]
) -> dict[str, str]:
    real_counts, modelled = counts.get("real 2") or {}, counts.get("backend 2") or {}
    beside = "" if not (real_counts and modelled) else compared(real_counts, modelled)
    if script.fewest > 2:
        ended = {
            way: f"{text}, of {script.fewest}" if WAYS[way] == 2 else text
            for way, text in ended.items()
        }
    return {
        "script": f"{name} ({script.what})",
        "backend, 8 ranks": ended.get("backend 8", ""),
        "64 ranks": ended.get("backend 64", ""),
        "wire, 2 ranks": ended.get("wire 2", ""),
        "2 real ranks": ended.get("real 2", ""),
        "collectives of rank 0 of 2": beside,
        "PyTorch": torch.__version__.partition("+")[0],
    }


def compared(real_counts: Counts, modelled: Counts) -> str:
    """Say whether two runs have the same collectives, and which differ."""
    apart = [
        f"{kind}: {real_counts.get(kind, (0, 0))} real, {modelled.get(kind, (0, 0))} emulated"
        for kind in sorted({*real_counts, *modelled})
        if real_counts.get(kind) != modelled.get(kind)
    ]
    number = sum(count for count, _ in modelled.values())
    total = sum(size for _, size in modelled.values())
    return "; ".join(apart) or f"the same: {number:,}, {total:,} bytes"


def store(row: dict[str, str]) -> None:
    stored: dict[str, Any] = {"columns": list(row), "rows": []}
    if RESULTS.exists():
        stored = json.loads(RESULTS.read_text())
    row = {what: text for what, text in row.items() if text not in ("", NO_END)}
    row = {**row, "date": f"{datetime.now().astimezone():%Y-%m-%d}"}
    same = ("script", "PyTorch")
    for stored_row in stored["rows"]:
        if all(stored_row[column] == row[column] for column in same):
            stored_row |= row
            break
    else:
        stored["rows"].append(row)
    RESULTS.write_text(f"{json.dumps(stored, indent=2)}\n")


if __name__ == "__main__":
    main()

"""A fuzzer of the command line: sound commands, each with one thing made unsound.

Each case runs in a forked child with limits of memory and time. A case may run, or be refused in
one line; it may not show a traceback, a defect, crash or go on for ever.

    python tests/robust/fuzz.py --cases 6000 --seed 1
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"

NASTY = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e-400",
        "9" * 5000,
        "99999999999",
    ),
    *("[]", "{}", "null", "true", "a" * 5000, "\u2603", "a\nb", "../..", "/dev/null", "/dev/full"),
    *("1,2", "1..2", "0..3", "1..1000000000", "3,,4", "5s", "-5s", "1e30s", "0B/s", "10Gbit/s"),
    *("lognormal(1ms, 0.3)", "lognormal()", "constant(", "uniform(2s, 1s)", "x(y=z)", "x=1,x=2"),
    *("worker 5: compute 0x slower", "links: bandwidth 2x", "all_reduce: +2 ms", "loss < nan"),
    *(
        "asgd",
        "ssp(-1)",
        "ssp(slack=1e9)",
        "none",
        "all",
        "mlp",
        "laplace2d:0",
        "laplace2d:99999999",
    ),
)
VALUES = (None, True, 0, -1, 1.5, float("nan"), 10**400, "", "x", "1ms", [], [[]], {}, {"a": {}})

COMMANDS = (
    "train --timing-only --updates 20 --workers 2 --latency 1ms",
    "train --timing-only --updates 20 --workers 3 --bandwidth 1Gbit/s --message-size 1MB",
    "train --timing-only --updates 20 --workers 2 --algorithm ssp --cluster {cluster}",
    "train {study}",
    "relax --problem laplace2d:4 --processors 2 --time 1ms",
    "relax {relax}",
    "relax --matrix {matrix} --processors 2",
    "predict {profile} --workers 1,2 --bandwidth 1Gbit/s",
    "predict --model llama-8b --batch 1 --hardware h100-sxm --workers 8 --strategy fsdp",
    "predict {predict}",
    "graph show {graph}",
    "graph import {onnx} --out {out}/a.graph",
    "replay {trace}",
    "hardware list",
    "hardware show h100-sxm",
    "hardware add {hardware}",
    "calibrate {profile}",
    "report {run}",
    "trace {run}",
    "db show {db}",
    "db check {db}",
    "db export {db} --out {out}/a.parquet",
    "profile import {steps} --out {out}/a.profile",
)


@dataclass(frozen=True)
class Case:
    """A command, and the folder that it runs in."""

    arguments: tuple[str, ...]
    what: str  # was made unsound


@dataclass(frozen=True)
class Outcome:
    """What came of a case: "ran", "refused", or what may not be."""

    kind: str
    said: str  # the end of standard error

    @property
    def is_bad(self) -> bool:
        return self.kind not in ("ran", "refused")


def sound_files(folder: Path) -> dict[str, Path]:
    """Write small sound files of every format, by the name that commands have for them."""
    from paracosm.cli import main

    texts = {
        "study": "train: {workers: 2, timing_only: true, updates: 20}\nover: {seed: [0, 1]}\n",
        "relax": "seed: 1\nrelax: {problem: 'laplace2d:4', processors: 2, time: 1ms}\n",
        "predict": "predict: {model: llama-8b, batch: 1, hardware: h100-sxm, workers: 8, "
        "strategy: ddp}\n",
        "cluster": "nodes: 4\nlinks: {latency: 1ms, bandwidth: 1Gbit/s, sharing: fair}\n",
    }
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name}.yaml"
        files[name].write_text(text)
    kept = {
        "matrix": DATA / "matrices" / "gr_30_30.mtx.gz",
        "profile": DATA / "psthroughput" / "profile.json.gz",
        "onnx": DATA / "importers" / "convnet.onnx",
        "trace": next((DATA / "kineto").rglob("*.json.gz")),
    }
    for name, path in kept.items():
        files[name] = folder / path.name
        shutil.copy(path, files[name])
    files["hardware"] = folder / "hardware.yaml"
    files["graph"], files["db"], files["run"] = folder / "a.graph", folder / "a.db", folder / "run"
    made = (
        ("graph", "import", str(files["onnx"]), "--out", str(files["graph"])),
        ("train", "--timing-only", "--updates", "20", "--timeline", "--out", str(files["run"])),
    )
    with open(os.devnull, "w") as nowhere:
        before, sys.stdout = sys.stdout, nowhere
        try:
            assert [main([str(part) for part in command]) for command in made] == [0] * len(made)
        finally:
            sys.stdout = before
    from paracosm.profiling.database import ProfileDatabase

    ProfileDatabase.open(files["db"], create=True).close()
    files["hardware"].write_text("x: {kind: device, memory: 80GB}\n")
    files["steps"] = folder / "steps.json"
    files["steps"].write_text(json.dumps({"step_stats": []}))
    return files


def cases(files: dict[str, Path], folder: Path, number: int, seed: int) -> Iterator[Case]:
    """Return commands, each with a flag, an argument or a file made unsound."""
    from paracosm.cli.verbs import VERBS, parameters_of

    chosen = random.Random(seed)
    flags = {verb: [each for options in parameters_of(verb).values() for each in options
                    if each.startswith("--")] for verb in VERBS}  # fmt: skip
    for index in range(number):
        template = chosen.choice(COMMANDS).split()
        verb = " ".join(template[:2]) if " ".join(template[:2]) in VERBS else template[0]
        named = [part[1:-1] for part in template if part[0] == "{" and part[1:-1] in files]
        place = folder / str(index)
        place.mkdir()
        places = {**files, "out": place}
        if named and chosen.random() < 0.5:
            name = chosen.choice(named)
            damaged, what = _damaged(files[name], place, chosen)
            places[name] = damaged
            arguments = [part.format(**places) for part in template]
        else:
            arguments = [part.format(**places) for part in template]
            what = _change(arguments, flags[verb], len(verb.split()), chosen)
        yield Case(tuple(arguments), what)


def _change(arguments: list[str], flags: list[str], begin: int, chosen: random.Random) -> str:
    value = chosen.choice(NASTY)
    match chosen.randrange(0 if flags else 2, 4):
        case 0:
            flag = chosen.choice(flags)
            arguments += [flag, value]
            return f"{flag} {value[:60]!r}"
        case 1:
            flag = chosen.choice(flags)
            arguments.append(flag)
            return flag
        case 2 if len(arguments) > begin:
            at = chosen.randrange(begin, len(arguments))
            arguments[at] = value
            return f"argument {at}: {value[:60]!r}"
    at = chosen.randrange(begin, len(arguments) + 1)
    del arguments[at : at + 1]
    return f"without argument {at}"


def _damaged(path: Path, folder: Path, chosen: random.Random) -> tuple[Path, str]:
    copy = folder / path.name
    if path.is_dir():
        shutil.copytree(path, copy)
        inner = chosen.choice(sorted(each for each in copy.iterdir() if each.is_file()))
        return copy, f"{inner.name}: {_damage(inner, chosen)}"
    shutil.copy(path, copy)
    return copy, f"{copy.name}: {_damage(copy, chosen)}"


def _damage(path: Path, chosen: random.Random) -> str:
    data = path.read_bytes()
    is_packed = path.suffix == ".gz" and chosen.random() < 0.7
    if is_packed:
        data = gzip.decompress(data)
    how, data = _damaged_bytes(data, path, chosen)
    path.write_bytes(gzip.compress(data) if is_packed else data)
    return how


def _damaged_bytes(data: bytes, path: Path, chosen: random.Random) -> tuple[str, bytes]:
    kind = chosen.randrange(6)
    if kind < 2 and path.suffix in (".yaml", ".json"):
        from yaml import safe_dump, safe_load

        content = safe_load(data)
        how = _replaced(content, chosen)
        if path.suffix == ".json":
            return how, json.dumps(content, default=str).encode()
        return how, safe_dump(content).encode()
    if kind == 2:
        end = chosen.randrange(len(data) + 1)
        return f"cut off after {end} bytes", data[:end]
    if kind == 3:
        return "nested", b'{"a":' * 3000
    if kind == 4:
        return "digits", b"seed: " + b"9" * 10_000
    flipped = bytearray(data)
    for _ in range(chosen.choice((1, 1, 10))):
        if flipped:
            flipped[chosen.randrange(len(flipped))] ^= 1 << chosen.randrange(8)
    return "flipped", bytes(flipped)


def _replaced(content: object, chosen: random.Random) -> str:
    """Replace one value, anywhere; return where."""
    path = []
    while isinstance(content, dict | list) and content:
        key = chosen.choice(list(content) if isinstance(content, dict) else range(len(content)))
        path.append(str(key))
        inner = content[key]  # type: ignore[index]
        if isinstance(inner, dict | list) and inner and chosen.random() < 0.8:
            content = inner
            continue
        content[key] = chosen.choice((*VALUES, *NASTY))  # type: ignore[index]
        break
    return f"{'.'.join(path)} = {str(content)[:60]}"


def run(case: Case, folder: Path, seconds: int = 60, memory: int = 4 << 30) -> Outcome:
    """Run a case in a forked child, and say what came of it."""
    said = folder / "stderr"
    child = os.fork()
    if child == 0:
        _be_child(case, folder, said, seconds, memory)
    deadline = time.monotonic() + 4 * seconds
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Outcome("hang", _end_of(said))
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(ended[1])
    words = _end_of(said)
    if code < 0:
        number = signal.Signals(-code)
        return Outcome("hang" if number == signal.SIGXCPU else f"crash {number.name}", words)
    if "Traceback (most recent" in words:
        return Outcome("traceback", words)
    if "a defect of Paracosm" in words:
        return Outcome("defect", words)
    if code == 2:
        lines = words.strip().count("\n") + 1
        if lines > 1 or len(words) > 1000:
            return Outcome("long", words)
        return Outcome("refused", words)
    if "out of memory" in words:
        return Outcome("memory", words)
    return Outcome("ran", words)


def _end_of(path: Path) -> str:
    return path.read_text(errors="replace")[-4000:] if path.exists() else ""


def _be_child(case: Case, folder: Path, said: Path, seconds: int, memory: int) -> None:
    os.setsid()
    os.environ["PARACOSM_CACHE"] = str(folder)
    os.environ["HOME"] = str(folder)
    os.chdir(folder)
    for number, path in ((0, os.devnull), (1, str(folder / "stdout")), (2, str(said))):
        mode = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, mode, 0o644), number)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = 70
    try:
        from paracosm.cli import main

        code = main(list(case.arguments))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def fuzz(number: int, seed: int, folder: Path) -> Iterator[tuple[Case, Outcome]]:
    """Run cases one after the other."""
    sound = folder / "sound"
    sound.mkdir()
    files = sound_files(sound)
    for index, case in enumerate(cases(files, folder, number, seed)):
        yield case, run(case, folder / str(index))
        shutil.rmtree(folder / str(index), ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case, outcome in fuzz(wanted.cases, wanted.seed, Path(folder)):
            counts[outcome.kind] += 1
            if outcome.is_bad:
                shown = " ".join(part[:60] for part in case.arguments)
                print(
                    f"{outcome.kind}: {shown}\n  ({case.what})\n  {outcome.said[-600:]}", flush=True
                )
    print(dict(counts))
    return int(any(Outcome(kind, "").is_bad for kind in counts))


if __name__ == "__main__":
    sys.exit(main())

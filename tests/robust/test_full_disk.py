"""A disk that is full at any byte: one line, exit code 1, and what is there can be read."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from forked import Child, forked

from paracosm.cli import main
from paracosm.studies import RunFolder

DATA = Path(__file__).parents[1] / "data"

COMMANDS: Mapping[str, str] = {
    "train": "train --timing-only --workers 2 --updates 500 --timeline --out {out}",
    "train, a sweep": "train {sweep} --out {out}",
    "relax": "relax --problem laplace2d:5 --processors 2 --time 1ms --out {out}",
    "predict": "predict {profile} --workers 1,2 --bandwidth 1Gbit/s --out {out}",
    "plan": "plan --model llama-8b --hardware h100-sxm --tokens 1e9 --batch-tokens 4e6 "
    "--max-workers 8 --out {out}",
    "replay": "replay {trace} --out {out}",
    "graph import": "graph import {onnx} --out {out}.graph",
    "profile import": "profile import {steps} --out {out}.profile",
    "report": "report {run} --out {out}.html",
    "trace": "trace {run} --out {out}.json.gz",
    "db merge": "db merge {db} --out {out}.db",
    "db export": "db export {db} --out {out}.parquet",
    "graph export": "graph export {graph} --out {out}.et",
    "hardware add": "hardware add {datasheet}",
    "train, gradients": "train --updates 4 --workers 2 --out {out}",
    "train, scalars": "train --timing-only --updates 50 --out {out} --tensorboard {out}.tb",
    "relax tune": "relax tune --problem laplace2d:4 --processors 2 --time 1ms --fault "
    "'uniform(-1,1) every 10ms' --checkpoint omega=10s,cost=1ms --seeds 1 --trials 2 "
    "--tune alpha=1.05..20 --out {out}",
    "tune": "tune {sweep_of_one} --seeds 1 --trials 2 --tune workers=1..2 --out {out}",
    "relax measure": "relax measure --problem laplace2d:4 --threads 1 --repeats 1 "
    "--tolerance 1e-2 --out {out}.json",
    "profile ops": "profile ops --model mlp --shape 4 --db {out}.db --budget 0.1s --no-iterations",
    "profile job": "profile job mlp --framework pytorch --steps 2 --shape 4 --out {out}.profile",
    "graph capture": "graph capture mlp --batch 4 --out {out}.graph",
    "measure link": "measure link --kinds host-copy --sizes 1KiB --seconds 10ms --db {out}.db",
    "calibrate": "calibrate --seconds 0.1s --connections 1 --parsing none --out {out}.yaml",
    "calibrate, of a profile": "calibrate {network} --out {out}.yaml",
    "calibrate link": "calibrate link {out}.yaml --seconds 0.05s",
    "emulate": "emulate --world-size 4 --bandwidth 1Gbit/s --output none --out {out} {script}",
    "emulate, on the wire": "emulate --world-size 4 --mode wire --output none --out {out} {script}",
}
"""Each verb that writes."""

FULL_AFTER = (0, 1, 10, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 1_000_000, 4_000_000)
"""Bytes of any one file, after which writing fails."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import sys

    sys.path += [str(Path(__file__).parents[1] / room) for room in ("planning", "profiling")]
    import torch
    from profiled_network import save_network
    from some_timings import some
    from sound import SCRIPT, TEXTS

    from paracosm.profiling.database import ProfileDatabase

    torch.set_num_threads(1)  # a pool of threads would not survive a fork

    folder = tmp_path_factory.mktemp("files")
    run, sweep, db = folder / "run", folder / "sweep.yaml", folder / "a.db"
    assert main([*shlex.split(COMMANDS["train"].format(out=run)), "--quiet"]) == 0
    sweep.write_text("train: {timing_only: true, updates: 100}\nover: {workers: [1, 2]}\n")
    with ProfileDatabase.open(db, create=True) as database:
        database.add(some(300))
    texts = {"sweep_of_one.yaml": "train: {timing_only: true, updates: 100}\n", "s.py": SCRIPT}
    for name, text in {**TEXTS, **texts}.items():
        (folder / name).write_text(text)
    onnx, graph = DATA / "importers" / "convnet.onnx", folder / "a.graph"
    assert main(["graph", "import", str(onnx), "--out", str(graph)]) == 0
    return {
        "network": save_network(folder),
        "graph": graph,
        "datasheet": folder / "datasheet.yaml",
        "sweep_of_one": folder / "sweep_of_one.yaml",
        "script": folder / "s.py",
        "run": run,
        "sweep": sweep,
        "db": db,
        "profile": DATA / "psthroughput" / "profile.json.gz",
        "trace": DATA / "kineto" / "resnet.json.gz",
        "steps": DATA / "tensorflow_job" / "mlp.pb.gz",
        "onnx": onnx,
    }


def full_after(size: int, arguments: list[str]) -> Child:
    """Run the program where no file may have more than so many bytes."""

    def limited() -> int:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        code: list[int] = []
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        code.append(main(arguments))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        return code[0]

    return forked(limited)


SIZE_VARIES = {"relax measure"}  # real threads make as many updates as they come to

EVERYDAY = ("train", "db merge")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *((name, FULL_AFTER[::3]) for name in EVERYDAY),
        *(pytest.param(name, FULL_AFTER, marks=pytest.mark.slow) for name in COMMANDS),
    ],
)
def test_a_full_disk_is_one_line_and_leaves_what_can_be_read(
    name: str,
    sizes: tuple[int, ...],
    places: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = []
    for size in sizes:
        out = tmp_path / str(size)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / f"{size}.config"))
        child = full_after(size, shlex.split(COMMANDS[name].format(**places, out=out)))
        codes.append(child.wait())
        said = child.said
        assert codes[-1] in (0, 1), (size, said)
        assert "Traceback" not in said, (size, said)
        assert "defect" not in said, (size, said)
        if codes[-1] == 1:
            assert len(said) <= max(size, 400), (size, said)
        readable(out)
        assert not [each for each in tmp_path.rglob("*") if each.name.startswith(f".{size}.")]
    assert codes[0] == 1
    assert codes[-1] in (0, 1)
    if name not in SIZE_VARIES:
        assert codes == sorted(codes, reverse=True)


def readable(out: Path) -> None:
    """Whatever a run has left is a run folder, or too little to be one."""
    if (out / "study.yaml").is_file() and not (out / "sweep.json").is_file():
        run = RunFolder.open(out)
        run.metrics()
        run.timeline()

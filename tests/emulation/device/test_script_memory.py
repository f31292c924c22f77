"""Memory of scripts beside PyTorch's own trackers, and beside the script with checkpointing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.cli.app import main
from paracosm.cluster.hardware import find_hardware
from paracosm.emulation.device.durations import device_durations
from paracosm.emulation.device.memory_model import held_by_kind, memory_use
from paracosm.emulation.device.memory_savings import savings
from paracosm.emulation.device.recording import load_recording
from paracosm.jobs.job import MEMORY

SCRIPT = Path(__file__).parent / "scripts" / "tracked.py"
RANKS, WIDTH, DEPTH, CLASSES, BATCH = 8, 512, 4, 1000, 4096

# What PyTorch calls what our kinds hold: it has kinds of unsharded parameters and gradients, to us
# buffers of collectives or temporary.
NAMES = {
    "parameters": ("Parameter", "Sharded Param", "Buffer"),
    "gradients": ("Gradient", "Sharded Grad"),
    "optimizer": ("Optstate", "OptState"),
    "activations": ("Activation", "Inputs", "Other"),
    "collectives": ("Unsharded Param", "Unsharded Grad", "Temp", "All Gather", "Reduce Scatter"),
}


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("fsdp"), "fsdp")


def test_memory_is_what_the_tracker_of_fully_shard_counts(fsdp: Path) -> None:
    ours, theirs = compared(fsdp)
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "pooled"),
    [
        (("fsdp", "again"), ()),
        (("ddp",), ("activations",)),  # what they call buckets
        (("ddp", "again"), ("activations", "gradients")),  # of one they know only later that it is
    ],
)
def test_memory_is_what_the_trackers_of_pytorch_count(
    arguments: tuple[str, ...], pooled: tuple[str, ...], tmp_path: Path
) -> None:
    both = compared(record(tmp_path, *arguments))
    for by_kind in both:
        by_kind["collectives"] += sum(by_kind.pop(kind) for kind in pooled)
    assert both[0] == both[1]


def compared(run: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return what is allocated at most in the first step, by kind: recorded, and tracked."""
    tracked = json.loads((run.parent / "tracked.json").read_text())
    recording = load_recording(run / "device.parquet")
    held = held_by_kind(recording)
    begin = int(np.flatnonzero(recording.module >= 0)[0])  # the tracker sees no set-up
    end = int(recording.steps[0])
    at = begin + int(np.argmax(held.sum(axis=0)[begin:end]))
    ours = dict(zip(MEMORY, held[:, at].tolist(), strict=True))
    ours["collectives"] += ours.pop("temporary")
    assert sum(ours.values()) == tracked["Total"]
    theirs = {kind: sum(tracked.get(name, 0) for name in NAMES.get(kind, ())) for kind in ours}
    return ours, theirs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_checkpointing_frees_and_costs_what_the_recording_without_it_says(
    kind: str, tmp_path: Path
) -> None:
    without, again = record(tmp_path / "without", kind), record(tmp_path / "again", kind, "again")
    recording = load_recording(without / "device.parquet")
    use = memory_use(recording, summary(without)["memory"]["reserved"])  # so that it is short
    assert use.verdict == "does not fit"
    durations = device_durations(recording, find_hardware("h100-sxm"))
    changes = savings(recording, use, durations.seconds, lambda call: 0.0)
    (saving,) = (change for change in changes if "checkpointing of the 4 blocks" in change.change)
    known = summary(again)
    assert use.allocated - saving.freed == pytest.approx(known["memory"]["allocated"], rel=0.03)
    assert saving.seconds is not None
    assert summary(without)["iteration_time"] + saving.seconds == pytest.approx(
        known["iteration_time"], rel=0.05
    )


def test_the_modules_that_hold_most_are_named(fsdp: Path) -> None:
    memory = summary(fsdp)["memory"]
    modules = {each["name"]: each for each in memory["modules"]}
    up = modules["blocks.*.up"]
    weights = 4 * (4 * WIDTH * WIDTH + 4 * WIDTH) // RANKS
    assert up["count"] == DEPTH
    assert up["state"] == pytest.approx(DEPTH * 3 * weights, rel=0.01)  # AdamW's two moments
    assert up["rest"] >= DEPTH * 2 * BATCH * 4 * WIDTH  # what gelu's backward pass reads
    assert sum(each["state"] + each["rest"] for each in memory["modules"]) == pytest.approx(
        memory["allocated"], rel=0.01
    )


def record(folder: Path, *arguments: str) -> Path:
    folder.mkdir(exist_ok=True)
    run, tracked = folder / "run", str(folder / "tracked.json")
    command = ["emulate", "--hardware", "h100-sxm", "--world-size", str(RANKS), "--output", "none"]
    assert main([*command, "--out", str(run), str(SCRIPT), tracked, *arguments]) == 0
    return run


def summary(run: Path) -> dict[str, Any]:
    found = json.loads((run / "summary.json").read_text())
    assert isinstance(found, dict)
    return found

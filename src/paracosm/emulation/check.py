"""Checks of an emulated job before anything runs: files, ranks, links and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paracosm.data_files import read_json
from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import MOST_RANKS, EmulateConfig
from paracosm.emulation.peers import peers_of
from paracosm.emulation.recordings import load_measured
from paracosm.errors import InputError, require
from paracosm.results import EmulationSummary, without_digest

NO_SCRIPT = "missing script: paracosm emulate --world-size 16 --bandwidth 10Gbit/s train.py"


def check_emulation(config: EmulateConfig) -> None:
    """Raise InputError for a job that cannot be run, changed and unchanged."""
    if config.script is None:
        raise InputError(NO_SCRIPT)
    if config.world > MOST_RANKS:
        raise InputError(f"world_size: {MOST_RANKS:,} at most, not {config.world:,}")
    if config.measured is not None:
        load_measured(config.measured, config.world)
    elif not config.is_module and not config.script.is_file():
        raise InputError(f"{config.script}: no such script")
    if config.device == "cuda":
        require("torch", "torch", "emulation")
        import torch

        if not torch.cuda.is_available():
            raise InputError("device: this machine has no GPU that PyTorch finds: --device cpu")
    if config.nccl:
        from paracosm.emulation.nccl.build import check_machine

        check_machine()
    unchanged = config.model_copy(update={"what_if": ()})
    for settings in (unchanged, config) if config.what_if else (unchanged,):
        communication_of(settings)
        peers_of(settings, settings.rank[0], 0)
    if config.compare is not None:
        predicted_time(config.compare)


def predicted_time(folder: Path) -> float:
    try:
        summary = read_json(folder / "summary.json", "summary")
    except InputError:
        raise InputError(f"{folder}: not the folder of a finished run") from None
    if not isinstance(summary, dict):
        raise InputError(f"{folder}: its summary holds no mapping of names to values")
    time = without_digest(summary, f"{folder}: its summary").get("iteration_time")
    if isinstance(time, dict):
        time = time.get("median")
    if not isinstance(time, int | float) or not time > 0:
        raise InputError(f"{folder}: its summary has no iteration_time to compare with")
    return float(time)


def compare_with(folder: Path, summary: EmulationSummary) -> dict[str, Any]:
    time = summary.iteration_time
    predicted = predicted_time(folder)
    emulated = None if time is None else time.median
    return {
        "run": str(folder),
        "iteration_time": predicted,
        "ratio": None if emulated is None else emulated / predicted,
    }

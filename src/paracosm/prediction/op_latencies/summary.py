"""A folder of op latencies, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paracosm.prediction.op_latencies.folder import Comparison, mean_error, read_folder
from paracosm.prediction.op_latencies.several_comparison import SeveralComparison
from paracosm.results import OpLatenciesSummary

__all__ = ["summarise_folder"]


def summarise_folder(path: Path) -> OpLatenciesSummary:
    """Predict every model of a folder and return how far that is from what was measured.

    Raises:
        InputError: there is nothing in it that can be used.
    """
    folder = read_folder(path)
    devices = sorted({each.device for each in folder.comparisons})
    errors = _errors(folder.comparisons)
    return OpLatenciesSummary(
        status="done",
        op_latencies=str(path),
        models=len(folder.comparisons),
        mean_error=errors["mean_error"],
        baselines=errors["baselines"],
        devices={
            device: _errors([each for each in folder.comparisons if each.device == device])
            for device in devices
        },
        comparisons=[_comparison(each) for each in folder.comparisons],
        several_gpus={
            **(_errors(folder.several) if folder.several else {}),
            "comparisons": [_several(each) for each in folder.several],
        },
        left_out=dict(folder.left_out),
        durations={
            "ops": "measured one at a time, without the floor of the events around them",
            "launching an op": "measured: the shortest interval around a kernel, without the floor",
            "links between GPUs": "what NCCL reckons with for the GPU's name",
        },
    )


def _errors(comparisons: Sequence[Comparison] | Sequence[SeveralComparison]) -> dict[str, Any]:
    """Return mean absolute errors: of the replay, and of the sum of all latencies."""
    return {
        "mean_error": mean_error(each.error for each in comparisons),
        "baselines": {
            "sum of durations": mean_error(each.serial_error for each in comparisons),
        },
    }


def _comparison(each: Comparison) -> dict[str, Any]:
    times = {
        name: {**asdict(time), "both": time.both}
        for name, time in (
            ("measured", each.measured),
            ("predicted", each.predicted),
            ("serial", each.serial),
        )
    }
    return {
        "device": each.device,
        "model": each.model,
        "layers": each.layers,
        **times,
        "error": each.error,
        "serial_error": each.serial_error,
        **asdict(each.reading),
    }


def _several(each: SeveralComparison) -> dict[str, Any]:
    return {
        "device": each.device,
        "model": each.model,
        "strategy": str(each.strategy),
        "workers": each.strategy.ranks,
        "bandwidth": each.link.bandwidth,
        "latency": each.link.latency,
        "batches": list(each.timed),
        "measured": each.measured,
        "predicted": each.predicted,
        "serial": each.serial,
        "error": each.error,
        "serial_error": each.serial_error,
    }

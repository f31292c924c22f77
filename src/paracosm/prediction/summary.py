"""The key figures of a prediction, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np

from paracosm.graphs import PHASES
from paracosm.prediction.durations import SOURCES
from paracosm.prediction.prediction import Prediction
from paracosm.profiling.samples import IterationTiming

__all__ = ["summarise"]

PLACES = 30  # of the model that a summary lists


def summarise(
    prediction: Prediction, measured: IterationTiming | None, probe: float = 0.0
) -> dict[str, Any]:
    """Return the summary of a prediction: plain numbers, strings, lists and mappings.

    Args:
        prediction: what is said.
        measured: the same iteration as it was measured, where it was.
        probe: seconds of the speed probe beside the timings of the ops; 0 where nobody probed.
    """
    throughput = prediction.examples_per_second
    return {
        "status": "done",
        "iteration_time": prediction.iteration_time,
        "interval": dict(zip(("low", "high"), prediction.interval, strict=True)),
        "examples": prediction.examples,
        "examples_per_second": throughput,
        "throughput": {} if throughput is None else {"1": throughput},
        "breakdown": {
            "phase": dict(prediction.by_phase),
            "op": dict(prediction.by_op),
            "place": dict(islice(prediction.by_place.items(), PLACES)),
            "lane": dict(prediction.lanes),
        },
        "phases": _phases(prediction),
        "peak_memory": prediction.peak_memory,
        "resident": dict(prediction.graph.resident),
        "bottleneck": prediction.bottleneck,
        "coverage": dict(prediction.coverage),
        "estimated_ops": _estimated(prediction),
        "baselines": dict(prediction.baselines),
        "measured": None if measured is None else _compared(prediction, measured, probe),
        "largest": [asdict(each) for each in prediction.largest],
        "nodes": len(prediction.graph),
        "distinct_ops": len(prediction.graph.ops),
        "untimed": list(prediction.untimed),
    }


def _estimated(prediction: Prediction) -> int:
    """Return how many distinct ops have a duration that was not measured of them."""
    codes = [SOURCES.index(source) for source in ("interpolated", "estimated", "unknown")]
    return len(np.unique(prediction.graph.op[np.isin(prediction.source, codes)]))


def _phases(prediction: Prediction) -> dict[str, dict[str, float]]:
    """Return when each phase begins and ends."""
    phase, schedule = prediction.graph.phase, prediction.schedule
    found = {}
    for code in np.unique(phase).tolist():
        chosen = phase == code
        found[PHASES[code]] = {
            "begin": float(schedule.begin[chosen].min()),
            "end": float(schedule.end[chosen].max()),
        }
    return found


def _compared(prediction: Prediction, measured: IterationTiming, probe: float) -> Mapping[str, Any]:
    time = measured.time
    probed = probe > 0 and measured.probe > 0
    slower = measured.probe / probe - 1 if probed else None
    then = prediction.iteration_time * (1 + (slower or 0.0))
    return {
        "iteration_time": measured.duration,
        "p10": time.p10,
        "p90": time.p90,
        "samples": time.count,
        "error": prediction.iteration_time / measured.duration - 1,
        "slower": slower,
        "error_at_its_speed": then / measured.duration - 1 if probed else None,
        "baseline_errors": {
            name: seconds / measured.duration - 1 for name, seconds in prediction.baselines.items()
        },
    }

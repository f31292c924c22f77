"""The key figures of a prediction, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np

from paracosm.graphs import PHASES
from paracosm.prediction.durations import SOURCES
from paracosm.prediction.predict import Prediction
from paracosm.profiling.samples import IterationTiming
from paracosm.results import Interval, IterationSummary, ThroughputRow
from paracosm.results.summaries import Measured

__all__ = ["interval", "of_graph", "of_ops", "per_step", "summarise"]

PLACES = 30  # of the model that a summary lists


def summarise(
    prediction: Prediction, measured: IterationTiming | None, probe: float, facts: Mapping[str, Any]
) -> IterationSummary:
    """Return the summary of a prediction.

    Args:
        prediction: what is said.
        measured: the same iteration as it was measured, where it was.
        probe: seconds of the speed probe beside the timings of the ops; 0 where nobody probed.
        facts: where the durations come from, as `TimedReplica.facts` says.
    """
    return IterationSummary(
        status="done",
        **of_graph(prediction),
        **facts,
        iteration_time=prediction.iteration_time,
        interval=interval(prediction.interval),
        examples=prediction.examples,
        examples_per_second=prediction.examples_per_second,
        throughput=[
            ThroughputRow(
                workers=1,
                steps_per_second=per_step(prediction.examples_per_second, prediction.examples),
                examples_per_second=prediction.examples_per_second,
                bottleneck=prediction.bottleneck,
            )
        ],
        breakdown={**of_ops(prediction), "lane": dict(prediction.lanes)},
        phases=_phases(prediction),
        peak_memory=prediction.peak_memory,
        bottleneck=prediction.bottleneck,
        measured=None if measured is None else _compared(prediction, measured, probe),
    )


def of_graph(prediction: Prediction) -> dict[str, Any]:
    """Return what is said of the graph of one replica, whatever the cluster."""
    return {
        "batch": prediction.examples,
        "resident": dict(prediction.graph.resident),
        "coverage": dict(prediction.coverage),
        "estimated_ops": _estimated(prediction),
        "baselines": dict(prediction.baselines),
        "largest": [asdict(each) for each in prediction.largest],
        "nodes": len(prediction.graph),
        "distinct_ops": len(prediction.graph.ops),
        "untimed": list(prediction.untimed),
    }


def of_ops(prediction: Prediction) -> dict[str, dict[str, float]]:
    """Return the seconds of phases, ops and places of the model."""
    return {
        "phase": dict(prediction.by_phase),
        "op": dict(prediction.by_op),
        "place": dict(islice(prediction.by_place.items(), PLACES)),
    }


def interval(bounds: tuple[float, float]) -> Interval:
    """Return an interval of seconds as summaries have it."""
    return Interval(low=bounds[0], high=bounds[1])


def per_step(examples: float | None, batch: int | None) -> float | None:
    """Return the steps of a rate of examples, None where either is not known."""
    return None if examples is None or not batch else examples / batch


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


def _compared(prediction: Prediction, measured: IterationTiming, probe: float) -> Measured:
    time = measured.time
    probed = probe > 0 and measured.probe > 0
    slower = measured.probe / probe - 1 if probed else None
    then = prediction.iteration_time * (1 + (slower or 0.0))
    return Measured(
        iteration_time=measured.duration,
        p10=time.p10,
        p90=time.p90,
        samples=time.count,
        error=prediction.iteration_time / measured.duration - 1,
        slower=slower,
        error_at_its_speed=then / measured.duration - 1 if probed else None,
        baseline_errors={
            name: seconds / measured.duration - 1 for name, seconds in prediction.baselines.items()
        },
    )

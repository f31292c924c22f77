"""The time of one iteration of a graph, from the durations of its ops, and its interval.

Three kinds of error, each treated as what it is:

- Of an op that was measured: the error of its mean. Its nodes share it; those of different ops
  are independent.
- Of ops that were estimated: an estimator that is wrong about one convolution is wrong about the
  others in the same direction. All estimated ops of one type move together, types independently.
- Of the machine: a core that is slower than when the profile was made is so for all ops. The
  spread of the speed probe says by how much; all ops move together.

Each part is moved to its upper end alone, the graph is replayed, and what the iteration gains by it
is that part's contribution, so that ops which the host hides contribute nothing. Independent
contributions add as squares. The same downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs import RESOURCES, Graph
from paracosm.graphs.summary import memory_curve
from paracosm.prediction.durations import SOURCES
from paracosm.prediction.prediction import (
    Prediction,
    bottleneck,
    busy_lanes,
    by_op,
    by_phase,
    by_place,
    coverage,
    largest,
)
from paracosm.simulation import replay

__all__ = ["iteration_interval", "predict"]


if TYPE_CHECKING:
    from paracosm.profiling.estimators import Estimate

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

RECORDED, NONE = SOURCES.index("recorded"), SOURCES.index("none")
MEASURED = tuple(SOURCES.index(source) for source in ("exact", "recorded", "none"))


def predict(
    graph: Graph,
    durations: Sequence[Estimate | None],
    *,
    asynchronous: bool = False,
    launch: float = 0.0,
    common: float = 0.0,
    baselines: Mapping[str, float] | None = None,
    free_communication: bool = False,
) -> Prediction:
    """Predict one iteration of one replica on one device.

    Args:
        graph: what runs. A duration that stands in it holds, whatever `durations` says of its op.
        durations: of each of `graph.ops`; None where nothing is known.
        asynchronous: whether the host runs ahead of the device (a GPU).
        launch: seconds that the host spends on issuing an op of an asynchronous device, and on an
            op of its own that nobody timed.
        common: relative error that all ops share: how much the machine's speed varies.
        baselines: what other methods predict, by name, to be shown beside.
        free_communication: nodes that communicate take no time, whatever is known of them: the
            links of a cluster will say how long they take.

    Raises:
        InputError: an op has no duration; named, with the command that profiles it.
    """
    duration, low, high, source = _of_nodes(graph, durations, launch, free_communication)
    untimed = _untimed(graph, source)

    def makespan(times: Floats) -> float:
        return replay(graph, times, asynchronous=asynchronous, launch=launch).makespan

    schedule = replay(graph, duration, asynchronous=asynchronous, launch=launch)
    time = schedule.makespan
    ops = by_op(graph, duration)
    lanes = busy_lanes(graph, schedule)
    return Prediction(
        graph=graph,
        duration=duration,
        source=source,
        schedule=schedule,
        iteration_time=time,
        interval=iteration_interval(duration, low, high, _parts(graph, source), common, makespan),
        examples=_examples(graph),
        by_phase=by_phase(graph, duration),
        by_op=ops,
        by_place=by_place(graph, duration),
        lanes=lanes,
        coverage=coverage(source, duration),
        memory=memory_curve(graph),
        baselines={**(baselines or {}), "sum of durations": float(duration.sum())},
        largest=tuple(largest(graph, duration, source)),
        untimed=untimed,
        bottleneck=bottleneck(time, lanes, ops, asynchronous),
    )


def _of_nodes(
    graph: Graph, durations: Sequence[Estimate | None], launch: float, free_communication: bool
) -> tuple[Floats, Floats, Floats, Codes]:
    if len(durations) != len(graph.ops):
        raise InputError(f"{len(durations)} durations for a graph of {len(graph.ops)} distinct ops")
    nothing = (math.nan, math.nan, math.nan)
    rows = [nothing if each is None else (each.duration, each.low, each.high) for each in durations]
    value, low, high = np.array(rows, dtype=np.float64).reshape(-1, 3)[graph.op].T.copy()
    low, high = np.minimum(low, value), np.maximum(high, value)
    codes = [NONE if each is None else SOURCES.index(each.source) for each in durations]
    source = np.array(codes, dtype=np.int32)[graph.op]
    known = np.isfinite(graph.duration)
    for part in (value, low, high):
        part[known] = graph.duration[known]
    source[known] = RECORDED
    of_host = graph.resource == RESOURCES.index("host")
    missing = np.isnan(value)
    for part in (low, high, value):
        part[of_host & missing] = launch
    source[of_host & missing] = NONE
    if free_communication:
        communicates = graph.resource == RESOURCES.index("communication")
        for part in (low, high, value):
            part[communicates] = 0.0
        source[communicates] = RECORDED
    _refuse(graph, np.isnan(value))
    return value, low, high, source


def _refuse(graph: Graph, missing: npt.NDArray[np.bool_]) -> None:
    rows = np.flatnonzero(missing)
    if not len(rows):
        return
    names = list(dict.fromkeys(graph.ops[code].name for code in graph.op[rows].tolist()))
    if (graph.resource[rows] == RESOURCES.index("communication")).any():
        raise InputError(
            f"{len(rows)} nodes without a duration, among them communication ({names[0]}): over "
            "which links? --strategy with --cluster, or with --workers and --bandwidth, says it"
        )
    others = f" and {len(names) - 1} more op types" if len(names) > 1 else ""
    raise InputError(
        f"no timing of {names[0]}{others}, and no flops or bytes to estimate one from: "
        f"{profiling_command(graph)}"
    )


def profiling_command(graph: Graph) -> str:
    """Return the command that profiles the ops of a graph, as far as its origin is known."""
    model, batch = graph.provenance.get("model"), graph.provenance.get("batch")
    if model is None:
        return "profile it with paracosm profile ops, or give the graph durations"
    flags = [f"--model {model} --batch {batch}"]
    shape = graph.provenance.get("shape")
    if isinstance(shape, list | tuple):
        flags.append(f"--shape {'x'.join(map(str, shape))}")
    for option, usual in _USUAL.items():
        asked = graph.provenance.get(option, usual)
        if asked != usual:
            flags.append(_flag(option, asked))
    return f"paracosm profile ops {' '.join(flags)} --db DATABASE profiles it"


_USUAL: Mapping[str, str | bool | None] = {
    "classes": None,
    "dtype": "float32",
    "optimizer": "sgd",
    "foreach": False,
    "dropout": False,
    "train": True,
    "device": "cpu",
}
"""What options of a capture are where nobody gives them."""


def _flag(option: str, asked: Any) -> str:
    if isinstance(asked, bool):
        return f"--{option}" if asked else f"--no-{option}"
    return f"--{option} {asked}"


def _untimed(graph: Graph, source: Codes) -> tuple[str, ...]:
    codes = np.unique(graph.op[source == NONE]).tolist()
    return tuple(dict.fromkeys(graph.ops[code].name for code in codes))


def _parts(graph: Graph, source: Codes) -> Codes:
    """Return the part that errs together of every node: its op where measured, else all of its
    type."""
    types = {name: len(graph.ops) + i for i, name in enumerate({op.name: 0 for op in graph.ops})}
    of_type = np.array([types[op.name] for op in graph.ops], dtype=np.int32)
    return np.where(np.isin(source, MEASURED), graph.op, of_type[graph.op]).astype(np.int32)


def _examples(graph: Graph) -> int | None:
    examples = graph.provenance.get("examples")
    return examples if isinstance(examples, int) and examples > 0 else None


def iteration_interval(
    duration: Floats,
    low: Floats,
    high: Floats,
    part: Codes,
    common: float,
    makespan: Callable[[Floats], float],
) -> tuple[float, float]:
    """Return the seconds between which the iteration is thought to take.

    Args:
        duration, low, high: n seconds of nodes, and their intervals.
        part: n numbers: nodes of one number err together.
        common: relative error that all nodes share.
        makespan: replays durations and returns the time of the iteration.
    """
    base = makespan(duration)
    ends = []
    for end, factor in ((low, 1 - common), (high, 1 + common)):
        moved = np.unique(part[end != duration])
        gains = [makespan(np.where(part == each, end, duration)) - base for each in moved]
        if common > 0:
            gains.append(makespan(duration * max(factor, 0.0)) - base)
        ends.append(math.sqrt(sum(gain * gain for gain in gains)))
    return max(base - ends[0], 0.0), base + ends[1]

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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.errors import InputError
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, shapes_of
from paracosm.graphs.summary import memory_curve
from paracosm.profiling.durations import SOURCES
from paracosm.simulation.replay import Schedule, replay
from paracosm.timeline.analysis import largest_share
from paracosm.timeline.timeline import Labels, Timeline

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate


RECORDED, NONE = SOURCES.index("recorded"), SOURCES.index("none")
MEASURED = tuple(SOURCES.index(source) for source in ("exact", "recorded", "none", "kernel"))


def predict(
    graph: Graph,
    durations: Sequence[Estimate | None],
    *,
    asynchronous: bool = False,
    launch: float = 0.0,
    common: float = 0.0,
    baselines: Mapping[str, float] | None = None,
    free_communication: bool = False,
    page_faults: Floats | None = None,
) -> Prediction:
    """Predict one iteration of one replica on one device.

    Args:
        graph: what runs. A duration that stands in it holds, whatever `durations` says of its op.
        durations: of each of `graph.ops`; None where nothing is known.
        asynchronous: whether the host runs ahead of the device (a GPU).
        launch: seconds that the host spends on issuing an op of an asynchronous device, and on an
            op of its own without a timing.
        common: relative error common to all ops: the variation of the machine's speed.
        baselines: predictions of other methods, by name, for comparison.
        free_communication: nodes that communicate take no time, whatever is known of them: the
            links of a cluster will say how long they take.
        page_faults: n seconds that new memory costs each node beyond its duration.

    Raises:
        InputError: an op has no duration; named, with the command that profiles it.
    """
    duration, low, high, source = _of_nodes(graph, durations, launch, free_communication)
    if page_faults is not None:
        duration, low, high = (times + page_faults for times in (duration, low, high))
    untimed = [graph.ops[code].name for code in np.unique(graph.op[source == NONE]).tolist()]

    def makespan(times: Floats) -> float:
        return replay(graph, times, asynchronous=asynchronous, launch=launch).makespan

    schedule = replay(graph, duration, asynchronous=asynchronous, launch=launch)
    time = schedule.makespan
    ops = _summed([op.name for op in graph.ops], graph.op, duration)
    places = [".".join(name.split(".")[:DEPTH]) or ELSEWHERE for name in graph.names]
    lanes = _busy_lanes(graph, schedule)
    return Prediction(
        graph=graph,
        duration=duration,
        source=source,
        schedule=schedule,
        iteration_time=time,
        interval=_interval(duration, low, high, _parts(graph, source), common, makespan),
        examples=graph.examples,
        by_phase=_by_phase(graph, duration),
        by_op=ops,
        by_place=_summed(places, graph.name, duration),
        lanes=lanes,
        coverage=_coverage(source, duration),
        memory=memory_curve(graph),
        baselines={**(baselines or {}), "sum of durations": float(duration.sum())},
        largest=_largest(graph, duration, source),
        untimed=tuple(dict.fromkeys(untimed)),
        bottleneck=bottleneck(time, lanes, ops, asynchronous),
    )


def durations_of_nodes(
    graph: Graph,
    durations: Sequence[Estimate | None],
    *,
    launch: float = 0.0,
    free_communication: bool = False,
) -> Floats:
    """Return the seconds of each node as `predict` has them, which takes a fraction of its time.

    Raises:
        InputError: an op has no duration.
    """
    return _of_nodes(graph, durations, launch, free_communication)[0]


def _of_nodes(
    graph: Graph, durations: Sequence[Estimate | None], launch: float, free_communication: bool
) -> tuple[Floats, Floats, Floats, Codes]:
    if len(durations) != len(graph.ops):
        raise InputError(f"{len(durations)} durations for a graph of {len(graph.ops)} distinct ops")
    nothing = (math.nan, math.nan, math.nan)
    rows = [
        nothing if duration is None else (duration.duration, duration.low, duration.high)
        for duration in durations
    ]
    value, low, high = np.array(rows, dtype=np.float64).reshape(-1, 3)[graph.op].T.copy()
    low, high = np.minimum(low, value), np.maximum(high, value)
    codes = [NONE if duration is None else SOURCES.index(duration.source) for duration in durations]
    source = np.array(codes, dtype=np.int32)[graph.op]
    known = np.isfinite(graph.duration)
    for part in (value, low, high):
        part[known] = graph.duration[known]
    source[known] = RECORDED
    of_host = (graph.resource == RESOURCES.index("host")) & np.isnan(value)
    for part in (low, high, value):
        part[of_host] = launch
    source[of_host] = NONE
    if free_communication:
        communicates = graph.resource == RESOURCES.index("communication")
        for part in (low, high, value):
            part[communicates] = 0.0
        source[communicates] = RECORDED
    _refuse(graph, np.isnan(value))
    return value, low, high, source


def _refuse(graph: Graph, missing: Bools) -> None:
    rows = np.flatnonzero(missing)
    if not len(rows):
        return
    names = list(dict.fromkeys(graph.ops[code].name for code in graph.op[rows].tolist()))
    if (graph.resource[rows] == RESOURCES.index("communication")).any():
        raise InputError(
            f"{len(rows)} nodes without a duration, among them communication ({names[0]}): links "
            "not specified: add --strategy with --cluster, or with --workers and --bandwidth"
        )
    others = f" and {len(names) - 1} more op types" if len(names) > 1 else ""
    raise InputError(
        f"no timing of {names[0]}{others}, and no flops or bytes to estimate one from: "
        f"{_profiling_command(graph)}"
    )


def _profiling_command(graph: Graph) -> str:
    model, batch = graph.provenance.get("model"), graph.provenance.get("batch")
    if model is None:
        return "profile it with paracosm profile ops, or give the graph durations"
    flags = [f"--model {model} --batch {batch}"]
    shape = graph.provenance.get("shape")
    if isinstance(shape, list | tuple):
        flags.append(f"--shape {'x'.join(map(str, shape))}")
    for option in CAPTURED:
        usual = getattr(CaptureOptions, option)
        if (asked := graph.provenance.get(option, usual)) != usual:
            no = "no-" if asked is False else ""
            flags.append(f"--{no}{option}" + ("" if isinstance(asked, bool) else f" {asked}"))
    return f"paracosm profile ops {' '.join(flags)} --db DATABASE profiles it"


CAPTURED = ("classes", "dtype", "optimizer", "foreach", "dropout", "train", "device")
"""Options of a capture that the command names where they are not the usual ones."""


def err_alone(source: str) -> bool:
    """Whether an op with a duration of this source errs apart from others of its type."""
    return SOURCES.index(source) in MEASURED


def _parts(graph: Graph, source: Codes) -> Codes:
    """Return which nodes err together: those of an op where it was measured, else of a type."""
    types = {name: len(graph.ops) + i for i, name in enumerate({op.name: 0 for op in graph.ops})}
    of_type = np.array([types[op.name] for op in graph.ops], dtype=np.int32)
    return np.where(np.isin(source, MEASURED), graph.op, of_type[graph.op]).astype(np.int32)


def _interval(
    duration: Floats,
    low: Floats,
    high: Floats,
    part: Codes,
    common: float,
    makespan: Callable[[Floats], float],
) -> tuple[float, float]:
    """Nodes of one number in `part` err together; all share the relative error `common`."""
    base = makespan(duration)
    ends = []
    for end, factor in ((low, 1 - common), (high, 1 + common)):
        moved = np.unique(part[end != duration])
        gains = [
            makespan(np.where(part == moved_part, end, duration)) - base for moved_part in moved
        ]
        if common > 0:
            gains.append(makespan(duration * max(factor, 0.0)) - base)
        ends.append(math.sqrt(sum(gain * gain for gain in gains)))
    return max(base - ends[0], 0.0), base + ends[1]


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one distinct op adds to an iteration."""

    op: str  # its name
    shapes: str  # of its tensors, in short
    count: int  # nodes
    time: float  # seconds of all of them
    share: float  # of the time of all nodes
    source: str  # how its duration is known, one of `SOURCES`


@dataclass(frozen=True, eq=False)
class Prediction:
    """One iteration of one replica on one device."""

    graph: Graph  # what runs
    duration: Floats  # n seconds of its nodes on their own lanes
    source: Codes  # n indices into `SOURCES`: how each is known
    schedule: Schedule  # when each runs
    iteration_time: float  # seconds
    interval: tuple[float, float]  # bounds of the 90 % interval, seconds; see above
    examples: int | None  # of one iteration; None where the graph does not say
    by_phase: Mapping[str, float]  # seconds of the nodes, summed
    by_op: Mapping[str, float]  # the same, the largest first
    by_place: Mapping[str, float]  # the same, the largest first
    lanes: Mapping[str, float]  # seconds that each lane is busy: "host", "compute", ...
    coverage: Mapping[str, float]  # share of the nodes' time by those of `SOURCES` that occur
    memory: Ints  # n bytes that are held while each node runs
    baselines: Mapping[str, float]  # seconds: "roofline", "sum of warm timings", "sum of durations"
    largest: tuple[Contribution, ...]  # the distinct ops that take longest
    untimed: tuple[str, ...]  # names of ops of the host without a timing; they count as a launch
    bottleneck: str  # one sentence

    @property
    def examples_per_second(self) -> float | None:
        """Throughput; None where the graph does not say how many examples an iteration has."""
        if self.examples is None or self.iteration_time == 0:
            return None
        return self.examples / self.iteration_time

    @property
    def peak_memory(self) -> int | None:
        """Bytes; None where the graph knows of no memory."""
        if not self.graph.resident and not len(self.graph.storages.size):
            return None
        return int(self.memory.max()) if len(self.memory) else None


ELSEWHERE = "elsewhere"  # place of nodes that belong to no module: the loss, the optimizer
LARGEST = 10  # distinct ops that are listed
DEPTH = 2  # parts of a place's name that count: "layer1.0" of "layer1.0.conv1"


def _by_phase(graph: Graph, duration: Floats) -> dict[str, float]:
    sums = np.bincount(graph.phase, duration, minlength=len(PHASES))
    seen = np.unique(graph.phase)
    return {phase: float(sums[code]) for code, phase in enumerate(PHASES) if code in seen}


def _busy_lanes(graph: Graph, schedule: Schedule) -> dict[str, float]:
    """The host is busy while it issues, too."""
    span = schedule.end - schedule.begin
    lanes = {"host": float((schedule.issued - schedule.issue).sum())}
    for code, resource in enumerate(RESOURCES):
        chosen = (graph.resource == code) & ~schedule.on_host
        if chosen.any():
            lanes[resource] = float(span[chosen].sum())
    return lanes


def _coverage(source: Codes, duration: Floats) -> dict[str, float]:
    total = float(duration.sum())
    sums = np.bincount(source, duration, minlength=len(SOURCES))
    shares = {name: float(sums[code]) / total for code, name in enumerate(SOURCES) if total > 0}
    return {name: share for name, share in shares.items() if share > 0}


def _largest(graph: Graph, duration: Floats, source: Codes) -> tuple[Contribution, ...]:
    sums = np.bincount(graph.op, duration, minlength=len(graph.ops))
    counts, total = graph.count(), float(duration.sum())
    order = sorted(range(len(graph.ops)), key=lambda code: (-sums[code], code))
    first = {int(code): row for row, code in reversed(list(enumerate(graph.op.tolist())))}
    return tuple(
        Contribution(
            op=graph.ops[code].name,
            shapes=", ".join(shapes_of(graph.ops[code].arguments)),
            count=int(counts[code]),
            time=float(sums[code]),
            share=float(sums[code]) / total,
            source=SOURCES[source[first[code]]],
        )
        for code in order[:LARGEST]
        if sums[code] > 0
    )


def _summed(names: Sequence[str], codes: Codes, duration: Floats) -> dict[str, float]:
    sums = np.bincount(codes, duration, minlength=len(names)).tolist()
    total: dict[str, float] = {}
    for code in np.unique(codes).tolist():
        total[names[code]] = total.get(names[code], 0.0) + sums[code]
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


WAITS = 0.1  # share of the iteration above which waiting is the bottleneck
NOTHING = "Nothing takes any time."
LAUNCHING = (
    "Launching: the device is idle {share:.0%} of the iteration, because the host issues ops more "
    "slowly than it computes"
)


def bottleneck(
    iteration_time: float, lanes: Mapping[str, float], ops: Mapping[str, float], asynchronous: bool
) -> str:
    """Name the bottleneck of the iteration; lanes and ops in seconds, `ops` the largest first."""
    if not iteration_time > 0 or not ops:
        return NOTHING
    working = "compute" if asynchronous and "compute" in lanes else "host"
    idle = 1 - lanes[working] / iteration_time
    longest, _ = largest_share(lanes, iteration_time)
    if idle > WAITS and longest not in (working, "host"):
        limit = f"{_LANES[longest]}: the device waits {idle:.0%} of the iteration; "
    elif idle > WAITS and working == "compute":
        limit = f"{LAUNCHING.format(share=idle)}; "
    else:
        limit = "Computing: "
    return f"{limit}{longest_op(ops)}."


_LANES = {"communication": "Communication", "memory": "Copies"}


def longest_op(ops: Mapping[str, float]) -> str:
    name, time = next(iter(ops.items()))
    return f"{name} takes {time / sum(ops.values()):.0%} of the ops' time"


def timeline_of(prediction: Prediction) -> Timeline:
    """Return the spans of every node, named by its op, and the memory as a counter.

    What the host carries out is on the lane "host"; on a synchronous device, whose host computes,
    on "compute". What the host issues is on both its lane and that of the resource.
    """
    graph, schedule = prediction.graph, prediction.schedule
    names = [op.name for op in graph.ops]
    words = [*names, *(f"launch {name}" for name in names)]
    launched = ~schedule.on_host & (schedule.issued > schedule.issue)[~schedule.on_host].any()
    # Of each node the launch, then the op.
    host = np.full_like(graph.resource, RESOURCES.index("host"))
    timeline = Timeline()
    timeline.extend(
        "device",
        Labels(np.column_stack([host, graph.resource]), RESOURCES),
        Labels(np.add.outer(graph.op, [len(names), 0]), words),
        np.column_stack([schedule.issue, schedule.begin]),
        np.column_stack([schedule.issued, schedule.end]),
        where=np.column_stack([launched, np.ones_like(launched)]),
    )
    timeline.extend_counters("device", "memory", schedule.begin, prediction.memory)
    return timeline

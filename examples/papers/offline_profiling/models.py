"""Table 2: whole iterations, measured and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grids import Grids
from in_situ import time_in_situ
from iteration_accuracy import Accuracy, accuracy, from_others
from kept import Kept, Progress, complete
from plan import MODELS, Plan

from paracosm.graphs import Graph
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.prediction.iteration import predict
from paracosm.profiling import ModelProfile, OpTiming, Profile, Settings, profile_model
from paracosm.profiling.samples import at_one_speed, usual_probe

__all__ = [
    "NEIGHBOUR",
    "PAPER",
    "Neighbour",
    "accuracies",
    "graphs_of",
    "measure_models",
    "neighbour",
]

PAPER = {
    "vgg19, batch 64, 3x32x32": (0.20338, 0.19966),
    "resnet50, batch 64, 3x32x32": (0.28256, 0.27747),
    "resnet152, batch 64, 3x32x32": (0.63881, 0.62931),
}
"""Seconds that TensorFlow's timeline took, and that the paper's simulation gave, by what a model is
called with its batch and shape."""

NEIGHBOUR = ("resnet152", "resnet50")


@dataclass(frozen=True)
class Neighbour:
    """A model predicted from the timings of another one alone.

    Attributes:
        model, other: names.
        predicted: seconds of an iteration.
        error: relative.
        exact: share of the time of ops that both have.
    """

    model: str
    other: str
    predicted: float
    error: float
    exact: float


def measure_models(kept: Kept, plan: Plan, graphs: Mapping[str, Graph]) -> dict[str, ModelProfile]:
    """Profile every model, its real iterations between the passes; or read it back.

    Half of the time is shared equally, half by the flops of the distinct ops: large ones take long.
    """
    flops = {name: sum(op.flops for op in graph.ops) for name, graph in graphs.items()}
    total = sum(flops.values())
    found = {}
    for options in plan.models:
        share = (1 / len(graphs) + flops[options.model] / total) / 2
        budget = MODELS * plan.budget * share
        found[options.model] = _measure(kept, options, graphs[options.model], budget)
    return found


def _measure(kept: Kept, options: CaptureOptions, graph: Graph, budget: float) -> ModelProfile:

    def work(progress: Progress) -> dict[str, Any]:
        done = profile_model(
            options,
            Settings(budget=budget),
            kept.database,
            progress=progress,
            graph=graph,
            in_situ=time_in_situ,
        )
        complete(done.profile)
        return {
            "timings": [timing.key for timing in done.profile.timings],
            "iteration": "" if done.iteration is None else done.iteration.key,
            "samples": done.samples,
            "in_situ": done.in_situ,
            "faults": done.faults,
            "session": done.profile.session,
            "probes": done.profile.probes,
            "refused": {f"{o.name} {o.arguments}": w for o, w in done.profile.refused.items()},
        }

    stored = kept.part(f"table 2, {options.model}", work)
    iterations = {iteration.key: iteration for iteration in kept.database.iterations()}
    return ModelProfile(
        graph,
        Profile(
            kept.environment,
            stored["session"],
            kept.timings(stored["timings"]),
            {},
            tuple(stored["probes"]),
        ),
        iterations.get(stored["iteration"]),
        tuple(stored["samples"]),
        tuple(stored["in_situ"]),
        stored["faults"],
    )


def accuracies(kept: Kept, done: dict[str, ModelProfile], grids: Grids) -> dict[str, Accuracy]:
    """Compare every model's iteration with its predictions."""
    found = {}
    for name, each in done.items():
        others = [t for o, other in done.items() if o != name for t in other.profile.timings]
        found[name] = _accuracy(kept, name, each, [*grids.all, *others])
    return found


def _accuracy(kept: Kept, name: str, done: ModelProfile, others: Sequence[OpTiming]) -> Accuracy:
    stored = kept.part(f"predicting {name}", lambda _: asdict(accuracy(done, others)))
    interval = stored.pop("interval")
    return Accuracy(**stored, interval=None if interval is None else (interval[0], interval[1]))


def neighbour(
    kept: Kept, done: dict[str, ModelProfile], results: dict[str, Accuracy]
) -> Neighbour | None:
    """Predict ResNet-152 from ResNet-50's timings; None where one of them was not profiled."""
    model, other = NEIGHBOUR
    if model not in done or other not in done:
        return None

    def work(_: Progress) -> dict[str, Any]:
        graph = done[model].graph
        probe = usual_probe(done[model].profile.timings)
        timings = at_one_speed(done[other].profile.timings, probe)
        prediction = predict(graph, from_others(graph, timings))
        return asdict(
            Neighbour(
                model,
                other,
                prediction.iteration_time,
                results[model].error(prediction.iteration_time),
                prediction.coverage.get("exact", 0.0),
            )
        )

    return Neighbour(**kept.part(f"predicting {model} from {other}", work))


def graphs_of(plan: Plan) -> dict[str, Graph]:
    """Capture the models' training steps."""
    return {options.model: capture(options) for options in plan.models}

"""Carry out what a configuration asks for, and say what it came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError, MissingExtraError, require
from paracosm.graphs import Graph, fingerprint, load_graph
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.environment import choose_environment
from paracosm.prediction.lookup import Found, find_durations
from paracosm.prediction.predict import predict
from paracosm.prediction.summary import summarise
from paracosm.prediction.timeline_of import timeline_of
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import IterationTiming
from paracosm.timeline import Timeline
from paracosm.units import format_duration

__all__ = ["PredictionRun", "run_prediction"]

Progress = Callable[[int, float | None], None]
Announce = Callable[[str], None]

LAUNCH = 5e-6  # seconds; of a CUDA kernel, where neither the user nor the database says


@dataclass(frozen=True)
class PredictionRun:
    """A carried out prediction.

    Attributes:
        summary: the key numbers.
        timeline: the spans of every node; None for op latencies, which are many models.
    """

    summary: dict[str, Any]
    timeline: Timeline | None


def run_prediction(
    config: PredictConfig,
    seed: int,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> PredictionRun:
    """Predict what a configuration asks for.

    Args:
        config: what to predict.
        seed: of what is profiled and fitted.
        progress: called while new ops are profiled, with how many are done.
        announce: told beforehand what is worth knowing.

    Raises:
        InputError: for what cannot be used, or has no timing.
        MissingExtraError: PyTorch is needed and not installed.
    """
    if config.op_latencies is not None:
        from paracosm.prediction.op_latencies.summary import summarise_folder

        return PredictionRun(summarise_folder(config.op_latencies), None)
    say = announce or (lambda sentence: None)
    here = _here(config)
    environment = _environment(config, here)
    differences = _differences(here, environment)
    if differences:
        say(f"Timings of {environment}: {differences}.")
    graph, captured_for = _graph(config, environment)
    if captured_for != environment.device:
        say(f"Captured for {captured_for}: PyTorch has no CUDA here, some ops may be others there.")
    found = _durations(config, graph, environment, here == environment, seed, progress)
    if found.profiled:
        say(f"{found.profiled} ops were profiled here and added to {config.db}.")
    asynchronous = environment.device != "cpu"
    launch, whence = _launch(config, found, asynchronous)
    prediction = predict(
        graph,
        found.durations,
        asynchronous=asynchronous,
        launch=launch,
        common=found.common,
        baselines=found.baselines,
    )
    summary = summarise(prediction, _measured(config, graph, environment), found.probe)
    summary |= {
        "model": str(config.graph) if config.model is None else config.model,
        "batch": prediction.examples,
        "environment": str(environment),
        "differences": differences,
        "device": environment.device,
        "captured_for": captured_for,
        "cache": config.cache,
        "profiled": found.profiled,
        "not_profiled": found.refused,
        "machine_spread": found.common,
        "launch": launch,
        "durations": _origins(config, prediction.coverage, whence),
    }
    return PredictionRun(summary, timeline_of(prediction))


def _here(config: PredictConfig) -> Environment | None:
    """Return this machine's environment; None where another is meant and nobody can say."""
    from paracosm.profiling.here import environment_here

    try:
        return environment_here(config.device, config.threads)
    except (InputError, MissingExtraError):
        if config.hardware is None:
            raise
        return None


def _environment(config: PredictConfig, here: Environment | None) -> Environment:
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(config.db, readonly=True) as database:
        held = [(environment, count) for environment, count in database.environments() if count]
    return choose_environment(held, here, config.hardware, str(config.db))


def _differences(here: Environment | None, environment: Environment) -> str:
    """Say how the environment of the timings differs from this machine's."""
    if here is None or here.hardware != environment.hardware:
        return "not this machine"
    differences = here.differences(environment)
    return f"this machine with {', '.join(differences)}" if differences else ""


def _graph(config: PredictConfig, environment: Environment) -> tuple[Graph, str]:
    """Return the graph, and the type of device that it was captured for.

    A model is captured for the device of the timings; where PyTorch has no such device here, for a
    CPU.
    """
    if config.graph is not None:
        graph = load_graph(config.graph)
        return graph, str(graph.provenance.get("device", environment.device))
    from paracosm.graphs.capture import capture

    device = environment.device
    torch = require("torch", "torch", "capturing a model")
    if device == "cuda" and not torch.cuda.is_available():
        device = "cpu"
    return capture(config.options(device)), device


def _durations(
    config: PredictConfig,
    graph: Graph,
    environment: Environment,
    is_here: bool,
    seed: int,
    progress: Progress | None,
) -> Found:
    new_ops = config.new_ops or ("profile" if is_here else "estimate")
    if not is_here and (config.exact or new_ops == "profile"):
        raise InputError(
            f"{'exact' if config.exact else 'new_ops'}: ops of {environment.hardware} can be "
            "profiled only there: --new-ops estimate goes by flops and bytes"
        )
    return find_durations(
        graph,
        config.db,
        environment,
        cache=config.cache,
        new_ops=new_ops,
        exact=config.exact,
        estimator=config.estimator,
        seed=seed,
        progress=None if progress is None else lambda done, total: progress(done, None),
    )


def _launch(config: PredictConfig, found: Found, asynchronous: bool) -> tuple[float, str]:
    """Return what the host spends on issuing an op, and how that is known."""
    if not asynchronous:
        if config.launch is not None:
            raise InputError("launch: no effect on a CPU, leave out: timings of ops include it")
        return 0.0, ""
    if config.launch is not None:
        return config.launch, f"given: {format_duration(config.launch)}"
    if found.launch is not None:
        return found.launch, f"the shortest timing of an op: {format_duration(found.launch)}"
    return LAUNCH, f"assumed: {format_duration(LAUNCH)}"


def _measured(
    config: PredictConfig, graph: Graph, environment: Environment
) -> IterationTiming | None:
    """Return the newest measurement of this very iteration in this environment."""
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(config.db, readonly=True) as database:
        known = database.iterations(fingerprint(graph), environment)
    return max(known, key=lambda timing: timing.measured_at, default=None)


def _origins(config: PredictConfig, coverage: Mapping[str, float], launch: str) -> dict[str, str]:
    """Say how the durations were obtained."""
    names = {
        "exact": f"measured, data {config.cache}",
        "interpolated": "interpolated between measured ones",
        "estimated": "estimated from others of their type",
        "unknown": "estimated from flops and bytes",
        "recorded": "as recorded in the graph",
    }
    found = {source: names[source] for source in coverage if source in names}
    return found | ({"launching an op": launch} if launch else {})

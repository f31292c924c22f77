"""The answer of a run in one sentence."""

from __future__ import annotations

from paracosm.results import (
    EmulationSummary,
    IterationSummary,
    JobSummary,
    OpLatenciesSummary,
    ProfileSummary,
    RelaxationSummary,
    ReplaySummary,
    Summary,
    ThroughputSummary,
    TrainingSummary,
    TuningSummary,
)
from paracosm.units import format_duration

__all__ = ["answer"]


def answer(summary: Summary) -> str:
    """Return what a run came to; of one that is not finished, that it is not."""
    if summary.status == "unfinished":
        return "The run is not finished: it is still going on, or it was killed."
    match summary:
        case TrainingSummary():
            return _training(summary)
        case RelaxationSummary():
            where = f"{summary.processors:,} processor{_s(summary.processors)}"
            return (
                f"{summary.method} on {where} {summary.status} after {summary.sweeps:,.1f} sweeps, "
                f"{format_duration(summary.virtual_time)} of virtual time."
            )
        case IterationSummary():
            return (
                f"An iteration of {summary.model} takes {format_duration(summary.iteration_time)} "
                f"({format_duration(summary.interval.low)} to "
                f"{format_duration(summary.interval.high)}). {summary.bottleneck}"
            )
        case JobSummary():
            rate = summary.examples_per_second
            speed = "" if rate is None else f", {rate:,.1f} examples/s"
            return (
                f"With {summary.workers:,} worker{_s(summary.workers)} ({summary.strategy}) an "
                f"iteration takes {format_duration(summary.iteration_time)}{speed}. "
                f"{summary.bottleneck}"
            )
        case ThroughputSummary():
            return (
                f"{summary.workers:,} worker{_s(summary.workers)} make "
                f"{summary.steps_per_second:.4g} steps/s. {summary.bottleneck}"
            )
        case OpLatenciesSummary():
            return (
                f"{summary.models:,} model{_s(summary.models)} predicted, "
                f"{summary.mean_error:.1%} off in the mean."
            )
        case EmulationSummary():
            time = summary.iteration_time
            what = summary.no_iteration_time or "no iteration was measured"
            if time is not None:
                what = f"an iteration takes {format_duration(time.median)}"
            return f"In a world of {summary.world_size:,}, {what} ({summary.status})."
        case ReplaySummary() if summary.replayed is not None:
            last = summary.together or [summary.replayed, *summary.what_ifs][-1]
            change = "" if last is summary.replayed else f", {last.what_if}"
            return (
                f"An iteration takes {format_duration(summary.iteration_time)} as traced, and "
                f"{format_duration(last.iteration_time)} replayed{change}. {last.bottleneck}"
            )
        case ProfileSummary():
            real = summary.iteration_time
            time_text = "" if real is None else f"; an iteration takes {format_duration(real)}"
            return f"{summary.distinct_ops:,} ops, {summary.timings:,} timings{time_text}."
        case TuningSummary():
            values = ", ".join(f"{name}={summary.best[name]:g}" for name in summary.space)
            ratio = summary.best["in_search"]["time_over_fault_free"]["median"]
            return (
                f"Best of {summary.trials:,} trials: {values}, {ratio:.3g} times as long as "
                "without faults."
            )
    return f"The run ended as: {summary.status}."


def _training(summary: TrainingSummary) -> str:
    learnt = ""
    if summary.final_accuracy is not None:
        learnt = f", test accuracy {summary.final_accuracy:.1%}"
    elif summary.final_loss is not None:
        learnt = f", training loss {summary.final_loss:.4g}"
    return (
        f"{summary.algorithm} with {summary.workers:,} worker{_s(summary.workers)}: "
        f"{summary.updates:,} updates in {format_duration(summary.virtual_time)} of virtual "
        f"time{learnt} ({summary.status})."
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"

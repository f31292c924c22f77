"""The answer of a plan in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from paracosm.results import (
    IterationSummary,
    JobSummary,
    Planned,
    PlannedDesign,
    PlannedStrategy,
    PlanSummary,
    StrategyPlanSummary,
)
from paracosm.units import format_between, format_duration, format_number

SHOWN = 3  # designs whose best values are named where none reached the target

METRICS = {"loss": "training loss", "test_loss": "test loss", "accuracy": "accuracy"}


def design_name(design: PlannedDesign) -> str:
    """Return "8 workers, ssp(slack=3), lr 0.1"."""
    workers = "1 worker" if design.workers == 1 else f"{design.workers:,} workers"
    return f"{workers}, {design.algorithm}, lr {format_number(design.lr)}"


def target_name(summary: PlanSummary) -> str:
    """Return "test loss 0.1"."""
    metric, _, value = summary.target.split()
    return f"{METRICS.get(metric, metric)} {value}"


def cost_text(summary: PlanSummary | StrategyPlanSummary, cost: float) -> str:
    """Return a cost with its currency, or in worker-hours."""
    digits = f"{cost:.3g}" if cost < 999.5 else f"{cost:,.0f}"
    if summary.price is None:
        return f"{digits} worker-hours"
    if not summary.currency:
        return digits
    is_sign = not summary.currency.isalpha()
    return f"{summary.currency}{digits}" if is_sign else f"{digits} {summary.currency}"


def plan_sentence(summary: PlanSummary) -> str:
    """Name the fastest and the cheapest design, or state that none reached the target."""
    target = target_name(summary)
    if summary.fastest is None:
        return f"No design reaches {target}{_best_values(summary)}"
    target = f"{target[0].upper()}{target[1:]}"
    best = summary.designs[summary.fastest]
    parts = [f"{target} is reached soonest with {design_name(best)}: {_time(best)}"]
    reference = None if summary.reference is None else summary.designs[summary.reference]
    if reference is not None and reference is not best and best.speedup and best.relative_cost:
        other = "one worker" if reference.workers == 1 else f"{reference.workers:,} workers"
        parts.append(
            f", {best.speedup:.2g} times as fast as {other} at {best.relative_cost:.2g} times its "
            "cost"
        )
    parts.append(_not_apart(summary, summary.as_fast, "time"))
    cheapest = None if summary.cheapest is None else summary.designs[summary.cheapest]
    if cheapest is best:
        parts.append("; nothing is cheaper")
    elif cheapest is not None and cheapest.cost is not None:
        cost = cost_text(summary, cheapest.cost)
        parts.append(f"; cheapest: {design_name(cheapest)}, {_time(cheapest)}, {cost}")
    parts.append(_not_apart(summary, summary.as_cheap, "cost"))
    return f"{''.join(parts)}."


def step_words(summary: IterationSummary | JobSummary | StrategyPlanSummary) -> str:
    """Return ", in bfloat16 with adamw", what a step computes with, as far as it is known."""
    words = "" if summary.dtype is None else f", in {summary.dtype}"
    match summary.optimizer:
        case None:
            return words
        case "none":
            return f"{words}, without an update"
    return f"{words} with {summary.optimizer}" if words else f", with {summary.optimizer}"


def _not_apart(summary: PlanSummary, designs: Sequence[int] | None, what: str) -> str:
    """Return " (5 seeds do not tell it apart by cost from 4 workers, asgd, lr 0.1)"."""
    if not designs:
        return ""
    names = [design_name(summary.designs[number]) for number in designs]
    if len(names) > SHOWN:
        names = [*names[:SHOWN], f"{len(names) - SHOWN} more"]
    joined = f"{'; '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return f" ({summary.seeds} seeds do not tell it apart by {what} from {joined})"


def strategy_plan_sentence(summary: StrategyPlanSummary) -> str:
    """Name the fastest strategy, what limits it, and the cheapest one."""
    best, cheapest = summary.designs[summary.fastest], summary.designs[summary.cheapest]
    sentence = (
        f"{rounded_in_words(summary.tokens)} tokens of {summary.model} take "
        f"{long_time(best.time)} on "
        f"{best.workers:,} x {summary.hardware}, for {cost_text(summary, best.cost)}"
        f"{step_words(summary)}: "
        f"{best.strategy}, micro-batches of {best.micro_batch}; most of the time is {best.limit}"
    )
    if cheapest is best:
        return f"{sentence}. Nothing is cheaper."
    return (
        f"{sentence}. Cheapest on {_workers(cheapest)}: {cost_text(summary, cheapest.cost)}, "
        f"{long_time(cheapest.time)}."
    )


def _workers(design: PlannedStrategy) -> str:
    return "1 worker" if design.workers == 1 else f"{design.workers:,} workers"


def rounded_in_words(number: float) -> str:
    """Return "1 trillion", "8.03 billion", "4,096"."""
    for name, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:,.0f}"


def long_time(seconds: float) -> str:
    """Return a duration such as "12.3 days" or "3.2 h"."""
    for unit, length in (("years", 365.25 * 86400.0), ("days", 86400.0), ("h", 3600.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.3g} {unit}"
    return format_duration(float(f"{seconds:.3g}"))


def _time(design: PlannedDesign) -> str:
    """Return "41 s (80 % of seeds within 37 to 46 s)"."""
    time = design.time
    if time.median is None:
        return "never"
    if design.seeds < 2 or time.low is None:
        return seconds_or_never(time.median)
    median, within = interval_of(time)
    low, high = within.split(" to ")
    if low.split()[-1] == high.split()[-1]:
        within = f"{low.split()[0]} to {high}"
    share = "" if design.reached == 1 else f", {design.reached:.0%} of seeds reached it"
    return f"{median} (80 % of seeds within {within}{share})"


def interval_of(time: Planned) -> tuple[str, str]:
    """Return the median and the interval of a time to the target as texts."""
    low, median, high = (
        inf if each is None else each for each in (time.low, time.median, time.high)
    )
    return format_between(low, median, high, seconds_or_never)


def seconds_or_never(seconds: float | None) -> str:
    """Return a time to the target, to three digits."""
    if seconds is None or seconds == inf:
        return "never"
    return format_duration(float(f"{seconds:.3g}"))


def _best_values(summary: PlanSummary) -> str:
    """Return ": best 0.12 (4 workers, asgd, lr 0.1), ...; try ..."."""
    known = [design for design in summary.designs if design.best is not None]
    if not known:
        return f" ({summary.status}: no run is done)."
    sign = -1.0 if ">=" in summary.target else 1.0
    known.sort(key=lambda design: sign * (design.best or 0.0))
    values = ", ".join(f"{design.best:.4g} ({design_name(design)})" for design in known[:SHOWN])
    return f": best {values}; {_advice(summary, known)}."


def _advice(summary: PlanSummary, ordered: list[PlannedDesign]) -> str:
    why = {design.verdict for design in summary.designs}
    rates = sorted({design.lr for design in summary.designs})
    best = ordered[0]
    if summary.status == "interrupted":
        return "the plan was interrupted: the same command resumes it"
    if why <= {"diverged", "learns nothing"}:
        return f"try lower learning rates: --lr {format_number(rates[0] / 10)}"
    hints = [f"--updates {4 * summary.most_updates}"]
    if len(rates) > 1 and best.lr == rates[-1]:
        hints.append(f"higher learning rates (--lr {format_number(2 * best.lr)})")
    if len(rates) > 1 and best.lr == rates[0]:
        hints.append(f"lower learning rates (--lr {format_number(best.lr / 2)})")
    return f"try {_or([*hints, 'an easier target'])}"


def _or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last

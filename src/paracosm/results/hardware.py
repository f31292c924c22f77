"""Several kinds of hardware side by side, each with its software: the fastest and the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paracosm.results.comparison import runs_side_by_side
from paracosm.results.summaries import MeasuredRun
from paracosm.results.view import Run, Trials

NONE_FITS = (
    "The job fits into memory on none of the hardware: take a smaller --batch, more --workers or "
    "--strategy auto, which looks for what fits."
)

COMPARED = ("hardware", "stack")
"""Arguments that make a comparison of hardware of several runs."""


@dataclass(frozen=True)
class Offer:
    """What could be had."""

    devices: int
    hardware: str
    stack: str  # the software that runs on it
    speed: float  # the more, the faster
    fast: str  # the speed in words: "1,234,567 tokens/s"
    cost: float | None  # None without prices, by which devices differ
    cheap: str  # the cost in words: "0.21 USD a million tokens"


def compares_hardware(trials: Trials) -> bool:
    """Whether several runs differ in their hardware or its software."""
    return any(name in trials.variables for name in COMPARED)


def hardware_side_by_side(runs: Sequence[Run], *derived: str) -> Trials:
    """Return runs as trials. Where they compare hardware, without its price and what else is
    `derived` from it."""
    trials = runs_side_by_side(runs)
    if not compares_hardware(trials):
        return trials
    left_out = {"price", *derived}
    return replace(
        trials,
        runs=[
            replace(trial, varied={n: v for n, v in trial.varied.items() if n not in left_out})
            for trial in trials.runs
        ],
    )


def best_offers(offers: Sequence[Offer], unfit: int = 0) -> str | None:
    """Name the fastest and, by their prices, the cheapest of several; None without any.

    So many besides do not fit into memory.
    """
    if not offers:
        return NONE_FITS if unfit else None
    count = len(offers) + unfit
    end = f" {unfit} of {count} {'does' if unfit == 1 else 'do'} not fit." if unfit else ""
    first, *rest = sorted(offers, key=lambda offer: -offer.speed)
    others = [
        offer for offer in rest if (offer.hardware, offer.stack) != (first.hardware, first.stack)
    ]
    priced = [offer for offer in offers if offer.cost is not None]
    cheapest = min(priced, key=lambda offer: offer.cost or 0.0, default=None)
    several = len({offer.stack for offer in offers}) > 1

    def name(offer: Offer) -> str:
        devices = f"{offer.devices:,} x {offer.hardware}"
        return f"{devices} by {offer.stack}" if several else devices

    begin = f"{name(first)} is" if several else f"By {first.stack}, {name(first)} is"
    also = "fastest and cheapest" if cheapest is first else "fastest"
    text = f"{begin} {also}: {first.fast}"
    if others and others[0].speed > 0:
        text += f", {first.speed / others[0].speed:.3g} times as fast as {name(others[0])}"
    if cheapest is None or cheapest is first:
        return f"{text}, for {first.cheap}.{end}"
    return f"{text}, for {first.cheap}. Cheapest is {name(cheapest)}: {cheapest.cheap}.{end}"


def measured_text(runs: Sequence[MeasuredRun]) -> str | None:
    """Say how far predictions of measured runs are off, the nearest first; None without any."""
    return "; ".join(map(_measured, runs)) or None


def nearest_text(summary: Any) -> str | None:
    """Return "llama3.1-8b on 64 x h100-sxm: +4.2%" of the nearest measured run, if there is any."""
    nearest = summary.get("nearest") or ()
    return next((f"{_job(run)}: {_error(run):+.1%}" for run in nearest), None)


def _measured(run: Any) -> str:
    side = "slower" if _error(run) > 0 else "faster"
    return (
        f"{_job(run)} in {run['numbers']}, {run['software']}: predicted "
        f"{100 * abs(_error(run)):.2g} % {side} than measured ({run['source']})"
    )


def _job(run: Any) -> str:
    return f"{run['model']} on {run['devices']:,} x {run['hardware']}"


def _error(run: Any) -> float:
    return float(run["predicted"] / run["seconds"] - 1)

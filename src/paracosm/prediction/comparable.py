"""What makes answers about hardware comparable: tokens/s, their cost, measured runs like them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from paracosm.prediction.config import PredictConfig
from paracosm.prediction.measured_runs import nearest_runs
from paracosm.price import WORKER_HOURS
from paracosm.results import IterationSummary, JobSummary, MeasuredRun

S = TypeVar("S", IterationSummary, JobSummary)


def comparable(summary: S, config: PredictConfig) -> S:
    """Return the summary of a prediction with what compares it to that of other hardware.

    The cost is that of a million tokens, or examples where they are no sequences: in the money of
    the price, and without one in hours of a device. Unchanged where ops were timed.
    """
    if config.catalogued is None:
        return summary
    workers = getattr(summary, "workers", 1)
    examples, model = summary.examples_per_second, config.architecture
    tokens = None if model is None or examples is None else examples * model.sequence
    rate, price = tokens or examples, config.price or WORKER_HOURS
    return replace(
        summary,
        hardware=config.hardware,
        tokens_per_second=tokens,
        price=None if config.price is None else str(config.price),
        currency=price.currency,
        cost=price.of(workers, 1e6 / rate) if rate else None,
        nearest=measured_like(config, workers),
    )


def measured_like(config: PredictConfig, workers: int) -> list[MeasuredRun]:
    """Return the measured runs nearest to a prediction of hardware; none for captured models."""
    model, hardware = config.architecture, config.catalogued
    if model is None or hardware is None:
        return []
    float8 = bool(config.jobs[-1][1].float8) if config.is_on_cluster else False
    return nearest_runs(model, workers, hardware.name, config.software_name, float8=float8)

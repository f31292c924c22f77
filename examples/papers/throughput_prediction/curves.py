"""Throughput against workers: figures 2, 3(c), 13 and 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from finding import Finding
from measured_jobs import SEED, MeasuredJob, Run

from paracosm.prediction.parameter_servers.coarse_models import cynthia, lin, phases_of
from paracosm.prediction.parameter_servers.throughput import (
    predict_throughput,
    saturates_at,
    single_worker_rates,
)

__all__ = [
    "MODELS",
    "Batches",
    "Curve",
    "Window",
    "batches",
    "curve_of",
    "judge_batches",
    "judge_curves",
    "windows_of",
]

MODELS = ("ours", "lin", "cynthia", "half")
"""Ours, Lin et al.'s, Cynthia with T_C as it is and with half of it."""

FACTORS = (0.5, 1.0, 2.0, 4.0)
WORKERS = 12
NORMAL = 0.7979  # mean distance from the mean, in standard deviations


@dataclass(frozen=True)
class Batches:
    """Figure 2.

    Attributes:
        rates: by batch, in batches of the profile, the batches of the profile/s of 1, 2, ...
            workers.
        saturated: by batch, from how many workers on more bring little; None: not yet.
    """

    rates: Mapping[float, Sequence[float]]
    saturated: Mapping[float, int | None]


@dataclass(frozen=True)
class Window:
    """A measured run beside simulations of the same window after the same start, in steps/s."""

    run: Run
    expected: float
    spread: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.expected / self.run.rate - 1

    @property
    def away(self) -> float:
        """Standard deviations that the run is above the mean."""
        return (self.run.rate - self.expected) / self.spread


@dataclass(frozen=True)
class Curve:
    """Figures 3(c), 13 and 14, of one job.

    Attributes:
        job: which.
        measured: mean steps/s of the runs, by number of workers.
        predicted: steps/s of 1, 2, ... workers in the steady state, by one of `MODELS`.
        windows: every measured run.
    """

    job: MeasuredJob
    measured: Mapping[int, float]
    predicted: Mapping[str, Sequence[float]]
    windows: Sequence[Window]

    def errors(self, model: str) -> list[float]:
        """Return the relative errors of a model's steady state, by number of workers."""
        rates = self.predicted[model]
        return [rates[workers - 1] / rate - 1 for workers, rate in self.measured.items()]


def batches(job: MeasuredJob) -> Batches:
    """Predict larger and smaller batches: a step's computing takes longer in proportion.

    That is an assumption; the bytes of a step stay the same.
    """
    rates, saturated = {}, {}
    for factor in FACTORS:
        target = job.target(WORKERS)
        ports = target.settings.ports
        settings = replace(target.settings, ports=replace(ports, speed=ports.speed / factor))
        slower = replace(target, settings=settings)
        steps = {
            workers: predict_throughput(slower, workers, SEED).steps_per_second
            for workers in range(1, WORKERS + 1)
        }
        rates[factor] = [factor * rate for rate in steps.values()]
        saturated[factor] = saturates_at(steps, float(single_worker_rates(slower, SEED).mean()))
    return Batches(rates, saturated)


def curve_of(job: MeasuredJob, repeats: int) -> Curve:
    """Predict all numbers of workers that were measured, by all models."""
    measured = job.measured()
    most = max(6, *measured)
    target = job.target(most)
    phases = phases_of(target)
    bandwidth = float(job.settings.ports.server[0])
    numbers = range(1, most + 1)
    predicted = {
        "ours": [predict_throughput(target, workers, SEED).steps_per_second for workers in numbers],
        "lin": lin(phases, most).tolist(),
        "cynthia": [cynthia(phases, bandwidth, workers) for workers in numbers],
        "half": [cynthia(phases, bandwidth, workers, duplex=True) for workers in numbers],
    }
    return Curve(job, measured, predicted, windows_of(job, repeats))


def windows_of(job: MeasuredJob, repeats: int) -> list[Window]:
    """Simulate every measured run's window from its own start, many times."""
    target = job.target(max(run.workers for run in job.runs))
    windows = []
    for run in job.runs:
        settings = replace(
            target.settings,
            start="together" if run.together else "staggered",
            stagger=run.stagger,
            measure=run.seconds,
            repeats=repeats,
            steps=100,
        )
        same = replace(target, settings=settings)
        after = predict_throughput(same, run.workers, SEED).after_start
        assert after is not None
        windows.append(Window(run, after.steps_per_second, after.spread))
    return windows


def judge_batches(found: Batches) -> list[Finding]:
    """Check that larger batches saturate later."""
    where = [found.saturated[factor] or WORKERS + 1 for factor in FACTORS]
    listed = ", ".join(
        f"{factor:g} x: {found.saturated[factor] or f'above {WORKERS}'}" for factor in FACTORS
    )
    most = [max(found.rates[factor]) for factor in FACTORS]
    return [
        Finding(
            "Figure 2",
            "throughput saturates at more workers with larger batches (workers, by batch over the "
            "profile's; computing in proportion to it is assumed)",
            "4, 4, 5, 7 workers with batches of 16, 32, 64, 128",
            listed,
            where == sorted(where) and where[0] < where[-1],
        ),
        Finding(
            "Figure 2",
            "the link bounds steps/s, so examples/s of many workers grow with the batch",
            "they do",
            ", ".join(
                f"{factor:g} x: {rate:.2f} batches/s"
                for factor, rate in zip(FACTORS, most, strict=True)
            ),
            most == sorted(most),
        ),
    ]


def judge_curves(curves: Sequence[Curve]) -> list[Finding]:
    """Check errors of all models, and how runs lie among simulated ones."""
    several = [curve for curve in curves if max(curve.measured) > 1]
    findings = []
    for curve in curves:
        errors = {model: curve.errors(model) for model in MODELS}
        means = {model: _mean(error) for model, error in errors.items()}
        worst = max(errors["ours"], key=abs)
        findings.append(
            Finding(
                "Figures 13, 14",
                f"{curve.job.name}: error of the steady state, {_numbers(curve.measured)}",
                "within 10 %",
                f"mean {means['ours']:.1%}, worst {worst:+.1%}",
                abs(worst) < 0.10 if curve in several else None,
            )
        )
        if curve in several:
            findings.append(
                Finding(
                    "Section 4.4",
                    f"{curve.job.name}: coarse models err more",
                    "they do",
                    f"Lin et al. {means['lin']:.1%}, Cynthia {means['cynthia']:.1%}, with half "
                    f"T_C {means['half']:.1%}",
                    means["ours"] < min(means[model] for model in MODELS[1:]),
                )
            )
    for curve in several:
        findings += [*_of_cynthia(curve), *_same_windows(curve)]
    return findings


def _of_cynthia(curve: Curve) -> list[Finding]:
    low = float(np.mean(curve.errors("cynthia")))
    whole, half = (_mean(curve.errors(model)) for model in ("cynthia", "half"))
    return [
        Finding(
            "Section 4.4",
            f"{curve.job.name}: Cynthia predicts less than measured",
            "it does",
            f"mean error {low:+.1%}",
            low < 0,
        ),
        Finding(
            "Section 4.4",
            f"{curve.job.name}: half T_C improves Cynthia",
            "it seemed to, in a few cases",
            f"mean of absolute errors {whole:.1%}, with half T_C {half:.1%}",
            half < whole,
        ),
    ]


def _same_windows(curve: Curve) -> list[Finding]:
    chosen = [window for window in curve.windows if window.run.workers > 1]
    errors = [window.error for window in chosen]
    away = np.array([window.away for window in chosen])
    best = float(np.mean([NORMAL * window.spread / window.expected for window in chosen]))
    coarse = {
        model: _mean(
            [
                curve.predicted[model][window.run.workers - 1] / window.run.rate - 1
                for window in chosen
            ]
        )
        for model in MODELS[1:]
    }
    return [
        Finding(
            "Ours",
            f"{curve.job.name}: coarse models err more on the same windows, whose start ours knows",
            "not in the paper",
            f"ours {_mean(errors):.1%}, Lin et al. {coarse['lin']:.1%}, Cynthia "
            f"{coarse['cynthia']:.1%}, with half T_C {coarse['half']:.1%}",
            _mean(errors) < min(coarse.values()),
        ),
        Finding(
            "Ours",
            f"{curve.job.name}: {len(chosen)} windows of several workers, each from its own start, "
            "lie among simulated ones",
            f"68 % within one standard deviation, 95 % within two; {best:.1%} mean error if all is "
            "right",
            f"{np.mean(np.abs(away) < 1):.0%} and {np.mean(np.abs(away) < 2):.0%}, in the mean "
            f"{away.mean():+.1f} standard deviations away; mean error {_mean(errors):.1%}, worst "
            f"{max(errors, key=abs):+.1%}",
            bool(np.mean(np.abs(away) < 2) >= 0.8 and abs(away.mean()) < 2 / np.sqrt(len(away))),
        ),
    ]


def _mean(errors: Sequence[float]) -> float:
    return float(np.mean(np.abs(errors)))


def _numbers(measured: Mapping[int, float]) -> str:
    low, high = min(measured), max(measured)
    return f"{low} to {high} workers" if high > low else f"{low} worker"

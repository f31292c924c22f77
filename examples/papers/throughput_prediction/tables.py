"""The numbers behind the figures, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from curves import MODELS, Curve
from lockstep import Ablation
from page import Table
from sending import Sending

__all__ = ["ablation_table", "curve_tables", "sending_tables"]

NAMES = {"ours": "ours", "lin": "Lin et al.", "cynthia": "Cynthia", "half": "Cynthia, half T_C"}


def curve_tables(curves: Sequence[Curve]) -> list[Table]:
    """Return steady states with the errors of all models, and every run beside its window."""
    steady, windows = [], []
    for curve in curves:
        errors = {model: curve.errors(model) for model in MODELS}
        for row, (workers, rate) in enumerate(curve.measured.items()):
            steady.append(
                [
                    curve.job.name,
                    f"{workers}",
                    f"{rate:.3f}",
                    f"{curve.predicted['ours'][workers - 1]:.3f}",
                    *(f"{errors[model][row]:+.1%}" for model in MODELS),
                ]
            )
        means = (f"{np.mean(np.abs(errors[model])):.1%}" for model in MODELS)
        steady.append([curve.job.name, "mean", "", "", *means])
        windows += [
            [
                curve.job.name,
                f"{window.run.workers}",
                "together" if window.run.together else f"{window.run.stagger:.2f} s apart",
                f"{window.run.rate:.3f}",
                f"{window.expected:.3f} ± {window.spread:.3f}",
                f"{window.error:+.1%}",
            ]
            for window in curve.windows
        ]
    return [
        Table(
            "Figures 13 and 14: steady state, steps/s, beside the mean of all runs",
            ["job", "workers", "measured", "predicted", *NAMES.values()],
            steady,
        ),
        Table(
            "Every run beside simulations of the same window after the same start, steps/s",
            ["job", "workers", "start", "measured", "simulated", "error"],
            windows,
        ),
    ]


def sending_tables(found: Sequence[Sending]) -> list[Table]:
    """Return predictions by flow-control window and by order."""
    return [
        Table(
            title,
            ["job", key, *(f"{workers} workers" for workers in range(1, 7))],
            [
                [each.job.name, name, *(f"{rate:.3f}" for rate in rates)]
                for each in found
                for name, rates in (each.windows if key == "window" else each.orders).items()
            ],
        )
        for key, title in (
            ("window", "Figure 17: predicted steps/s by flow-control window"),
            ("order", "Figures 18 and 19: predicted steps/s by order, without flow control"),
        )
    ]


def ablation_table(ablations: Sequence[Ablation]) -> Table:
    """Return what each variant does to the windows after a common start."""
    rows = [
        [
            ablation.job.name,
            ablation.variant,
            f"{ablation.rates.mean():.3f}",
            f"{ablation.errors.mean():+.1%}",
            f"{np.abs(ablation.errors).mean():.1%}",
            f"{ablation.coherences.mean():.2f}",
        ]
        for ablation in ablations
    ]
    measured = {ablation.job.name: ablation for ablation in ablations}
    rows += [
        [
            name,
            "measured",
            f"{np.mean([run.rate for run in each.runs]):.3f}",
            "",
            "",
            f"{each.measured.mean():.2f}",
        ]
        for name, each in measured.items()
    ]
    rows.sort(key=lambda row: list(measured).index(row[0]))
    return Table(
        "What makes workers drift apart: windows of 2 or more workers after a common start",
        ["job", "simulated", "steps/s, mean", "mean error", "mean absolute error", "coherence"],
        rows,
    )

"""The paper's tables of measured times, for the machine that was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paracosm.relaxation.threads.measurement import Case, Measurement

__all__ = ["IterationRow", "PhaseRow", "render_table1", "render_table3", "table1", "table3"]


@dataclass(frozen=True)
class PhaseRow:
    """Mean seconds of copy, compute and update, over all relaxation threads and iterations."""

    variant: str
    threads: int
    copy: float
    compute: float
    update: float


@dataclass(frozen=True)
class IterationRow:
    """Mean and standard deviation of an iteration, over all relaxation threads, in seconds."""

    threads: int
    mean: float
    sd: float


def table1(measurement: Measurement) -> tuple[PhaseRow, ...]:
    """Return the rows of table 1: safe and race, as far as they were measured."""
    rows = []
    for case in measurement.cases:
        if case.variant != "stencil":
            copy, compute, update, _ = _pooled(case)[0]
            rows.append(PhaseRow(case.variant, case.threads, copy, compute, update))
    return tuple(sorted(rows, key=lambda row: (row.variant != "safe", row.threads)))


def table3(measurement: Measurement) -> tuple[IterationRow, ...]:
    """Return the rows of table 3: the stencil variant, as far as it was measured."""
    rows = []
    for case in measurement.cases:
        if case.variant == "stencil":
            mean, sd = _pooled(case)
            rows.append(IterationRow(case.threads, mean[-1], sd[-1]))
    return tuple(sorted(rows, key=lambda row: row.threads))


def render_table1(rows: tuple[PhaseRow, ...]) -> str:
    """Return table 1 as text, in the paper's units."""
    by_place = {(row.variant, row.threads): row for row in rows}
    title = "Mean times for copy, compute and update"
    lines = [
        title,
        f"{'':7}  {'safe':^32}  {'race':^32}",
        f"{'threads':>7}" + 2 * f"  {'copy':>10}{'compute':>11}{'update':>11}",
        f"{'':7}" + 2 * f"  {'(1e-5 s)':>10}{'(1e-4 s)':>11}{'(1e-6 s)':>11}",
    ]
    for threads in sorted({row.threads for row in rows}):
        cells = ""
        for variant in ("safe", "race"):
            row = by_place.get((variant, threads))
            if row is None:
                cells += f"  {'-':>10}{'-':>11}{'-':>11}"
            else:
                cells += f"  {1e5 * row.copy:>10.3g}{1e4 * row.compute:>11.3g}"
                cells += f"{1e6 * row.update:>11.3g}"
        lines.append(f"{threads:>7}{cells}")
    return "\n".join(lines)


def render_table3(rows: tuple[IterationRow, ...]) -> str:
    """Return table 3 as text, in the paper's units."""
    lines = [
        "Mean iteration time and standard deviation (stencil)",
        f"{'threads':>7}{'mean (1e-5 s)':>15}{'sd (1e-6 s)':>13}",
    ]
    lines += [f"{row.threads:>7}{1e5 * row.mean:>15.3g}{1e6 * row.sd:>13.3g}" for row in rows]
    return "\n".join(lines)


def _pooled(case: Case) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of the phases and the whole, over all iterations."""
    weights = np.array([worker.count for worker in case.workers], np.float64)
    means = np.array([worker.mean for worker in case.workers])
    squares = np.array([worker.sd for worker in case.workers]) ** 2 + means**2
    mean = np.average(means, axis=0, weights=weights)
    variance = np.average(squares, axis=0, weights=weights) - mean**2
    return mean.tolist(), np.sqrt(np.maximum(variance, 0.0)).tolist()

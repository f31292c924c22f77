"""Tables 1, 3 and 4 for this machine, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from measured import table1, table3
from numpy.typing import NDArray
from real import Real

# Of the paper's rows; one of the threads in table 1 checks the residual.
PAPER_TABLE1 = (
    ("paper: 11", "1.28", "167", "7.76", "1.15", "167", "2.79"),
    ("paper: 101", "36.7", "23.4", "357", "1.64", "25.2", "1.79"),
)
PAPER_TABLE3 = (("paper: 10", "8.86", "3.87"), ("paper: 75", "2.53", "5.80"))


@dataclass(frozen=True)
class Table:
    """A table: cells as text."""

    number: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Return the table as aligned text."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        aligned = ["  ".join(c.rjust(w) for c, w in zip(li, widths, strict=True)) for li in lines]
        return "\n".join([f"Table {self.number}. {self.caption}", *aligned])


def make_tables(real: Real) -> list[Table]:
    """Return all tables of measured times."""
    cores = real.solver.environment["cores"]
    machine = f"{real.solver.environment['processor']}, {cores} cores; the paper's: Xeon Phi, 64"
    return [_table1(real, machine), _table3(real, machine), _table4(real)]


def _table1(real: Real, machine: str) -> Table:
    by_place = {(row.variant, row.threads): row for row in table1(real.solver)}
    rows = []
    for threads in sorted({threads for _, threads in by_place}):
        cells = [str(threads)]
        for variant in ("safe", "race"):
            row = by_place[variant, threads]
            numbers = (1e5 * row.copy, 1e4 * row.compute, 1e6 * row.update)
            cells += [_rounded(number) for number in numbers]
        rows.append(cells)
    phases = (
        "copy, 10⁻⁵\N{NO-BREAK SPACE}s",
        "compute, 10⁻⁴\N{NO-BREAK SPACE}s",
        "update, 10⁻⁶\N{NO-BREAK SPACE}s",
    )
    return Table(
        "1",
        f"Mean times for copy, compute and update, {real.solver.problem['name']} ({machine})",
        ["threads", *(f"{v} {p}" for v in ("safe", "race") for p in phases)],
        [*rows, *PAPER_TABLE1],
    )


def _table3(real: Real, machine: str) -> Table:
    return Table(
        "3",
        f"Mean iteration time and standard deviation, {real.plate.problem['name']} ({machine})",
        ["threads", "mean, 10⁻⁵\N{NO-BREAK SPACE}s", "standard deviation, 10⁻⁶\N{NO-BREAK SPACE}s"],
        [
            *(
                [str(r.threads), _rounded(1e5 * r.mean), _rounded(1e6 * r.sd)]
                for r in table3(real.plate)
            ),
            *PAPER_TABLE3,
        ],
    )


def _table4(real: Real) -> Table:
    rows = []
    for row in real.compared:
        measured = float(np.median(row.measured))
        rows.append(
            [
                f"{row.side} x {row.side}",
                f"{row.tolerance:g}",
                row.variant,
                str(row.threads),
                _spread(row.measured),
                _spread(row.simulated),
                f"{np.median(row.simulated) / measured:.2f}",
                _spread(row.queued),
                f"{np.median(row.queued) / measured:.2f}",
                f"{row.iterations:.2f}",
                f"{row.share:.0%}",
                f"{row.load:.1f}",
            ]
        )
    return Table(
        "4",
        "Run times to convergence in milliseconds, median, least and largest: measured without "
        "timers; simulated from the measured phases with a core for every thread; and on this "
        "machine's cores with the time slices and the foreign load that were seen; iterations are "
        "simulated over measured ones",
        ["grid", "residual", "variant", "threads", "measured", "simulated", "ratio", "run queue",
         "ratio", "iterations", "on core", "foreign load"],
        rows,
    )  # fmt: skip


def _spread(seconds: NDArray[np.float64]) -> str:
    middle, low, high = (1e3 * f for f in (np.median(seconds), seconds.min(), seconds.max()))
    return f"{_rounded(middle)} ({_rounded(low)} to {_rounded(high)})"


def _rounded(number: float) -> str:
    """Return three digits, or all before the point."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"

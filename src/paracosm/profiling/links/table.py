"""Measured transfers as a table like table 1 of Huang et al., with a line fitted to each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.links.measure import KINDS
from paracosm.profiling.samples import LinkTiming
from paracosm.units import format_bandwidth, format_duration, format_size

_COLUMNS = 5  # sizes that are shown


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario."""

    # kind, scenario, ranks: as in `LinkTiming`
    kind: str
    scenario: str
    ranks: int
    seconds: Mapping[int, float]  # median by size of the message in bytes
    directions: int  # messages under way at once
    line: Line | None  # fitted to `seconds`; None where there are fewer than two sizes
    link: Line | None  # the link that explains the line (`link_of`)

    def throughput(self, size: int) -> float:
        """Return bytes/s, of all directions together."""
        return self.directions * size / self.seconds[size]


def rows(timings: Iterable[LinkTiming]) -> list[Row]:
    """Return one row for each scenario; of several timings of one size, the last one counts."""
    made = []
    ordered = sorted(timings, key=_place)
    for (_, kind, ranks, _, scenario), group in groupby(ordered, key=_place):
        seconds = {t.size: t.time.median for t in sorted(group, key=lambda t: t.size)}
        line = fit_line(list(seconds), list(seconds.values())) if len(seconds) > 1 else None
        link = None if line is None else link_of(line, kind, ranks)
        directions = 2 if "bi-direct" in scenario else 1
        made.append(Row(kind, scenario, ranks, seconds, directions, line, link))
    return made


def _place(timing: LinkTiming) -> tuple[int, str, int, bool, str]:
    """Return where in the table a timing stands: in the order of `KINDS`, uni-direct first."""
    known = KINDS.index(timing.kind) if timing.kind in KINDS else len(KINDS)
    back = "bi-direct" in timing.scenario
    return known, timing.kind, timing.ranks, back, timing.scenario


def write_table(table: Sequence[Row]) -> str:
    """Return the table as text: MB/s by size, then the lines for a cluster file."""
    if not table:
        return "nothing was measured"
    sizes = _columns(table)
    labels = [f"{row.kind}, {row.scenario}" for row in table]
    wide = max(map(len, [*labels, "MB/s"]))
    titles = "".join(f"{format_size(size, exact=True):>10}" for size in sizes)
    lines = [f"{'MB/s':{wide}}{titles}"]
    for label, row in zip(labels, table, strict=True):
        rates = [f"{row.throughput(n) / 1e6:,.2f}" if n in row.seconds else "-" for n in sizes]
        lines.append(f"{label:{wide}}" + "".join(f"{rate:>10}" for rate in rates))
    lines += ["", "As a link of a cluster file (relative error of the line: mean, largest):"]
    for label, row in zip(labels, table, strict=True):
        if row.link is not None:
            lines.append(f"{label:{wide}}  {_link(row.link, len(row.seconds))}")
    return "\n".join(lines)


def _columns(table: Sequence[Row]) -> list[int]:
    """Return the sizes to show: evenly among all, the largest with them."""
    sizes = sorted({size for row in table for size in row.seconds})
    step = max(1, -(-len(sizes) // _COLUMNS))
    return sizes[::-1][::step][::-1]


def _link(link: Line, sizes: int) -> str:
    latency, bandwidth = format_duration(link.latency), format_bandwidth(link.bandwidth)
    line = f"latency: {latency}, bandwidth: {bandwidth}"
    # Through two points there is always a line.
    return line if sizes < 3 else f"{line}  ({link.error:.0%}, {link.worst:.0%})"


_OUTLIER = 0.1  # relative error beyond which a size counts less than by its square


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a message of n bytes: `latency + n / bandwidth` (the alpha-beta model)."""

    latency: float  # seconds
    bandwidth: float  # bytes/s
    error: float = 0.0  # mean of the relative errors at the sizes that it was fitted to
    worst: float = 0.0  # the largest of them

    def seconds(self, size: float) -> float:
        """Return how long a message of `size` bytes takes."""
        return self.latency + size / self.bandwidth


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """Return the line with the least relative errors, neither latency nor slope below 0.

    Errors are relative, because times span five orders of magnitude, and all sizes matter; those
    beyond a tenth count linearly, not by their squares (soft L1), because a cache that some sizes
    fit in is no reason to be wrong about all others.
    """
    n, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if len(np.unique(n)) < 2:
        raise InputError(
            f"a latency and a bandwidth need two sizes or more, not {len(np.unique(n))}"
        )
    if not (np.isfinite(t).all() and (t > 0).all()):
        raise InputError("a latency and a bandwidth need times above 0")
    latency, slope = _robust(n, t)
    off = np.abs((latency + n * slope) / t - 1)
    return Line(
        latency=latency,
        # Where noise hides the slope, no less than what was reached.
        bandwidth=1 / slope if slope > 0 else float((n / t).max()),
        error=float(off.mean()),
        worst=float(off.max()),
    )


def _robust(n: npt.NDArray[np.float64], t: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return latency and seconds per byte."""
    from scipy.optimize import least_squares, nnls

    design = np.stack([1 / t, n / t], axis=1)
    scale = 1 / design.max(axis=0)  # the largest latency, and slope, that any time allows
    design = design * scale
    start, _ = nnls(design, np.ones(len(t)))
    found = least_squares(
        lambda parameters: design @ parameters - 1,
        start,
        jac=lambda _: design,
        bounds=(0, inf),
        loss="soft_l1",
        f_scale=_OUTLIER,
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    latency, slope = np.maximum(found.x, 0) * scale
    # Where the best slope is 0, the search ends just above it.
    return float(latency), float(slope) if slope * n.max() > 1e-9 * latency else 0.0


def link_of(line: Line, kind: str, ranks: int) -> Line:
    """Return latency and bandwidth of the one link that explains a collective's line.

    A ring all-reduce of n bytes between p ranks is 2 (p - 1) steps of n / p bytes, an all-gather
    p - 1 steps of n (one rank's part), a reduce-scatter p - 1 steps of n / p, a broadcast down a
    binomial tree ceil(log2 p) steps of n: as `cluster.collectives` has them, which so gives back
    the line. What is added up on the way counts as transfer.
    """
    p = ranks
    steps, share = {
        "all_reduce": (2 * (p - 1), 1 / p),
        "all_gather": (p - 1, 1.0),
        "reduce_scatter": (p - 1, 1 / p),
        "broadcast": ((p - 1).bit_length(), 1.0),
    }.get(kind, (1, 1.0))
    return Line(line.latency / steps, line.bandwidth * steps * share, line.error, line.worst)

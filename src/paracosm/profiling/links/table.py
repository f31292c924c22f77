"""Measured transfers as a table like table 1 of Huang et al., with a line fitted to each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from paracosm.profiling.links.fit import Line, fit_line, link_of
from paracosm.profiling.links.scenario import KINDS
from paracosm.profiling.samples import LinkTiming
from paracosm.units import format_bandwidth, format_duration, format_size

__all__ = ["Row", "rows", "write_table"]

_COLUMNS = 5  # sizes that are shown


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario.

    Attributes:
        kind, scenario, ranks: as in `LinkTiming`.
        seconds: median by size of the message in bytes.
        directions: messages under way at once.
        line: fitted to `seconds`; None where there are fewer than two sizes.
        link: the link that explains the line (`link_of`).
    """

    kind: str
    scenario: str
    ranks: int
    seconds: Mapping[int, float]
    directions: int
    line: Line | None
    link: Line | None

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
    lines = [f"{'MB/s':{wide}}" + "".join(f"{_size(size):>10}" for size in sizes)]
    for label, row in zip(labels, table, strict=True):
        cells = "".join(f"{_megabytes(row, size):>10}" for size in sizes)
        lines.append(f"{label:{wide}}{cells}")
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


def _size(size: int) -> str:
    return format_size(size, exact=True)


def _megabytes(row: Row, size: int) -> str:
    return f"{row.throughput(size) / 1e6:,.2f}" if size in row.seconds else "-"


def _link(link: Line, sizes: int) -> str:
    latency, bandwidth = format_duration(link.latency), format_bandwidth(link.bandwidth)
    line = f"latency: {latency}, bandwidth: {bandwidth}"
    # Through two points there is always a line.
    return line if sizes < 3 else f"{line}  ({link.error:.0%}, {link.worst:.0%})"

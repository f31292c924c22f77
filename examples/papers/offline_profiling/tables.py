"""Tables 1 and 2 and those that belong to the paper's claims, the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copies import PAPER as TABLE1
from copies import Copies
from iteration_accuracy import Accuracy

from models import PAPER as TABLE2
from paracosm.units import format_size

if TYPE_CHECKING:
    from results import Results

__all__ = ["Table", "make_tables"]

NOTHING = "-"
FAR = 10.0  # an interval that reaches so far beyond the measured time says nothing
TYPES = 14  # op types in the table of standard errors


@dataclass(frozen=True)
class Table:
    """A table: cells as text; the first column is words."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Return the table as aligned text."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        aligned = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        return "\n".join([f"{self.name}. {self.caption}", *aligned])


def make_tables(results: Results) -> list[Table]:
    """Return all tables."""
    tables = [
        _paper_transfers(results.table1),
        _transfers(results.table1),
        _iterations(results),
        _held_out(results),
        _designs(results),
        _lines(results),
        _steady(results),
    ]
    return [table for table in tables if table.rows]


def _paper_transfers(table: Copies) -> Table:
    rows = []
    for name, (paper, place, near) in TABLE1.items():
        same = _rate(table, place) if place in table.found else _why(table, place)
        label = ", ".join(near) if near in table.found else NOTHING
        numbers = [NOTHING if number is None else f"{number:,.0f}" for number in paper]
        rows.append([name, *numbers, same, label, _rate(table, near)])
    return Table(
        "Table 1",
        f"Throughput, MB/s: the paper's three paths, the same transfer here, and the nearest one "
        f"of the host ({format_size(table.size, exact=True)} messages)",
        ["", "QPI", "root complex", "PCIe switch", "here", "nearest here", "MB/s"],
        rows,
    )


def _rate(table: Copies, place: tuple[str, str]) -> str:
    found = table.found.get(place)
    return NOTHING if found is None else f"{found.largest / 1e6:,.0f} ± {found.error:.1%}"


def _why(table: Copies, place: tuple[str, str]) -> str:
    return table.missing.get(", ".join(place), NOTHING)


def _transfers(table: Copies) -> Table:
    sizes = sorted({size for each in table.found.values() for size in each.rate})
    return Table(
        "Table 1, all sizes",
        "Throughput of this machine, MB/s, by size of the message",
        ["", *(format_size(size, exact=True) for size in sizes)],
        [
            [
                f"{each.kind}, {each.scenario}",
                *(f"{each.rate[s] / 1e6:,.0f}" if s in each.rate else NOTHING for s in sizes),
            ]
            for each in table.found.values()
        ],
    )


def _iterations(results: Results) -> Table:
    rows = []
    for name, found in results.table2.items():
        paper = TABLE2.get(results.names[name])
        rows.append(
            [
                results.names[name],
                NOTHING if paper is None else f"{1e3 * paper[0]:.2f}",
                NOTHING if paper is None else f"{1e3 * paper[1]:.2f}",
                NOTHING if paper is None else f"{paper[1] / paper[0] - 1:+.2%}",
                _ms(found.measured),
                _spread(found),
                _ms(found.warm),
                f"{found.error(found.warm):+.2%}",
                _ms(found.own),
                f"{found.error(found.own):+.2%}",
            ]
        )
    return Table(
        "Table 2",
        "Iteration time, ms: the paper's, and here the measured one with the range from its "
        "fastest to its slowest tenth, the sum of ops timed in a row (the paper's way), and of ops "
        "timed with cold data",
        [
            "",
            "paper",
            "simulated",
            "error",
            "measured here",
            "p10..p90",
            "in a row",
            "error",
            "cold",
            "error",
        ],
        rows,
    )


def _held_out(results: Results) -> Table:
    rows = []
    for name, found in results.table2.items():
        held_out = NOTHING if found.held_out is None else f"{found.error(found.held_out):+.1%}"
        rows.append(
            [
                results.names[name],
                held_out,
                _interval(found),
                NOTHING if found.per_op is None else f"{found.per_op:.0%}",
                _part(found, found.gaps),
                _part(found, found.caches),
                f"{found.faults:,.0f}",
                str(results.iterations[name]),
            ]
        )
    near = results.neighbour
    if near is not None:
        name = f"{near.model} from {near.other} ({near.exact:.0%} exact)"
        rows.append([name, f"{near.error:+.2%}", *[NOTHING] * 6])
    return Table(
        "Held-out shapes",
        "Error of the iteration predicted from grids and the other models, the model's own ops "
        "left out, with its interval; error per op, weighted by time; and where the error of the "
        "cold ops comes from: gaps between ops, and ops in place beyond their cold time",
        ["", "error", "interval", "per op", "gaps", "caches", "page faults", "iterations"],
        rows,
    )


def _interval(found: Accuracy) -> str:
    if found.interval is None:
        return NOTHING
    low, high = (found.error(each) for each in found.interval)
    return f"{low:+.0%}..{high:+.0%}" if high < FAR else f"{low:+.0%}..above {FAR:+.0%}"


def _part(found: Accuracy, seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds / found.measured:+.2%}"


def _spread(found: Accuracy) -> str:
    return f"{found.low / found.measured - 1:+.1%}..{found.high / found.measured - 1:+.1%}"


def _designs(results: Results) -> Table:
    cells = {(design.design, design.op): design for design in results.designs}
    rows = []
    for op in dict.fromkeys(design.op for design in results.designs):
        paper, like = cells["paper", op], cells["model-like", op]
        numbers = [
            cell
            for each in (paper, like)
            for cell in (str(each.trained), f"{each.mean:.0%}", f"{each.weighted:.0%}")
        ]
        rows.append([op.removeprefix("aten.").removesuffix(".default"), str(paper.ops), *numbers])
    header = [f"{design}: {what}" for design in ("paper", "model-like") for what in _ERRORS]
    return Table(
        "Designs",
        "Error of estimates for the models' ops, from the paper's design (one argument at a time) "
        "and from as many model-like points: the mean over ops, and weighted by time",
        ["", "held out", *header],
        rows,
    )


_ERRORS = ("ops", "mean", "weighted")


def _lines(results: Results) -> Table:
    ops = list(dict.fromkeys(line.op for line in results.lines))
    arguments = list(dict.fromkeys(line.argument for line in results.lines))
    r2 = {(line.op, line.argument): line.by_work.r2 for line in results.lines}
    return Table(
        "Straight lines",
        "R² of the time against the op's work (flops, or bytes where it has none), one argument at "
        "a time",
        ["", *arguments],
        [
            [op, *(f"{r2[op, a]:.3f}" if (op, a) in r2 else NOTHING for a in arguments)]
            for op in ops
        ],
    )


def _steady(results: Results) -> Table:
    found = {(each.what, each.cache): each for each in results.steady.by_type}
    found |= {("all", cache): each for cache, each in results.steady.all.items()}
    types = list(dict.fromkeys(what for what, _ in found))
    shown = [*types[: min(TYPES, len(types) - 1)], "all"]
    return Table(
        "Standard errors",
        "Of the mean, relative to it: the median over ops, and the share below 1 %; op types with "
        "most ops",
        ["", "ops", "in a row", "below 1 %", "cold", "below 1 %"],
        [
            [
                what.removeprefix("aten."),
                str(found[what, "warm"].ops),
                *(
                    cell
                    for cache in ("warm", "cold")
                    for cell in (
                        _known(found[what, cache].median),
                        f"{found[what, cache].below:.0%}",
                    )
                ),
            ]
            for what in shown
        ],
    )


def _known(error: float) -> str:
    """Write a standard error; that of a single sample is not known."""
    return f"{error:.2%}" if error < 1 else NOTHING


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f}"

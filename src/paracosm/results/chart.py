"""Charts as plain data in SI units: what a view declares, and what a page and an image draw.

A mark belongs to a run, whose number selects its colour, and to a series ("training loss"), which
can be switched on and off in its chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NO_RUN = -1


class Style(NamedTuple):
    """The style of a run's marks: a colour of the palette, its shade, and the dashes of lines."""

    color: int
    shade: float = 1.0
    dash: int = 0


Symbol = Literal["dot", "triangle", "diamond", "square", "cross"]


@dataclass(frozen=True)
class Axis:
    """An axis."""

    label: str  # what it shows, with its unit unless `unit` says it
    unit: str = ""  # "s" or "B": the page shows values in the multiple that suits them
    log: bool = False  # initially logarithmic
    switch: str = ""  # label of a switch between linear and logarithmic; empty: no switch
    percent: bool = False  # fractions, shown as percentages
    names: tuple[str, ...] = ()  # of the values 0, 1, 2, ..., the first on top
    limits: tuple[float, float] | None = None  # None: from the data
    from_zero: bool = False  # to a little more than the largest value that is shown
    whole: bool = False  # ticks at whole numbers only; also where all values are such


@dataclass(frozen=True)
class Curve:
    """A line through the points (x, y), each of shape (n,); NaN leaves a gap."""

    x: Floats
    y: Floats
    run: int
    series: str
    faint: bool = False
    color: int | None = None  # of the palette, in place of the run's
    shade: float = 1.0  # of the colour: 1 is full, less is paler


@dataclass(frozen=True)
class Area:
    """A filled outline with the corners (x, y), each of shape (n,); `labels` describe them."""

    x: Floats
    y: Floats
    labels: tuple[str, ...]
    run: int
    series: str
    color: int | None = None
    shade: float = 1.0


@dataclass(frozen=True)
class Dots:
    """A symbol at every (x, y), each of shape (n,); `labels` describe them."""

    x: Floats
    y: Floats
    labels: tuple[str, ...]
    run: int
    series: str
    symbol: Symbol = "dot"
    color: int | None = None
    shade: float = 1.0


@dataclass(frozen=True)
class Level:
    """A horizontal reference line at `y`, from `begin` to `end`; it belongs to no run."""

    y: float
    begin: float
    end: float
    label: str
    series: str
    run: int = NO_RUN


@dataclass(frozen=True)
class Boxes:
    """Horizontal boxes from `begin` to `end` at the heights `row`, each of shape (n,).

    They are coloured by `color`, not by run: a chart of boxes shows one run.
    """

    begin: Floats
    end: Floats
    row: Floats
    labels: tuple[str, ...]
    height: float
    color: int
    series: str
    run: int = 0


Mark = Curve | Area | Dots | Level | Boxes


@dataclass(frozen=True)
class Chart:
    """One figure."""

    name: str  # of its image file, without the ending
    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]  # the later ones on top
    caption: str = ""
    hidden: frozenset[str] = field(
        default_factory=frozenset
    )  # series that are initially switched off
    height: int = 320  # of the plot, CSS pixels
    wide: bool = False  # takes the full width of the page
    folded: bool = False  # initially behind a line to click
    styles: tuple[Style, ...] = ()  # of the runs, where not selected by their places

    @property
    def series(self) -> dict[str, Mark]:
        """The series by name, in drawing order, each with its first mark."""
        series: dict[str, Any] = {}
        for mark in self.marks:
            series.setdefault(mark.series, mark)
        return series


@dataclass(frozen=True)
class Section:
    """One or more related charts under a heading."""

    title: str
    charts: tuple[Chart, ...]


Sections = Mapping[str, Iterable[Chart | None]]
"""Charts by the headings over them; None, and charts with nothing to see, are left out."""

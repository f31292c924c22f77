"""A part of the page: a heading, and the charts under it."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.report.chart import Chart

__all__ = ["Section"]


@dataclass(frozen=True)
class Section:
    """Charts that belong together.

    Attributes:
        title: the heading.
        charts: one or more.
    """

    title: str
    charts: tuple[Chart, ...]

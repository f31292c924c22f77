"""How long data takes from memory to memory here: copies, and collectives between processes."""

from paracosm.profiling.links.measure import (
    COLLECTIVES,
    KINDS,
    USUAL,
    Links,
    LinkSettings,
    Scenario,
    measure_links,
    scenarios,
)
from paracosm.profiling.links.table import Line, Row, fit_line, link_of, rows, write_table

__all__ = [
    "COLLECTIVES",
    "KINDS",
    "USUAL",
    "Line",
    "LinkSettings",
    "Links",
    "Row",
    "Scenario",
    "fit_line",
    "link_of",
    "measure_links",
    "rows",
    "scenarios",
    "write_table",
]

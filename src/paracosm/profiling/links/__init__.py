"""How long data takes from memory to memory here: copies, and collectives between processes."""

from paracosm.profiling.links.fit import Line, fit_line, link_of
from paracosm.profiling.links.measure import Links, LinkSettings, measure_links
from paracosm.profiling.links.scenario import COLLECTIVES, KINDS, USUAL, Scenario, scenarios
from paracosm.profiling.links.table import Row, rows, write_table

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

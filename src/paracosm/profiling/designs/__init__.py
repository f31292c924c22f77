"""Which shapes of an op to time, so that the time of other shapes can be told."""

from paracosm.profiling.designs.compare import DesignError, compare_designs, write_errors
from paracosm.profiling.designs.design import (
    DESIGNS,
    Design,
    Limits,
    along,
    counted,
    design,
    figure2_design,
)
from paracosm.profiling.designs.families import FAMILIES, families_named
from paracosm.profiling.designs.family import Argument, Family, Point

__all__ = [
    "DESIGNS",
    "FAMILIES",
    "Argument",
    "Design",
    "DesignError",
    "Family",
    "Limits",
    "Point",
    "along",
    "compare_designs",
    "counted",
    "design",
    "families_named",
    "figure2_design",
    "write_errors",
]

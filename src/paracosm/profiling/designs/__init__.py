"""Which shapes of an op to time, so that the time of other shapes can be told."""

from paracosm.profiling.designs.compare import compare_designs, write_errors
from paracosm.profiling.designs.design import design
from paracosm.profiling.designs.families import families_named

__all__ = ["compare_designs", "design", "families_named", "write_errors"]

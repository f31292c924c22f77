"""Which shapes of an op to time, so that the time of other shapes can be told."""

from paracosm.profiling.designs.design import design
from paracosm.profiling.designs.families import families_named

__all__ = ["design", "families_named"]

"""Sampling designs: which shapes of an op to time, so that other shapes can be estimated."""

from paracosm.profiling.designs.design import design
from paracosm.profiling.designs.families import families_named

__all__ = ["design", "families_named"]

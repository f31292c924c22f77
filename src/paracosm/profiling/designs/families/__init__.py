"""The families of ops that designs are made of, by name."""

from paracosm.profiling.designs.families.table import FAMILIES, families_named

__all__ = ["FAMILIES", "families_named"]

"""All families by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paracosm.errors import InputError, unknown
from paracosm.profiling.designs.families.attention import ATTENTION
from paracosm.profiling.designs.families.convolution import CONVOLUTION
from paracosm.profiling.designs.families.elementwise import ELEMENTWISE
from paracosm.profiling.designs.families.embedding import EMBEDDING
from paracosm.profiling.designs.families.losses import LOSSES
from paracosm.profiling.designs.families.matrix import MATRIX
from paracosm.profiling.designs.families.memory import MEMORY
from paracosm.profiling.designs.families.normalisation import NORMALISATION
from paracosm.profiling.designs.families.optimizer import OPTIMIZER
from paracosm.profiling.designs.families.pooling import POOLING
from paracosm.profiling.designs.family import Family

__all__ = ["FAMILIES", "families_named"]

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for table in (
        *(CONVOLUTION, MATRIX, NORMALISATION, ELEMENTWISE, POOLING),
        *(LOSSES, EMBEDDING, ATTENTION, OPTIMIZER, MEMORY),
    )
    for family in table
}


def families_named(names: Sequence[str]) -> list[Family]:
    """Return the families of some names; "all" is every one.

    Raises:
        InputError: an unknown name, with the nearest known one; no name.
    """
    if not names:
        raise InputError(f"name at least one op, such as {next(iter(FAMILIES))}, or all")
    for name in names:
        if name != "all" and name not in FAMILIES:
            raise unknown("op", name, ["all", *FAMILIES])
    wanted = list(FAMILIES) if "all" in names else list(dict.fromkeys(names))
    return [FAMILIES[name] for name in wanted]

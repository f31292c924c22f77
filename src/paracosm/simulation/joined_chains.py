"""The chains of several programs beside each other, as compiled loops take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.simulation.chains import Chains

__all__ = ["JoinedChains", "join_chains", "offsets_of", "sum_chains"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class JoinedChains:
    """Columns of `Chains` of P programs, one program after the other.

    Attributes:
        chains_before: P + 1 offsets into the columns of chains.
        rows_before: P + 1 offsets into `rows`.
        rows: of the chains, counted from the program's first.
        first: offsets into the program's rows, one more than chains for each program.
        of_lane: P x (lanes + 1) offsets, counted from the program's first chain.
        kind, role, ordinal: of the chains.
        offsets: of all chains, into `dependencies`; one more than chains.
        dependencies: chains, counted from the program's first.
    """

    chains_before: Ints
    rows_before: Ints
    rows: Ints
    first: Ints
    of_lane: Ints
    kind: Codes
    role: Codes
    ordinal: Ints
    offsets: Ints
    dependencies: Ints


def join_chains(chains: Sequence[Chains]) -> JoinedChains:
    """Return the chains of at least one program side by side."""
    counts = [np.diff(each.offsets) for each in chains]
    return JoinedChains(
        chains_before=offsets_of(len(each) for each in chains),
        rows_before=offsets_of(len(each.rows) for each in chains),
        rows=np.concatenate([each.rows for each in chains]),
        first=np.concatenate([each.first for each in chains]),
        of_lane=np.array([each.of_lane for each in chains]),
        kind=np.concatenate([each.kind for each in chains]),
        role=np.concatenate([each.role for each in chains]),
        ordinal=np.concatenate([each.ordinal for each in chains]),
        offsets=offsets_of(np.concatenate(counts)),
        dependencies=np.concatenate([each.dependencies for each in chains]),
    )


def offsets_of(lengths: Iterable[int]) -> Ints:
    """Return 0 and the running sums."""
    counts = lengths if isinstance(lengths, np.ndarray) else np.array(list(lengths), dtype=np.int64)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)))


@compiled
def sum_chains(
    program: Any,
    first_chain: Any,
    first_length: Any,
    chains_before: Any,
    rows_before: Any,
    rows: Any,
    first: Any,
    length: Any,
    total: Any,
) -> None:
    """Add up what the tasks of each chain take, or what else there is of each.

    Args:
        program, first_chain, first_length: of each unit: its program, and where its chains and
            tasks begin in `total` and `length`.
        chains_before, rows_before, rows, first: as in `JoinedChains`.
        length: of the tasks of all units.
        total: of the chains of all units (filled).
    """
    for unit in range(program.size):
        own = program[unit]
        for chain in range(chains_before[own + 1] - chains_before[own]):
            offset = chains_before[own] + own + chain
            added = length[0] * 0
            for place in range(first[offset], first[offset + 1]):
                added += length[first_length[unit] + rows[rows_before[own] + place]]
            total[first_chain[unit] + chain] = added

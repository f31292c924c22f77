"""The arrays that the replay of in-order lanes works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paracosm.jobs import Job
from paracosm.jobs.expand import picoseconds
from paracosm.simulation.chains import contract
from paracosm.simulation.folding import Folding
from paracosm.simulation.joined_chains import JoinedChains, join_chains, offsets_of, sum_chains

__all__ = ["StaticArrays", "chain_sums", "static_arrays"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Numbers = TypeVar("Numbers", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class StaticArrays:
    """Chains of all programs, and where each unit's instants stand.

    A unit is a class of alike ranks, or a rank. Units with one program and one speed share their
    durations, unless all have their own.

    Attributes:
        chains: of the programs.
        program: U indices of programs.
        first_chain, first_row: U + 1 offsets of the units' chains and tasks.
        first_duration, first_length: U offsets into `durations` and `lengths`.
        durations: picoseconds of chains.
        lengths: picoseconds of tasks.
        slots_before: offsets of the calls of each communicator between units.
    """

    chains: JoinedChains
    program: Codes
    first_chain: Ints
    first_row: Ints
    first_duration: Ints
    first_length: Ints
    durations: Ints
    lengths: Ints
    slots_before: Ints


def static_arrays(job: Job, folding: Folding, lengths: Ints | None = None) -> StaticArrays:
    """Return the arrays of a static job whose ranks are folded so.

    Args:
        job: whose tasks.
        folding: of its ranks.
        lengths: picoseconds of the tasks of all units, where they are not those of the programs.

    Raises:
        InputError: a duration that cannot be.
    """
    chains = join_chains([contract(program, len(job.lanes)) for program in job.programs])
    program = job.program[folding.representative]
    first_chain = offsets_of(np.diff(chains.chains_before)[program])
    first_row = offsets_of(np.diff(chains.rows_before)[program])
    if lengths is None:
        own, first_length, first_duration, lengths = _shared(job, folding, chains)
        durations = chain_sums(chains, own, lengths)
    else:
        first_length, first_duration = first_row[:-1], first_chain[:-1]
        durations = chain_sums(chains, program, lengths)
    return StaticArrays(
        chains=chains,
        program=program,
        first_chain=first_chain,
        first_row=first_row,
        first_duration=first_duration,
        first_length=first_length,
        durations=durations,
        lengths=lengths,
        slots_before=_slots(folding, chains, program),
    )


def chain_sums(
    chains: JoinedChains, program: Codes, lengths: npt.NDArray[Numbers]
) -> npt.NDArray[Numbers]:
    """Return the sums over the tasks of each chain, of units with these programs side by side."""
    first_chain = offsets_of(np.diff(chains.chains_before)[program])
    first_row = offsets_of(np.diff(chains.rows_before)[program])
    total = np.zeros(int(first_chain[-1]), dtype=lengths.dtype)
    if len(lengths):
        sum_chains(
            program,
            first_chain,
            first_row,
            chains.chains_before,
            chains.rows_before,
            chains.rows,
            chains.first,
            lengths,
            total,
        )
    return total


def _shared(job: Job, folding: Folding, chains: JoinedChains) -> tuple[Codes, Ints, Ints, Ints]:
    """Return the program of every pair of program and speed that occurs, offsets, and lengths."""
    program = job.program[folding.representative]
    speed = job.speed[folding.representative]
    pairs, pair_of = np.unique(
        np.column_stack((program.astype(np.int64), speed.view(np.int64))),
        axis=0,
        return_inverse=True,
    )
    own = pairs[:, 0].astype(np.int32)
    lengths = [
        picoseconds(job.programs[code], float(rate), job.names)
        for code, rate in zip(own, pairs[:, 1].copy().view(np.float64), strict=True)
    ]
    rows = offsets_of(np.diff(chains.rows_before)[own])
    totals = offsets_of(np.diff(chains.chains_before)[own])
    of_unit = pair_of.reshape(-1)
    return own, rows[of_unit], totals[of_unit], np.concatenate(lengths)


def _slots(folding: Folding, chains: JoinedChains, program: Codes) -> Ints:
    """Return offsets of as many slots for each communicator as a member has calls."""
    roles = folding.group.shape[1]
    most = np.zeros(len(folding.offsets) - 1, dtype=np.int64)
    for own in np.unique(program).tolist():
        of_program = slice(chains.chains_before[own], chains.chains_before[own + 1])
        role = chains.role[of_program]
        calls = np.bincount(role[role >= 0], minlength=roles)
        groups = folding.group[program == own]
        used = groups >= 0
        np.maximum.at(most, groups[used], np.broadcast_to(calls, groups.shape)[used])
    return offsets_of(most)

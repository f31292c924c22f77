"""Room for the updates in flight: more of it, or another pattern."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.kernel.links import with_more_room
from paracosm.relaxation.kernel.loop import rows_in_flight
from paracosm.relaxation.kernel.prepare import CHOICE_OF, Arrays, blocks_of, slots_for
from paracosm.relaxation.patterns import Pattern
from paracosm.relaxation.spec import RunSpec

__all__ = ["change_pattern", "grow", "grow_slots"]

_Update = tuple[NDArray[np.int64], NDArray[np.float64]]


def grow(arrays: Arrays) -> None:
    """Make room for what the loop has none for: messages under way, or rows in flight."""
    if arrays.rules.distributed and arrays.halos.fullest[0] > arrays.halos.arrival.shape[1] - 2:
        arrays.halos = with_more_room(arrays.halos)
    else:
        grow_slots(arrays)


def grow_slots(arrays: Arrays) -> None:
    """Double the room for every processor's rows in flight."""
    flight = arrays.flight
    in_flight = [
        (flight.chosen[begin:end], flight.values[begin:end])
        for begin, end in zip(flight.slot[:-1], flight.slot[1:], strict=True)
    ]
    _set_slots(arrays, 2 * np.diff(flight.slot), in_flight)


def change_pattern(arrays: Arrays, spec: RunSpec, pattern: Pattern) -> None:
    """Let processors take blocks of another pattern; updates in flight keep their rows.

    `spec` has the new pattern.
    """
    flight, processors = arrays.flight, pattern.processors
    in_flight = []
    for who in range(processors):
        first, end, chosen = rows_in_flight(arrays.blocks, flight, who)
        rows = (flight.chosen if chosen else arrays.blocks.rows)[first:end]
        slot = flight.slot[who]
        in_flight.append((rows, flight.values[slot : slot + rows.size]))
        flight.size[who] = rows.size
    blocks = blocks_of(pattern)
    room = np.maximum(slots_for(spec, blocks), [rows.size for rows, _ in in_flight])
    _set_slots(arrays, room, in_flight)
    flight.block[:] = np.arange(processors) % pattern.blocks
    arrays.blocks = blocks
    arrays.rules = arrays.rules._replace(choice=CHOICE_OF[pattern.choice])
    arrays.tally.local[:] = -1.0  # other blocks have other residuals


def _set_slots(arrays: Arrays, room: NDArray[np.int64], in_flight: list[_Update]) -> None:
    slot = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    values, chosen = np.zeros(slot[-1]), np.zeros(slot[-1], np.int64)
    for start, (rows, new) in zip(slot, in_flight, strict=False):
        chosen[start : start + rows.size] = rows
        values[start : start + new.size] = new
    arrays.flight = arrays.flight._replace(slot=slot, values=values, chosen=chosen)

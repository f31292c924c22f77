"""Who reads and updates which tensor while steps are simulated, and at which version.

Within an instant all updates come before all reads: a read that is requested as an update ends sees
it. Versions of reads are therefore recorded when the instant is over, except for a gradient that
arrives in the very instant in which its tensor was read.
"""

from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.compiled import columns, inlined
from paracosm.simulation.schedule import READ, STEP, UPDATE
from paracosm.simulation.schedule_kernel import PUSHED

NONE = -1

READS, SEEN, UPDATES, STEPS, DROPPED, UNREAD = range(6)
"""In `Versions.counts`: rows written; rows of reads whose versions are final; gradients dropped;
a tensor that was updated before it was read in its step, else `NONE`."""

TENSOR = np.dtype(columns("i8", "version", "gathered"))
"""A tensor: updates made, gradients gathered for the next one."""

PAIR = np.dtype(columns("i8", "version", "step", "row"))
"""A worker and a tensor: version of the last read, `NONE` in its own instant; its step and row."""


class Versions(NamedTuple):
    """T tensors and their events; T is 0 if versions are not recorded.

    A gradient counts when it arrives or, if late ones are dropped, when its step ends in time,
    which is known only then.
    """

    pushes: int  # gradients that make an update
    at_end: bool  # whether they count when their step ends
    read_by: Codes  # by op, the tensor that it reads, or `NONE`
    updated_by: Codes  # by op, the tensor that it updates, or `NONE`
    updated: Codes  # all tensors that a step updates
    counts: Ints
    tensors: Any
    pairs: Any
    pushed: Any
    read_rows: Any
    update_rows: Any
    step_rows: Any


def make_versions(
    read_by: Ints, updated_by: Ints, workers: int, pushes: int, at_end: bool, room: int
) -> Versions:
    """Return tensors of version 0, and room for at least `room` rows of each kind.

    `read_by`, `updated_by`: by op, the tensor that it reads or updates; -1 for all others.
    """
    count = int(max(read_by.max(initial=NONE), updated_by.max(initial=NONE))) + 1
    counts = np.zeros(6, np.int64)
    counts[UNREAD] = NONE
    pairs = np.zeros(workers * count, PAIR)
    pairs["step"] = NONE
    rows = room if count else 0
    return Versions(
        pushes=pushes,
        at_end=at_end,
        read_by=read_by.astype(np.int32),
        updated_by=updated_by.astype(np.int32),
        updated=np.unique(updated_by[updated_by >= 0]),
        counts=counts,
        tensors=np.zeros(count, TENSOR),
        pairs=pairs,
        pushed=np.zeros(count * pushes, PUSHED),
        read_rows=np.zeros(rows, READ),
        update_rows=np.zeros(max(rows, count * pushes), UPDATE),
        step_rows=np.zeros(rows, STEP),
    )


@inlined
def has_no_room(versions: Any) -> Any:
    """Return whether there is too little room for the rows of another event."""
    counts, tensors = versions.counts, versions.tensors.size
    return (
        versions.read_rows.size - counts[READS] < tensors
        or versions.update_rows.size - counts[UPDATES] < tensors * versions.pushes
        or versions.step_rows.size == counts[STEPS]
    )


@inlined
def read(versions: Any, worker: Any, step: Any, tensor: Any, now: Any) -> None:
    """Record a worker's request for a tensor."""
    counts = versions.counts
    row = versions.read_rows[counts[READS]]
    row.time, row.worker, row.step, row.tensor, row.version = now, worker, step, tensor, NONE
    pair = versions.pairs[worker * versions.tensors.size + tensor]
    pair.version, pair.step, pair.row = NONE, step, counts[READS]
    counts[READS] += 1


@inlined
def end_instant(versions: Any) -> None:
    """Make the reads of this instant see all updates of it."""
    counts = versions.counts
    for index in range(counts[SEEN], counts[READS]):
        row = versions.read_rows[index]
        if row.version == NONE:
            row.version = versions.tensors[row.tensor].version
            versions.pairs[row.worker * versions.tensors.size + row.tensor].version = row.version
    counts[SEEN] = counts[READS]


@inlined
def push(versions: Any, worker: Any, step: Any, tensor: Any, now: Any) -> None:
    """Deliver a worker's gradient of a tensor to the server, which updates it with enough."""
    counts = versions.counts
    state = versions.tensors[tensor]
    pair = versions.pairs[worker * versions.tensors.size + tensor]
    if pair.step != step:
        counts[UNREAD] = tensor
    if pair.version == NONE:
        pair.version = state.version
        versions.read_rows[pair.row].version = state.version
    mine = versions.pushed[tensor * versions.pushes + state.gathered]
    mine.worker, mine.step, mine.version = worker, step, pair.version
    state.gathered += 1
    if state.gathered == versions.pushes:
        state.gathered = 0
        state.version += 1
        for index in range(versions.pushes):
            one = versions.pushed[tensor * versions.pushes + index]
            row = versions.update_rows[counts[UPDATES]]
            row.time, row.worker, row.step, row.tensor = now, one.worker, one.step, tensor
            row.version, row.read = state.version, one.version
            counts[UPDATES] += 1


@inlined
def is_old(versions: Any, worker: Any) -> Any:
    """Return whether a tensor that a worker's step updates was updated since the step read it."""
    for index in range(versions.updated.size):
        tensor = np.int64(versions.updated[index])
        version = versions.pairs[worker * versions.tensors.size + tensor].version
        if version != NONE and version < versions.tensors[tensor].version:
            return True
    return False


@inlined
def end_step(versions: Any, worker: Any, step: Any, begin: Any, now: Any, is_late: Any) -> None:
    """Record the end of a step; if late gradients are dropped, count or drop its own."""
    counts = versions.counts
    note_step(versions, worker, step, begin, now, not is_late)
    if is_late:
        counts[DROPPED] += versions.updated.size
    elif versions.at_end:
        for index in range(versions.updated.size):
            push(versions, worker, step, np.int64(versions.updated[index]), now)


@inlined
def note_step(
    versions: Any, worker: Any, step: Any, begin: Any, now: Any, is_accepted: Any
) -> None:
    """Record that a step has ended, or is lost with its worker, and whether a gradient counts."""
    row = versions.step_rows[versions.counts[STEPS]]
    row.worker, row.step, row.begin, row.end = worker, step, begin, now
    row.accepted = is_accepted
    versions.counts[STEPS] += 1

"""What makes a script that is short of memory fit: bytes that it frees, and seconds that it costs.

Each way is played: storages are changed as it would change them, and the allocator takes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.emulation.device.memory_model import (
    OF_STATE,
    MemoryUse,
    first_of_last_iteration,
    grouped,
    memory_use,
)
from paracosm.emulation.device.program import lanes_of
from paracosm.emulation.device.recording import (
    COLLECTIVE,
    COPY,
    OP,
    Call,
    Recording,
    Storages,
)
from paracosm.graphs.graph import PHASES
from paracosm.jobs.job import MEMORY
from paracosm.jobs.strategies.work import COMMUNICATION

_FORWARD, _BACKWARD = PHASES.index("forward"), PHASES.index("backward")
_PARAMETERS, _OPTIMIZER = MEMORY.index("parameters"), MEMORY.index("optimizer")
_ACTIVATIONS, _TEMPORARY = MEMORY.index("activations"), MEMORY.index("temporary")
_WORTH = 0.02  # share of what is allocated that is worth a change
_SHOWN = 2

SecondsOf = Callable[[Call], float]
"""The seconds of a collective of the recorded rank."""


@dataclass(frozen=True)
class Saving:
    """A change of the script, or of its job."""

    change: str  # "full activation checkpointing of the 32 layers.*"
    freed: int  # bytes of what is allocated at most
    seconds: float | None  # that an iteration takes longer, where that is known
    verdict: str  # with it


def savings(
    recording: Recording, use: MemoryUse, seconds: Floats, seconds_of: SecondsOf
) -> list[Saving]:
    """Return what to change where memory is short, what makes it fit first.

    Args:
        recording: of the rank that holds most.
        use: what it takes.
        seconds: of its distinct ops.
        seconds_of: collectives.
    """
    ways = (_sharded_optimizer, _recomputed, _smaller_batch, _more_ranks)
    known = []
    for way in ways:
        changed = way(recording, seconds, seconds_of)
        if changed is None:
            continue
        change, storages, longer = changed
        after = memory_use(replace(recording, storages=storages), use.capacity)
        freed = use.allocated - after.allocated
        if freed >= _WORTH * use.allocated:
            known.append(Saving(change, freed, longer, after.verdict))
    order = ("fits", "tight", "does not fit")
    known.sort(key=lambda each: order.index(each.verdict))
    return known[:_SHOWN]


_Changed = tuple[str, Storages, float | None] | None


def _recomputed(recording: Recording, seconds: Floats, seconds_of: SecondsOf) -> _Changed:
    """Let blocks of the model keep what they are given alone, and compute the rest again."""
    names, block_of = _blocks(recording.modules)
    if not names:
        return None
    of_row = block_of[recording.module]
    storages = recording.storages
    is_forward = (recording.phase == _FORWARD) & (recording.again == 0) & (of_row >= 0)
    is_backward = (recording.phase == _BACKWARD) & (of_row >= 0)
    block, given_to = block_of[storages.module], block_of[storages.handed_to]
    first = np.minimum(storages.first, len(recording) - 1)
    is_kept = storages.handed_to >= 0
    chosen = (storages.kind == _ACTIVATIONS) & (block >= 0) & ~is_kept & is_forward[first]
    gone, back = np.zeros(len(storages), dtype=np.int64), np.zeros(len(storages), dtype=np.int64)
    last = storages.last.copy()
    repeated = np.zeros(len(recording), dtype=np.bool_)
    for number in range(len(names)):
        begins, ends = _runs(is_forward, of_row, number)
        again = _runs(is_backward, of_row, number)[0]
        mine = np.flatnonzero(chosen & (block == number))
        if not (len(mine) and len(begins) and len(again)):
            continue
        run = np.minimum(np.searchsorted(ends, first[mine]), len(ends) - 1)
        gone[mine] = ends[run] + 1
        place = np.searchsorted(again, storages.last[mine], side="right") - 1
        back[mine] = np.where(place >= 0, again[np.maximum(place, 0)], 0)
        # It is computed again up to the last op that makes what the backward pass reads, or as far
        # as it is already.
        is_read = (storages.read[mine] >= back[mine]) & (back[mine] > gone[mine])
        until = np.full(len(ends), -1, dtype=np.int64)
        np.maximum.at(until, run[is_read], first[mine][is_read])
        last_again = np.flatnonzero((recording.again == 1) & (of_row == number))[-1:]
        known = recording.code[last_again] if len(last_again) else -2
        for begin, end, needed in zip(begins.tolist(), ends.tolist(), until.tolist(), strict=True):
            is_known = np.flatnonzero(recording.code[begin : end + 1] == known)[-1:]
            stop = max([needed + 1, *(begin + is_known + 1).tolist()])
            repeated[begin:stop] |= of_row[begin:stop] == number
        # What it is given is kept for that.
        given = np.flatnonzero((storages.kind == _ACTIVATIONS) & is_kept & (given_to == number))
        place = np.searchsorted(again, first[given])
        is_used = (place < len(again)) & (block[given] != number) & is_forward[first[given]]
        last[given[is_used]] = np.maximum(last[given[is_used]], again[place[is_used]])
    split = chosen & (storages.first < gone) & (gone < back) & (back <= storages.last)
    if not split.any():
        return None
    changed = _split(replace(storages, last=last), split, gone, back)
    rows = slice(first_of_last_iteration(recording), len(recording))
    longer = _time(recording, seconds, seconds_of, rows, repeated & is_forward)
    longer -= _time(recording, seconds, seconds_of, rows, (recording.again == 1) & (of_row >= 0))
    modules = _in_words(names)
    return f"full activation checkpointing of {modules}", changed, max(longer, 0.0)


def _blocks(modules: Sequence[str]) -> tuple[list[str], Ints]:
    """Return the repeated blocks of a model, and the place of that in which each module is.

    A block is the outermost module with a number for its name that has others beside it. The last
    place stands for what is in no module.
    """
    prefixes = []
    for name in modules:
        parts = name.split(".")
        place = next((place for place, part in enumerate(parts) if part.isdigit()), None)
        prefixes.append("" if place is None else ".".join(parts[: place + 1]))
    known = sorted(set(filter(None, prefixes)), key=prefixes.index)
    _, groups, counts = grouped(known)
    kept = [name for name, group in zip(known, groups, strict=True) if counts[group] > 1]
    places = {name: place for place, name in enumerate(kept)}
    return kept, np.array([*(places.get(prefix, -1) for prefix in prefixes), -1], dtype=np.int64)


def _in_words(blocks: Sequence[str]) -> str:
    names, _, counts = grouped(blocks)
    return " and ".join(
        f"the {count} blocks {name}" for name, count in zip(names, counts, strict=True)
    )


def _runs(chosen: Bools, of_row: Ints, number: int) -> tuple[Ints, Ints]:
    """Return the first and last rows of the stretches of a block's rows, among chosen ones."""
    rows = np.flatnonzero(chosen).astype(np.int64)
    is_mine = (of_row[rows] == number).astype(np.int8)
    changes = np.diff(is_mine, prepend=0, append=0)
    return rows[np.flatnonzero(changes > 0)], rows[np.flatnonzero(changes < 0) - 1]


def _split(storages: Storages, split: Bools, gone: Ints, back: Ints) -> Storages:
    """Return storages of which some are not there from a row on until another one."""
    columns = dict(vars(storages))
    columns["last"] = np.where(split, gone - 1, storages.last)
    added = {name: column[split] for name, column in vars(storages).items()}
    added["first"] = back[split]
    joined = {name: np.concatenate([columns[name], added[name]]) for name in columns}
    order = np.argsort(joined["first"], kind="stable")
    return Storages(**{name: column[order] for name, column in joined.items()})


def _time(
    recording: Recording, seconds: Floats, seconds_of: SecondsOf, rows: slice, chosen: Bools
) -> float:
    """Return the seconds of chosen rows: ops, and collectives within a replica."""
    kind, code = recording.kind[rows], recording.code[rows]
    picked = chosen[rows]
    is_op = picked & ((kind == OP) | (kind == COPY))
    lanes = lanes_of(recording)
    calls = (recording.calls[number] for number in code[picked & (kind == COLLECTIVE)].tolist())
    within = (call for call in calls if lanes[call.group] != COMMUNICATION)
    return float(seconds[code[is_op]].sum()) + sum(map(seconds_of, within))


def _smaller_batch(recording: Recording, seconds: Floats, seconds_of: SecondsOf) -> _Changed:
    if recording.batch < 2 or recording.batch % 2:
        return None
    kinds = (_ACTIVATIONS, _TEMPORARY)
    change = f"a micro-batch of {recording.batch // 2} in place of {recording.batch}"
    return change, _scaled(recording.storages, kinds, 0.5), None


def _sharded_optimizer(recording: Recording, seconds: Floats, seconds_of: SecondsOf) -> _Changed:
    """Divide what the optimizer keeps among replicas that reduce their gradients together."""
    storages = recording.storages
    held = storages.last >= len(recording)
    parameters = int(storages.size[held & (storages.kind == _PARAMETERS)].sum())
    group, moved = _most_moved(recording, "all_reduce")
    if not parameters or moved < parameters / 4:
        return None
    ranks = len(recording.groups[group])
    longer = seconds_of(Call("all_gather", parameters, group))
    change = f"sharding the optimizer's state over its {ranks} ranks (ZeRO)"
    return change, _scaled(storages, (_OPTIMIZER,), 1 / ranks), longer


def _more_ranks(recording: Recording, seconds: Floats, seconds_of: SecondsOf) -> _Changed:
    """Shard what is sharded already over twice as many ranks."""
    group, moved = _most_moved(recording, "reduce_scatter")
    if not moved or lanes_of(recording)[group] != COMMUNICATION:
        return None
    change = f"sharding over {2 * len(recording.groups[group])} ranks"
    return change, _scaled(recording.storages, OF_STATE, 0.5), None


def _most_moved(recording: Recording, kind: str) -> tuple[str, int]:
    """Return the group in which most bytes are moved in an iteration, and how many."""
    rows = slice(first_of_last_iteration(recording), len(recording))
    codes = recording.code[rows][recording.kind[rows] == COLLECTIVE]
    moved: dict[str, int] = {}
    for call in (recording.calls[code] for code in codes.tolist()):
        if call.kind == kind and len(recording.groups[call.group]) > 1:
            moved[call.group] = moved.get(call.group, 0) + call.size
    return max(moved.items(), key=lambda item: item[1], default=("", 0))


def _scaled(storages: Storages, kinds: Sequence[int], factor: float) -> Storages:
    chosen = np.isin(storages.kind, kinds)
    size = np.where(chosen, np.ceil(storages.size * factor), storages.size).astype(np.int64)
    return replace(storages, size=size)

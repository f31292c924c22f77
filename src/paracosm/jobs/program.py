"""What one rank does in an iteration: its tasks, in the order in which they are issued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["KINDS", "STEPS", "Program"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

KINDS = ("task", "collective", "send", "receive")
"""Work of the rank alone; an operation at which all ranks of a communicator meet; a message that
leaves, whoever waits for it; its arrival."""

STEPS = ("forward", "backward", "recompute", "optimizer", "communication", "other")
"""What a task is good for; times are summed by it."""


@dataclass(frozen=True, eq=False)
class Program:
    """The n tasks of one rank, of which many ranks may have the same.

    A task begins when everything that it depends on has ended and its lane is free; tasks of an
    in-order lane run in the order of their rows. A collective takes its lane, waits there until
    all ranks of its communicator have come to theirs, and then takes its duration (the longest of
    theirs). A send takes its duration. A receive takes its lane and ends when the message is there:
    its own duration after the end of the send. The k-th collective of a rank on a communicator
    meets the k-th of the others, and the k-th receive gets the k-th send.

    Attributes:
        name: n indices into `Job.names`.
        step: n indices into `STEPS`.
        kind: n indices into `KINDS`.
        lane: n indices into `Job.lanes`; -1 for a task that keeps nothing busy.
        duration: n seconds. Those of kind "task" are divided by the speed of the rank.
        offsets, dependencies: CSR: rows `dependencies[offsets[i]:offsets[i + 1]]`, all before i.
        role: n indices into `Job.roles`, which lead to the communicator; -1 for kind "task".
        size: n bytes that are communicated; 0 for kind "task".
        priority: n numbers, the smallest first, for lanes that go by priority.
        microbatch: n numbers; -1 for tasks that belong to none.
        allocated: n bytes that are held from the begin of a task on.
        released: n bytes that are no longer held from its end on.
        resident: bytes that are held throughout.
    """

    name: Codes
    step: Codes
    kind: Codes
    lane: Codes
    duration: Floats
    offsets: Ints
    dependencies: Ints
    role: Codes
    size: Ints
    priority: Codes
    microbatch: Codes
    allocated: Ints
    released: Ints
    resident: int = 0

    def __len__(self) -> int:
        return len(self.name)

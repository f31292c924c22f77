"""A whole job: the programs of its ranks, and who communicates with whom over what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.network import Stations

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


POLICIES = ("in order", "fifo", "priority")
"""In which order the tasks of a lane run: that of their rows; that in which they become ready; that
of their priority among those that are ready. Ties go to the smaller rank, then the earlier row."""


@dataclass(frozen=True, eq=False)
class Communicators:
    """Groups of ranks that communicate, in CSR form.

    Attributes:
        offsets, members: ranks `members[offsets[c]:offsets[c + 1]]` of communicator c. That of a
            message has two: the sender, then the receiver.
        network: what the messages of the first communicators share with others: communicator c
            sends over its connection c; of all others durations say all.
    """

    offsets: Ints
    members: Codes
    network: Stations | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ranks(self, communicator: int) -> tuple[int, ...]:
        first, last = self.offsets[communicator : communicator + 2]
        return tuple(self.members[first:last].tolist())


@dataclass(frozen=True, eq=False)
class Job:
    """The task graph of a job of R ranks, written down once for every distinct program.

    Attributes:
        names: of tasks.
        lanes: what tasks keep busy, of each rank: "compute", "communication", ...
        policies: one of `POLICIES` for each lane.
        roles: what a communicator is to a rank: "data", "tensor", "next".
        programs: the distinct ones.
        program: R indices into `programs`.
        speed: R relative speeds of the ranks' nodes.
        communicators: the groups.
        communicator: R x roles indices into `communicators`; -1 where a rank has none in that role.
        labels: R names of the ranks, for people ("worker3").
        examples: that the job works on in an iteration; None where nobody says.
        provenance: where the job comes from; plain JSON.
    """

    names: tuple[str, ...]
    lanes: tuple[str, ...]
    policies: tuple[str, ...]
    roles: tuple[str, ...]
    programs: tuple[Program, ...]
    program: Codes
    speed: Floats
    communicators: Communicators
    communicator: Codes
    labels: tuple[str, ...]
    examples: int | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return len(self.program)

    @property
    def tasks(self) -> int:
        """How many tasks all ranks have together."""
        lengths = np.array([len(program) for program in self.programs], dtype=np.int64)
        return int(lengths[self.program].sum()) if self.ranks else 0

    @property
    def is_static(self) -> bool:
        """Whether the order on every lane is known beforehand and no links are shared."""
        in_order = all(policy == "in order" for policy in self.policies)
        return in_order and self.communicators.network is None and self._every_task_has_a_lane

    @property
    def _every_task_has_a_lane(self) -> bool:
        return all(bool((program.lane >= 0).all()) for program in self.programs)


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """n tasks on r exclusive resources and l shared links. Times are integer picoseconds.

    Attributes:
        resource: n indices of the exclusive resource that a task holds; -1 for none.
        duration: n picoseconds; of a task with a route, the time before it asks for its links.
        priority: n numbers, the smallest first.
        offsets, dependencies: CSR: rows that must have ended before a task is ready.
        meeting: n numbers of the collective that a task is part of; -1 for none. Its tasks arrive
            one by one, each holding its resource, begin together when the last has arrived, and
            end together after the longest of their durations.
        awaited: n rows; -1 for none. A task that awaits another one holds its resource and ends
            its own duration after the end of the other, or at once where that is past.
        route: n indices into the routes; -1 for tasks that send nothing over shared links.
        demand: n amounts that tasks ask of their routes: bytes that flow (fair), or picoseconds for
            which they hold all links alone (serial).
        route_offsets, routes: CSR: links of each route, each link at most once.
        bandwidth: l bytes/s.
        policy: r indices into `POLICIES`, by which a resource chooses among the tasks that want it.
        sharing: "fair": flows over a link share its bandwidth so that rates are max-min fair;
            "serial": they have it one after the other.
    """

    resource: Codes
    duration: Ints
    priority: Codes
    offsets: Ints
    dependencies: Ints
    meeting: Codes
    awaited: Ints
    route: Codes
    demand: Floats
    route_offsets: Ints
    routes: Codes
    bandwidth: Floats
    policy: Codes
    sharing: str = "fair"

    def __len__(self) -> int:
        return len(self.resource)

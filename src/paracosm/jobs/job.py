"""A whole job: the programs of its ranks, and their communicators."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.cluster.link import Sharing
from paracosm.network import Stations

KINDS = ("task", "collective", "send", "receive")
"""Work of the rank alone; an operation at which all ranks of a communicator meet; a message that
leaves, whoever waits for it; its arrival."""

STEPS = ("forward", "backward", "recompute", "optimizer", "communication", "other")
"""What a task is good for; times are summed by it."""


MEMORY = (
    *("parameters", "gradients", "optimizer", "activations", "collectives", "temporary"),
    *("master weights", "logits", "inputs"),
)
"""What memory of a device is for. `optimizer` are moments and what a step makes on the way,
`master weights` copies of parameters in single precision; `collectives` what is gathered, reduced
and sent; `temporary` what backward passes make; `logits` also their copies and gradients."""


class Holdings(NamedTuple):
    """k blocks that tasks take, and give back; of one row in the order in which it does so."""

    row: Ints  # of the task
    size: Ints  # bytes: above 0 taken at its begin, below 0 given back at its end
    kind: Codes  # index into `MEMORY`
    name: Codes  # index into `Job.names`: what it is, "mlp.up"


NOTHING_HELD = Holdings(
    row=np.empty(0, dtype=np.int64),
    size=np.empty(0, dtype=np.int64),
    kind=np.empty(0, dtype=np.int32),
    name=np.empty(0, dtype=np.int32),
)


@dataclass(frozen=True, eq=False)
class Program:
    """The n tasks of one rank, shared by all ranks with the same program.

    A task begins when all of its dependencies have ended and its lane is free; tasks of an in-order
    lane run in the order of their rows. A collective takes its lane, waits there until all ranks of
    its communicator have arrived, and then takes its duration (the longest of theirs). A send takes
    its duration. A receive takes its lane and ends its own duration after the end of the send. The
    k-th collective of a rank on a communicator meets the k-th of the others, and the k-th receive
    gets the k-th send.
    """

    name: Codes  # n indices into `Job.names`
    step: Codes  # n indices into `STEPS`
    kind: Codes  # n indices into `KINDS`
    lane: Codes  # n indices into `Job.lanes`; -1 for a task that keeps nothing busy
    duration: Floats  # n seconds. Those of kind "task" are divided by the speed of the rank.
    # offsets, dependencies: CSR: rows `dependencies[offsets[i]:offsets[i + 1]]`, all before i
    offsets: Ints
    dependencies: Ints
    role: Codes  # n indices into `Job.roles`, which lead to the communicator; -1 for kind "task"
    size: Ints  # n bytes that are communicated; 0 for kind "task"
    priority: Codes  # n numbers, the smallest first, for lanes that go by priority
    microbatch: Codes  # n numbers; -1 for tasks that belong to none
    holdings: Holdings
    # bytes that are held throughout, by what they are for
    throughout: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # bytes that the host holds for the rank throughout, by what they are for
    on_host: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        return len(self.name)

    @property
    def resident(self) -> int:
        """Bytes that are held throughout."""
        return sum(self.throughout.values())

    @property
    def allocated(self) -> Ints:
        """n bytes that are held from the begin of a task on."""
        return self._moved(1)

    @property
    def released(self) -> Ints:
        """n bytes that are no longer held from its end on."""
        return self._moved(-1)

    def _moved(self, sign: int) -> Ints:
        moved = np.zeros(len(self), dtype=np.int64)
        np.add.at(moved, self.holdings.row, np.maximum(sign * self.holdings.size, 0))
        return moved


POLICIES = ("in order", "fifo", "priority")
"""In which order the tasks of a lane run: that of their rows; that in which they become ready; that
of their priority among those that are ready. Ties go to the smaller rank, then the earlier row."""


@dataclass(frozen=True, eq=False)
class Communicators:
    """Groups of ranks that communicate, in CSR form."""

    offsets: Ints
    # ranks `members[offsets[c]:offsets[c + 1]]`; of a message the sender, then the receiver
    members: Codes
    # communicator c sends over its connection c; of all others durations say all
    network: Stations | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ranks(self, communicator: int) -> tuple[int, ...]:
        first, last = self.offsets[communicator : communicator + 2]
        return tuple(self.members[first:last].tolist())


@dataclass(frozen=True, eq=False)
class Job:
    """The task graph of a job of R ranks, stored once for every distinct program."""

    names: tuple[str, ...]  # of tasks
    lanes: tuple[str, ...]  # what tasks keep busy, of each rank: "compute", "communication", ...
    policies: tuple[str, ...]  # one of `POLICIES` for each lane
    roles: tuple[str, ...]  # what a communicator is to a rank: "data", "tensor", "next"
    programs: tuple[Program, ...]  # the distinct ones
    program: Codes  # R indices into `programs`
    speed: Floats  # R relative speeds of the ranks' nodes
    communicators: Communicators  # the groups
    # R x roles indices into `communicators`; -1 where a rank has none in that role
    communicator: Codes
    labels: tuple[str, ...]  # R names of the ranks, for people ("worker3")
    examples: int | None = None  # that the job works on in an iteration; None if unknown
    # how much longer tasks of the lane "compute" take while a collective of the rank's lane
    # "communication" is under way
    slowdown: float = 1.0
    # where the job comes from; plain JSON
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return len(self.program)

    @property
    def tasks(self) -> int:
        """The number of tasks of all ranks together."""
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
    """n tasks on r exclusive resources and l shared links. Times are integer picoseconds."""

    resource: Codes  # n indices of the exclusive resource that a task holds; -1 for none
    duration: Ints  # n picoseconds; of a task with a route, the time before it asks for its links
    priority: Codes  # n numbers, the smallest first
    offsets: Ints  # offsets, dependencies: CSR: rows that must have ended before a task is ready
    dependencies: Ints
    # n numbers of the collective that a task is part of; -1 for none. Its tasks arrive one by one,
    # each holding its resource, begin together when the last has arrived, and end together after
    # the longest of their durations.
    meeting: Codes
    # n rows; -1 for none. A task that awaits another one holds its resource and ends its own
    # duration after the end of the other, or at once where that is past.
    awaited: Ints
    route: Codes  # n indices into the routes; -1 for tasks that send nothing over shared links
    # n amounts that tasks ask of their routes: bytes (fair, packets), or picoseconds for which they
    # hold all links alone (serial)
    demand: Floats
    route_offsets: Ints  # route_offsets, routes: CSR: links of each route, each link at most once
    routes: Codes
    bandwidth: Floats  # l bytes/s
    # r indices into `POLICIES`, by which a resource chooses among the tasks that want it
    policy: Codes
    # how messages that meet at a link share it, see `paracosm.network`; those of one route are a
    # stream of packets
    sharing: Sharing = "fair"

    def __len__(self) -> int:
        return len(self.resource)

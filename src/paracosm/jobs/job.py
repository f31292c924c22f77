"""A whole job: the programs of its ranks, and who communicates with whom over what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.jobs.program import Program
from paracosm.network import Stations

__all__ = ["POLICIES", "Communicators", "Job"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

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
        """Return the ranks of a communicator."""
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
        """How many there are."""
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

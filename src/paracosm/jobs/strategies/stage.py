"""One stage of one rank, and how it communicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from paracosm.cluster.changes import Change
from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import collective_time
from paracosm.errors import InputError
from paracosm.jobs import Codebook
from paracosm.jobs.blocks import HERE, BlockWriter, last_on
from paracosm.jobs.strategies.plan import Part, Plan
from paracosm.jobs.strategies.rows import Ready, RowWriter, row_anchors
from paracosm.jobs.strategies.work import COMMUNICATION, DEVICE


@dataclass(frozen=True, eq=False)
class Books:
    """The codebooks that all blocks of a job share."""

    names: Codebook
    lanes: Codebook
    roles: Codebook

    def writer(self) -> BlockWriter:
        return BlockWriter(self.names, self.lanes, self.roles)


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of one rank.

    Attributes:
        plan: of the job.
        part: the rows of this stage.
        costs: of the rank's communication.
        books: for the names of tasks.
    """

    plan: Plan
    part: Part
    costs: Costs
    books: Books

    @property
    def is_first(self) -> bool:
        return self.part.number == 0

    @property
    def is_last(self) -> bool:
        return self.part.number == self.part.stages - 1


def before(stage: Stage) -> Ready:
    """Return what a pass waits for besides its own: what has been sent, where nothing overlaps."""
    return {} if stage.plan.strategy.overlap else {("send", last_on("send")): 0}


def receive(stage: Stage, writer: BlockWriter, what: str, size: int) -> Ready:
    """Receive what another stage sends for the micro-batch, and return what its coming is.

    It may come before it is needed; memory for it is another's matter.
    """
    role = f"{what} in"
    _, later = stage.costs.of_message(role, size)
    row = writer.communicate(f"receive {what}", "receive", later, (), "receive", size, role)
    return {("receive", HERE): row}


def send(stage: Stage, rows: RowWriter, what: str, size: int) -> None:
    """Send what the block has made, when all of it is done."""
    role = f"{what} out"
    seconds, _ = stage.costs.of_message(role, size)
    made = row_anchors(rows.done(DEVICE), "send")
    rows.writer.communicate(f"send {what}", "send", seconds, made, "send", size, role)


def collective(
    stage: Stage, writer: BlockWriter, name: str, kind: str, size: int, there: Ready
) -> int:
    """Write a collective between the data-parallel ranks, and return its row.

    Args:
        stage, writer: of the block.
        name: for people.
        kind: one of `paracosm.cluster.collectives.COLLECTIVES`.
        size: bytes of the whole vector.
        there: what it waits for.
    """
    name = f"{name} of stage {stage.part.number}" if stage.part.stages > 1 else name
    seconds, anchors = stage.costs.of_data(kind, size), row_anchors(there, COMMUNICATION)
    return writer.communicate(name, COMMUNICATION, seconds, anchors, "collective", size, "data")


@dataclass(frozen=True, eq=False)
class Costs:
    """Times of messages and collectives of one rank, and of all that are placed like it.

    Attributes:
        cluster: where.
        all_reduce: the algorithm between data-parallel ranks.
        group: role to the ranks that it communicates with in it.
        changes: of collectives and messages ("send"), one after the other.
        met: kinds of all collectives that were asked for.
    """

    cluster: Cluster
    all_reduce: str = "auto"
    group: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    changes: Sequence[Change] = ()
    met: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str, int], float] = field(default_factory=dict, init=False)

    def of_tensor(self, collective: str, size: int) -> float:
        return self._collective("tensor", collective, size, "auto")

    def of_data(self, collective: str, size: int) -> float:
        return self._collective("data", collective, size, self.all_reduce)

    def of_message(self, role: str, size: int) -> tuple[float, float]:
        """Return the seconds that a message in a role is sent for, and those until it arrives."""
        source, target = (self.cluster.workers[rank] for rank in self.group[role])
        link = self.cluster.link(source, target)
        if link.duplex == "half":
            raise InputError(
                f"duplex: half of {source} and {target}: stages of a pipeline send both ways at "
                "once, so predict takes full-duplex links for pp"
            )
        whole = self._changed("send", link.transfer_time(size))
        later = min(link.propagation(size), whole)
        return whole - later, later

    def _collective(self, role: str, collective: str, size: int, algorithm: str) -> float:
        key = (role, collective, size)
        if key not in self._known:
            ranks = self.group[role]
            for change in self.changes:
                if collective in change.kinds and change.what == "algorithm":
                    algorithm = str(change.value)
            seconds = collective_time(self.cluster, ranks, collective, size, algorithm)
            self._known[key] = self._changed(collective, seconds)
        return self._known[key]

    def _changed(self, kind: str, seconds: float) -> float:
        self.met.add(kind)
        for change in self.changes:
            if kind in change.kinds and change.what == "time":
                seconds = max(seconds * change.factor + float(change.added), 0.0)
        return seconds

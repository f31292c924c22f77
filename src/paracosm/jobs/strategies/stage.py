"""One stage of one rank, and how it communicates."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.jobs import Codebook
from paracosm.jobs.blocks import HERE, BlockWriter, last_on
from paracosm.jobs.strategies.costs import Costs
from paracosm.jobs.strategies.part import Part
from paracosm.jobs.strategies.plan import Plan
from paracosm.jobs.strategies.rows import Ready, RowWriter, places
from paracosm.jobs.strategies.work import COMMUNICATION, DEVICE

__all__ = ["Books", "Stage", "before", "collective", "receive", "send"]


@dataclass(frozen=True, eq=False)
class Books:
    """The codebooks that all blocks of a job share."""

    names: Codebook
    lanes: Codebook
    roles: Codebook

    def writer(self) -> BlockWriter:
        """Return an empty block."""
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
        """Whether nothing comes before it."""
        return self.part.number == 0

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after it."""
        return self.part.number == self.part.stages - 1


def before(stage: Stage) -> Ready:
    """Return what a pass waits for besides its own: what has been sent, where nothing overlaps."""
    return {} if stage.plan.strategy.overlap else {("send", last_on("send")): 0}


def receive(stage: Stage, writer: BlockWriter, what: str, size: int) -> Ready:
    """Receive what another stage sends for the micro-batch, and return what its coming is.

    It may come before it is needed; memory for it is another's matter.
    """
    row = writer.add(
        f"receive {what}",
        "receive",
        stage.costs.of_message(f"{what} in", size)[1],
        step="communication",
        kind="receive",
        role=f"{what} in",
        size=size,
    )
    return {("receive", HERE): row}


def send(stage: Stage, rows: RowWriter, what: str, size: int) -> None:
    """Send what the block has made, when all of it is done."""
    role = f"{what} out"
    rows.writer.add(
        f"send {what}",
        "send",
        stage.costs.of_message(role, size)[0],
        places(rows.done(DEVICE), "send"),
        step="communication",
        kind="send",
        role=role,
        size=size,
    )


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
    return writer.add(
        f"{name} of stage {stage.part.number}" if stage.part.stages > 1 else name,
        COMMUNICATION,
        stage.costs.of_data(kind, size),
        places(there, COMMUNICATION),
        step="communication",
        kind="collective",
        role="data",
        size=size,
    )

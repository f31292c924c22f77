"""A traced job: the programs to replay, and their recorded times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paracosm.arrays import Codes, Floats, Ints
from paracosm.jobs.job import Job
from paracosm.timeline.kineto.trace import Collective


@dataclass(frozen=True, eq=False)
class TracedRank:
    """The recorded times of the n rows of a rank's program.

    Times are n seconds, as traced, from the beginning of the job; a collective or a message waits
    from its arrival to its begin, when the last rank has arrived.
    """

    path: Path  # of the trace
    rank: int  # its number in the job that was traced
    arrive: Floats
    begin: Floats
    end: Floats
    work: Codes  # n indices into `WORK`
    # Rows with which steps begin, and the last of the thread of the last step; empty: no steps.
    marks: Ints
    iteration: Codes  # n numbers of the steps in which the rows were done or launched; -1 for none
    launches: Ints  # rows of calls ...
    spans: Ints  # ... and of the spans that they launched, in that order
    missing: tuple[str, ...]  # what the trace lacks
    has_device: bool  # if not, ops of the host are the computing, and it communicates itself


@dataclass(frozen=True, eq=False)
class TracedJob:
    """A job as it was traced."""

    job: Job  # a program for each rank; collectives last as long as on the last to come
    ranks: tuple[TracedRank, ...]  # what the trace of each says
    groups: int  # how many communicators, the first ones, are of collectives; of messages the rest
    steps: tuple[int, ...]  # numbers of the steps; none where none are marked
    alone: bool  # whether collectives of a rank alone are taken as long as they were
    moved: Mapping[int, float]  # seconds by which clocks were set, by rank; only those that were
    ungrouped: int = 0  # collectives of which no trace says their group: all ranks are taken
    warm: int = 0  # how many of the steps, the first ones, are played and not counted

    @property
    def counted(self) -> tuple[int, ...]:
        return self.steps[self.warm :]


WORK = (
    *("host", "data loading", "launch latency", "gap"),
    *("compute", "copy", "communication", "start", "waiting"),
)
"""What a segment is good for: work of a thread; waiting for data; the time from a call to what it
launches; the time between two spans of a stream; kernels; copies and memsets; collectives and
messages; the time by which a rank begins later than the first one; waiting for a message that its
sender does not wait with."""


@dataclass(slots=True, eq=False)
class Segment:
    """A stretch of time on a lane of one rank, which becomes a task of its program."""

    begin: float  # seconds from the origin of the rank's trace
    end: float  # the same
    lane: str
    name: str
    work: str  # one of `WORK`
    step: str = "other"  # one of `STEPS` of a program
    # Those that end before it begins, in addition to the one before it on its lane.
    after: "list[Segment]" = field(default_factory=list)
    # The collective that it is, or the messages that it sends and receives.
    calls: tuple[Collective, ...] = ()
    called: float | None = None  # when it was, if it is a collective of the host
    row: int = -1  # the last in the program; -1 until it is written
    iteration: int = -1  # which of the window's steps it was done in, or launched in; -1 for none

    @property
    def on_host(self) -> bool:
        """Whether it is a collective that threads of the host carry out."""
        return self.called is not None


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its ranks, ascending, and the collectives of each in order."""

    name: str
    ranks: tuple[int, ...]
    calls: tuple[tuple[Segment, ...], ...]

    @property
    def label(self) -> str:
        few = ", ".join(map(str, self.ranks))
        whole = self.ranks == tuple(range(self.ranks[0], self.ranks[-1] + 1))
        ranks = f"{self.ranks[0]} to {self.ranks[-1]}" if whole and len(self.ranks) > 2 else few
        return f"group {self.name} of ranks {ranks}" if self.name else f"ranks {ranks}"

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

MESSAGE = "send_recv"
"""What both ends of a message are called: a kernel may have several of either kind."""


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
    row: int = -1  # its place among the segments of the rank; -1 until it is known
    iteration: int = -1  # which of the window's steps it was done in, or launched in; -1 for none


@dataclass(frozen=True, slots=True, eq=False)
class Communication:
    """A segment that communicates."""

    row: int  # of the segments of its rank
    begin: float  # seconds from the origin of the rank's trace
    end: float  # the same
    iteration: int  # which of the window's steps it was launched in; -1 for none
    calls: tuple[Collective, ...]  # the collective, or the messages that it sends and receives
    called: float | None  # when it was, if it is a collective of the host

    @property
    def on_host(self) -> bool:
        """Whether it is a collective that threads of the host carry out."""
        return self.called is not None


@dataclass(frozen=True, eq=False)
class Segments:
    """What a rank did in a window: n segments in an order of issue."""

    path: Path  # of the trace
    missing: tuple[str, ...]  # what the trace lacks
    has_device: bool
    start: float  # of the window; seconds from the origin of the rank's trace
    thread: str  # the lane of the training loop
    begin: Floats  # n seconds from the origin of the rank's trace
    end: Floats  # the same
    lanes: tuple[str, ...]  # distinct, as the next one
    names: tuple[str, ...]  # of what communicates, the kind
    lane: Codes  # n indices into `lanes`
    name: Codes  # n indices into `names`
    work: Codes  # n indices into `WORK`
    step: Codes  # n indices into `STEPS` of a program
    iteration: Codes  # n numbers of the window's steps in which they were done or launched; or -1
    # offsets, after: CSR: segments that end before one begins, beside the one before on its lane
    offsets: Ints
    after: Ints
    # Those of the loop's thread with which the steps begin, and its last one; empty: no steps.
    marks: Ints
    launches: Ints  # calls ...
    spans: Ints  # ... and the spans that they launched, in that order
    communication: tuple[Communication, ...]  # those that communicate

    def __len__(self) -> int:
        return len(self.begin)


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its ranks, ascending, and the collectives of each in order."""

    name: str
    ranks: tuple[int, ...]
    calls: tuple[tuple[Communication, ...], ...]

    @property
    def label(self) -> str:
        few = ", ".join(map(str, self.ranks))
        whole = self.ranks == tuple(range(self.ranks[0], self.ranks[-1] + 1))
        ranks = f"{self.ranks[0]} to {self.ranks[-1]}" if whole and len(self.ranks) > 2 else few
        return f"group {self.name} of ranks {ranks}" if self.name else f"ranks {ranks}"

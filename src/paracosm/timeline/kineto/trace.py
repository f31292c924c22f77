"""The content of a Kineto trace: one row per span, in arrays; its steps, and their phases."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.errors import InputError
from paracosm.timeline.kineto.categories import CATEGORIES
from paracosm.timeline.kineto.communication import MESSAGES, NamedKernels


@dataclass(frozen=True, slots=True)
class Lane:
    """The place of spans: a thread of the host, or a stream of a device."""

    kind: str  # "thread" or "stream"
    owner: str  # the process, or the device
    number: str  # as the file has it

    @property
    def name(self) -> str:
        """The name for display: "stream 7"."""
        return f"{self.kind} {self.number}"


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, or a message between two ranks, from the arguments of a span."""

    kind: str  # "all_reduce", ..., "send", "recv"; "" if unknown
    size: int = -1  # bytes that go in, on this rank; -1: unknown
    group: str = ""  # name of the process group, or ""
    group_size: int = 0  # ranks in it, or 0
    ranks: tuple[int, ...] = ()  # which they are, in the group's order, or empty
    peer: int = -1  # of a message: the rank at its other end; -1: unknown
    place: int = -1  # of a message: that rank's place in the group; -1: unknown

    @property
    def is_message(self) -> bool:
        return self.kind in MESSAGES


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group of torch.distributed."""

    name: str
    ranks: tuple[int, ...]  # in the group's order
    on_gloo: bool  # whether gloo is one of its backends


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """The profiler's record of a wait."""

    kind: str  # "stream", "context" (the whole device), "event", or "stream wait event"
    stream: str  # that is waited for, or for the last kind, that waits; "" for none
    on: str  # the stream in which the event was recorded, or ""
    recorded: int  # correlation of the call that recorded it, or -1


@dataclass(frozen=True, slots=True)
class Inputs:
    """The record of an op's arguments under `record_shapes=True`."""

    shapes: tuple[Any, ...]  # [] of what is no tensor, a list of shapes of a list of tensors
    types: tuple[str, ...]  # "float", "c10::Half", "Scalar", ...; "" of what is not there


@dataclass(frozen=True, eq=False)
class KinetoTrace:
    """The n complete spans of one rank's trace, by begin; an op comes before those within it."""

    path: Path
    rank: int | None  # of "distributedInfo", as `world_size`
    world_size: int | None
    origin: int  # nanoseconds on the machine's clock at which the first span begins
    names: tuple[str, ...]  # distinct
    lanes: tuple[Lane, ...]  # distinct threads and streams, by appearance
    begin: Floats  # seconds from the origin
    end: Floats  # of spans that touch, equal to the next one's begin
    duration: Floats  # seconds
    name: Codes  # indices into `names`
    category: Codes  # indices into `CATEGORIES`
    lane: Codes  # indices into `lanes`
    correlation: Ints  # which a call of the runtime shares with what it launches; -1
    record: Ints  # "Record function id", by which execution traces name the op; -1
    # which an op and its gradient share; of ops that call others, the next one's; -1
    sequence: Ints
    collectives: Mapping[int, Collective]  # by row, as the next two
    synchronisations: Mapping[int, Synchronisation]
    inputs: Mapping[int, Inputs]  # empty unless they were recorded and asked for
    missing: tuple[str, ...]  # what the file lacks, in words; it was read without
    # What was left out of it, or taken for something that it need not be, in words with counts.
    notes: tuple[str, ...]
    # Correlations of spans of the device that were left out: when they ran is not known.
    untimed: frozenset[int]
    named: NamedKernels  # which kernels communicate, as the user says
    groups: tuple[ProcessGroup, ...]  # of this rank, in the order in which they were made
    # By lane, the group that a thread of gloo works for; empty where it is not certain.
    group_of_thread: Mapping[int, ProcessGroup]

    def __len__(self) -> int:
        return len(self.begin)

    def of(self, *categories: str) -> Ints:
        """Return the rows of these categories, ascending."""
        wanted = np.zeros(len(CATEGORIES), dtype=bool)
        wanted[[CATEGORIES.index(category) for category in categories]] = True
        return np.flatnonzero(wanted[self.category])

    @cached_property
    def has_device(self) -> bool:
        """Whether something ran on a device; if not, ops of the host are the computing."""
        return any(lane.kind == "stream" for lane in self.lanes)

    def text(self, row: int) -> str:
        """Return the name of a row."""
        return self.names[int(self.name[row])]

    @cached_property
    def lane_names(self) -> tuple[str, ...]:
        """The names of the lanes for display, each with its owner if several have one name."""
        times = Counter(lane.name for lane in self.lanes)
        return tuple(
            lane.name if times[lane.name] == 1 else f"{lane.name} of {lane.owner}"
            for lane in self.lanes
        )

    def kind_of_kernel(self, name: str) -> str:
        """Return how a kernel communicates, by its name; "" if it does not."""
        return self.named.kind_of(name)


SYNCHRONISATIONS = {
    "stream sync": "stream",
    "stream synchronize": "stream",
    "context sync": "context",
    "context synchronize": "context",
    "event sync": "event",
    "event synchronize": "event",
    "stream wait event": "stream wait event",
}

_DTYPES = {
    **dict.fromkeys(("double", "int64", "long", "longint", "float64", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "int32", "float32"), 4),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "c10::half"), 2),
    **dict.fromkeys(("char", "byte", "bool", "int8", "uint8", "unsignedchar", "signedchar"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), 1),
    "c10::bfloat16": 2,
    "c10::complex<float>": 8,
}

_ANNOTATION = re.compile(r"ProfilerStep[#*]|enumerate\(DataLoader\)|Optimizer\.|\[param\||nccl:")

_BACKWARD = re.compile(r"autograd::engine|torch::autograd::|\w+Backward\d*$")


def bytes_of(dtype: str) -> int:
    """Return the bytes of one element ("Float", "c10::BFloat16", "long int"); -1 if unknown."""
    return _DTYPES.get(dtype.lower().replace(" ", ""), -1)


def is_annotation(name: str) -> bool:
    """Whether a span that a file marks as an op is a range around ops (in files up to 2021)."""
    return _ANNOTATION.match(name) is not None


def is_backward(name: str) -> bool:
    """Whether an op is one of autograd's, of a backward pass."""
    return _BACKWARD.match(name) is not None


def counted(count: int, what: str) -> str:
    """Return "1 span", "2 spans"."""
    return f"{count:,} {what}" + ("" if count == 1 else "es" if what.endswith("ch") else "s")


_STEP = re.compile(r"ProfilerStep\*?#(\d{1,18})$")


def is_step(name: str) -> bool:
    """Whether a range is the profiler's mark of a step."""
    return _STEP.match(name) is not None


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the training loop: number, begin and end (seconds from the trace's origin)."""

    number: int
    begin: float
    end: float

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Window:
    """The time to be played: from `begin` to `end` of its steps, in seconds from the origin."""

    begin: float
    end: float
    thread: int  # lane of the training loop; -1 where the trace has no threads
    steps: tuple[Step, ...]  # none where the trace marks none, and is played whole
    on_device: bool = False  # whether steps are marked by what the device does in them


def steps_of(trace: KinetoTrace) -> tuple[Step, ...]:
    """Return the steps that the profiler marked, in order.

    The marks are those on the host, or, if there are none, those on the streams of a device
    (`gpu_user_annotation`), where a step goes from its first kernel to its last one. Of steps of
    one number it is that of the thread that marks the most, of several marks the first, or the
    longest of those at the same time; one without an end marks no step.
    """
    by_number: dict[int, Step] = {}
    for step in step_marks(trace):
        known = by_number.get(step.number)
        if step.duration > 0 and (
            known is None or (step.begin < known.end and step.duration > known.duration)
        ):
            by_number[step.number] = step
    return tuple(by_number[number] for number in sorted(by_number))


def step_marks(trace: KinetoTrace) -> Iterator[Step]:
    """Yield the marks of steps, by begin, whatever is wrong with them.

    What the thread with most marks has marked is not taken from other threads and processes.
    """
    if marked_on_device(trace):
        by_number: dict[int, Step] = {}
        for row, number in _marks(trace, "stream"):
            begin, end = float(trace.begin[row]), float(trace.end[row])
            known = by_number.get(number, Step(number, begin, end))
            by_number[number] = Step(number, min(known.begin, begin), max(known.end, end))
        yield from sorted(by_number.values(), key=lambda step: step.begin)
        return
    marking = _marking_thread(trace)
    marks = [(row, number, int(trace.lane[row]) == marking) for row, number in _marks(trace)]
    own_steps = {number for _, number, mine in marks if mine}
    for row, number, mine in marks:
        if mine or number not in own_steps:
            yield Step(number, float(trace.begin[row]), float(trace.end[row]))


def marked_on_device(trace: KinetoTrace) -> bool:
    """Whether steps are marked on streams alone."""
    return not _marks(trace) and bool(_marks(trace, "stream"))


def _marks(trace: KinetoTrace, kind: str = "thread") -> list[tuple[int, int]]:
    """Return the rows of marks on lanes of a kind, ascending, with the numbers of their steps."""
    return [
        (row, int(match[1]))
        for row in trace.of("annotation").tolist()
        if (match := _STEP.match(trace.text(row))) and trace.lanes[trace.lane[row]].kind == kind
    ]


def _marking_thread(trace: KinetoTrace) -> int:
    """Return the thread with the most marks of steps, of several the first; -1 without marks."""
    times = Counter(int(trace.lane[row]) for row, _ in _marks(trace))
    return max(times, key=lambda lane: times[lane], default=-1)


def window_of(trace: KinetoTrace, numbers: Sequence[int] | None = None) -> Window:
    """Return the window of these steps, which must follow each other; of all without `numbers`.

    Raises:
        InputError: the trace lacks a step.
    """
    marked = steps_of(trace)
    if numbers is not None:
        marked = chosen_steps(trace.path, marked, numbers)
    thread = _main_thread(trace)
    if not marked:
        return Window(0.0, float(trace.end.max(initial=0.0)), thread, ())
    on_device = marked_on_device(trace)
    return Window(marked[0].begin, marked[-1].end, thread, marked, on_device)


def chosen_steps(path: Path, marked: Sequence[Step], numbers: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps of these numbers in order; InputError if a trace lacks one."""
    known = {step.number: step for step in marked}
    for number in numbers:
        if number not in known:
            has = f"{marked[0].number} to {marked[-1].number}" if marked else "none"
            raise InputError(f"{path}: no step {number}: it has {has}")
    return tuple(known[number] for number in sorted(numbers))


def _main_thread(trace: KinetoTrace) -> int:
    """Return the thread of the training loop; -1 where the trace has no threads.

    It is the thread that marks the steps. Where it neither calls ops, nor launches or waits for
    anything, or where no steps are marked, it is the thread with most of these outside autograd, in
    the process that marks the steps if it has any.
    """
    marking = _marking_thread(trace)
    counts = np.bincount(trace.lane[_works(trace)], minlength=len(trace.lanes))
    if marking >= 0 and counts[marking]:
        return marking
    backward = backward_threads(trace)
    for lane, what in enumerate(trace.lanes):
        if what.kind != "thread" or lane in backward:
            counts[lane] = 0
    if marking >= 0:
        owners = np.array([lane.owner == trace.lanes[marking].owner for lane in trace.lanes])
        if counts[owners].any():
            counts[~owners] = 0
    return int(np.argmax(counts)) if counts.max(initial=0) else marking


def _works(trace: KinetoTrace) -> Ints:
    """Return the rows of ops, and of calls that launch something or wait for the device."""
    launched = trace.correlation[trace.of("kernel", "copy", "memset")]
    waits = [code for code, name in enumerate(trace.names) if "Synchronize" in name]
    calls = np.isin(trace.correlation, launched[launched >= 0]) | np.isin(trace.name, waits)
    called = trace.of("runtime", "other")
    return np.concatenate((trace.of("op"), called[calls[called]]))


def backward_threads(trace: KinetoTrace) -> set[int]:
    """Return the threads of autograd's backward passes, other than the loop's.

    The loop's thread is that of the steps, or, without any or if nothing runs on it, one whose
    first op is no backward pass's.
    """
    engine = [code for code, name in enumerate(trace.names) if is_backward(name)]
    lanes = set(np.unique(trace.lane[np.isin(trace.name, engine)]).tolist())
    ops = trace.of("op")
    forward = {int(trace.lane[row]) for row, _ in _marks(trace)}
    forward &= set(np.unique(trace.lane[ops]).tolist())
    if not forward:
        threads, first = np.unique(trace.lane[ops], return_index=True)
        begins = zip(threads.tolist(), trace.name[ops[first]].tolist(), strict=True)
        forward = {lane for lane, name in begins if name not in engine}
    return lanes - forward


class Ranges:
    """Times that some rows of a trace cover, on each lane."""

    def __init__(self, trace: KinetoTrace, rows: Iterable[int]) -> None:
        chosen = np.array(sorted(rows), dtype=np.int64)
        self._of: dict[int, tuple[list[float], list[float]]] = {}
        for lane in np.unique(trace.lane[chosen]).tolist():
            mine = chosen[trace.lane[chosen] == lane]
            reached = np.maximum.accumulate(trace.end[mine])
            self._of[lane] = (trace.begin[mine].tolist(), reached.tolist())

    def covers(self, lane: int, time: float) -> bool:
        """Whether a range of a lane has begun and not ended at an instant."""
        begin, reached = self._of.get(lane, ((), ()))
        at = bisect_right(begin, time) - 1
        return at >= 0 and time < reached[at]

    def edges(self, lane: int) -> Floats:
        """Return all begins and ends on a lane."""
        return np.concatenate(self._of.get(lane, ([], [])))


@dataclass(frozen=True, eq=False)
class Steps:
    """What the threads of a trace are doing, at every instant."""

    engine: frozenset[int]  # threads on which autograd runs backward passes alone
    backward: Ranges
    optimizer: Ranges
    loading: Ranges

    def of(self, lane: int, time: float) -> str:
        """Return the step of the training, one of `STEPS`, that a thread is in."""
        if lane < 0 or self.loading.covers(lane, time):
            return "other"
        if lane in self.engine or self.backward.covers(lane, time):
            return "backward"
        return "optimizer" if self.optimizer.covers(lane, time) else "forward"


def steps_of_training(trace: KinetoTrace) -> Steps:
    """Return what the names of ops and annotations indicate."""

    def named(is_meant: Callable[[str], bool]) -> Ranges:
        codes = [code for code, name in enumerate(trace.names) if is_meant(name)]
        threads = [code for code, lane in enumerate(trace.lanes) if lane.kind == "thread"]
        rows = np.isin(trace.name, codes) & np.isin(trace.lane, threads)
        return Ranges(trace, np.flatnonzero(rows).tolist())

    return Steps(
        engine=frozenset(backward_threads(trace)),
        backward=named(is_backward),
        optimizer=named(lambda name: name.startswith("Optimizer.step")),
        loading=named(lambda name: name.startswith("enumerate(DataLoader)")),
    )

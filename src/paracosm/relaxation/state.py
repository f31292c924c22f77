"""The state of a run: its specification, the arrays, and scheduled events."""

import heapq
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.compiled_references import Referenced
from paracosm.errors import InputError
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.arrays import State, read_only
from paracosm.relaxation.kernel.blocks import rows_in_flight
from paracosm.relaxation.kernel.functions import UserFunctions
from paracosm.relaxation.kernel.halo import with_more_room
from paracosm.relaxation.kernel.loop import advance
from paracosm.relaxation.kernel.observe import norm_of, set_limits
from paracosm.relaxation.kernel.prepare import CHOICE_OF, blocks_of, slots_for
from paracosm.relaxation.partition import Pattern
from paracosm.relaxation.problems import norm_of_vector
from paracosm.relaxation.spec import RunSpec
from paracosm.timing.compiled import uniform


@dataclass(order=True)
class ScheduledEvent:
    """An event outside the loop at a virtual time; ties keep their order."""

    time: float
    order: int
    act: Callable[[], None] = field(compare=False)
    revives: bool = field(compare=False, default=False)


@dataclass
class Run:
    """What a run consists of."""

    spec: RunSpec  # what was asked for
    functions: UserFunctions  # of the user's
    arrays: State  # what the loop works on
    A: Any  # the matrix as the processors have it: the problem's own, until a fault strikes it
    initial_residual: float = nan  # norms; the tolerance is NaN where there is none
    tolerance: float = nan
    agenda: list[ScheduledEvent] = field(default_factory=list)  # events to come, a heap
    # what each fault was, in words, the norm of the residual before it, and whether it struck data
    faults: list[tuple[str, float, bool]] = field(default_factory=list)
    corrupted: bool = False  # whether a fault struck A or b
    false_detections: int = 0  # how often the residual test said converged, and was wrong
    entry: Callable[..., Any] | None = None  # of the compiled loop
    referenced: Referenced | None = None  # the arrays as it takes them
    order: Iterator[int] = field(default_factory=itertools.count)
    # until when processors are stopped, or write stale values
    down: dict[int, float] = field(default_factory=dict)
    stale: dict[int, float] = field(default_factory=dict)
    struck: int = 0  # how many faults there were
    in_vain: int = 0  # of them, the newest ones between which no update was written
    relaxed: int = -1  # relaxations at the newest one
    stops: list[tuple[int, float, float]] = field(default_factory=list)  # who, from when, until
    _readable: tuple[Any, Any] | None = None  # A, and its readable form

    def readable_matrix(self) -> Any:
        """Return `A` as the user's functions get it, which cannot change it."""
        if self._readable is None or self._readable[0] is not self.A:
            A = self.A
            parts = (read_only(A.data), read_only(A.indices), read_only(A.indptr))
            self._readable = A, type(A)(parts, shape=A.shape)
        return self._readable[1]

    @property
    def ticks(self) -> float:
        return self.spec.ticks

    @property
    def virtual_time(self) -> float:
        gauges = self.arrays.gauges
        return float(gauges[k.NOW] + gauges[k.SHIFT]) / self.ticks

    def at(self, time: float, act: Callable[[], None], revives: bool = False) -> None:
        """Schedule an event at a later virtual time."""
        heapq.heappush(self.agenda, ScheduledEvent(time, next(self.order), act, revives))

    def enter(self, opcode: int, processor: int = 0, until: float = 0.0, most: float = 0.0) -> int:
        """Enter the compiled loop with an opcode of `kernel.arrays`."""
        if self.referenced is None or self.referenced.value is not self.arrays:
            self.referenced = Referenced(self.arrays)
        given = self.referenced, opcode, processor, float(until), float(most)
        if self.entry is None:
            self.entry = _compiled_for(given)
        return int(self.entry(*given))

    def move_to(self, time: float) -> None:
        """Move the clock to `time`, where no processor is due."""
        gauges = self.arrays.gauges
        gauges[k.NOW] = max(gauges[k.NOW], time * self.ticks - gauges[k.SHIFT])
        self.arrays.counters[k.DUE] = 0
        self.arrays.counters[k.VERDICT] = 0  # of the instant before


def _compiled_for(given: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the loop for such arguments: dispatch by Numba takes a millisecond at every call."""
    import numba

    dispatcher: Any = advance
    typeof: Any = numba.typeof
    types = tuple(map(typeof, given))
    dispatcher.compile(types)
    entry: Callable[..., Any] = dispatcher.overloads[types].entry_point
    return entry


def begin_update(run: Run, processor: int) -> None:
    """Make a processor read and compute now."""
    while (answer := run.enter(k.BEGIN, processor)) != k.GO_ON:
        if answer != k.GROW:
            raise refused(run, answer)
        grow(run)


def schedule_update(run: Run, processor: int) -> None:
    """Begin an update of a processor now: draw its completion."""
    answer = run.enter(k.SCHEDULE, processor)
    if answer != k.GO_ON:
        raise bad_time(run, answer)


def refused(run: Run, answer: int) -> Exception:
    """Return the exception of a compiled function, or the error for rows that one made up."""
    a, last = run.arrays, run.spec.problem.n - 1
    processor = int(a.counters[k.FAILED_PROCESSOR])
    number = int(a.flight.updates[processor])
    if answer == k.BAD_ROWS:
        where = f"pattern function: processor {processor}, update {number}"
        return InputError(f"{where}: rows are 0 to {last}")
    if "rows" in run.functions.compiled:
        raised = _raised(run, "rows", (processor, number, uniform(a.choices[processor], number)))
        if raised is not None:
            return raised
    first, end, chosen = rows_in_flight.py_func(a.blocks, a.flight, processor)
    rows = (a.flight.chosen if chosen else a.blocks.rows)[first:end]
    matrix = () if run.spec.problem.map is not None else (a.rows_of_a, a.matrix.b)
    if a.rules.distributed:
        run.enter(k.EXCHANGE, processor)
    raised = _raised(run, "values", (a.iterate.x, rows, *matrix, np.empty(rows.size)))
    return raised or InputError(
        f"processor {processor}, update {number}: a compiled function raised an exception, and "
        "did not when it was called again: it has to depend on its arguments alone"
    )


def _raised(run: Run, what: str, arguments: tuple[Any, ...]) -> Exception | None:
    """Return what a compiled function of the user's raises for these arguments, if it does."""
    function = run.functions.compiled.get(what)
    if function is None:
        return None
    try:
        function(*arguments)
    except Exception as error:
        return error
    return None


def bad_time(run: Run, answer: int) -> Exception:
    """Return the error for a duration that the loop refused, or what its function raised."""
    a = run.arrays
    processor = int(a.counters[k.FAILED_PROCESSOR])
    number, value = int(a.flight.updates[processor]), float(a.gauges[k.BAD])
    watcher = processor == run.spec.processors
    raised = _raised(run, "time", (processor, number, uniform(a.streams[processor], number)))
    if raised is not None and not watcher:
        return raised
    owner = "the residual processor" if watcher else f"processor {processor}"
    where = f"time: {owner}, update {number}"
    if answer == k.EXHAUSTED or value != value:
        return InputError(
            f"{where}: not a number: a recording has come to its end (cycle=true starts it again), "
            "or a function returned NaN"
        )
    if run.spec.config.scale_factor and value == 0:
        return InputError(f"{where}: the duration rounds to 0 ticks: give a larger scale factor")
    return InputError(f"{where}: {value / run.ticks:g} s; a duration has to be finite and above 0")


_Update = tuple[Ints, Floats]


def grow(run: Run) -> None:
    """Enlarge arrays that are full: messages or rows in flight."""
    s = run.arrays
    if s.rules.distributed and s.halos.fullest[0] > s.halos.arrival.shape[1] - 2:
        run.arrays = s._replace(halos=with_more_room(s.halos))
    else:
        grow_slots(run)


def grow_slots(run: Run) -> None:
    """Double the room for every processor's rows in flight."""
    flight = run.arrays.flight
    in_flight = [
        (flight.chosen[begin:end], flight.values[begin:end])
        for begin, end in zip(flight.slot[:-1], flight.slot[1:], strict=True)
    ]
    _set_slots(run, 2 * np.diff(flight.slot), in_flight)


def change_pattern(run: Run, pattern: Pattern) -> None:
    """Switch processors to another pattern; updates in flight keep their rows."""
    run.spec = replace(run.spec, patterns=((0.0, pattern),))
    s, processors = run.arrays, pattern.processors
    flight = s.flight
    in_flight = []
    for processor in range(processors):
        first, end, chosen = rows_in_flight.py_func(s.blocks, flight, processor)
        rows = (flight.chosen if chosen else s.blocks.rows)[first:end]
        slot = flight.slot[processor]
        in_flight.append((rows, flight.values[slot : slot + rows.size]))
        flight.size[processor] = rows.size
    blocks = blocks_of(pattern)
    room = np.maximum(slots_for(run.spec, blocks), [rows.size for rows, _ in in_flight])
    _set_slots(run, room, in_flight)
    flight.block[:] = np.arange(processors) % pattern.blocks
    rules = s.rules._replace(choice=CHOICE_OF[pattern.choice])
    run.arrays = run.arrays._replace(blocks=blocks, rules=rules)
    s.tally.local[:] = -1.0  # other blocks have other residuals


def _set_slots(run: Run, room: Ints, in_flight: list[_Update]) -> None:
    slot = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    values, chosen = np.zeros(slot[-1]), np.zeros(slot[-1], np.int64)
    for start, (rows, new) in zip(slot, in_flight, strict=False):
        chosen[start : start + rows.size] = rows
        values[start : start + new.size] = new
    flight = run.arrays.flight._replace(slot=slot, values=values, chosen=chosen)
    run.arrays = run.arrays._replace(flight=flight)


def norm(run: Run) -> float:
    """Return the norm of the residual as the loop knows it."""
    a = run.arrays
    return float(norm_of(a.rules.infinity, a.iterate.residual, a.gauges[k.SQUARE]))


def compute_residual(run: Run) -> None:
    """Compute the residual anew: b - A x, or G(x) - x."""
    a = run.arrays
    if run.functions.map is None:
        run.enter(k.FRESH_RESIDUAL)
        square = float(a.gauges[k.SQUARE])
    else:
        rows, out = np.arange(run.spec.problem.n), np.zeros(run.spec.problem.n)
        image = run.functions.map(read_only(a.iterate.x), read_only(rows), out)
        a.iterate.residual[:] = (
            out if image is None else _numbers(image, out, "map")
        ) - a.iterate.x
        square = float(np.sum(a.iterate.residual**2))
    set_limits(a.gauges, square)
    a.gauges[k.ERROR_AGAIN] = inf  # sum it anew, too


def true_norm(run: Run) -> float:
    """Return the norm of b - A x with A and b as they were given, whatever faults made of them."""
    a, problem = run.arrays, run.spec.problem
    if run.functions.map is not None:
        compute_residual(run)
        residual = a.iterate.residual
    else:
        with np.errstate(all="ignore"):
            residual = problem.b - problem.A @ a.iterate.x
    return norm_of_vector(residual, a.rules.infinity)


def error_norm(run: Run) -> float:
    """Return the norm of x - solution; NaN where the solution is not known."""
    solution = run.spec.problem.solution
    if solution is None:
        return nan
    a = run.arrays
    return norm_of_vector(a.iterate.x - solution, a.rules.infinity)


GROWTH = 1e10
"""Factor over the first residual at which an iteration counts as diverged, unless it is proved to
converge, or the configuration says another.
"""


def set_largest(run: Run, square: float) -> None:
    """Say from which residual on the iteration has grown too much, given a square that has not."""
    if isfinite(square):
        growth = run.spec.config.growth_limit or GROWTH
        limit = math.sqrt(max(square, 1e-300)) * growth
        run.arrays.gauges[k.LARGEST] = min(limit, _ROOT_OF_LARGEST) ** 2


def allow_any_growth(run: Run) -> None:
    """Let only a residual whose square is not finite end the iteration."""
    run.arrays.gauges[k.LARGEST] = sys.float_info.max


_ROOT_OF_LARGEST = 1.3e154  # its square is finite


def growth_rate(run: Run) -> float:
    """Return the factor by which the residual grew a sweep: least squares over the last half."""
    a = run.arrays
    rows = a.history.rows[: a.counters[k.SAMPLES]]
    rows = rows[len(rows) // 2 :]
    rows = rows[np.isfinite(rows[:, 2]) & (rows[:, 2] > 0)]
    if len(rows) < 2 or rows[-1, 1] == rows[0, 1]:
        return nan
    slope = np.polyfit(rows[:, 1] / run.spec.problem.n, np.log(rows[:, 2]), 1)[0]
    return float(np.exp(slope))


def ask_rows(run: Run) -> None:
    """Ask the pattern function which rows those who are due update next."""
    function, n = run.functions.python_rows, run.spec.problem.n
    if function is None:
        return
    for processor in _due(run):
        flight = run.arrays.flight
        number = int(flight.updates[processor])
        where = f"pattern function: processor {processor}, update {number}"
        chosen = function(processor, number, uniform(run.arrays.choices[processor], number))
        try:
            rows = np.asarray(chosen)
        except (TypeError, ValueError, RuntimeError):  # the last of PyTorch
            rows = np.empty(0)
        if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
            raise InputError(f"{where}: must return a list of one row or more")
        if rows.min() < 0 or rows.max() >= n:
            raise InputError(f"{where}: rows are 0 to {n - 1}, not {rows.min()} to {rows.max()}")
        while rows.size > flight.slot[processor + 1] - flight.slot[processor]:
            grow_slots(run)
            flight = run.arrays.flight
        flight.chosen[flight.slot[processor] : flight.slot[processor] + rows.size] = rows
        flight.size[processor] = rows.size


def ask_values(run: Run) -> None:
    """Ask the update function for the new values of those who are due."""
    function = run.functions.python_values
    if function is None:
        return
    for processor in _due(run):
        _ask_values_of(run, function, processor)


def _ask_values_of(run: Run, function: Callable[..., Any], processor: int) -> None:
    a = run.arrays
    first, end, chosen = rows_in_flight.py_func(a.blocks, a.flight, processor)
    rows = (a.flight.chosen if chosen else a.blocks.rows)[first:end]
    slot = a.flight.slot[processor]
    kept = a.flight.values[slot : slot + end - first]
    # What the loop keeps is not for others to change, nor for later.
    x, rows, out = read_only(a.iterate.x), read_only(rows), kept.copy()
    is_map = run.spec.problem.map is not None
    arguments = (out,) if is_map else (run.readable_matrix(), read_only(a.matrix.b), out)
    if a.rules.distributed:
        run.enter(k.EXCHANGE, processor)
    try:
        numbers = function(x, rows, *arguments)
    finally:
        if a.rules.distributed:
            run.enter(k.EXCHANGE, processor)
    what = f"{'map' if is_map else 'update function'}: processor {processor}"
    kept[:] = out if numbers is None else _numbers(numbers, kept, what)


def _numbers(given: Any, like: Floats, what: str) -> Floats:
    """Return what a function of the user's returned, as numbers for the rows of `like`."""
    try:
        numbers = np.asarray(given)
        if np.iscomplexobj(numbers):
            raise TypeError
        values = numbers.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):  # the last of PyTorch
        raise InputError(f"{what}: it returned no numbers") from None
    if values.shape != like.shape:
        raise InputError(f"{what}: it returned values of shape {values.shape} for {like.size} rows")
    return values


def ask_durations(run: Run) -> None:
    """Ask the time function for the next duration of everyone whose last one is used up."""
    function = run.functions.python_time
    if function is None:
        return
    a = run.arrays
    leaves = a.clock.key.size // 2
    for processor in np.flatnonzero(np.isnan(a.flight.given[: run.spec.processors])).tolist():
        # Whose update is in flight has its duration already: the next one is asked for.
        in_flight = a.clock.key[leaves + processor] < inf
        number = int(a.flight.updates[processor]) + int(in_flight)
        seconds = function(processor, number, uniform(a.streams[processor], number))
        try:
            duration = float(seconds)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of PyTorch
            raise InputError(
                f"time function: processor {processor}, update {number}: "
                f"{seconds!r} is not a number"
            ) from None
        if duration != duration:
            raise InputError(
                f"time function: processor {processor}, update {number}: it returned NaN"
            )
        a.flight.given[processor] = duration


def _due(run: Run) -> list[int]:
    a = run.arrays
    due = a.flight.due[: a.counters[k.DUE]].tolist()
    return [
        processor
        for processor in due
        if processor < run.spec.processors and not a.flight.stale[processor]
    ]

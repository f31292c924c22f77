"""Timing many ops: shuffled passes over all of them, with speed probes in between.

Every pass visits, in a new order, each op that is not yet known precisely enough, so that a machine
that slows down for a second does not affect one op alone. A budget of time ends the passes.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paracosm.errors import InputError, require
from paracosm.graphs.graph import RESOURCES, Graph, Op
from paracosm.graphs.summary import fingerprint, peak_memory
from paracosm.profiling.allocator import PINNED, own_allocator, pinned_environ
from paracosm.profiling.environment import (
    Clock,
    Environment,
    SpeedProbe,
    clock_for,
    cores_for,
    environment_here,
    free_memory,
    pinned,
)
from paracosm.profiling.samples import (
    CACHES,
    IterationTiming,
    OpTiming,
    new_key,
    now,
    spread_of,
    typical,
)

if TYPE_CHECKING:
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.profiling.database import ProfileDatabase

Progress = Callable[[int, int], None]
"""Called after every visit with how many ops are done, and how many there are."""

LEAST, MOST = 5, 40  # visits of one op
PROBE_EVERY = 0.3  # seconds
STABLE = 0.01  # relative standard error


@dataclass(frozen=True)
class Settings:
    """How to time ops."""

    device: str = "cpu"  # or "cuda"
    threads: int = 1  # of one op, on the CPU
    caches: tuple[str, ...] = CACHES
    precision: float = 0.01  # relative standard error of the mean at which an op is done
    budget: float = 120.0  # seconds in all; every op is visited once whatever they are
    # Bytes that timing one op may take, with its two sets of arguments and its results; larger ops
    # are refused. None for half of what is free.
    memory: float | None = None
    seed: int = 0  # of the order of visits and the values in tensors

    def __post_init__(self) -> None:
        if not self.budget >= 0 or not self.precision > 0:
            raise InputError("give a budget of 0 s or more, and a precision above 0")
        if not self.caches or any(cache not in CACHES for cache in self.caches):
            raise InputError(f"caches are {' and '.join(CACHES)}, not {', '.join(self.caches)}")
        if self.device == "cpu":
            cores_for(self.threads)

    @property
    def room(self) -> float:
        """Bytes of memory that timing one op may take."""
        if self.memory is not None:
            return self.memory
        free = free_memory(self.device)
        return math.inf if free is None else free / 2


@dataclass(frozen=True)
class Profile:
    """What was measured."""

    environment: Environment  # where
    session: str  # of all its timings
    timings: list[OpTiming]  # one entry for every op and cache state
    refused: Mapping[Op, str]  # why an op has no timing, by op
    probes: tuple[float, ...]  # seconds of every speed probe, in the order of time
    interrupted: bool = False  # whether Ctrl-C ended it

    @property
    def stable(self) -> float:
        """Share of the timings with a standard error below 1 % (unknown for one sample)."""
        good = [t.time.count > 1 and t.time.standard_error < STABLE for t in self.timings]
        return sum(good) / len(good) if good else math.nan


def profile(
    ops: Sequence[Op],
    settings: Settings | None = None,
    source: str = "",
    keep: Callable[[list[OpTiming]], object] = lambda timings: None,
    progress: Progress | None = None,
    between: Callable[[], object] = lambda: None,
) -> Profile:
    """Time every distinct op on this machine.

    `between` is called before every visit and after the last one, with the process pinned as for
    the ops: it runs real iterations under the same conditions.

    Raises:
        InputError: there is no such device here.
    """
    torch = require("torch", "torch", "profiling ops")
    settings = settings or Settings()
    environment = environment_here(settings.device, settings.threads)
    with pinned(settings.device, settings.threads, settings.seed), torch.no_grad():
        run = _Run(ops, settings, environment, source, keep)
        interrupted = False
        try:
            run.measure(progress or (lambda done, total: None), between)
        except KeyboardInterrupt:
            interrupted = True
        finally:  # whatever else fails, what was measured is kept
            run.finish()
    return Profile(
        environment, run.session, run.timings, run.refused, tuple(run.probes), interrupted
    )


@dataclass
class _Samples:
    """What is known of one op so far: seconds by cache state, and the probes next to them."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    probes: list[float] = field(default_factory=list)

    def add(self, found: Mapping[str, float], probe: float) -> None:
        for cache, value in found.items():
            self.seconds.setdefault(cache, []).append(value)
        self.probes.append(probe)

    def known_to(self, precision: float) -> bool:
        spreads = [spread_of(typical(values)) for values in self.seconds.values()]
        return all(spread.standard_error < precision for spread in spreads)


class _Run:
    def __init__(
        self,
        ops: Sequence[Op],
        settings: Settings,
        environment: Environment,
        source: str,
        keep: Callable[[list[OpTiming]], object],
    ) -> None:
        from paracosm.profiling.torch_ops import Bench, memory_of  # PyTorch through and through

        self.session = new_key()
        self.timings: list[OpTiming] = []
        self.refused: dict[Op, str] = {}
        self.probes: list[float] = []
        self._settings, self._environment = settings, environment
        self._source, self._keep = source, keep
        self._kept = 0
        self._open = {op: _Samples() for op in ops}
        self._total = len(self._open)
        clock = clock_for(settings.device, settings.threads)
        self._bench, self._memory_of = Bench(settings.device, clock), memory_of
        self._probe, self._probed = SpeedProbe(settings.device, clock), -math.inf
        self._room = settings.room

    def measure(self, progress: Progress, between: Callable[[], object]) -> None:
        generator = np.random.default_rng(self._settings.seed)
        end = time.monotonic() + self._settings.budget
        for number in range(MOST):
            order = list(self._open)
            generator.shuffle(order)
            for op in order:
                if number > 0 and time.monotonic() > end:
                    break
                between()
                self._visit(op, number)
                progress(self._total - len(self._open), self._total)
            self._hand_over()
            if not self._open or time.monotonic() > end:
                break
        between()

    def finish(self) -> None:
        for op in [op for op, samples in self._open.items() if samples.seconds]:
            self._done(op)
        self._hand_over()

    def _visit(self, op: Op, number: int) -> None:
        samples = self._open[op]
        seed = 2 * (number + MOST * self._settings.seed)
        try:
            needed = 2 * (self._memory_of(op) + op.bytes_written)
            if needed > self._room:
                raise InputError(f"timing it takes {needed:,} bytes of memory")
            seconds = self._bench.visit(op, self._settings.caches, seed)
        except Exception as error:  # whatever an op makes of arguments that were made up
            del self._open[op]
            self.refused[op] = " ".join(str(error).split()) or type(error).__name__
            return
        samples.add(seconds, self._speed())
        if number + 1 >= LEAST and samples.known_to(self._settings.precision):
            self._done(op)

    def _speed(self) -> float:
        now = time.monotonic()
        if now - self._probed > PROBE_EVERY:
            self.probes.append(self._probe())
            self._probed = now
        return self.probes[-1]

    def _done(self, op: Op) -> None:
        samples = self._open.pop(op)
        self.timings += [
            OpTiming(
                op=op,
                environment=self._environment,
                cache=cache,
                time=spread_of(typical(values)),
                probe=float(np.median(samples.probes)),
                source=self._source,
                measured_at=now(),
                session=self.session,
            )
            for cache, values in samples.seconds.items()
        ]

    def _hand_over(self) -> None:
        if len(self.timings) > self._kept:
            self._keep(self.timings[self._kept :])
        self._kept = len(self.timings)


InSitu = Callable[[Callable[[], object], Clock], tuple[tuple[str, ...], list[float]]]
"""Runs an iteration; returns the names of its ops and the seconds of each, in their order."""

WARM_UP, LEAST_ITERATIONS = 2, 3
PROBES = 4  # before an iteration, and after it
SHARE = 0.5  # of the time goes to iterations


@dataclass(frozen=True)
class ModelProfile:
    """What was measured of one model."""

    graph: Graph  # the step, as captured
    profile: Profile  # its ops
    # Its real iterations; None where none was asked for or came to its end
    iteration: IterationTiming | None
    samples: tuple[float, ...]  # seconds of each iteration, in the order of time
    # Mean seconds of every node in real iterations; empty if not requested
    in_situ: tuple[float, ...] = ()
    faults: float = 0.0  # page faults of a real iteration, in the median


def profile_model(
    options: CaptureOptions,
    settings: Settings | None = None,
    database: ProfileDatabase | None = None,
    iterations: bool = True,
    progress: Progress | None = None,
    graph: Graph | None = None,
    in_situ: InSitu | None = None,
) -> ModelProfile:
    """Capture a model's training step, time its ops, and run the real step between the passes.

    Args:
        iterations: whether real iterations are run; they need the model's memory.
        in_situ: runs one more iteration next to each, with a clock around every op.

    Raises:
        InputError: the model cannot be built or does not fit its shapes, or its real iterations do
            not fit the memory that is free.
    """
    from paracosm.graphs.capture import capture, training_step

    settings = settings or Settings()
    graph = capture(options) if graph is None else graph
    source, ops = f"model {options}", ops_to_profile(graph)
    keep = (lambda timings: None) if database is None else database.add
    if not iterations:
        return ModelProfile(graph, profile(ops, settings, source, keep, progress), None, ())
    needed, free = peak_memory(graph), free_memory(settings.device)
    if free is not None and needed > free:
        raise InputError(
            f"a real iteration takes {needed:,} bytes of memory, and {free:,} are free: "
            "--no-iterations times the ops alone"
        )
    with pinned(settings.device, settings.threads, settings.seed):
        step = training_step(options, device=settings.device, seed=settings.seed)
        real = _Iterations(step.run, settings, in_situ)
    measured = profile(ops, settings, source, keep, progress, between=real)
    iteration = None
    if real.samples:
        iteration = IterationTiming(
            fingerprint=fingerprint(graph),
            model=str(options),
            environment=measured.environment,
            time=spread_of(typical(real.samples)),
            probe=float(np.median(real.probes)),
            source=source,
            measured_at=now(),
            session=measured.session,
        )
        if database is not None:
            database.add_iterations([iteration])
    return ModelProfile(
        graph,
        measured,
        iteration,
        tuple(real.samples),
        real.mean_in_situ([graph.ops[code].name for code in graph.op]),
        float(np.median(real.faults or [0])),
    )


def ops_to_profile(graph: Graph) -> list[Op]:
    """Return the ops of a graph that one device can run alone: all but communication."""
    alone = np.unique(graph.op[graph.resource != RESOURCES.index("communication")])
    return [graph.ops[index] for index in alone]


class _Iterations:
    """Runs real iterations when called, until they have had their share of the time."""

    def __init__(
        self, run: Callable[[], object], settings: Settings, in_situ: InSitu | None
    ) -> None:
        self.samples: list[float] = []
        self.probes: list[float] = []
        self.faults: list[int] = []
        self._run, self._clock = run, clock_for(settings.device, settings.threads)
        self._probe = SpeedProbe(settings.device, self._clock)
        self._gradients = require("torch", "torch", "profiling ops").enable_grad
        self._in_situ = in_situ
        self._timed: list[tuple[tuple[str, ...], list[float]]] = []
        self._begin, self._spent = 0.0, 0.0

    def __call__(self) -> None:
        if not self._begin:
            for _ in range(WARM_UP):  # lazy state is made, and the allocator's blocks are there
                self._step()
            self._begin = time.monotonic()
        # One at a time, as soon as the ops had theirs: both meet every minute of the machine.
        while len(self.samples) < LEAST_ITERATIONS or self._spent < SHARE * (
            time.monotonic() - self._begin
        ):
            began = time.monotonic()
            self.probes += [self._probe() for _ in range(PROBES)]
            faults = _page_faults()
            self.samples.append(self._clock.seconds(self._step))
            self.faults.append(_page_faults() - faults)
            self.probes += [self._probe() for _ in range(PROBES)]
            if self._in_situ is not None:
                self._timed.append(self._in_situ(self._step, self._clock))
            self._spent += time.monotonic() - began

    def mean_in_situ(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return the mean of every node; empty if other ops ran."""
        if not self._timed or any(ran != tuple(names) for ran, _ in self._timed):
            return ()
        return tuple(np.mean([seconds for _, seconds in self._timed], axis=0).tolist())

    def _step(self) -> None:
        with self._gradients():  # ops are timed without
            self._run()


def _page_faults() -> int:
    """Return the number of page faults of this process so far; 0 where it is unknown."""
    try:
        import resource
    except ModuleNotFoundError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


Refused = dict[str, str]
"""Why an op could not be timed, by its name."""


def profile_into(
    path: Path,
    ops: Sequence[Op],
    settings: Settings,
    environment: Environment,
    progress: Progress | None = None,
) -> Refused:
    """Time ops on this machine, add them to a database, and return which could not be timed.

    Programs restart themselves with malloc's thread cache off; a notebook cannot. If the
    environment's allocator is pinned and this process is not, another process times the ops, with
    progress only at the end.
    """
    if environment.allocator != PINNED or own_allocator() == PINNED:
        return _profile_here(path, ops, settings, progress)
    request = pickle.dumps((path, tuple(ops), settings))
    environ = pinned_environ({**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import _main; _main()"],
        input=request,
        stdout=subprocess.PIPE,
        env=environ,
        check=False,
    )
    if done.returncode:
        raise InputError(f"timing {len(ops)} ops in a process of its own failed: see above")
    answer: Refused | BaseException = pickle.loads(done.stdout)
    if isinstance(answer, BaseException):
        raise answer
    if progress is not None:
        progress(len(ops), len(ops))
    return answer


def _profile_here(
    path: Path, ops: Sequence[Op], settings: Settings, progress: Progress | None
) -> Refused:
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(path) as database:
        done = profile(ops, settings, source="new op", keep=database.add, progress=progress)
    if done.interrupted:
        raise KeyboardInterrupt
    return {op.name: why for op, why in done.refused.items()}


def _main() -> None:
    """Time the ops on standard input; what they print must not mix with the answer."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    path, ops, settings = pickle.loads(sys.stdin.buffer.read())
    try:
        outcome: Refused | BaseException = _profile_here(path, ops, settings, None)
    except (InputError, KeyboardInterrupt, MemoryError) as error:
        outcome = error
    with os.fdopen(answer, "wb") as stream:
        pickle.dump(outcome, stream)

"""Profiling one model: all of its ops, interleaved with real training iterations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from paracosm.errors import InputError, require
from paracosm.graphs import Graph, Op, fingerprint
from paracosm.graphs.graph import RESOURCES
from paracosm.graphs.memory import peak_memory
from paracosm.profiling.clock import clock_for
from paracosm.profiling.here import free_memory
from paracosm.profiling.pinning import own_random_numbers, pinned
from paracosm.profiling.probe import SpeedProbe
from paracosm.profiling.profile import Profile, Progress, Settings, profile
from paracosm.profiling.samples import IterationTiming, spread_of, typical

if TYPE_CHECKING:
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.profiling.database import ProfileDatabase

__all__ = ["ModelProfile", "ops_to_profile", "profile_model"]

WARM_UP, LEAST_ITERATIONS = 2, 3
PROBES = 4  # before an iteration, and after it
SHARE = 0.5  # of the time goes to iterations


@dataclass(frozen=True)
class ModelProfile:
    """What was measured of one model.

    Attributes:
        graph: the step, as captured.
        profile: its ops.
        iteration: its real iterations; None where none was asked for or came to its end.
        samples: seconds of each iteration, in the order of time.
        in_situ: seconds of every node in real iterations, in the mean; empty where nobody asked.
        faults: page faults of a real iteration, in the median.
    """

    graph: Graph
    profile: Profile
    iteration: IterationTiming | None
    samples: tuple[float, ...]
    in_situ: tuple[float, ...] = ()
    faults: float = 0.0


def profile_model(
    options: CaptureOptions,
    settings: Settings | None = None,
    database: ProfileDatabase | None = None,
    iterations: bool = True,
    progress: Progress | None = None,
    graph: Graph | None = None,
    in_situ: bool = False,
) -> ModelProfile:
    """Capture a model's training step, time its ops, and run the real step between the passes.

    Args:
        options: the model, its batch and its shapes.
        settings: how ops are timed.
        database: gets every timing as it is done.
        iterations: whether real iterations are run; they need the model's memory.
        progress: called after every visit to an op.
        graph: the captured step, where it is there already.
        in_situ: whether a few iterations more are run with a clock around every op.

    Raises:
        InputError: the model cannot be built or does not fit its shapes, or its real iterations do
            not fit the memory that is free.
        MissingExtraError: PyTorch is not installed.
    """
    from paracosm.graphs.capture import capture, training_step

    settings = settings or Settings()
    graph = capture(options) if graph is None else graph
    name = str(options)
    real: _Iterations | None = None
    if iterations:
        _require_room(graph, settings.device)
        with (
            pinned(settings.device, settings.threads),
            own_random_numbers(settings.device, settings.seed),
        ):
            step = training_step(options, device=settings.device, seed=settings.seed)
            real = _Iterations(step.run, settings, in_situ)
    measured = profile(
        ops_to_profile(graph),
        settings,
        source=f"model {name}",
        keep=None if database is None else database.add,
        progress=progress,
        between=real,
    )
    samples = () if real is None else tuple(real.samples)
    iteration = None
    if real is not None and samples:
        iteration = IterationTiming(
            fingerprint=fingerprint(graph),
            model=name,
            environment=measured.environment,
            time=spread_of(typical(samples)),
            probe=float(np.median(real.probes)),
            source=f"model {name}",
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if database is not None:
            database.add_iterations([iteration])
    return ModelProfile(
        graph,
        measured,
        iteration,
        samples,
        () if real is None else real.mean_in_situ([graph.ops[code].name for code in graph.op]),
        float(np.median(real.faults)) if real is not None and real.faults else 0.0,
    )


def ops_to_profile(graph: Graph) -> list[Op]:
    """Return the ops of a graph that one device can run alone: all but communication."""
    alone = np.unique(graph.op[graph.resource != RESOURCES.index("communication")])
    return [graph.ops[index] for index in alone]


def _require_room(graph: Graph, device: str) -> None:
    needed, free = peak_memory(graph), free_memory(device)
    if free is not None and needed > free:
        raise InputError(
            f"a real iteration takes {needed:,} bytes of memory, and {free:,} are free: "
            "--no-iterations times the ops alone"
        )


class _Iterations:
    """Runs real iterations whenever it is called, until they had their share of the time."""

    def __init__(self, run: Callable[[], object], settings: Settings, in_situ: bool) -> None:
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
        while len(self.samples) < LEAST_ITERATIONS or self._is_behind():
            began = time.monotonic()
            self._iterate()
            self._spent += time.monotonic() - began

    def _is_behind(self) -> bool:
        return self._spent < SHARE * (time.monotonic() - self._begin)

    def _iterate(self) -> None:
        self.probes += [self._probe() for _ in range(PROBES)]
        faults = _page_faults()
        self.samples.append(self._clock.seconds(self._step))
        self.faults.append(_page_faults() - faults)
        self.probes += [self._probe() for _ in range(PROBES)]
        if self._in_situ:
            from paracosm.profiling.in_situ import time_in_situ

            self._timed.append(time_in_situ(self._step, self._clock))

    def mean_in_situ(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return the mean of every node; nothing where these are not the ops that ran."""
        if not self._timed or any(ran != tuple(names) for ran, _ in self._timed):
            return ()
        return tuple(np.mean([seconds for _, seconds in self._timed], axis=0).tolist())

    def _step(self) -> None:
        with self._gradients():  # ops are timed without
            self._run()


def _page_faults() -> int:
    """Return how many pages this process was given so far; 0 where the system does not say."""
    try:
        import resource
    except ModuleNotFoundError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

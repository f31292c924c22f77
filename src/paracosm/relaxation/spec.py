"""One run of a configuration: its problem loaded, its rows assigned, its durations read."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np

from paracosm.cluster import Cluster
from paracosm.errors import InputError
from paracosm.faults.fault import check_fault
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.methods import (
    Anderson,
    BlockJacobi,
    Coordinate,
    Method,
    gauss_seidel_of,
    method_divides,
)
from paracosm.relaxation.partition import Pattern
from paracosm.relaxation.problems import Given, Problem, load_matrix, load_problem
from paracosm.relaxation.times import Times
from paracosm.rng import checked_seed


@dataclass(frozen=True, eq=False)
class RunSpec:
    """A configuration with its problem, patterns and durations for a seed."""

    config: RelaxConfig  # the configuration
    problem: Problem  # A, b and where to begin; or a map
    patterns: tuple[tuple[float, Pattern], ...]  # (from when on, pattern), the first from 0
    times: Times  # how long updates take
    # of distributed memory: processor i is its i-th worker; None: shared
    cluster: Cluster | None = None
    seed: int = 0  # of all random streams
    # run time of the same iteration without faults, for faults at a random time
    horizon: float | None = None

    def changed(self, **fields: Any) -> "RunSpec":
        """Return the run with other values of its configuration; they are not checked."""
        return replace(self, config=self.config.model_copy(update=fields))

    @property
    def pattern(self) -> Pattern:
        """The pattern that the iteration begins with."""
        return self.patterns[0][1]

    @property
    def processors(self) -> int:
        return self.pattern.processors

    @property
    def method(self) -> Method | None:
        """How new values are computed; None where `update` or the problem's map says it."""
        method = self.config.method
        if self.problem.map is not None or not isinstance(method, Method):
            return None
        return gauss_seidel_of(method) if self.config.read == "gauss-seidel" else method

    @property
    def update(self) -> Callable[..., Any] | None:
        """(x, rows, A, b, out), an update function of the user's."""
        method = self.config.method
        return None if self.problem.map is not None or isinstance(method, Method) else method

    @property
    def read(self) -> Literal["start", "completion"]:
        """When a processor reads what it computes from."""
        return "start" if self.config.read == "start" else "completion"

    @property
    def reads_after_copy(self) -> bool:
        """Whether processors read at the end of a phase of its own."""
        phased = self.read == "start" and self.times.phases == 3
        return phased and not self.config.synchronous

    @property
    def choose(self) -> Callable[..., Any] | None:
        """(processor, update, u) -> rows, an update-pattern function of the user's."""
        return self.config.pattern.choose

    @property
    def barrier(self) -> float | None:
        """What a barrier costs; None: asynchronous."""
        return self.config.barrier if self.config.synchronous else None

    @property
    def ticks(self) -> float:
        """Units of the processors' clock in a second: ticks, or 1."""
        return self.config.scale_factor or 1.0

    @property
    def threads(self) -> int:
        """How many want a core: processors, the residual processor, and foreign threads."""
        measured = self.config.time_slice == "measured"
        count = self.processors + (self.config.detect.by == "processor")
        return count + (self.times.load if measured else 0)

    @property
    def time_slice(self) -> float:
        """Seconds that a processor keeps a core; 0: each has one of its own."""
        seconds = self.config.time_slice
        if self.config.cores is None or seconds is None or self.threads <= self.config.cores:
            return 0.0
        return self.times.time_slice if seconds == "measured" else seconds

    @property
    def max_time(self) -> float:
        return inf if self.config.max_time is None else self.config.max_time

    @property
    def most_relaxations(self) -> float:
        return self.config.max_sweeps * self.problem.n


def spec_of(config: RelaxConfig, seed: int) -> RunSpec:
    """Return a run of a configuration, with files read and everything made."""
    config = config.with_drawn_speeds(seed)
    problem = _problem(config, seed)
    patterns = config.pattern.dealt(problem, config.count, seed)
    cluster = config.target_cluster  # which takes seconds to build where there are a million nodes
    return RunSpec(
        config=config,
        problem=problem,
        patterns=patterns,
        times=config.times_of(cluster),
        cluster=cluster if config.memory == "distributed" else None,
        seed=seed,
    )


def _problem(config: RelaxConfig, seed: int) -> Problem:
    if isinstance(config.problem, Problem):
        problem = config.problem
    elif config.problem is not None:
        problem = load_problem(config.problem, _values(config.rhs), _values(config.start), seed)
    else:
        divides = not isinstance(config.method, Method) or method_divides(config.method)
        matrix, rhs, start = map(_values, (config.matrix, config.rhs, config.start))
        problem = load_matrix(matrix, rhs, start, seed, divides_by_diagonal=divides)
    if config.error_tolerance is None or problem.solution is not None or problem.map is not None:
        return problem
    from scipy.sparse.linalg import spsolve

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a singular matrix, reported below
        solution = spsolve(problem.A.tocsc(), problem.b)
    if not np.isfinite(solution).all():
        raise InputError(
            f"error_tolerance: {problem.name} is singular: no solution to compare with"
        )
    return replace(problem, solution=np.atleast_1d(solution))


def _values(source: Any) -> Any:
    """Return the numbers that Python gave, or the word or the path that says where they are."""
    return source.values if isinstance(source, Given) else source


def check_spec(spec: RunSpec) -> None:
    """Refuse invalid combinations."""
    config, problem, policy = spec.config, spec.problem, spec.config.checkpoint
    count, own_rows = spec.processors, spec.choose is not None
    own_blocks = not own_rows and all(p.choice == "fixed" for _, p in spec.patterns)
    one_owner = own_blocks and spec.pattern.rows.size == problem.n
    test = config.detect.time
    by_blocks = policy is not None and (policy.scope == "block" or policy.monitor == "component")
    conflicts = (
        (
            config.error_tolerance is not None and problem.solution is None,
            "error_tolerance: the solution of this problem is not known; give it",
        ),
        (
            config.read == "gauss-seidel" and spec.method is None,
            "read gauss-seidel: needs a named method, not a function",
        ),
        (
            config.synchronous and spec.read != "start",
            "a synchronous iteration reads at the start: all read after the barrier",
        ),
        (
            config.synchronous and config.detect.by == "processor",
            "a synchronous iteration has no residual processor: choose another residual test",
        ),
        (
            own_rows and isinstance(spec.method, BlockJacobi),
            "block-jacobi solves the equations of fixed blocks: not with a pattern function",
        ),
        (
            isinstance(spec.method, BlockJacobi | Anderson) and len(spec.patterns) > 1,
            f"{config.method} needs fixed blocks: not with a pattern that changes",
        ),
        (
            not own_blocks and by_blocks,
            "a policy per block needs a pattern with fixed blocks",
        ),
        (
            test is not None and test.mean() < 1e-3 * spec.times.mean(count),
            f"processor: a test takes at least a thousandth of an update, not {test}",
        ),
        (
            config.detect.by in ("local", "tree")
            and (not own_blocks or isinstance(spec.method, Coordinate)),
            "a sum of local residuals needs fixed blocks, each relaxed by its own processor",
        ),
        (
            config.detect.by == "snapshot" and not (one_owner and len(spec.patterns) == 1),
            "a snapshot needs one fixed pattern in which each row has one processor",
        ),
        (
            config.detect.by == "snapshot" and problem.map is not None,
            "a snapshot needs a matrix to compute the residual of what it records: not with a map",
        ),
        (
            spec.cluster is not None and problem.map is not None and not problem.A.nnz,
            "distributed memory: the components that the map reads are unknown: give reads=",
        ),
        (
            spec.cluster is not None and (own_rows or len(spec.patterns) > 1),
            "distributed memory: rows stay with their processor; use one fixed pattern",
        ),
        (
            spec.method is not None
            and (getattr(spec.method, "beta", 0) != 0 or isinstance(spec.method, Anderson))
            and not one_owner,
            f"{config.method} needs a pattern in which each row has one processor",
        ),
        (
            isinstance(spec.method, Coordinate) and spec.method.count > problem.n,
            f"coordinate: count is at most the number of rows, {problem.n}",
        ),
        (
            config.cores is not None and (config.synchronous or config.cluster is not None),
            "cores: for asynchronous processors of one machine, without a cluster",
        ),
        (
            config.cores is not None and config.memory == "distributed",
            "cores: the processors of distributed memory do not share any",
        ),
        (
            config.time_slice == "measured" and not spec.times.time_slice,
            "time_slice: give one, such as 4ms: no measured threads that lost their cores",
        ),
        (config.time_slice == 0, "time_slice: above 0"),
        (count > problem.n, f"more processors ({count}) than rows ({problem.n})"),
    )
    checked_seed(spec.seed)
    for wrong, message in conflicts:
        if wrong:
            raise InputError(message)
    _check_faults(spec)


def _check_faults(spec: RunSpec) -> None:
    for fault in spec.config.fault:
        check_fault(
            fault,
            unknowns=spec.problem.n,
            entries=spec.problem.A.nnz,
            processors=spec.processors,
            distributed=spec.cluster is not None,
        )
        if fault.target in ("A", "b") and spec.problem.map is not None:
            raise InputError(f'fault "{fault}": a map has no {fault.target}; write "in x"')
        if fault.target == "A" and isinstance(spec.method, BlockJacobi):
            raise InputError(
                f'fault "{fault}": block-jacobi uses factors of A, which the fault would not '
                'change: choose another method, or "in x"'
            )
        if fault.target == "A" and spec.config.matrix_free:
            raise InputError(f'fault "{fault}": a stencil has no matrix to corrupt')

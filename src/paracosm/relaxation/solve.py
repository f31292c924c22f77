"""Check a request, and simulate it; twice, where a fault is to strike at a random time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError
from paracosm.relaxation.methods import BlockJacobi, Coordinate, SecondOrderRichardson
from paracosm.relaxation.request import Request

if TYPE_CHECKING:
    from paracosm.faults import CheckpointPolicy
    from paracosm.relaxation.result import RelaxationResult
    from paracosm.relaxation.simulate import Progress

__all__ = ["check_request", "solve"]


def solve(request: Request, progress: Progress | None = None) -> RelaxationResult:
    """Simulate `request`.

    A fault at a random time strikes before the iteration would have converged without it: to know
    when that is, the same iteration runs without faults first (`RelaxationResult.fault_free_time`).

    Raises:
        InputError: parts of the request that do not go together.
    """
    from paracosm.relaxation.simulate import simulate

    check_request(request)
    if request.horizon is not None or not any(fault.needs_horizon for fault in request.faults):
        return simulate(request, progress)

    def pulse(virtual_time: float, relaxations: int, rows: Any) -> None:
        if progress is not None:
            progress(virtual_time, relaxations, rows[:0])

    plain = simulate(replace(request, faults=(), checkpoint=None, spans=0), pulse)
    if plain.status == "interrupted":
        return plain
    if plain.status == "diverged":
        raise InputError(
            "a fault at a random time strikes before convergence, and this iteration diverges "
            'without any fault: give bounds, such as "at random(0s, 100s)"'
        )
    struck = simulate(replace(request, horizon=plain.virtual_time), progress)
    return replace(struck, fault_free_time=plain.virtual_time)


def check_request(request: Request) -> None:
    """Refuse what cannot be.

    Raises:
        InputError: one line.
    """
    problem, stop, policy = request.problem, request.stop, request.checkpoint
    count, own_rows = request.processors, request.choose is not None
    own_blocks = not own_rows and all(p.choice == "fixed" for _, p in request.patterns)
    conflicts = (
        (
            stop.error is not None and problem.solution is None,
            "error tolerance: the solution of this problem is not known; give it",
        ),
        (stop.norm not in (2, float("inf")), f"norm: 2 or infinity, not {stop.norm}"),
        (
            stop.tolerance is not None and not 0 <= stop.tolerance < float("inf"),
            f"tolerance: finite and 0 or more, not {stop.tolerance}",
        ),
        (
            request.barrier is not None and request.read != "start",
            "a synchronous iteration reads at the start: all read after the barrier",
        ),
        (
            request.barrier is not None and request.detection.by == "processor",
            "a synchronous iteration has no residual processor: its test is ideal or local",
        ),
        (
            request.barrier is not None and not 0 <= request.barrier < float("inf"),
            f"barrier: finite and 0 or more, not {request.barrier}",
        ),
        (
            request.ticks is not None and not 0 < request.ticks < float("inf"),
            f"scale factor: finite and above 0, not {request.ticks}",
        ),
        (
            own_rows and isinstance(request.method, BlockJacobi),
            "block-jacobi solves the equations of fixed blocks: not with a pattern function",
        ),
        (
            isinstance(request.method, BlockJacobi) and len(request.patterns) > 1,
            "block-jacobi solves the equations of fixed blocks: not with a pattern that changes",
        ),
        (
            not own_blocks and policy is not None and _looks_at_blocks(policy),
            "a policy that looks at blocks needs a pattern in which each processor keeps its own",
        ),
        (
            request.detection.by == "local"
            and (not own_blocks or isinstance(request.method, Coordinate)),
            "a local residual test adds up blocks: each processor has to keep and relax its own",
        ),
        (
            request.network is not None and (own_rows or len(request.patterns) > 1),
            "distributed memory: rows stay with their processor; use one fixed pattern",
        ),
        (
            isinstance(request.method, SecondOrderRichardson)
            and request.method.beta != 0
            and not (own_blocks and request.pattern.rows.size == problem.n),
            "second-order-richardson needs a pattern in which each row has one processor",
        ),
        (
            isinstance(request.method, Coordinate) and request.method.count > problem.n,
            f"coordinate: count is at most the number of rows, {problem.n}",
        ),
        (
            not (request.stop.time > 0 and request.stop.relaxations > 0),
            "max_time and max_sweeps have to be above 0",
        ),
        (
            stop.error is not None and not 0 <= stop.error < float("inf"),
            f"error tolerance: finite and 0 or more, not {stop.error}",
        ),
        (
            request.seed < 0 or request.spans < 0,
            "seed and the number of recorded updates are 0 or more",
        ),
        (count > problem.n, f"more processors ({count}) than rows ({problem.n})"),
        (
            any(pattern.processors != count for _, pattern in request.patterns),
            "all patterns of a run have the same number of processors",
        ),
    )
    for wrong, message in conflicts:
        if wrong:
            raise InputError(message)


def _looks_at_blocks(policy: CheckpointPolicy) -> bool:
    return policy.scope == "block" or policy.monitor == "component"

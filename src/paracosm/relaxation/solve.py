"""Check a run, and simulate it; twice, where a fault is to strike at a random time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError
from paracosm.relaxation.spec import RunSpec, check_spec

if TYPE_CHECKING:
    from paracosm.relaxation.result import RelaxationResult
    from paracosm.relaxation.simulate import Progress

__all__ = ["solve"]


def solve(spec: RunSpec, progress: Progress | None = None) -> RelaxationResult:
    """Simulate `spec`.

    A fault at a random time strikes before the iteration would have converged without it: to know
    when that is, the same iteration runs without faults first (`RelaxationResult.fault_free_time`).

    Raises:
        InputError: parts of the spec that do not go together.
    """
    from paracosm.relaxation.simulate import simulate

    check_spec(spec)
    if spec.horizon is not None or not any(fault.needs_horizon for fault in spec.config.fault):
        return simulate(spec, progress)

    def pulse(virtual_time: float, relaxations: int, rows: Any) -> None:
        if progress is not None:
            progress(virtual_time, relaxations, rows[:0])

    plain = simulate(spec.changed(fault=(), checkpoint=None, timeline=0), pulse)
    if plain.status == "interrupted":
        return plain
    if plain.status == "diverged":
        raise InputError(
            "a fault at a random time strikes before convergence, and this iteration diverges "
            'without any fault: give bounds, such as "at random(0s, 100s)"'
        )
    struck = simulate(replace(spec, horizon=plain.virtual_time), progress)
    return replace(struck, fault_free_time=plain.virtual_time)

"""What the spectral radius says about a run, before it runs (Theorem 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paracosm.relaxation.methods import (
    BlockJacobi,
    Coordinate,
    Method,
    Richardson,
    SecondOrderRichardson,
    method_gain,
)
from paracosm.relaxation.spec import RunSpec

if TYPE_CHECKING:
    from paracosm.relaxation.spectrum import SpectralRadius

__all__ = ["spectrum_of"]


def spectrum_of(spec: RunSpec, budget: float = 1.0) -> SpectralRadius | None:
    """Return rho(|C|) of the run's iteration matrix, computed or bounded; None for a map.

    Args:
        budget: seconds that it may take.
    """
    from paracosm.relaxation.spectrum import iteration_radius

    method, problem = spec.method, spec.problem
    if spec.problem.map is not None:
        return None
    name, omega, beta = _as_known(method, spec)
    return iteration_radius(
        problem.A, name, omega=omega, beta=beta, stencil=problem.stencil, budget=budget
    )


def _as_known(method: Method | None, spec: RunSpec) -> tuple[Any, float, float]:
    """Return the method whose iteration matrix says it: a function of the user's counts as Jacobi.

    So do local solves, whose rho(|C|) is at most that of Jacobi where this is below 1.
    """
    if method is None or isinstance(method, BlockJacobi):
        return "jacobi", 1.0, 0.0
    if isinstance(method, Richardson | SecondOrderRichardson):
        omega = float(method_gain(method, spec.problem.A)[0])
        beta = method.beta if isinstance(method, SecondOrderRichardson) else 0.0
        return method.name, omega, beta
    assert method.omega is not None
    return "jacobi" if isinstance(method, Coordinate) else method.name, method.omega, 0.0

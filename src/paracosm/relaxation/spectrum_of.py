"""What the spectral radius says about a request, before it runs (Theorem 1)."""

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
from paracosm.relaxation.request import Request

if TYPE_CHECKING:
    from paracosm.relaxation.spectrum import SpectralRadius

__all__ = ["spectrum_of"]


def spectrum_of(request: Request, budget: float = 1.0) -> SpectralRadius | None:
    """Return rho(|C|) of the request's iteration matrix, computed or bounded; None for a map.

    Args:
        budget: seconds that it may take.
    """
    from paracosm.relaxation.spectrum import iteration_radius

    method, problem = request.method, request.problem
    if request.fixed_point is not None:
        return None
    name, omega, beta = _as_known(method, request)
    return iteration_radius(
        problem.A, name, omega=omega, beta=beta, stencil=problem.stencil, budget=budget
    )


def _as_known(method: Method | None, request: Request) -> tuple[Any, float, float]:
    """Return the method whose iteration matrix says it: a function of the user's counts as Jacobi.

    So do local solves, whose rho(|C|) is at most that of Jacobi where this is below 1.
    """
    if method is None or isinstance(method, BlockJacobi):
        return "jacobi", 1.0, 0.0
    if isinstance(method, Richardson | SecondOrderRichardson):
        omega = float(method_gain(method, request.problem.A)[0])
        beta = method.beta if isinstance(method, SecondOrderRichardson) else 0.0
        return method.name, omega, beta
    assert method.omega is not None
    return "jacobi" if isinstance(method, Coordinate) else method.name, method.omega, 0.0

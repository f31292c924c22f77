"""The spectral radius of |C|: whether every asynchronous schedule converges (Theorem 1)."""

from paracosm.relaxation.spectrum.iteration import (
    METHODS,
    Method,
    iteration_matrix,
    iteration_radius,
    jacobi_spectral_radius,
)
from paracosm.relaxation.spectrum.radius import SpectralRadius, spectral_radius

__all__ = [
    "METHODS",
    "Method",
    "SpectralRadius",
    "iteration_matrix",
    "iteration_radius",
    "jacobi_spectral_radius",
    "spectral_radius",
]

"""The spectral radius rho(|C|), which decides whether every asynchronous schedule converges.

An asynchronous iteration x <- C x + d converges under every schedule that Definition 1 admits if
rho(|C|) < 1 (paper, Theorem 1; Chazan and Miranker 1969, who also show the converse: otherwise some
schedule does not). |C| is taken entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.spectrum.bounds import ROUNDING, TIGHT, Bounds, bound_radius
from paracosm.relaxation.spectrum.eigenvalues import signed_radius

__all__ = ["SpectralRadius", "spectral_radius"]

Array = NDArray[np.float64]

_DECIDED = 1e-6  # how far from 1 a solver's eigenvalue must be when bounds do not decide


@dataclass(frozen=True)
class SpectralRadius:
    """rho(|C|), as far as it is known, and what it means for asynchronous convergence.

    Args:
        value: None where it is only bounded.
        lower, upper: bounds, true to rounding.
        below_one: whether rho(|C|) < 1, by the bounds or else by the value; None if undecided.
        signed: rho(C), which decides synchronous convergence; None where it was not computed.
        sentence: the meaning in plain words.
    """

    value: float | None
    lower: float
    upper: float
    below_one: bool | None
    signed: float | None
    sentence: str


def spectral_radius(
    C: Any,
    *,
    guess: Array | None = None,
    scale: Array | None = None,
    budget: float = 1.0,
) -> SpectralRadius:
    """Return rho(|C|), rho(C) where it is cheap, and what they mean, for any sparse square C.

    Args:
        C: SciPy CSR array, shape (n, n); for PageRank, the damping times the transition matrix.
        guess: a positive vector near the eigenvector of |C|, shape (n,); never needed.
        scale: s for which diag(s) C diag(s)^-1 may be symmetric, shape (n,); never needed.
        budget: seconds after which bounds are given instead of values, roughly.
    """
    deadline = perf_counter() + budget
    bounds = bound_radius(abs(C), guess, scale, deadline)
    value = _value(bounds)
    nonnegative = C.nnz == 0 or C.data.min() >= 0.0
    signed = value if nonnegative else signed_radius(C, scale, deadline)
    below_one = _below_one(value, bounds)
    sentence = _sentence(value, bounds, below_one, signed)
    return SpectralRadius(value, bounds.lower, bounds.upper, below_one, signed, sentence)


def _value(bounds: Bounds) -> float | None:
    if bounds.upper - bounds.lower <= TIGHT * bounds.upper:
        return (bounds.lower + bounds.upper) / 2
    return bounds.estimate


def _below_one(value: float | None, bounds: Bounds) -> bool | None:
    if bounds.dominant or bounds.upper < 1 - ROUNDING:
        return True
    if bounds.lower >= 1 - ROUNDING:
        return False
    return value < 1 if value is not None and abs(value - 1) > _DECIDED else None


def _sentence(
    value: float | None, bounds: Bounds, below_one: bool | None, signed: float | None
) -> str:
    if value is not None:
        known = f"rho(|C|) = {_digits(value)}"
    else:
        known = f"rho(|C|) is between {_digits(bounds.lower)} and {_digits(bounds.upper)}"
    if below_one:
        if value is None:
            reason = " by diagonal dominance" if bounds.upper >= 1 - ROUNDING else ""
            known += f" and below 1{reason}"
        else:
            known += " < 1"
        return f"{known}: every asynchronous schedule converges (Theorem 1)"
    if signed is None:
        synchronous = ""
    elif signed < 1:
        synchronous = f"; synchronous updates converge: rho(C) = {_digits(signed)}"
    else:
        synchronous = f"; synchronous updates do not converge: rho(C) = {_digits(signed)}"
    if below_one is None:
        return f"{known}: whether Theorem 1 applies is not decided{synchronous}"
    above = " >= 1" if value is not None else ", not below 1"
    return (
        f"{known}{above}: Theorem 1 does not apply; there are schedules that do not converge, but "
        f"others may, since its condition is sufficient, not necessary{synchronous}"
    )


def _digits(value: float) -> str:
    """Write four decimals, or as many as tell a value from 1."""
    for digits in range(4, 13):
        text = f"{value:.{digits}f}"
        if float(text) != 1 or value == 1:
            return text
    return "1"

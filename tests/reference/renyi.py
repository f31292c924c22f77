"""The privacy of subsampled Gaussian noise, from the formulas, for whole Renyi orders."""

from __future__ import annotations

from math import comb, exp, log, log1p

ORDERS = range(2, 257)


def divergence(order: int, rate: float, noise: float) -> float:
    """Return the Renyi divergence of one release: Mironov, Talwar, Zhang 2019, section 3.3.

    log(sum_k C(a, k) (1 - q)^(a - k) q^k exp((k^2 - k) / (2 sigma^2))) / (a - 1)
    """
    if rate == 1:
        return order / (2 * noise**2)
    terms = [
        log(comb(order, k))
        + (order - k) * log1p(-rate)
        + k * log(rate)
        + (k * k - k) / (2 * noise**2)
        for k in range(order + 1)
    ]
    largest = max(terms)
    return (largest + log(sum(exp(term - largest) for term in terms))) / (order - 1)


def epsilon(rate: float, noise: float, releases: int, delta: float, tight: bool = True) -> float:
    """Return epsilon at delta after so many releases.

    By Mironov, "Renyi Differential Privacy", 2017, proposition 3, or (`tight`) by Canonne, Kamath,
    Steinke, "The Discrete Gaussian for Differential Privacy", 2020, proposition 12.
    """
    found = []
    for order in ORDERS:
        total = releases * divergence(order, rate, noise)
        if tight:
            found.append(converted(order, total, delta))
        else:
            found.append(total + log(1 / delta) / (order - 1))
    return max(0.0, min(found))


def converted(order: int, divergence: float, delta: float = 1e-5) -> float:
    """Return the epsilon that a divergence of an order implies, by Canonne, Kamath, Steinke."""
    return divergence + log1p(-1 / order) - log(delta * order) / (order - 1)

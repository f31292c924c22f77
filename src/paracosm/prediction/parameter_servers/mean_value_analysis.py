"""Throughput of closed queueing networks, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["mean_value_analysis"]

Floats = npt.NDArray[np.float64]


def mean_value_analysis(demands: Sequence[float], delay: float, customers: int) -> Floats:
    """Return the cycles/s of 1, 2, ... customers of a closed product-form network, (customers,).

    Exact mean-value analysis (Reiser and Lavenberg 1980, section 2): a customer finds the stations
    as they are with one customer less. Stations serve one customer at a time or share their
    processor, which comes to the same.

    Args:
        demands: seconds of service of a cycle at each queueing station.
        delay: seconds of a cycle for which a customer waits for nobody.
        customers: up to how many; 1 or more.
    """
    service = np.asarray(demands, dtype=np.float64)
    queue = np.zeros(len(service))
    found = np.zeros(customers)
    for number in range(1, customers + 1):
        residence = service * (1 + queue)
        cycle = delay + float(residence.sum())
        found[number - 1] = number / cycle if cycle > 0 else np.inf
        queue = residence * found[number - 1]
    return found

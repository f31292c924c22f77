"""How far a server's clock is ahead of the worker's, as far as transfers tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["EVIDENT", "clock_offset"]

EVIDENT = 1e-3
"""Seconds by which a tensor must have come before it was sent, for clocks to be found apart."""

Floats = npt.NDArray[np.float64]


def clock_offset(down: Sequence[Floats], up: Sequence[Floats]) -> float:
    """Return the seconds that a server's clock is ahead of the worker's; 0 if nothing shows it.

    A tensor comes after it was sent. With a server that is d ahead, the end of a transfer minus
    that of the op that made its tensor is at least -d on the downlink and at least d on the uplink.
    The shortest of each direction take about as long, so d is half of their difference, as NTP has
    it (RFC 5905, section 8). The median over the steps is taken, and no offset unless most steps
    cannot be explained without one.

    Args:
        down: of each step, seconds from the end of a tensor's op on the server to the end of its
            transfer, by the clocks of each; NaN is passed over.
        up: the same of tensors that go to the server.
    """
    offsets, shown = [], 0
    for downs, ups in zip(down, up, strict=True):
        if np.isfinite(downs).any() and np.isfinite(ups).any():
            least_down, least_up = float(np.nanmin(downs)), float(np.nanmin(ups))
            offsets.append((least_up - least_down) / 2)
            shown += min(least_down, least_up) < -EVIDENT
    return float(np.median(offsets)) if 2 * shown > len(offsets) else 0.0

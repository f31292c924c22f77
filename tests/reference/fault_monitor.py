"""When a checkpoint policy rolls back, and what: reference functions that say it exactly.

They are plain NumPy for reading and testing; a compiled loop has its own, held to these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paracosm.faults import CheckpointPolicy

__all__ = ["blocks_to_restore", "exceeds"]


def exceeds(
    alpha: float, before: float | NDArray[np.float64], after: float | NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether `after` > alpha `before`: Algorithm 5, line 17, with r_old and r_new.

    Said the other way round, so that a residual that a fault made NaN exceeds too.
    """
    return ~(np.asarray(after) <= alpha * np.asarray(before))


def blocks_to_restore(
    policy: CheckpointPolicy,
    residual: tuple[float, float],
    local: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.bool_]:
    """Return which blocks go back to the checkpoint, shape (blocks,).

    monitor=residual asks the norm of the whole residual; when it exceeds, scope=all restores all
    blocks, scope=block those whose local residual exceeds as well, or all if none does.
    monitor=component asks every block's local residual; scope=block restores those that exceed,
    scope=all everything as soon as one does.

    Args:
        residual: norm of b - A x before and after.
        local: norms of each block's rows of b - A x, before and after; shape (blocks,) each.
    """
    flagged = exceeds(policy.alpha, *local)
    if policy.monitor == "residual":
        if not exceeds(policy.alpha, *residual):
            return np.zeros_like(flagged)
    elif not flagged.any():
        return flagged
    everything = policy.scope == "all" or not flagged.any()
    return np.ones_like(flagged) if everything else flagged

"""One thread for the linear algebra of small fits: more cost more than they bring."""

from __future__ import annotations

from contextlib import AbstractContextManager

from paracosm.errors import require

__all__ = ["one_thread"]


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS and OpenMP use one thread.

    Raises:
        MissingExtraError: threadpoolctl, which comes with scikit-learn, is not installed.
    """
    pools = require("threadpoolctl", "torch", "fitting estimators")
    context: AbstractContextManager[object] = pools.threadpool_limits(1)
    return context

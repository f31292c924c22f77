"""A small job profile, and what it says by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile


def small_job_profile(**changes: Any) -> JobProfile:
    """Return two steps of: pull, forward, backward, push, update."""
    fields: dict[str, Any] = {
        "names": ("pull", "forward", "backward", "push", "update"),
        "kinds": ("RecvTensor", "MatMul", "MatMul", "RecvTensor", "Apply"),
        "resource": np.array([DOWNLINK, WORKER, WORKER, UPLINK, SERVER], np.int8),
        "server": np.zeros(5, np.int64),
        "size": np.array([1000, 0, 0, 1000, 0]),
        "first_dependency": np.array([0, 0, 1, 2, 3, 4]),
        "dependencies": np.array([0, 1, 2, 3]),
        "begin": np.array([[0.1, 1.1, 2.0, 4.0, 5.0], [0.2, 1.2, 2.2, 4.2, 5.2]]),
        "end": np.array([[1.1, 2.0, 4.0, 5.0, 5.5], [1.2, 2.2, 4.2, 5.2, 5.7]]),
        "step_begin": np.array([0.0, 6.0]),
        "step_end": np.array([5.6, 12.0]),
        "batch": 32,
        "bandwidth": 1000.0,
        "provenance": {"source": "made up"},
    }
    return JobProfile(**(fields | changes))

"""A job profile in a few numbers, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.job_profile import summarize_profile


def test_a_resource_is_busy_while_one_of_its_ops_at_least_is_under_way() -> None:
    nan = np.nan
    # Of steps of 10 and 20 s. Downlinks: 1-3, 2-5 and 2-4, together 4 s; 1-3 and 6-9, 5 s.
    begin = np.array([[1.0, 2.0, 2.0, 5.0, 7.0, 9.0], [1.0, 6.0, nan, 9.0, nan, 15.0]])
    end = np.array([[3.0, 5.0, 4.0, 7.0, 9.0, 10.0], [3.0, 9.0, nan, 13.0, nan, 20.0]])
    profile = JobProfile(
        names=tuple("abcdef"),
        kinds=("RecvTensor",) * 3 + ("MatMul", "RecvTensor", "Apply"),
        resource=np.array([DOWNLINK] * 3 + [WORKER, UPLINK, SERVER], np.int8),
        server=np.zeros(6, np.int64),
        size=np.array([10, 20, 30, 0, 50, 0]),
        first_dependency=np.zeros(7, np.int64),
        dependencies=np.zeros(0, np.int64),
        begin=begin,
        end=end,
        step_begin=np.array([0.0, 10.0]),
        step_end=np.array([10.0, 30.0]),
    )
    summary = summarize_profile(profile)
    assert (summary["steps"], summary["ops"], summary["servers"]) == (2, 6, 1)
    assert (summary["bytes_down"], summary["bytes_up"]) == (60, 50)
    assert summary["step_seconds"] == 15.0
    assert summary["utilisation"] == {
        "downlink": pytest.approx((4 / 10 + 5 / 20) / 2),
        "worker": pytest.approx((2 / 10 + 4 / 20) / 2),
        "uplink": pytest.approx(2 / 10),  # the other step has no times of it
        "server": pytest.approx((1 / 10 + 5 / 20) / 2),
    }

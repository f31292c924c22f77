"""A profile's parameters between several servers."""

from __future__ import annotations

import numpy as np
import pytest
from profiled_jobs import serial_profile, two_parameters

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.target import shared_by
from paracosm.profiling.jobs import DOWNLINK, UPLINK, JobProfile


def test_a_parameter_takes_its_variable_its_gradient_and_its_update_along() -> None:
    found = shared_by(two_parameters(), 2)
    server = dict(zip(found.names, found.server.tolist(), strict=True))
    assert [server[name] for name in ("v0", "pull0", "push0", "u0")] == [0, 0, 0, 0]
    assert [server[name] for name in ("v1", "pull1", "push1", "u1")] == [1, 1, 1, 1]
    # What concerns both, and the worker, stay.
    assert server["rate"] == server["last"] == server["compute"] == 0


def without_variables() -> JobProfile:
    """Return a profile in which nothing joins a gradient to its parameter."""
    names = ("pull0", "pull1", "pull2", "compute", "push2", "push1", "push0", "u2", "u1", "u0")
    waits = [[], [], [], [0, 1, 2], [3], [3], [3], [4], [5], [6]]
    ops = len(names)
    return JobProfile(
        names=names,
        kinds=names,
        resource=np.array([0, 0, 0, 1, 2, 2, 2, 3, 3, 3], np.int8),
        server=np.zeros(ops, np.int64),
        size=np.array([100, 70, 100, 0, 100, 70, 100, 0, 0, 0]),
        first_dependency=np.cumsum([0, *map(len, waits)]),
        dependencies=np.array([op for wait in waits for op in wait], np.int64),
        begin=np.zeros((1, ops)),
        end=np.ones((1, ops)),
        step_begin=np.zeros(1),
        step_end=np.ones(1),
    )


def test_gradients_that_nothing_joins_to_a_parameter_go_by_size_from_the_last_one() -> None:
    found = shared_by(without_variables(), 2)
    server = dict(zip(found.names, found.server.tolist(), strict=True))
    assert [server[f"pull{number}"] for number in range(3)] == [0, 1, 1]
    for number in range(3):
        assert server[f"push{number}"] == server[f"u{number}"] == server[f"pull{number}"]


def test_both_directions_are_divided_alike() -> None:
    found = shared_by(two_parameters((700, 300)), 2)
    for way in (DOWNLINK, UPLINK):
        chosen = found.resource == way
        held = np.bincount(found.server[chosen], weights=found.size[chosen])
        assert held == pytest.approx([700, 300], abs=1)


def test_more_servers_than_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="servers: 2 servers for 1 parameters"):
        shared_by(serial_profile(), 2)

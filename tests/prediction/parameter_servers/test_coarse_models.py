"""Lin et al.'s and Cynthia's models, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiled_jobs import BANDWIDTH, job_of, serial_profile, two_parameters

from paracosm.prediction.parameter_servers.coarse_models import (
    Phases,
    cynthia,
    lin,
    mean_value_analysis,
    phases_of,
)

PHASES = Phases(
    downlink=1.0, worker=2.0, uplink=1.0, server=1.0, rest=0.0, computing=2.0,
    carried=np.array([1000.0]),
)  # fmt: skip


def test_two_stations_by_hand() -> None:
    # Demands 1 and 2, no delay. One customer: residence 1 and 2, 1/3 cycles/s, queues 1/3 and 2/3.
    # Two: residence 4/3 and 10/3, 2 / (14/3) = 3/7, queues 4/7 and 10/7. Three: 11/7 + 34/7 = 45/7.
    found = mean_value_analysis([1.0, 2.0], 0.0, 3)
    assert found == pytest.approx([1 / 3, 3 / 7, 3 / (45 / 7)], rel=1e-12)


def test_a_delay_makes_nobody_wait() -> None:
    # Demand 1, delay 3: 1/4; the queue of one customer is 1/4, so 2 / (3 + 5/4).
    assert mean_value_analysis([1.0], 3.0, 2) == pytest.approx([1 / 4, 2 / 4.25], rel=1e-12)
    assert mean_value_analysis([], 2.0, 3) == pytest.approx([0.5, 1.0, 1.5])


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=4), st.floats(0, 10), st.integers(1, 30))
def test_asymptotic_bounds_of_closed_networks(
    demands: list[float], delay: float, customers: int
) -> None:
    found = mean_value_analysis(demands, delay, customers)
    number = np.arange(1, customers + 1)
    bound = np.minimum(number / (delay + sum(demands)), 1 / max(demands))
    assert (found <= bound * (1 + 1e-9)).all()
    assert (np.diff(found) >= -1e-12).all()


def test_lin_by_hand() -> None:
    # One worker: 1 / 5. Two: each of three stations holds 0.2 of the other, 2 / (3 * 1.2 + 2).
    assert lin(PHASES, 2) == pytest.approx([0.2, 2 / 5.6], rel=1e-12)


def test_lin_divides_phases_between_servers_by_their_bytes() -> None:
    even = lin(replace(PHASES, carried=np.array([500.0, 500.0])), 50)
    uneven = lin(replace(PHASES, carried=np.array([900.0, 100.0])), 50)
    assert even[0] == uneven[0] == pytest.approx(0.2)
    assert even[-1] > uneven[-1]
    # The server with nine tenths of the bytes is busy for 0.9 s of a cycle in each direction.
    assert uneven[-1] <= 1 / 0.9


def test_cynthia_by_hand() -> None:
    # T_P = 2, T_C = 1, U_1 = 2 / 5.
    assert cynthia(PHASES, BANDWIDTH, 1) == pytest.approx(1 / (2 + 2))
    assert cynthia(PHASES, BANDWIDTH, 3) == pytest.approx(3 / (2 * 1.2 + 2))
    # T_C = 0.5, U_1 = 1 / 5.
    assert cynthia(PHASES, BANDWIDTH, 10, duplex=True) == pytest.approx(10 / (2 * 2 + 1))


def test_phases_of_a_serial_step_are_its_ops() -> None:
    found = phases_of(job_of(serial_profile()))
    assert found.carried == pytest.approx([1000.0])
    for name in ("downlink", "worker", "uplink", "server", "rest", "computing", "step"):
        expected = 5.0 if name == "step" else getattr(PHASES, name)
        assert getattr(found, name) == pytest.approx(expected), name


def test_what_is_sent_ahead_of_gradients_begins_no_uplink() -> None:
    # The learning rate, 1 byte, goes up at once; the gradients after 1 s + 1 s.
    found = phases_of(job_of(two_parameters()))
    assert found.downlink == pytest.approx(1.0)
    assert found.worker == pytest.approx(1.0)
    assert found.uplink == pytest.approx(1.0)
    assert found.carried == pytest.approx([1001.0])


def test_one_worker_alone_waits_for_nobody() -> None:
    found = phases_of(job_of(serial_profile(), backup=1))
    assert found.step == pytest.approx(5.0)


def test_a_direction_without_bytes_takes_no_time() -> None:
    found = phases_of(job_of(serial_profile(size=np.array([0, 0, 1000, 0]))))
    assert (found.downlink, found.worker, found.uplink) == pytest.approx((0.0, 2.0, 1.0))
    assert found.step == pytest.approx(4.0)

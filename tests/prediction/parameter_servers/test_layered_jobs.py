"""Jobs in whose steps the compiled simulation runs ahead: nothing may show it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from layered_workload import layered_workload
from plain_systems import plain_system
from steps_reference import simulate_literally

from paracosm.simulation.simulate import simulate
from paracosm.simulation.steps_plan import write_plan


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    servers=st.integers(1, 2),
    forks=st.booleans(),
    window=st.sampled_from([20.0, np.inf]),
    bandwidth=st.sampled_from([1.0, 10.0, 100.0]),
    latency=st.sampled_from([0.0, 0.5]),
)
def test_running_ahead_changes_nothing(
    seed: int,
    workers: int,
    servers: int,
    forks: bool,
    window: float,
    bandwidth: float,
    latency: float,
) -> None:
    workload = layered_workload(4, 3, 3, seed, servers, forks)
    rng = np.random.default_rng(seed)
    system = plain_system(workers, servers, bandwidth, latency=latency, window=window)
    system = replace(
        system,
        speed=rng.uniform(0.5, 2.0, workers),
        background_times=np.array([0.0, 30.0]),
        background_down=np.array([1, 0]),
        background_up=np.array([0, 2]),
    )
    drawn = rng.integers(workload.steps, size=(workers, 4))
    ahead = simulate(workload, system, drawn)
    step_by_step = simulate(workload, system, drawn, keep_chunks=True)
    literal = simulate_literally(workload, system, drawn)
    np.testing.assert_array_equal(ahead.step_begin, step_by_step.step_begin)
    np.testing.assert_array_equal(ahead.step_end, step_by_step.step_end)
    np.testing.assert_allclose(ahead.step_end, literal.step_end, rtol=1e-9)


def test_it_does_run_ahead() -> None:
    workload = layered_workload(4, 3, 3, 0, forks=True)
    plan = write_plan(workload, plain_system(1, 1, 1.0), np.zeros((1, 1), np.int64), 0)
    own = workload.resource == 1
    # All of a layer's but those whose gradient is pushed.
    assert plan.is_local.sum() == own.sum() - 2 * 4

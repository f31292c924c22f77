"""Laws that any correct simulator of distributed SGD obeys, each derived without one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from metric_rows import series
from numpy.typing import NDArray

from paracosm.training import TrainConfig, TrainingResult, train


def run(seed: int = 0, **arguments: Any) -> TrainingResult:
    return train(TrainConfig.model_validate(arguments), seed)


def schedule(seed: int = 0, **arguments: Any) -> TrainingResult:
    return run(seed, timing_only=True, timeline=False, **arguments)


def values(result: TrainingResult, name: str) -> NDArray[np.float64]:
    return np.array([row.value for row in series(result, name)])


SPEEDS = "uniform(1s, 5s)"
HELD_PORTS = {"sharing": "serial", "pipelined": False}  # as Zhang et al. model a network


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 32, 64])
def test_mean_staleness_of_a_closed_loop_is_one_less_than_its_workers(workers: int) -> None:
    """Between a worker's read and its own update, every other one updates once on average."""
    updates = 200 * workers
    result = schedule(algorithm="asgd", workers=workers, compute=SPEEDS, updates=updates)
    steady = values(result, "staleness")[updates // 2 :]
    assert steady.mean() == pytest.approx(workers - 1, rel=0.01)


@pytest.mark.parametrize(("workers", "buffer"), [(16, 4), (64, 8)])
def test_a_buffer_divides_the_staleness(workers: int, buffer: int) -> None:
    result = schedule(
        algorithm=f"fedbuff(buffer={buffer})", workers=workers, compute=SPEEDS, updates=4000
    )
    steady = values(result, "staleness")[2000 * buffer :]
    assert steady.mean() == pytest.approx((workers - 1) / buffer, rel=0.01)


def test_exponential_compute_times_make_the_staleness_geometric() -> None:
    """Memoryless workers: each of the W is equally likely to be the next one that updates."""
    result = schedule(algorithm="asgd", workers=8, compute="exponential(1s)", updates=40_000)
    staleness = values(result, "staleness")[100:]
    for age in range(6):
        probability = 1 / 8 * (7 / 8) ** age
        assert (staleness == age).mean() == pytest.approx(probability, abs=0.006)


@pytest.mark.parametrize(
    "workers", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 8, 16))]
)
def test_asynchrony_begets_momentum(workers: int) -> None:
    """Mitliagkas et al., 2016: momentum 1 - 1/W and learning rate eta/W, on average, on x^2/2.

    The simulated schedule drives the recursion x[t+1] = x[t] - eta x[t - staleness[t]], started
    anew in many windows; two numbers are then fitted to the mean over the windows.
    """
    horizon, eta = 40, 0.5
    result = schedule(algorithm="asgd", workers=workers, compute="exponential(1s)", updates=60_000)
    ages = values(result, "staleness")[600:].astype(int)
    ages = ages[: len(ages) // horizon * horizon].reshape(-1, horizon)
    x = np.ones((len(ages), horizon + 1))
    rows = np.arange(len(ages))
    for t in range(horizon):
        x[:, t + 1] = x[:, t] - eta * x[rows, np.maximum(t - ages[:, t], 0)]
    mean = x.mean(axis=0)
    step, previous = np.diff(mean)[1:], np.diff(mean)[:-1]
    (momentum, rate), *_ = np.linalg.lstsq(
        np.stack([previous, -mean[1:-1]], axis=1), step, rcond=None
    )
    assert momentum == pytest.approx(1 - 1 / workers, abs=0.05)
    assert rate == pytest.approx(eta / workers, rel=0.15)


@pytest.mark.parametrize(
    ("workers", "bound"),
    [
        (2, 1.0),
        (4, 0.44504),
        pytest.param(8, 0.20906, marks=pytest.mark.slow),
        pytest.param(16, 0.10130, marks=pytest.mark.slow),
        pytest.param(32, 0.04986, marks=pytest.mark.slow),
    ],
)
def test_equal_compute_times_are_stable_up_to_the_bound_of_a_constant_delay(
    workers: int, bound: float
) -> None:
    """eta < 2 sin(pi / (2 (2 tau + 1))) with tau = W - 1, on x^2/2."""
    assert bound == pytest.approx(2 * math.sin(math.pi / (2 * (2 * workers - 1))), abs=1e-5)
    amplitude = {}
    for factor in (0.9, 1.1):
        result = run(
            model="quadratic:model",
            data="quadratic:data",
            algorithm="asgd",
            workers=workers,
            compute="20ms",
            lr=factor * bound,
            updates=120 * workers,
            lookahead="off",
            evaluate_every=1000,
            keep_going=True,
        )
        losses = values(result, "minibatch_loss")
        amplitude[factor] = losses[-10 * workers :].max() / losses[: 10 * workers].max()
    assert amplitude[0.9] < 1 < amplitude[1.1]


@pytest.mark.parametrize(
    ("workers", "rounds", "compute", "transfer"),
    [(1, 5, 1.0, 0.25), (2, 30, 1.0, 0.125), (4, 7, 0.5, 0.0625), (64, 3, 1.0, 0.5)],
)
def test_rounds_of_synchronous_sgd_through_serialised_ports(
    workers: int, rounds: int, compute: float, transfer: float
) -> None:
    """n (c + (W + 1) L) + (W - 1) L, until the last worker has the last parameters."""
    result = schedule(
        algorithm="ssgd",
        workers=workers,
        compute=compute,
        latency=transfer,
        updates=rounds,
        **HELD_PORTS,
    )
    expected = rounds * (compute + (workers + 1) * transfer) + (workers - 1) * transfer
    assert result.summary["virtual_time"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("workers", "transfer"), [(2, 0.1), (8, 0.01), (16, 0.1), (64, 0.05)])
def test_throughput_of_asynchronous_sgd_through_serialised_ports(
    workers: int, transfer: float
) -> None:
    """min(W / (c + 2 L), 1 / L): bound by computing, then by the server's port."""
    result = schedule(
        algorithm="asgd",
        workers=workers,
        compute=1.0,
        latency=transfer,
        updates=4000,
        batch=1,
        **HELD_PORTS,
    )
    expected = min(workers / (1 + 2 * transfer), 1 / transfer)
    assert result.summary["examples_per_second"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
def test_rounds_of_synchronous_sgd_through_shared_ports(workers: int) -> None:
    """n (c + 2 (W s + L)): W gradients share the server's port, then W answers; L passes beside."""
    compute, transfer, latency, rounds = 0.5, 0.125, 0.25, 5
    result = schedule(
        algorithm="ssgd",
        workers=workers,
        compute=compute,
        latency=latency,
        bandwidth="8MB/s",
        message_size="1MB",
        updates=rounds,
    )
    expected = rounds * (compute + 2 * (workers * transfer + latency))
    assert result.summary["virtual_time"] == pytest.approx(expected, rel=1e-12)


def test_rounds_with_backup_workers_take_the_order_statistic() -> None:
    """The Nth of N + b exponential times is H(N + b) - H(b) on average: 2.721 for 64 and 4."""
    rounds = 1500
    result = schedule(
        algorithm="backup-workers(backups=4, interrupt=True)",
        workers=68,
        compute="exponential(1s)",
        updates=rounds,
    )
    harmonic = [math.fsum(1 / k for k in range(1, n + 1)) for n in (68, 4)]
    assert harmonic[0] - harmonic[1] == pytest.approx(2.721, abs=1e-3)
    assert result.summary["virtual_time"] / rounds == pytest.approx(2.721, rel=0.03)


def digits(algorithm: str, workers: int) -> TrainingResult:
    return run(algorithm=algorithm, workers=workers, updates=3000, keep_going=True)


def test_plain_asgd_breaks_at_sixteen_workers_and_a_smaller_step_repairs_it() -> None:
    """The finding of Zhang, Tanimura, Nakada (section 4.4, figure 14), on handwritten digits."""
    assert digits("asgd", 8).summary["final_loss"] < 0.1
    assert digits("asgd", 16).summary["final_loss"] == pytest.approx(math.log(10), abs=0.05)
    assert 0.05 < digits("staleness-aware", 16).summary["final_loss"] < 0.4

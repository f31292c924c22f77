"""Computing: measured, modelled, recorded and replayed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.cluster import Link, star
from paracosm.engine import Recording, Simulator, Worker
from paracosm.errors import InputError
from paracosm.timing import parse_distribution


class Computer(Worker):
    """Executes a function several times, and notes when each call was over."""

    def __init__(self, function: Any, duration: Any = None, calls: int = 3) -> None:
        self.function = function
        self.duration = duration
        self.calls = calls
        self.times: list[float] = []
        self.results: list[Any] = []

    async def run(self) -> None:
        for number in range(self.calls):
            self.results.append(await self.execute(self.function, number, duration=self.duration))
            self.times.append(self.sim.now)


def compute(function: Any, duration: Any = None, **kwargs: Any) -> Computer:
    sim = Simulator(**kwargs)
    worker = sim.add_worker("worker0", Computer, function, duration)
    sim.start()
    return worker


def test_the_result_and_a_constant_duration() -> None:
    worker = compute(lambda number: number**2, 0.5)
    assert (worker.results, worker.times, worker.compute_time) == ([0, 1, 4], [0.5, 1.0, 1.5], 1.5)


def test_a_measured_duration_is_that_of_the_call() -> None:
    worker = compute(lambda number: time.sleep(0.02))
    assert worker.sim.now >= 0.06
    assert worker.sim.recording.durations["worker0"] == pytest.approx(np.diff([0, *worker.times]))


def test_a_function_may_give_the_durations() -> None:
    assert compute(abs, iter([1.0, 2.0, 0.25]).__next__).times == [1, 3, 3.25]


def test_a_distribution_is_drawn_from_with_the_workers_own_stream() -> None:
    distribution = parse_distribution("exponential(2)")
    sim = Simulator(seed=5)
    workers = [sim.add_worker(f"worker{i}", Computer, abs, distribution) for i in range(2)]
    sim.start()
    for index, worker in enumerate(workers):
        rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(index, 0)))
        expected = np.cumsum([distribution.sample(rng) for _ in range(3)])
        assert worker.times == list(expected)


def test_execute_divides_by_the_speed_of_the_node_and_compute_does_not() -> None:
    cluster = star(workers=2, link=Link(), speeds=[1.0, 4.0])
    sim = Simulator(network=cluster)
    slow = sim.add_worker("worker0", Computer, abs, 1.0)
    fast = sim.add_worker("worker1", Computer, abs, 1.0)
    sim.start()
    assert (slow.sim.now, slow.times[-1], fast.times[-1]) == (3, 3, 0.75)
    assert fast.speed == 4


@pytest.mark.parametrize("duration", [-1.0, float("nan"), lambda: -0.5])
def test_a_bad_duration_is_refused(duration: Any) -> None:
    with pytest.raises(InputError, match="the duration must be a finite number of seconds"):
        compute(abs, duration)


def test_a_measured_run_is_replayed_to_the_bit(tmp_path: Path) -> None:
    def work(number: int) -> int:
        return sum(range(1000 * (number + 1)))

    measured = compute(work)
    measured.sim.recording.save(tmp_path / "recording.json")
    replayed = compute(work, recording=tmp_path / "recording.json")
    assert replayed.times == measured.times
    assert replayed.results == measured.results
    again = compute(work, recording=Recording(replayed.sim.recording.durations))
    assert again.times == measured.times


def test_a_recording_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="the recording holds 2 durations of worker0"):
        compute(abs, recording=Recording({"worker0": [0.1, 0.2]}))
    with pytest.raises(InputError, match='unknown worker of the recording "worker0"'):
        compute(abs, recording=Recording({"worker9": [0.1]}))


def test_compute_time_counts_what_was_computed_and_no_more() -> None:
    class Interrupted(Worker):
        async def run(self) -> None:
            try:
                await self.compute(10)
            except Exception:
                await self.compute(5)

    sim = Simulator()
    worker = sim.add_worker("worker", Interrupted)
    sim.call_later(4, lambda _: worker.interrupt())
    sim.run(until=2)
    assert worker.compute_time == 2
    sim.run(until=6)
    assert worker.compute_time == 6
    sim.start()
    assert (worker.compute_time, sim.now) == (9, 9)

"""Throughput of small jobs, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiled_jobs import job_of, serial_profile, two_parameters

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers import throughput
from paracosm.prediction.parameter_servers.config import Background
from paracosm.prediction.parameter_servers.target import first_steps
from paracosm.prediction.parameter_servers.throughput import (
    AT_FIRST,
    limiting,
    predict_throughput,
    rate_after_start,
    rates_after_start,
    rates_in_period,
    rates_of_windows,
    saturates_at,
    sensitivity,
    single_worker_rates,
    steady_period,
    steady_state,
)
from paracosm.profiling.jobs import JobProfile

PROFILE = serial_profile()


def steps_per_second(workers: int, **habits: Any) -> float:
    return predict_throughput(job_of(PROFILE, **habits), workers, 0).steps_per_second


def test_workers_that_go_together_share_the_link_in_lock_step() -> None:
    # W workers pull in W s, compute in 2, push in W, update in 1.
    for workers in (1, 2, 4):
        found = predict_throughput(job_of(PROFILE, start="together", measure=200.0), workers, 0)
        assert found.after_start is not None
        expected = workers / (2 * workers + 3)
        assert found.after_start.steps_per_second == pytest.approx(expected, rel=1e-9)


def test_the_steady_state_does_not_depend_on_a_common_start() -> None:
    # One worker takes 5 s; from random starts, two are seldom in each other's way.
    assert steps_per_second(1) == pytest.approx(1 / 5, rel=1e-9)
    found = predict_throughput(job_of(PROFILE), 2, 0)
    assert 2 / 7 < found.steps_per_second <= 2 / 5
    assert found.spread is not None
    # Nothing varies but the starts: the error is that of their number.
    assert 0 < found.error < 0.2 * found.steps_per_second
    assert predict_throughput(job_of(PROFILE), 2, 0) != predict_throughput(job_of(PROFILE), 2, 1)


@pytest.mark.parametrize("habits", [pytest.param({}, marks=pytest.mark.slow), {"share_sigma": 0.5}])
def test_the_standard_error_is_how_far_other_seeds_are_off(habits: dict[str, Any]) -> None:
    """What stands behind the sign ± of a throughput, against sixty simulations of the same job."""
    job = job_of(PROFILE, workers=2, **habits)
    found = [steady_state(job, 2, seed, steps=200) for seed in range(60)]
    scatter = np.std([each.steps_per_second for each in found], ddof=1)
    claimed = np.sqrt(np.mean([each.error**2 for each in found]))
    assert scatter == pytest.approx(claimed, rel=0.25)


def uneven_steps(variation: float) -> JobProfile:
    """Return 50 steps of `PROFILE` in which computing takes 2 s, give or take some."""
    took = np.random.default_rng(3).lognormal(np.log(2.0), variation, 50)
    spans = np.stack([np.ones(50), took, np.ones(50), np.ones(50)], axis=1)
    end = spans.cumsum(axis=1)
    ends = end[:, -1].cumsum()
    begin = ends - end[:, -1]
    return serial_profile(begin=end - spans, end=end, step_begin=begin, step_end=ends)


@pytest.mark.parametrize(
    ("workers", "variation"),
    [
        (4, 0.3),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 0.3), (4, 0.1), (8, 0.3))),
    ],
)
@pytest.mark.parametrize("start", ["steady", "together"])
def test_spread_holds_most_measurements(start: Any, workers: int, variation: float) -> None:
    """Measurements of other seeds: 60 to 80 % within one deviation, and 90 % within two."""
    job = job_of(uneven_steps(variation), 8, start=start, steps=None)
    first = predict_throughput(job, workers, 0)
    windows: list[float] = []
    for seed in range(1, 9):
        if start == "steady":
            steps = job.steps(workers)
            windows += steady_state(job, workers, seed, steps=steps).measured.tolist()
        else:
            begins = np.zeros(workers)
            windows += rates_after_start(job, begins, first.seconds, 60, seed)
    said = first.after_start or first
    assert said.spread is not None
    off = np.abs(np.array(windows) - said.steps_per_second) / said.spread
    assert len(off) > 400
    assert 0.6 <= (off < 1).mean() <= 0.8
    assert (off < 2).mean() >= 0.9


def test_uneven_shares_bring_workers_out_of_step() -> None:
    habits = {"start": "together", "measure": 200.0}
    even = predict_throughput(job_of(PROFILE, **habits), 4, 0).after_start
    uneven = predict_throughput(job_of(PROFILE, share_sigma=0.5, **habits), 4, 0).after_start
    assert even is not None
    assert uneven is not None
    assert even.steps_per_second == pytest.approx(4 / 11)
    assert uneven.steps_per_second > 1.2 * even.steps_per_second
    assert uneven.spread > 0


def test_utilisation_is_bytes_over_what_a_link_carries() -> None:
    for workers in (1, 2):
        predicted = predict_throughput(job_of(PROFILE), workers, 0)
        rate, found = predicted.steps_per_second, predicted.utilisation
        # 1 s of each direction, 2 s of all workers, 1 s of a core for each worker.
        assert found["downlink"] == pytest.approx([rate])
        assert found["uplink"] == pytest.approx([rate])
        assert found["worker"] == pytest.approx([2 * rate / workers])
        assert found["server"] == pytest.approx([rate / workers])


def test_several_servers_have_links_of_their_own() -> None:
    # A worker's port is as wide as a server's: one worker is as fast with two servers as with one.
    job = job_of(two_parameters((500, 500)), servers=2)
    assert predict_throughput(job, 1, 0).steps_per_second == pytest.approx(1 / 3, rel=1e-3)
    # Two workers that pull in lock-step have both links: as if each were alone.
    found = predict_throughput(job, 2, 0)
    assert found.steps_per_second == pytest.approx(2 / 3, rel=1e-2)
    assert found.utilisation["downlink"] == pytest.approx([1 / 3, 1 / 3], rel=1e-2)


def test_latency_is_waited_for_after_each_transfer() -> None:
    assert steps_per_second(1, latency=0.5) == pytest.approx(1 / 6, rel=1e-9)


def test_background_flows_take_their_share() -> None:
    assert steps_per_second(1, background=Background(1)) == pytest.approx(1 / 7, rel=1e-9)


def test_background_flows_that_are_there_half_of_the_time() -> None:
    # In 7 s of every 14 a transfer takes twice as long: between 1/7 and 1/5.
    found = steps_per_second(1, background=Background(1, 7.0, 7.0))
    assert 1 / 7 < found < 1 / 5


def test_after_a_start_together_and_staggered() -> None:
    together = predict_throughput(job_of(PROFILE, start="together", measure=70.0), 2, 0)
    assert together.after_start is not None
    assert together.after_start.steps_per_second == pytest.approx(2 / 7)
    assert together.after_start.spread == pytest.approx(0, abs=1e-9)
    # The second one pulls while the first one computes: nobody is ever in the other's way.
    habits = {"start": "staggered", "stagger": 2.5, "measure": 70.0}
    staggered = predict_throughput(job_of(PROFILE, **habits), 2, 0)
    assert staggered.after_start is not None
    assert staggered.after_start.steps_per_second == pytest.approx(2 / 5)
    # Without a time of their own they are spread over a step of one: 5 s / 2.
    spread = predict_throughput(job_of(PROFILE, start="staggered", measure=70.0), 2, 0)
    assert spread.after_start == staggered.after_start


def test_synchronous_steps_wait_for_the_slowest_or_not_for_it() -> None:
    ports = job_of(PROFILE, workers=2).settings.ports
    slow = replace(ports, speed=np.array([1.0, 0.1]))

    def rate(backup: int) -> float:
        job = job_of(PROFILE, workers=2, backup=backup)
        job = replace(job, settings=replace(job.settings, ports=slow))
        return predict_throughput(job, 2, 0).steps_per_second

    # Both pull in 2 s, the slower one computes for 20; its push and update are alone: 24 s.
    assert rate(0) == pytest.approx(2 / 24, rel=1e-9)
    # Alone the faster one has 1/5; the other's transfers may be in its way.
    assert 1 / 7 < rate(1) <= 1 / 5 + 1e-9


def test_a_worker_that_no_iteration_waits_for_may_never_get_far() -> None:
    job = job_of(PROFILE, workers=3, backup=1)
    slow = replace(job.settings.ports, speed=np.array([1.0, 1.0, 0.001]))
    job = replace(job, settings=replace(job.settings, ports=slow))
    # The two others go in lock-step: 2 s of pulls, 2 of computing, 2 of pushes, 1 of an update.
    found = predict_throughput(job, 3, 0)
    assert found.steps_per_second == pytest.approx(2 / 7, rel=0.02)


def test_links_carry_steps_that_came_too_late_as_well() -> None:
    job = job_of(PROFILE, workers=3, backup=1)
    found = predict_throughput(job, 3, 0)
    carried = found.utilisation["downlink"][0]
    # Of three workers alike, two a time are accepted, and the third one's bytes were sent, too.
    assert carried == pytest.approx(1.5 * found.steps_per_second, rel=0.02)


def test_many_workers_that_need_no_link_are_all_at_work() -> None:
    # Each computes for 2 s, updates for 1, and needs 1 ms of either link: 100 of them, a tenth.
    small = serial_profile(size=np.array([1, 0, 1, 0]), end=np.array([[1.0, 3.0, 4.0, 5.0]]))
    job = job_of(small, workers=100, steps=100)
    found = predict_throughput(job, 100, 0)
    assert 0.97 * 100 / 3 < found.steps_per_second < 100 / 3
    # 14 % would be gone if their starts were spread over the time of all of them.
    assert sensitivity(job, 100, 0)["worker"] == pytest.approx(0.5, abs=0.02)


def test_no_number_of_workers_is_above_the_bound_of_the_link() -> None:
    for workers in (30, 100, 300):
        job = job_of(PROFILE, workers=workers, steps=100)
        assert predict_throughput(job, workers, 0).steps_per_second <= 1 + 1e-9
    # Where some get next to nothing of the link for a while, rates of workers differ widely.
    uneven = predict_throughput(job_of(PROFILE, workers=40, share_sigma=2.5), 40, 0)
    assert 0.8 < uneven.steps_per_second < 1.02


def test_a_measurement_after_a_start_has_steps_of_each_worker() -> None:
    found = predict_throughput(job_of(PROFILE, workers=40, start="together", repeats=2), 40, 0)
    assert found.after_start is not None
    assert found.after_start.steps_per_second == pytest.approx(40 / 83)
    assert found.spread is not None
    # In 20 s each of two workers ends two steps of 7 s, which are left out.
    short = predict_throughput(job_of(PROFILE, start="together", measure=20.0), 2, 0)
    assert short.after_start is None


def test_each_worker_alone_at_its_own_speed() -> None:
    job = job_of(PROFILE, workers=3)
    ports = replace(job.settings.ports, speed=np.array([1.0, 0.5, 1.0]))
    alone = single_worker_rates(replace(job, settings=replace(job.settings, ports=ports)), 0)
    assert alone == pytest.approx([1 / 5, 1 / 7, 1 / 5], rel=1e-9)


def test_what_would_help_most_limits() -> None:
    gains = sensitivity(job_of(PROFILE), 1, 0)
    # A step of 5 s would take 4.5 with a faster link or server, 4 with a faster worker.
    expected = {"downlink": 1 / 9, "worker": 1 / 4, "uplink": 1 / 9, "server": 1 / 9}
    assert gains == pytest.approx(expected, rel=1e-9)
    assert limiting(gains, dict.fromkeys(gains, 0.5)) == "worker"
    # Of a dozen workers whose pulls take twice as long as their pushes, the downlink is full.
    slow = serial_profile(size=np.array([1000, 0, 500, 0]))
    gains = sensitivity(job_of(slow, workers=12), 12, 0)
    assert gains["downlink"] > 0.6
    assert max(gains[other] for other in ("worker", "uplink", "server")) < 0.05
    assert limiting(gains, dict.fromkeys(gains, 0.5)) == "downlink"


def test_where_both_directions_are_full_no_other_resource_limits() -> None:
    gains = {"downlink": 0.001, "worker": 0.002, "uplink": 0.001, "server": 0.0}
    busy = {"downlink": 0.998, "worker": 0.01, "uplink": 0.999, "server": 0.0}
    assert limiting(gains, busy) == "uplink"


def test_saturation_is_where_more_workers_bring_less_than_a_tenth_each() -> None:
    assert saturates_at({1: 1.0, 2: 2.0, 3: 2.5, 4: 2.55, 5: 2.6}, 1.0) == 3
    assert saturates_at({1: 1.0, 2: 2.0, 3: 2.9}, 1.0) is None
    # A dip is no saturation where throughput grows on behind it.
    assert saturates_at({1: 1.0, 2: 2.0, 3: 1.9, 4: 3.5}, 1.0) is None
    assert saturates_at({4: 3.0}, 1.0) is None
    assert saturates_at({16: 10.0, 32: 11.0}, 1.0) == 16


def test_rates_of_windows_count_ends_but_one() -> None:
    # Ends at 1, 2, ..., 10 and at 2, 4, ..., 10: 1 and 1/2 steps/s in any window.
    ended = np.full((2, 10), np.nan)
    ended[0] = np.arange(1, 11)
    ended[1, :5] = np.arange(2, 11, 2)
    assert rates_of_windows(ended, 0.0, 10.0, 1) == pytest.approx([1.5])
    assert rates_of_windows(ended, 0.0, 8.0, 2) == pytest.approx([1.5, 1.5])
    # One end in a window: a step in its length.
    assert rates_of_windows(ended[:1], 0.0, 2.0, 2) == pytest.approx([1.0, 1.0])
    assert rates_of_windows(ended[:1], 20.0, 30.0, 1) == pytest.approx([0.0])
    # After the first two: (10 - 3) / 7 s and (10 - 6) / 4 s at half the pace.
    assert rate_after_start(ended, 10.0) == pytest.approx(1.5)
    assert rate_after_start(ended, 3.0) == 0.0


def test_rates_in_a_period_count_shares_of_steps() -> None:
    # One that always takes 2 s; one whose steps take 1 and 9 s by turns; one that begins late.
    start = np.array([0.0, 0.0, 10.0])
    even = np.arange(2.0, 62.0, 2.0)
    by_turns = np.cumsum(np.tile([1.0, 9.0], 15))
    late = np.full(30, np.nan)
    late[:3] = (15.0, 20.0, 25.0)
    ended = np.stack([even, by_turns, late])
    assert rates_in_period(start, ended, 10.0, 20.0) == pytest.approx([1 / 2, 2 / 10, 1 / 5])
    # From 10.5 to 15.5: half of the short step, and 4.5 s of the long one.
    assert rates_in_period(start, ended, 10.5, 15.5) == pytest.approx([1 / 2, 1 / 5, 1 / 5])
    # From 12 to 17 nothing but a long one, of which it takes 5 s.
    assert rates_in_period(start, ended, 12.0, 17.0) == pytest.approx([1 / 2, 1 / 9, 1 / 5])
    # In the mean over all begins of a stretch it is as fast as it is.
    begins = np.arange(10.0, 20.0, 0.05)
    found = [rates_in_period(start, ended, begin, begin + 13)[1] for begin in begins]
    assert np.mean(found) == pytest.approx(2 / 10, rel=1e-3)


def test_the_steady_period_ends_with_the_first_worker() -> None:
    ends = np.stack([np.arange(1.0, 401.0), 2 * np.arange(1.0, 401.0)])
    assert steady_period(ends) == (100.0, 400.0)
    very_slow = np.stack([np.arange(1.0, 401.0), 9 * np.arange(1.0, 401.0)])
    assert steady_period(very_slow) == (200.0, 400.0)
    with pytest.raises(InputError, match="check the unit of the profile's times"):
        steady_period(np.zeros((2, 400)))


def test_the_trace_has_a_lane_for_each_resource_of_a_worker() -> None:
    spans = list(first_steps(job_of(PROFILE), 2, 0).spans)
    first = [span[1:5] for span in spans if span[0] == "worker0"][:4]
    assert first == [
        ("downlink", "pull", 0.0, pytest.approx(2.0)),
        ("compute", "compute", pytest.approx(2.0), pytest.approx(4.0)),
        ("uplink", "push", pytest.approx(4.0), pytest.approx(6.0)),
        ("server", "update", pytest.approx(6.0), pytest.approx(7.0)),
    ]
    assert {span[0] for span in spans} == {"worker0", "worker1"}
    assert len(spans) == 2 * 5 * 4


def test_lanes_of_several_servers_have_numbers() -> None:
    spans = list(first_steps(job_of(two_parameters(), servers=2), 1, 0).spans)
    lanes = {name: lane for _, lane, name, *_ in spans}
    expected = {"pull0": "downlink 0", "pull1": "downlink 1", "compute": "compute"}
    expected |= {"rate": "uplink 0", "push0": "uplink 0", "push1": "uplink 1"}
    assert lanes == expected


def test_a_stream_in_two_turns_is_two_spans() -> None:
    spans = list(first_steps(job_of(two_parameters(), window=500.0), 1, 0).spans)
    pulls = [(span[2], span[3], span[4]) for span in spans if span[1] == "downlink"][:3]
    expected = [("pull0", 0.0, 0.5), ("pull1", 0.5, 0.9), ("pull0", 0.9, 1.0)]
    assert pulls == [(name, *map(pytest.approx, times)) for name, *times in expected]


def test_steps_that_take_far_longer_than_their_work_are_not_all_drawn() -> None:
    # Pull and push arrive after ten days each, and a step computes for 2 s: in the time of 12 steps
    # there is work for 5 million.
    job = job_of(PROFILE, workers=2)
    routes = job.settings.ports.routes
    late = replace(routes, latency=np.full_like(routes.latency, 864_000.0))
    ports = replace(job.settings.ports, routes=late)
    slow = replace(job, settings=replace(job.settings, ports=ports))
    assert slow.most_steps(ports, 12 * 1.728e6) > 2 * AT_FIRST
    (rate,) = rates_after_start(slow, np.zeros(2), 5 * 1.728e6 - 1, 1, 0)
    assert rate == pytest.approx(2 / 1.728e6, rel=1e-4)


def test_more_steps_are_drawn_where_they_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(PROFILE, workers=2, share_sigma=0.5)
    at_once = rates_after_start(job, np.zeros(2), 500.0, 3, 0)
    monkeypatch.setattr(throughput, "AT_FIRST", 10)
    assert rates_after_start(job, np.zeros(2), 500.0, 3, 0) == at_once
    monkeypatch.setattr(throughput, "MOST_STEPS", 100)
    with pytest.raises(InputError, match=r"^measure: in 500 s 2 workers make .* steps, more than"):
        rates_after_start(job, np.zeros(2), 500.0, 3, 0)

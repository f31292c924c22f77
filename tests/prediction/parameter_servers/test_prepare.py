"""Steps without what their link did to them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plain_systems import plain_system

from paracosm.prediction.parameter_servers.target import prepare, with_parsing
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile, load_job_profile
from paracosm.simulation.simulate import simulate

DATA = Path(__file__).parents[2] / "data" / "psthroughput"
GOODPUT = 191.5e6 / 8  # bytes/s


def two_layers() -> JobProfile:
    """Return one step of: read a and b (server), pull both, forward a and b, push b, push a.

    The pull of b was asked for first.
    """
    names = ("read a", "read b", "pull a", "pull b", "fwd a", "fwd b", "push b", "push a", "apply")
    waits_for = [[], [], [0], [1], [2], [3, 4], [5], [5], [6, 7]]
    return JobProfile(
        names=names,
        kinds=names,
        resource=np.array([3, 3, 0, 0, 1, 1, 2, 2, 3], np.int8),
        server=np.zeros(9, np.int64),
        size=np.array([0, 0, 100, 200, 0, 0, 200, 100, 0]),
        first_dependency=np.cumsum([0, *map(len, waits_for)]),
        dependencies=np.array([op for each in waits_for for op in each]),
        begin=np.array([[0.01, 0.02, 0.04, 0.03, 0.4, 0.6, 0.8, 0.85, 1.3]]),
        end=np.array([[0.01, 0.02, 0.35, 0.25, 0.6, 0.8, 1.1, 1.2, 1.4]]),
        step_begin=np.zeros(1),
        step_end=np.array([1.5]),
    )


def test_transfers_are_their_bytes_and_computing_lasts_as_recorded() -> None:
    workload = prepare(two_layers())
    assert workload.size.tolist() == [0, 0, 100, 200, 0, 0, 200, 100, 0]
    assert workload.seconds[0] == pytest.approx([0, 0, 0, 0, 0.2, 0.2, 0, 0, 0.1])
    assert workload.gap == pytest.approx([0.1])


def test_requests_that_no_transfer_decides_on_come_when_they_came() -> None:
    workload = prepare(two_layers())
    # The pulls wait for reads of the server, which nothing delays: they are asked for in time.
    assert workload.roots[0].tolist() == [0, 1, 3, 2]
    assert workload.release[0] == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert workload.waits.tolist() == [0, 0, 0, 0, 1, 2, 1, 1, 2]


def test_requests_that_computing_decides_on_wait_for_it() -> None:
    profile = two_layers()
    # The server makes what the first pull carries for 0.03 of the 0.04 s until it is asked for.
    begin = profile.begin.copy()
    begin[0, 0] = 0.0
    end = profile.end.copy()
    end[0, 0] = 0.03
    workload = prepare(replace(profile, begin=begin, end=end))
    assert workload.roots[0].tolist() == [0, 1, 3]
    assert workload.waits.tolist() == [0, 0, 1, 0, 1, 2, 1, 1, 2]


def test_pushes_go_in_the_order_in_which_they_were_asked_for() -> None:
    workload = prepare(two_layers())
    after = workload.dependents[workload.first_dependent[5] : workload.first_dependent[6]]
    assert after.tolist() == [6, 7]
    profile = two_layers()
    begin = profile.begin.copy()
    begin[0, 6] = 0.9
    turned = prepare(replace(profile, begin=begin))
    after = turned.dependents[turned.first_dependent[5] : turned.first_dependent[6]]
    assert after.tolist() == [7, 6]


def test_parsing_is_the_receivers() -> None:
    workload = prepare(with_parsing(two_layers(), alpha=1e-3, beta=0.01))
    assert workload.ops == 9 + 4
    assert workload.resource[9:].tolist() == [WORKER, WORKER, SERVER, SERVER]
    assert workload.seconds[0, 9:] == pytest.approx([0.11, 0.21, 0.21, 0.11])
    # pull a -> parsed -> fwd a
    assert workload.dependents[workload.first_dependent[2] : workload.first_dependent[3]] == [9]
    assert workload.dependents[workload.first_dependent[9] : workload.first_dependent[10]] == [4]


def test_transfers_that_were_not_traced_take_their_usual_place() -> None:
    profile = two_layers()
    begin, end = (np.repeat(times, 2, axis=0) for times in (profile.begin, profile.end))
    begin[1, 3] = end[1, 3] = np.nan
    twice = replace(
        profile,
        begin=begin,
        end=end,
        step_begin=np.array([0.0, 2.0]),
        step_end=np.array([1.5, 3.5]),
    )
    workload = prepare(twice)
    assert workload.roots[1].tolist() == [0, 1, 3, 2]
    assert workload.gap == pytest.approx([0.6, 0.6])


def test_what_was_not_traced_is_parsed_all_the_same() -> None:
    profile = two_layers()
    begin, end = profile.begin.copy(), profile.end.copy()
    begin[0, 3] = end[0, 3] = begin[0, 7] = end[0, 7] = np.nan
    untraced = replace(profile, begin=begin, end=end)
    workload = prepare(with_parsing(untraced, alpha=1e-3, beta=0.01))
    assert workload.seconds[0, 9:] == pytest.approx([0.11, 0.21, 0.21, 0.11])
    assert workload.gap == pytest.approx([0.1])
    assert np.isfinite(
        simulate(workload, plain_system(1, 1, 1e3), np.zeros((1, 2), int)).step_end
    ).all()


def test_steps_that_were_left_out_are_no_pause() -> None:
    profile = two_layers()

    def pauses(step_begin: list[float], dropped: int) -> list[float]:
        steps = len(step_begin)
        several = replace(
            profile,
            begin=np.repeat(profile.begin, steps, axis=0),
            end=np.repeat(profile.end, steps, axis=0),
            step_begin=np.array(step_begin),
            step_end=np.array(step_begin) + 1.4,
            dropped={"no end": dropped},
        )
        return prepare(several).gap.tolist()

    assert pauses([0.0, 1.5, 3.0], 0) == pytest.approx([0.1] * 3)
    # The second of three, and the second and fourth of five: what is between is no pause.
    assert pauses([0.0, 3.0], 1) == pytest.approx([0.0] * 2, abs=1e-9)
    assert pauses([0.0, 3.0, 6.0, 7.5], 2) == pytest.approx([0.1] * 4)
    # There is no step in a pause that is shorter: those that were left out ran before.
    assert pauses([0.0, 1.5, 3.0], 2) == pytest.approx([0.1] * 3)
    # A pause that is as long as a step is one where nothing was left out.
    assert pauses([0.0, 3.0, 6.0], 0) == pytest.approx([1.6] * 3)


def test_a_measured_worker_is_as_fast_as_its_profile_says() -> None:
    """Traced steps are simulated as long as they were, on the link that they were traced on."""
    profile = load_job_profile(DATA / "profile.json.gz")
    workload = prepare(profile)
    one = plain_system(1, 1, GOODPUT)
    simulated = simulate(workload, one, np.arange(profile.steps)[None])
    took = (simulated.step_end - simulated.step_begin)[0]
    recorded = profile.step_end - profile.step_begin
    assert np.median(np.abs(took / recorded - 1)) < 0.005
    assert np.abs(took / recorded - 1).max() < 0.025
    assert np.corrcoef(took, recorded)[0, 1] > 0.99


def test_a_measured_worker_is_as_fast_as_another_run() -> None:
    profile = load_job_profile(DATA / "profile.json.gz")
    workload = prepare(profile)
    drawn = np.random.default_rng(0).integers(workload.steps, size=(1, 1000))
    predicted = 1000 / simulate(workload, plain_system(1, 1, GOODPUT), drawn).step_end[0, -1]
    run = json.loads((DATA / "run_of_one_worker.json").read_text())
    ends = np.array(run["end_ms"][0]) / 1e3
    measured = (len(ends) - 3) / (ends[-1] - ends[2])
    assert measured == pytest.approx(0.551, abs=0.001)
    assert predicted == pytest.approx(measured, rel=0.03)


def test_the_packed_profile_is_what_its_source_says() -> None:
    profile = load_job_profile(DATA / "profile.json.gz")
    assert profile.ops == 183
    assert profile.steps == 20
    for way in (DOWNLINK, UPLINK):
        assert profile.size[profile.resource == way].sum() == pytest.approx(18_752_672, abs=8)


def test_computing_of_a_real_job_overlaps_transfers_both_ways() -> None:
    """Li et al., figure 3(b): layers are computed before all are there, and pushed meanwhile."""
    profile = load_job_profile(DATA / "profile.json.gz")
    pulls, pushes = (
        (profile.resource == direction) & (profile.size > 1000) for direction in (DOWNLINK, UPLINK)
    )
    computing = (profile.resource == WORKER) & (np.nanmedian(profile.end - profile.begin, 0) > 1e-3)
    first = np.nanmin(profile.begin[:, computing], axis=1)
    pulled = np.nanmax(profile.end[:, pulls], axis=1)
    # Seconds of a step of 1.8 s, 0.9 s of which are computing. The order of pulls decides.
    assert np.median(pulled - first) > 0.1
    steps = profile.of_steps(np.isfinite(profile.begin[:, pushes]).any(axis=1))
    last = np.nanmax(steps.end[:, computing], axis=1)
    pushed = np.nanmin(steps.begin[:, pushes], axis=1)
    assert np.median(last - pushed) > 0.5

"""When emulated ranks come to the collectives of a real one."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.peers import Peers, peers_of
from paracosm.errors import InputError
from paracosm.validation import validated

WORLD = tuple(range(8))


def peers(seed: int = 0, rank: int = 0, world_size: int = 8, **given: Any) -> Peers:
    fields = {"script": "train.py", "world_size": world_size, "rank": rank, **given}
    return peers_of(validated(EmulateConfig, fields, "here"), rank, seed)


def test_without_anything_they_come_when_the_real_rank_does() -> None:
    for each in (peers(), peers(compute_jitter="none", skew="none")):
        each.resumed(1.0)
        assert each.last_entry(WORLD, 3.25) == 3.25
        assert each.entry(5, 3.25) == 3.25


def test_a_constant_skew_is_that_of_every_collective() -> None:
    late, early = peers(skew="50us"), peers(skew="-50us")
    for asked in (0.0, 1.0, 7.5):
        assert late.last_entry(WORLD, asked) == asked + 50e-6
        assert early.last_entry(WORLD, asked) == asked - 50e-6
        assert early.entry(3, asked) == asked - 50e-6
        assert late.entry(-1, asked) == asked  # nobody knows who


def test_a_group_without_emulated_members_waits_for_nobody() -> None:
    assert peers(skew="50us").last_entry((0,), 1.0) == 1.0
    config = EmulateConfig(script="train.py", world_size=8, rank="0,3", mode="wire", skew="1s")
    two = peers_of(config, 3, 0)
    assert two.last_entry((0, 3), 1.0) == 1.0
    assert two.entry(0, 1.0) == 1.0
    assert two.last_entry((0, 3, 5), 1.0) == 2.0


def test_a_straggler_is_late_by_what_the_real_rank_computed() -> None:
    each = peers(what_if=("worker 5: compute 1.5x slower", "workers 6..7: compute 1.1x slower"))
    assert each.last_entry(WORLD, 10.0) == 10.0  # they begin together
    each.resumed(12.0)
    assert each.last_entry(WORLD, 16.0) == pytest.approx(16.0 + 0.5 * 4)
    assert each.last_entry((0, 6), 17.0) == pytest.approx(17.0 + 0.1 * 5)
    assert each.last_entry((0, 1, 2), 17.0) == 17.0
    each.resumed(20.0)
    assert each.last_entry(WORLD, 20.0) == 20.0


def test_a_quicker_rank_holds_nobody_up() -> None:
    each = peers(what_if="worker 5: compute 0.5x slower", rank=0)
    each.resumed(0.0)
    assert each.entry(5, 4.0) == 2.0
    assert each.last_entry(WORLD, 4.0) == 4.0


def test_factors_of_one_rank_multiply_and_delays_add() -> None:
    each = peers(
        what_if=(
            "worker 5: compute 1.5x slower",
            "worker 5: compute 2x slower",
            "worker 5: +1s",
            "worker 5: +2s",
        )
    )
    each.resumed(0.0)
    assert each.entry(5, 4.0) == pytest.approx(4.0 + 2 * 4 + 3)


def test_once_in_an_iteration_means_until_the_two_have_met() -> None:
    each = peers(what_if="worker 5: +10ms")
    late = 0.01
    each.resumed(0.0)
    assert each.last_entry((0, 1), 1.0) == 1.0
    each.resumed(2.0)  # without rank 5
    assert each.last_entry(WORLD, 3.0) == 3.0 + late
    assert each.last_entry(WORLD, 3.5) == 3.5 + late  # in flight at the same time
    each.resumed(4.0)
    assert each.last_entry(WORLD, 5.0) == 5.0
    each.iteration_ended(5.5)
    each.resumed(6.0)
    assert each.last_entry(WORLD, 7.0) == 7.0 + late


def test_random_lateness_is_drawn_once_in_an_iteration() -> None:
    each = peers(what_if="workers 5..6: +lognormal(10ms, 0.5)")
    drawn = []
    for _ in range(400):
        both = [each.entry(5, 1.0), each.entry(6, 1.0)]
        assert both == [each.entry(5, 1.0), each.entry(6, 1.0)]
        assert each.last_entry(WORLD, 1.0) == max(both)
        drawn.append(both[0] - 1.0)
        each.iteration_ended(2.0)
    assert len(set(drawn)) == 400
    assert median(drawn) == pytest.approx(0.01, rel=0.15)


def test_jitter_is_drawn_once_for_each_stretch() -> None:
    each = peers(compute_jitter="exponential(1ms)")
    entries = [each.entry(peer, 1.0) for peer in WORLD[1:]]
    assert len(set(entries)) == 7
    assert each.last_entry(WORLD, 1.0) == max(entries)
    assert each.last_entry(WORLD, 2.0) == pytest.approx(1.0 + max(entries))
    each.resumed(3.0)
    assert each.last_entry(WORLD, 4.0) - 4.0 != pytest.approx(max(entries) - 1.0)


def test_the_mean_of_the_latest_of_many() -> None:
    """Of n exponentials the largest has mean mu (1 + 1/2 + ... + 1/n)."""
    each = peers(compute_jitter="exponential(1ms)", world_size=101)
    everyone = tuple(range(101))
    latest = []
    for stretch in range(2000):
        each.resumed(float(stretch))
        latest.append(each.last_entry(everyone, stretch + 0.5) - stretch - 0.5)
    harmonic = sum(1 / n for n in range(1, 101))
    assert fmean(latest) == pytest.approx(1e-3 * harmonic, rel=0.02)


def test_a_random_skew_is_drawn_for_each_collective() -> None:
    each = peers(skew="exponential(1ms)")
    early = peers(skew="-exponential(1ms)")
    late = [each.last_entry(WORLD, float(asked)) - asked for asked in range(10)]
    assert len(set(late)) == 10
    assert min(late) > 0
    assert all(early.entry(1, float(asked)) < asked for asked in range(10))


def test_calls_with_the_same_instant_are_about_one_collective() -> None:
    each = peers(skew="exponential(1ms)", compute_jitter="exponential(1ms)")
    first = [each.entry(peer, 1.0) for peer in WORLD[1:]]
    other = [each.entry(peer, 2.0) for peer in WORLD[1:]]
    each.resumed(3.0)  # which concerns later collectives
    assert [each.entry(peer, 1.0) for peer in WORLD[1:]] == first
    assert each.last_entry(WORLD, 1.0) == max(first)
    assert each.last_entry(WORLD, 2.0) == max(other)
    for asked in range(4, 1000):  # what is remembered of them is bounded
        each.entry(1, float(asked))
    assert len(each._collectives) <= 64


def iterate(each: Peers, computing: list[float], place: float = 0.0) -> list[float]:
    """Run iterations of two collectives, asked for after 1 s and after the given time.

    Returns how late the last peer is for the second of each.
    """
    late, now = [], 0.0
    for seconds in computing:
        each.resumed(now)
        each.last_entry(WORLD, now + 1.0 + place)
        asked = now + seconds
        late.append(each.last_entry(WORLD, asked) - asked)
        each.resumed(asked + 5.0)
        each.iteration_ended(asked + 6.0)
        now = asked + 10.0
    return late


def test_measured_jitter_is_that_of_other_iterations() -> None:
    """The first warms up; of the second and third, the first is 1 s and the last 3 s longer."""
    late = iterate(peers(compute_jitter="measured"), [50.0, 3.0, 5.0, 2.0, 9.0])
    assert late[:3] == [0.0, 0.0, 0.0]
    assert late[3] in (pytest.approx(1.0), pytest.approx(3.0))  # as in iteration 1 or 2
    assert late[4] <= -4.0 + 1e-9  # the real rank itself is the last
    assert iterate(peers(compute_jitter="measured"), [7.0] * 6) == pytest.approx([0.0] * 6)


def test_measured_jitter_gives_the_largest_of_the_world() -> None:
    """The real rank alternates; among 7 peers one nearly always takes the longer time."""
    late = iterate(peers(compute_jitter="measured"), [9.0] + [2.0, 3.0] * 100)
    second = late[5::2]
    assert set(map(round, second)) <= {0, 1}
    assert fmean(second) == pytest.approx(1 - 2**-7, abs=0.05)
    assert fmean(late[6::2]) == pytest.approx(-(2**-7), abs=0.05)


def test_another_number_of_collectives_in_an_iteration_is_no_trouble() -> None:
    each = peers(compute_jitter="measured")
    now = 0.0
    for count in (1, 3, 2, 5, 4, 0, 5, 6):
        for _ in range(count):
            now += 1.0
            assert each.last_entry(WORLD, now) == now
            each.resumed(now)
        each.iteration_ended(now)


calls = st.lists(
    st.sampled_from(["resumed", "iteration"]) | st.sets(st.integers(1, 7), min_size=1), max_size=12
)
SETTINGS: list[dict[str, Any]] = [
    {"compute_jitter": "gamma(1ms, 2)", "skew": "lognormal(50us, 0.5)"},
    {
        "compute_jitter": "measured",
        "skew": "-exponential(50us)",
        "what_if": "worker 5: compute 1.5x slower",
    },
    {
        "what_if": (
            "worker 5: +exponential(1ms)",
            "workers 2..6: +uniform(0s, 1ms)",
            "worker 3: compute 0.9x slower",
        )
    },
]


def play(each: Peers, steps: list[Any]) -> list[tuple[float, ...]]:
    """Make the calls, and return the entries of every collective."""
    found, now = [], 0.0
    for step in steps:
        now += 1.0
        if step == "resumed":
            each.resumed(now)
        elif step == "iteration":
            each.iteration_ended(now)
        else:
            found.append((each.last_entry((0, *sorted(step)), now),))
    return found


@given(steps=calls, given=st.sampled_from(SETTINGS), seed=st.integers(0, 2**40))
def test_the_same_seed_gives_the_same_entries_in_any_world(
    steps: list[Any], given: dict[str, Any], seed: int
) -> None:
    small = play(peers(seed, **given), steps)
    assert play(peers(seed, **given), steps) == small
    assert play(peers(seed, world_size=300, **given), steps) == small


def test_another_seed_gives_other_entries() -> None:
    for setting in (SETTINGS[0], SETTINGS[2]):
        steps = [{1, 2, 5}, "resumed", {5}]
        assert play(peers(1, **setting), steps) != play(peers(2, **setting), steps)


@given(
    members=st.sets(st.integers(1, 7), min_size=1),
    given=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
)
def test_fewer_members_never_come_later(
    members: set[int], given: dict[str, Any], seed: int
) -> None:
    some, all_of_them = peers(seed, **given), peers(seed, **given)
    for each in (some, all_of_them):
        each.resumed(0.0)
    group = (0, *sorted(members))
    assert some.last_entry(group, 1.0) <= all_of_them.last_entry(WORLD, 1.0)


@given(
    members=st.sets(st.integers(1, 7), min_size=1),
    given=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
)
def test_the_last_is_the_latest_of_each(
    members: set[int], given: dict[str, Any], seed: int
) -> None:
    each = peers(seed, **given)
    each.resumed(0.0)
    entries = [each.entry(peer, 1.0) for peer in members]
    assert each.last_entry((0, *sorted(members)), 1.0) == max(entries)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"skew": "50"}, '"50" has no unit'),
        ({"skew": "lognormal(50us)"}, "lognormal: sigma is missing"),
        ({"skew": "measured"}, 'unknown distribution "measured"'),
        ({"skew": "--5us"}, "skew: "),
        ({"compute_jitter": "mesured"}, 'unknown distribution "mesured"'),
        ({"compute_jitter": "-50us"}, "a duration must be 0 or more"),
        ({"compute_jitter": "recorded(1ms, 2ms)"}, "use empirical"),
        ({"what_if": "worker 8: compute 2x slower"}, "there are workers 0 to 7"),
    ],
)
def test_refused_peers(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        peers(**given)
    assert "\n" not in str(caught.value)

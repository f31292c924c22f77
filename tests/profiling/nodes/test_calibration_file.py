"""Calibrations to YAML and back, put together, and refused."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.profiling.nodes.calibration import (
    Found,
    NodeCalibration,
    load_calibration,
    save_calibration,
)

PAPER = NodeCalibration(
    bandwidth_out=23.9e6,
    bandwidth_in=23.8e6,
    duplex=0.97,
    round_trip=0.3e-3,
    uneven=0.45,
    burst=2e5,
    alpha=1e-9,
    beta=0.2e-3,
    window=28e6,
    found={
        "alpha": Found("measured", "PyTorch", "2020-04-20T00:00:00+00:00", 0.02),
        "window": Found("estimated", "a profile", "2020-04-20T00:00:00+00:00"),
        "uneven": Found("measured", "here", "2020-04-20T00:00:00+00:00", 0.1, loopback=True),
    },
    environment={"processor": "a chip"},
)


def test_a_calibration_is_read_back_equal_and_written_with_units(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    save_calibration(PAPER, path)
    assert load_calibration(path) == PAPER
    text = path.read_text()
    for line in (
        "bandwidth_out: 191.2Mbit/s",
        "alpha: 1ns/B",
        "beta: 200us",
        "window: 28MB",
        "uneven: 0.45",
    ):
        assert line in text


positive = st.floats(1e-15, 1e15)


@given(
    alpha=st.floats(1e-15, 1),
    beta=st.floats(1e-15, 1e6),
    window=positive | st.just(inf),
    bandwidth=positive,
)
def test_any_numbers_are_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    alpha: float,
    beta: float,
    window: float,
    bandwidth: float,
) -> None:
    path = tmp_path_factory.mktemp("calibration") / "node.yaml"
    some = NodeCalibration(bandwidth_in=bandwidth, alpha=alpha, beta=beta, window=window)
    save_calibration(some, path)
    assert load_calibration(path) == some


def test_numbers_without_units_are_si(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("alpha: 2e-9\nbeta: 0.001\nwindow: 65536\nbandwidth_in: 1000\n")
    found = load_calibration(path)
    assert (found.alpha, found.beta, found.window) == (2e-9, 1e-3, 65536)
    assert found.bandwidth == found.bandwidth_in == 1000
    assert found.bandwidth_out is None


def test_the_bandwidth_is_that_of_the_slower_way() -> None:
    assert PAPER.bandwidth == 23.8e6
    assert NodeCalibration().bandwidth is None


def test_what_is_new_takes_the_place_of_what_is_old_and_the_rest_stays() -> None:
    new = NodeCalibration(
        alpha=3e-9,
        found={"alpha": Found("measured", "NumPy", "2021-01-01T00:00:00+00:00")},
        environment={"numpy": "2"},
    )
    both = new.over(PAPER)
    assert both.alpha == 3e-9
    assert both.found["alpha"].by == "NumPy"
    assert both.found["window"] == PAPER.found["window"]
    assert both.environment == {"processor": "a chip", "numpy": "2"}
    same = replace(both, alpha=PAPER.alpha, found=PAPER.found, environment=PAPER.environment)
    assert same == PAPER


def test_loopback_does_not_take_the_place_of_a_network() -> None:
    def measured(loopback: bool, **values: float) -> NodeCalibration:
        found = Found("measured", "4 rounds", "2021-01-01T00:00:00+00:00", loopback=loopback)
        return NodeCalibration(**values, found=dict.fromkeys(values, found))  # type: ignore[arg-type]

    link = measured(False, bandwidth_out=1e8, bandwidth_in=2e8, uneven=0.0)
    here = measured(True, bandwidth_out=1e10, bandwidth_in=1e10, uneven=0.1, round_trip=1e-5)
    both = here.over(link)
    assert (both.bandwidth_out, both.bandwidth_in, both.uneven) == (1e8, 2e8, 0.0)
    assert both.round_trip == 1e-5
    assert [name for name in both.found if both.over_loopback(name)] == ["round_trip"]
    assert link.over(here).bandwidth == 1e8
    assert here.bandwidth is None
    by_hand = here.over(NodeCalibration(bandwidth_out=5.0))
    assert by_hand.bandwidth == by_hand.bandwidth_out == 5.0
    assert "bandwidth_out" not in by_hand.found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alhpa: 1ns/B", 'unknown key "alhpa": did you mean "alpha"?'),
        ("alpha: 1ns/byte", 'alpha: seconds a byte are written as "0.3ns/B", not "1ns/byte"'),
        ("alpha: -1ns/B", "alpha: a duration must be 0 or more"),
        ("alpha: -1e-9", "alpha: "),
        ("alpha: inf", "alpha: "),
        ("beta: soon", 'beta: cannot read "soon" as a duration'),
        ("bandwidth_in: 0", "bandwidth_in: "),
        ("bandwidth_out: inf", "bandwidth_out: "),
        ("window: 0", "window: "),
        ("window: 3 furlongs", 'window: unknown size unit "furlongs"'),
        ("duplex: .nan", ".nan is not a number (line 1)"),
        ("uneven: -0.1", "uneven: "),
        ("uneven: .inf", "uneven: "),
        ("found: {alpha: {how: guessed, by: me, when: now}}", "found.alpha.how: "),
        (
            "found: {alpha: {how: measured, by: me, when: now}}",
            "found.alpha: there is no alpha that was found",
        ),
        ("just words", "a calibration has keys and values"),
        ("alpha: [", "cannot read the calibration"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert why in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_answered_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"paracosm calibrate --out .*node\.yaml makes one"):
        load_calibration(tmp_path / "node.yaml")

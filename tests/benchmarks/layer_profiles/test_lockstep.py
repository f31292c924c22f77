from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_profiles.lockstep import lockstep

from paracosm.errors import InputError

PAIRS = {"activation out": "activation in", "gradient in": "gradient out"}


def test_two_stages_two_microbatches_by_hand() -> None:
    first = list(lockstep(0, 2, 2))
    second = list(lockstep(1, 2, 2))
    assert first == [
        ("forward", 0),
        ("activation out", 0),
        ("forward", 1),
        ("gradient in", 0),
        ("activation out", 1),
        ("backward", 0),
        ("gradient in", 1),
        ("backward", 1),
    ]
    assert second == [
        ("activation in", 0),
        ("forward", 0),
        ("backward", 0),
        ("gradient out", 0),
        ("activation in", 1),
        ("forward", 1),
        ("backward", 1),
        ("gradient out", 1),
    ]


def test_one_stage_takes_turns() -> None:
    assert list(lockstep(0, 1, 2)) == [
        ("forward", 0),
        ("backward", 0),
        ("forward", 1),
        ("backward", 1),
    ]


@given(st.integers(1, 9), st.integers(1, 20))
def test_every_micro_batch_once_and_neighbours_in_one_order(stages: int, count: int) -> None:
    orders = [list(lockstep(stage, stages, count)) for stage in range(stages)]
    for stage, order in enumerate(orders):
        for what in ("forward", "backward"):
            assert [own for name, own in order if name == what] == list(range(count))
        in_flight = most = 0
        for name, _ in order:
            in_flight += {"forward": 1, "backward": -1}.get(name, 0)
            most = max(most, in_flight)
        assert most == min(count, stages - stage)
    for before, after in pairwise(orders):
        sent = [(PAIRS[name], own) for name, own in before if name in PAIRS]
        assert sent == [each for each in after if each[0] in PAIRS.values()]


@pytest.mark.parametrize(("stage", "stages", "count"), [(2, 2, 1), (-1, 2, 1), (0, 1, 0)])
def test_stages_that_are_not_there(stage: int, stages: int, count: int) -> None:
    with pytest.raises(InputError, match="pipeline: stage"):
        list(lockstep(stage, stages, count))

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import Scaling

from paracosm.errors import InputError

PLAIN = Scaling(
    batches=(4.0, 8.0),
    compute=(1.0, 2.0),
    within=0.6,
    pair=3.0,
    several=1.5,
    jitter=0.0,
    hidden=0.0,
    last=0.0,
    spread=0.0,
)


def test_one_gpu_only_computes() -> None:
    times = PLAIN.predict(1, 1, 4)
    assert times.step == 1.0
    assert times.exposed == 0.0


@pytest.mark.parametrize(
    ("nodes", "replicas", "seconds"),
    [
        (1, 2, 0.6 * 1.0),  # 2 (p - 1) / p = 1
        (1, 4, 0.6 * 1.5),
        (2, 2, 3.0 * 1.0),
        (2, 8, 3.0 * 1.75),
        (3, 3, 1.5 * 4 / 3),
        (4, 16, 1.5 * 1.875),
    ],
)
def test_ring_over_the_slowest_link(nodes: int, replicas: int, seconds: float) -> None:
    assert PLAIN.predict(nodes, replicas, 4).exposed == pytest.approx(seconds)


def test_the_slowest_of_three_processes_sets_the_pace_of_the_ring() -> None:
    # The expected maximum of 3 normal numbers is 3 / (2 sqrt(pi)) = 0.846; Blom's is 2.7 % more.
    slowest = 1 + 0.1 * 3 / (2 * math.sqrt(math.pi))
    ring = replace(PLAIN, jitter=0.1).predict(3, 3, 4).exposed
    assert ring == pytest.approx(1.5 * 4 / 3 * slowest, rel=0.003)


def test_compute_hides_communication_but_for_the_last_bucket() -> None:
    model = replace(PLAIN, hidden=0.5, last=0.1)
    assert model.predict(2, 2, 4).exposed == pytest.approx(3.0 - 0.5)
    assert model.predict(2, 2, 40).exposed == pytest.approx(0.3)  # 10 s of compute hide it all


def test_the_slowest_of_three_replicas() -> None:
    # The expected maximum of 3 normal numbers is 3 / (2 sqrt(pi)) = 0.846; Blom's is 2.7 % more.
    waiting = replace(PLAIN, within=0.0, spread=0.1).predict(1, 3, 4).exposed
    assert waiting == pytest.approx(0.1 * 3 / (2 * math.sqrt(math.pi)), rel=0.03)


def test_compute_between_and_beyond_measured_batches() -> None:
    times = PLAIN.predict(1, 1, [2, 4, 6, 8, 16])
    assert times.step.tolist() == [0.5, 1.0, 1.5, 2.0, 4.0]


def test_accumulation_adds_passes_without_communication() -> None:
    once, thrice = PLAIN.predict(2, 2, 4), PLAIN.predict(2, 2, 4, accumulation=2)
    assert thrice.step - once.step == pytest.approx(2.0)


def test_two_nodes_and_more_stand_in_for_each_other() -> None:
    assert replace(PLAIN, pair=math.nan).predict(2, 2, 4).exposed == 1.5
    assert replace(PLAIN, several=math.nan).predict(3, 3, 4).exposed == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("model", "where", "said"),
    [
        (replace(PLAIN, within=math.nan), (1, 2, 4), "several replicas on one node"),
        (replace(PLAIN, pair=math.nan, several=math.nan), (2, 2, 4), "several nodes"),
        (PLAIN, (4, 2, 4), "a replica or more on each"),
        (PLAIN, (0, 2, 4), "1 node or more"),
        (replace(PLAIN, batches=(4.0,), compute=(1.0,)), (1, 1, 8), "only a batch of 4"),
    ],
)
def test_what_was_not_measured_is_refused(
    model: Scaling, where: tuple[int, int, int], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        model.predict(*where)


@given(
    nodes=st.integers(1, 16),
    more=st.integers(0, 60),
    batch=st.floats(1, 100),
    hidden=st.floats(0, 1),
    last=st.floats(0, 1),
    spread=st.floats(0, 0.5),
)
def test_a_step_is_never_shorter_than_its_compute_and_grows_with_the_replicas(
    nodes: int, more: int, batch: float, hidden: float, last: float, spread: float
) -> None:
    model = replace(PLAIN, hidden=hidden, last=last, spread=spread, jitter=0.1)
    replicas = nodes + np.array([more, more + 1])
    times = model.predict(nodes, replicas, batch)
    assert (times.exposed >= 0).all()
    assert times.step[0] <= times.step[1] * (1 + 1e-12)

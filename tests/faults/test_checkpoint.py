"""Checkpoint policies: spellings, intervals, and what is rolled back."""

from __future__ import annotations

import re
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from fault_monitor import blocks_to_restore, exceeds
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults import CheckpointPolicy, advice, parse_checkpoint

POSITIVE = st.floats(0, allow_infinity=False, exclude_min=True)
SECONDS = st.floats(0, 1e15)


@given(
    st.builds(
        CheckpointPolicy,
        POSITIVE,
        SECONDS.filter(bool),
        st.sampled_from(["all", "block"]),
        st.sampled_from(["residual", "component"]),
        SECONDS,
        SECONDS,
    )
)
def test_every_policy_parses_back_from_its_string(policy: CheckpointPolicy) -> None:
    assert parse_checkpoint(str(policy)) == policy


def test_spellings() -> None:
    assert parse_checkpoint("alpha=2, omega=10s") == CheckpointPolicy(2, 10)
    full = CheckpointPolicy(2, 10, "block", "component", 0.001, 0.002)
    text = "alpha=2, omega=10s, scope=block, monitor=component, cost=1ms, restore=2ms"
    assert parse_checkpoint(text) == full
    assert str(full) == text
    assert parse_checkpoint({"alpha": 2, "omega": "10s", "cost": 0.5}) == CheckpointPolicy(
        2, 10, cost=0.5
    )
    assert parse_checkpoint(full) is full


def test_policies_and_program_of_the_documentation_are_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    policies = re.findall(r"alpha=\d+, omega=[^`\n\"]+", page)
    assert len(policies) == 4
    for policy in policies:
        parse_checkpoint(policy)
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(program, names)
    assert names["policy"] == CheckpointPolicy(2, 10, "block")
    assert float(str(names["first"])) > 0


def test_interval_by_name() -> None:
    young = parse_checkpoint("omega=young, alpha=2, cost=0.2s, mtbf=100s")
    assert young.omega == pytest.approx(6.324555)  # sqrt(40)
    assert parse_checkpoint("omega=young, alpha=2, cost=0.2s", mtbf=100) == young
    assert parse_checkpoint("omega=young, alpha=2, cost=0.2s, mtbf=100s", mtbf=7) == young
    daly = parse_checkpoint("omega=daly, alpha=2, cost=5min, mtbf=24h")
    assert daly.omega == pytest.approx(117 * 60, abs=30)


@pytest.mark.parametrize(
    ("alpha", "word"),
    [(0.5, "stagnates"), (1, "stagnates"), (1.05, "may roll back"), (1.11, "may roll back")],
)
def test_advice_on_a_small_alpha(alpha: float, word: str) -> None:
    sentence = advice(CheckpointPolicy(alpha, 10))
    assert sentence is not None
    assert word in sentence
    assert f"alpha={alpha:g}" in sentence


def test_no_advice_is_needed_for_those_of_the_paper() -> None:
    assert advice(CheckpointPolicy(2, 10)) is None
    assert advice(CheckpointPolicy(10, 10)) is None


def test_advice_on_the_interval() -> None:
    assert "shorter than the 20 s" in str(advice(CheckpointPolicy(2, 10, cost=20)))
    assert "longer than the run" in str(advice(CheckpointPolicy(2, 10), 9.9))
    assert "about 9.9 s without faults" in str(advice(CheckpointPolicy(2, 10), 9.87))
    assert advice(CheckpointPolicy(2, 10, cost=1), 100) is None


def test_growth_beyond_alpha_exceeds_and_so_does_nan() -> None:
    before = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    after = np.array([2.0, 2.1, nan, inf, 0.0])
    assert exceeds(2, before, after).tolist() == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("policy", "residual", "local", "restored"),
    [
        ("monitor=residual, scope=all", (1, 3), [1, 1, 9], [1, 1, 1]),
        ("monitor=residual, scope=all", (1, 2), [1, 1, 9], [0, 0, 0]),
        ("monitor=residual, scope=block", (1, 3), [1, 1, 9], [0, 0, 1]),
        ("monitor=residual, scope=block", (1, 2), [1, 1, 9], [0, 0, 0]),
        ("monitor=residual, scope=block", (1, 3), [1, 1, 1], [1, 1, 1]),
        ("monitor=component, scope=block", (1, 1), [9, 1, 9], [1, 0, 1]),
        ("monitor=component, scope=block", (1, 9), [1, 1, 1], [0, 0, 0]),
        ("monitor=component, scope=all", (1, 1), [9, 1, 1], [1, 1, 1]),
        ("monitor=component, scope=all", (1, 9), [1, 1, 1], [0, 0, 0]),
    ],
)
def test_blocks_that_go_back(
    policy: str, residual: tuple[float, float], local: list[float], restored: list[int]
) -> None:
    found = blocks_to_restore(
        parse_checkpoint(f"alpha=2, omega=10s, {policy}"), residual, (np.ones(3), np.array(local))
    )
    assert found.tolist() == [bool(block) for block in restored]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ['write "alpha=2, omega=10s"']),
        (None, ['write "alpha=2, omega=10s"']),
        ("alpha=2", ["omega is missing"]),
        ("omega=10s", ["alpha is missing"]),
        ("alpha=2 omega=10", ["alpha", '"2 omega=10"']),
        ("alpha=2, omega", ['cannot read "omega"']),
        ("alpha=2, alpha=3, omega=1s", ["alpha is given twice"]),
        ("alfa=2, omega=10", ['"alfa"', 'did you mean "alpha"']),
        ("alpha=0, omega=10s", ["alpha must be above 0"]),
        ("alpha=inf, omega=10s", ["alpha must be above 0 and finite"]),
        ("alpha=2s, omega=10s", ["alpha", "plain number"]),
        ("alpha=2, omega=0s", ["omega must be above 0"]),
        ("alpha=2, omega=yung", ['"yung"', 'did you mean "young"']),
        ("alpha=2, omega=10s, cost=-1", ["cost", "0 or more"]),
        ("alpha=2, omega=10s, restore=inf", ["restore must be finite"]),
        ("alpha=2, omega=10s, scope=blok", ['scope must be all or block, not "blok"']),
        ("alpha=2, omega=10s, monitor=none", ["monitor must be residual or component"]),
        ("alpha=2, omega=10s, mtbf=3", ["mtbf has no effect"]),
        ("alpha=2, omega=young, cost=1s", ["omega=young needs the mean time", "mtbf=100s"]),
        ("alpha=2, omega=daly, mtbf=1s", ["omega=daly needs a cost above 0"]),
        ("alpha=2, omega=daly, mtbf=0s, cost=1s", ["mean time between faults must be above 0"]),
        ({"alpha": 2, "omega": [3]}, ["omega"]),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_checkpoint(text)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message

"""What designs are worth, with estimators whose answers are known."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import design_errors
import pytest
from design_errors import DesignError, compare_designs, write_errors

from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import OpTiming, spread_of

HERE = Environment("cpu", "a chip", "torch 2", 1, "malloc pinned", "flushed")


def timing(name: str, arguments: str, seconds: float, cache: str = "cold") -> OpTiming:
    return OpTiming(Op(name, arguments), HERE, cache, spread_of([seconds]))


@pytest.fixture(autouse=True)
def largest_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an op take as long as the longest that its type's training saw."""

    def fit(timings: Sequence[OpTiming]) -> SimpleNamespace:
        longest: dict[str, float] = {}
        for timing in timings:
            longest[timing.op.name] = max(longest.get(timing.op.name, 0.0), timing.time.median)
        return SimpleNamespace(estimate=lambda op: SimpleNamespace(duration=longest[op.name]))

    monkeypatch.setattr(design_errors, "fit_estimators", fit)


def test_errors_are_relative_weighted_and_of_the_sum() -> None:
    held_out = [timing("a", "1", 1.0), timing("a", "2", 4.0), timing("b", "1", 5.0)]
    good = [timing("a", "9", 2.0), timing("b", "9", 5.0)]
    bad = [timing("a", "8", 8.0), timing("b", "8", 10.0)]
    found = compare_designs({"good": good, "bad": bad}, held_out)
    assert found[:3] == [
        # |2 - 1| / 1 and |2 - 4| / 4; 3 s of 5; 4 s of 5.
        DesignError("good", "a", 2, 1, 0.75, 0.6, pytest.approx(-0.2)),
        DesignError("good", "b", 1, 1, 0.0, 0.0, 0.0),
        DesignError("good", "all", 3, 2, 0.5, 0.3, pytest.approx(-0.1)),
    ]
    assert found[5] == DesignError("bad", "all", 3, 2, pytest.approx(3.0), 1.6, pytest.approx(1.6))


def test_what_is_held_out_is_not_trained_on_and_other_caches_do_not_count() -> None:
    held_out = [timing("a", "1", 1.0), timing("a", "2", 7.0, cache="warm")]
    design = [timing("a", "1", 9.0), timing("a", "2", 1.0), timing("a", "3", 5.0, cache="warm")]
    (of_a, of_all) = compare_designs({"one": design}, held_out)
    assert of_a == DesignError("one", "a", 1, 1, 0.0, 0.0, 0.0)
    assert of_all == DesignError("one", "all", 1, 1, 0.0, 0.0, 0.0)


def test_op_types_that_a_design_lacks_are_not_tried() -> None:
    held_out = [timing("a", "1", 1.0), timing("b", "1", 1.0)]
    both = [timing("a", "9", 1.0), timing("b", "9", 1.0)]
    found = compare_designs({"both": both, "one": both[:1]}, held_out)
    assert {error.op for error in found} == {"a", "all"}
    with pytest.raises(InputError, match="no cold timing is held out"):
        compare_designs({"one": both[:1]}, held_out[1:])


def test_the_table_has_a_row_for_each_op_and_columns_for_each_design() -> None:
    held_out = [timing("aten.a", "1", 1.0)]
    errors = compare_designs(
        {"good": [timing("aten.a", "9", 1.1)], "bad": [timing("aten.a", "9", 3.0)]}, held_out
    )
    header, columns, row, total = write_errors(errors).splitlines()
    assert header.split() == ["op", "ops", "good", "bad"]
    assert columns.split() == ["mean", "weighted"] * 2
    assert row.split() == ["aten.a", "1", "10.0%", "10.0%", "200.0%", "200.0%"]
    assert total.split()[0] == "all"

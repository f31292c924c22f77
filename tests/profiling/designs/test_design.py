"""Sampling designs: what they hold, that they repeat, and that every op of theirs is one."""

from __future__ import annotations

from itertools import islice

import pytest
from designs import DESIGNS, Limits, design, points_of, size_of, values_of
from families import FAMILIES, Argument, Family, families_named
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError

pytestmark = pytest.mark.slow

FEW = families_named(["convolution", "addmm", "_softmax", "_foreach_add_"])
FREE = Limits(bytes=1e15, flops=1e18)


@given(low=st.integers(1, 50), extent=st.integers(0, 10_000), values=st.integers(2, 20))
def test_values_are_different_within_bounds_and_as_many_as_there_are(
    low: int, extent: int, values: int
) -> None:
    argument = Argument("x", (low, low + extent), low)
    found = values_of(argument, values)
    assert len(set(found)) == len(found) == min(values, extent + 1)
    assert min(found) == low
    assert max(found) == low + extent or len(found) < 2


def test_values_are_spaced_by_equal_factors() -> None:
    assert values_of(Argument("x", (1, 1024), 1), 6) == [1, 4, 16, 64, 256, 1024]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_papers_grid_moves_one_argument_at_a_time_through_16_values(name: str) -> None:
    family = FAMILIES[name]
    base, *points = points_of("paper", family, 16)
    assert base == {argument.name: argument.base for argument in family.arguments}
    seen = {argument.name: {argument.base} for argument in family.arguments}
    for point in points:
        (moved,) = (name for name in base if point[name] != base[name])
        seen[moved].add(point[moved])
    for argument in family.arguments:
        low, high = argument.bounds
        expected = min(16, high - low + 1)
        # The base point is one more where it is none of the values.
        assert len(seen[argument.name]) in (expected, expected + 1)
    assert len(points) + 1 == size_of(family, 16)


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize("name", FAMILIES)
def test_points_are_within_bounds(kind: str, name: str) -> None:
    family = FAMILIES[name]
    for point in islice(points_of(kind, family, 16), 200):
        for argument in family.arguments:
            low, high = argument.bounds
            assert low <= point[argument.name] <= high
            if kind == "model-like":
                assert point[argument.name] in argument.typical


@pytest.mark.parametrize("kind", DESIGNS)
def test_every_op_of_every_family_is_taken_by_pytorch(kind: str) -> None:
    """`design` runs each op on fake tensors, and refuses the whole design where one is none."""
    made = design(kind, list(FAMILIES.values()), values=2)
    assert {family for family, _ in made.points} == set(FAMILIES)
    assert all(op.bytes_read > 0 for op in made.ops)
    assert len(set(made.ops)) == len(made.ops) == len(made.points)


@pytest.mark.parametrize("kind", DESIGNS)
def test_a_design_repeats_with_its_seed_and_without_its_neighbours(kind: str) -> None:
    made = design(kind, FEW, values=4, seed=3)
    assert made == design(kind, FEW, values=4, seed=3)
    alone = design(kind, FEW[1:2], values=4, seed=3)
    assert set(alone.ops) <= set(made.ops)
    other = design(kind, FEW, values=4, seed=4)
    assert (other == made) == (kind == "paper")


def test_designs_have_the_same_number_of_points() -> None:
    sizes = {
        kind: len(design(kind, FEW, values=5, limits=FREE).ops) for kind in ("paper", "random")
    }
    assert len(set(sizes.values())) == 1
    assert sizes["paper"] == sum(size_of(family, 5) for family in FEW)


def test_ops_beyond_the_limits_are_left_out_and_counted() -> None:
    limits = Limits(bytes=1e8, flops=1e9)
    for kind in DESIGNS:
        made = design(kind, FEW, values=4, limits=limits)
        assert all(op.bytes_read + op.bytes_written <= 1e8 for op in made.ops)
        assert all(op.flops <= 1e9 for op in made.ops)
    whole = design("paper", FEW, values=4, limits=FREE)
    fewer = design("paper", FEW, values=4, limits=limits)
    assert sum(fewer.left_out.values()) == len(whole.ops) - len(fewer.ops) > 0
    assert not whole.left_out


def test_a_family_with_few_points_ends() -> None:
    def call(x: int) -> tuple[list[object], dict[str, object]]:
        return FAMILIES["sum"].call(rows=x, columns=1)

    tiny = Family("aten.sum.dim_IntList", (Argument("x", (1, 2), 1),), call)
    assert len(design("model-like", [tiny]).ops) == 2


def test_what_is_no_design_is_refused() -> None:
    with pytest.raises(InputError, match='unknown design "papre": did you mean "paper"'):
        design("papre", FEW)
    with pytest.raises(InputError, match='unknown dtype "float31": did you mean "float3'):
        design("paper", FEW, dtype="float31")
    with pytest.raises(InputError, match="2 to 1,000 values"):
        design("paper", FEW, values=1)
    with pytest.raises(InputError, match="above 0"):
        Limits(bytes=0)

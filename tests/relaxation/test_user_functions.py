"""Functions of the user's in the paper's three places, plain and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.relaxation import RelaxationResult, relax, relax_map
from paracosm.relaxation.problems import load_problem

PROBLEM = load_problem("laplace2d:8", seed=2)
GIVEN: dict[str, Any] = {"processors": 4, "seed": 9, "timeline": 10_000}


def jacobi(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
    """Eq. (8), with A's rows as SciPy's `csr_array` has them."""
    for k in range(rows.size):
        row = rows[k]
        total, diagonal = b[row], 1.0
        for entry in range(A.indptr[row], A.indptr[row + 1]):
            if A.indices[entry] == row:
                diagonal = A.data[entry]
            else:
                total -= A.data[entry] * x[A.indices[entry]]
        out[k] = total / diagonal


def strips(processor: int, update: int, u: float) -> Any:
    """The contiguous pattern of 64 rows and 4 processors."""
    return np.arange(16 * processor, 16 * processor + 16)


def spread(processor: int, update: int, u: float) -> float:
    """The distribution uniform(5, 15)."""
    return 5.0 + 10.0 * u


def same(found: RelaxationResult, expected: RelaxationResult) -> None:
    assert found.status == expected.status == "converged"
    assert found.updates.tolist() == expected.updates.tolist()
    assert found.spans.processor.tolist() == expected.spans.processor.tolist()
    np.testing.assert_allclose(found.spans.end, expected.spans.end, rtol=1e-12)
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-10)
    assert found.virtual_time == pytest.approx(expected.virtual_time, rel=1e-12)


BUILT_IN: dict[str, Any] = {"method": "jacobi", "pattern": "contiguous", "time": "uniform(5, 15)"}
PLAIN: dict[str, Any] = {"method": jacobi, "pattern": strips, "time": spread}
COMPILED = {place: numba.njit(function) for place, function in PLAIN.items()}


@pytest.mark.parametrize("read", ["start", pytest.param("completion", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "places", [["method"], ["pattern"], ["time"], ["method", "pattern", "time"]]
)
def test_plain_python_does_what_the_built_in_does(read: str, places: list[str]) -> None:
    expected = relax(PROBLEM, **BUILT_IN, **GIVEN, read=read)
    mine = BUILT_IN | {place: PLAIN[place] for place in places}
    same(relax(PROBLEM, **mine, **GIVEN, read=read), expected)


@pytest.mark.parametrize("read", ["start", pytest.param("completion", marks=pytest.mark.slow)])
@pytest.mark.parametrize("places", [["method"], ["method", "pattern", "time"]])
def test_compiled_functions_do_what_the_built_in_does(read: str, places: list[str]) -> None:
    expected = relax(PROBLEM, **BUILT_IN, **GIVEN, read=read)
    mine = BUILT_IN | {place: COMPILED[place] for place in places}
    same(relax(PROBLEM, **mine, **GIVEN, read=read), expected)


def test_plain_and_compiled_ones_go_together() -> None:
    expected = relax(PROBLEM, **BUILT_IN, **GIVEN)
    mixed = {"method": COMPILED["method"], "pattern": strips, "time": spread}
    same(relax(PROBLEM, **mixed, **GIVEN), expected)


def test_an_update_may_return_its_values() -> None:
    def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> Any:
        return x[rows] + (b - A @ x)[rows] / 4.0

    expected = relax(PROBLEM, **BUILT_IN, **GIVEN)
    same(relax(PROBLEM, **(BUILT_IN | {"method": update}), **GIVEN), expected)


def test_what_the_functions_are_told() -> None:
    """(processor, number of its update, a uniform number): each update once, in order."""
    calls: dict[str, list[tuple[int, int]]] = {"pattern": [], "time": []}
    drawn: dict[str, list[float]] = {"pattern": [], "time": []}

    def pattern(processor: int, update: int, u: float) -> Any:
        calls["pattern"].append((processor, update))
        drawn["pattern"].append(u)
        return strips(processor, update, u)

    def time(processor: int, update: int, u: float) -> float:
        calls["time"].append((processor, update))
        drawn["time"].append(u)
        return spread(processor, update, u)

    relax(PROBLEM, pattern=pattern, time=time, **(GIVEN | {"processors": 4}))
    for place, made in calls.items():
        for processor in range(4):
            updates = [update for who, update in made if who == processor]
            assert updates == list(range(len(updates))), place
        assert len(set(made)) == len(made)
        u = np.array(drawn[place])
        assert ((u > 0) & (u < 1)).all()
        assert abs(u.mean() - 0.5) < 5 / np.sqrt(12 * u.size)
        assert len(np.unique(u)) == u.size
    assert not set(drawn["pattern"]) & set(drawn["time"])


def test_a_pattern_of_the_users_may_change_from_update_to_update() -> None:
    """Rows in turn, more and fewer of them, against the same loop by hand."""

    def pattern(processor: int, update: int, u: float) -> list[int]:
        return [(7 * update + k) % 64 for k in range(1 + update % 40)]

    x = PROBLEM.x0.copy()
    relaxations = 0
    for update in range(50):
        rows = pattern(0, update, 0.5)
        x[rows] += (PROBLEM.b - PROBLEM.A @ x)[rows] / 4
        relaxations += len(rows)
    given: dict[str, Any] = {"processors": 1, "tolerance": None, "max_time": 50}
    found = relax(PROBLEM, pattern=pattern, time=1, **given)
    assert found.relaxations == relaxations
    np.testing.assert_allclose(found.x, x, rtol=1e-12, atol=1e-15)
    compiled = numba.njit(
        lambda processor, update, u: (7 * update + np.arange(1 + update % 40)) % 64
    )
    update, time = COMPILED["method"], numba.njit(lambda processor, update, u: 1.0)
    found = relax(PROBLEM, method=update, pattern=compiled, time=time, **given)
    np.testing.assert_allclose(found.x, x, rtol=1e-12, atol=1e-15)


def test_rows_that_a_compiled_pattern_returns_are_freed() -> None:
    """The loop itself does not count references: 400,000 arrays of 16 rows would be 100 MB."""
    memory = Path("/proc/self/statm")
    if not memory.exists():
        pytest.skip("only Linux says how much memory there is in use")
    given = {"pattern": COMPILED["pattern"], "processors": 4, "tolerance": None}
    relax(PROBLEM, **given, max_sweeps=1000)
    pages = int(memory.read_text().split()[1])
    assert relax(PROBLEM, **given, max_sweeps=100_000).updates.sum() == 400_000
    assert int(memory.read_text().split()[1]) - pages < 5000  # of 4 KiB


class OwnError(Exception):
    pass


@pytest.mark.parametrize("place", ["method", "pattern", "time"])
def test_an_exception_of_the_users_function_comes_through(place: str) -> None:
    def fails(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise OwnError("mine")
        return PLAIN[place](*_)

    calls = 0
    with pytest.raises(OwnError, match=r"^mine$"):
        relax(PROBLEM, **(BUILT_IN | {place: fails}), **GIVEN)
    assert calls == 21


@numba.njit
def fails_after(update: int) -> None:
    if update == 5:
        raise OwnError("mine")


@pytest.mark.parametrize("place", ["method", "pattern", "time"])
def test_so_does_one_of_a_compiled_function(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    @numba.njit
    def pattern(processor: int, update: int, u: float) -> Any:
        fails_after(update)
        return np.arange(16 * processor, 16 * processor + 16)

    @numba.njit
    def time(processor: int, update: int, u: float) -> float:
        fails_after(update)
        return 5.0 + 10.0 * u

    @numba.njit
    def method(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        for k in range(rows.size):
            if abs(x[rows[k]]) > 0.01:
                raise OwnError("mine")
            out[k] = x[rows[k]] + b[rows[k]] / 4

    failing = {"method": method, "pattern": pattern, "time": time}[place]
    mine = {**COMPILED, place: failing}
    with pytest.raises(OwnError, match=r"^mine$"):
        relax(PROBLEM, **mine, **GIVEN)
    assert capfd.readouterr().err == ""  # Numba prints exceptions that nobody takes


@pytest.mark.slow
def test_an_exception_that_does_not_come_again() -> None:
    @numba.njit
    def method(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        if np.random.rand() < 1e-3:  # noqa: NPY002 - Numba's own
            raise OwnError("seldom")
        out[:] = 0.0

    with pytest.raises(InputError, match="a compiled function raised an exception"):
        relax(PROBLEM, method=method, time=1, tolerance=None, max_sweeps=1e5)


@pytest.mark.parametrize("place", range(5))
def test_an_update_cannot_change_what_it_is_given(place: int) -> None:
    def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        [x, rows, A.data, A.indices, b][place][:] = 0

    with pytest.raises(ValueError, match="read-only"):
        relax(PROBLEM, method=update, time=1)


def test_a_map_cannot_change_what_it_is_given() -> None:
    def halve(x: Any, rows: Any, out: Any) -> None:
        x *= 0.5

    with pytest.raises(ValueError, match="read-only"):
        relax_map(halve, np.ones(4), processors=2)


def test_what_an_update_keeps_changes_nothing_later() -> None:
    kept: list[Any] = []

    def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        for old in kept:
            old[:] = 1e9
        kept[:] = [out]
        jacobi(x, rows, A, b, out)

    mine = {**PLAIN, "method": update}
    assert np.array_equal(relax(PROBLEM, **mine, **GIVEN).x, relax(PROBLEM, **PLAIN, **GIVEN).x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda *_: 0.0, ["time: processor ", ", update 0: ", "0 s", "above 0"]),
        (lambda *_: -2.0, ["time: processor ", ", update 0: ", "-2 s", "above 0"]),
        (lambda *_: float("nan"), ["time", "processor ", ", update 0: ", "returned NaN"]),
        (lambda *_: float("inf"), ["time: processor ", ", update 0: ", "inf s", "finite"]),
        (lambda who, k, _: 0.0 if (who, k) == (2, 5) else 1.0, ["processor 2, update 5", "0 s"]),
        (lambda who, k, _: -1.0 if (who, k) == (3, 17) else 1.0, ["processor 3, update 17", "-1"]),
    ],
)
@pytest.mark.parametrize("read", ["start", "completion"])
def test_a_duration_that_cannot_be(wrong: Any, words: list[str], read: str) -> None:
    with pytest.raises(InputError) as raised:
        relax(PROBLEM, time=wrong, processors=4, read=read)
    assert "\n" not in str(raised.value)
    for word in words:
        assert word in str(raised.value)


def test_a_compiled_duration_that_cannot_be() -> None:
    @numba.njit
    def time(processor: int, update: int, u: float) -> float:
        return float("nan") if processor == 1 and update == 3 else 1.0

    mine = {**COMPILED, "time": time}
    with pytest.raises(InputError, match="processor 1, update 3: not a number"):
        relax(PROBLEM, **mine, **GIVEN)


@pytest.mark.parametrize(
    ("place", "wrong", "words"),
    [
        ("pattern", lambda *_: [], "pattern function: processor 0, update 0"),
        ("pattern", lambda *_: [1, 64], "rows are 0 to 63"),
        ("pattern", lambda *_: [-1], "rows are 0 to 63"),
        ("pattern", lambda *_: [0.5], "a list of one row or more"),
        ("pattern", lambda *_: [1, [2]], "a list of one row or more"),
        ("pattern", lambda *_: None, "a list of one row or more"),
        ("method", lambda x, rows, *_: x, r"values of shape \(64,\) for 16 rows"),
        ("method", lambda x, rows, *_: x[rows] * 1j, "processor 0: it returned no numbers"),
    ],
)
def test_what_a_function_may_not_return(place: str, wrong: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        relax(PROBLEM, **(BUILT_IN | {place: wrong}), **GIVEN)
    assert "\n" not in str(raised.value)


def test_a_compiled_function_with_other_arguments() -> None:
    two = numba.njit(lambda x, rows: None)
    with pytest.raises(InputError, match=r"update function .*cannot be compiled for") as raised:
        relax(PROBLEM, method=two)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("what", ["x[0]", "rows[0]", "A.data[0]", "A.indices[0]", "b[0]"])
def test_a_compiled_function_cannot_change_what_it_reads(what: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def update(x, rows, A, b, out):\n    {what} = 1", made)
    with pytest.raises(
        InputError, match="update function update: it writes to what is read-only"
    ) as raised:
        relax(PROBLEM, method=numba.njit(made["update"]))
    assert "\n" not in str(raised.value)


def test_a_map_compiled_for_given_types_is_compiled_for_those_of_the_loop() -> None:
    def halve(x: Any, rows: Any, out: Any) -> None:
        for place in range(rows.size):
            out[place] = x[rows[place]] / 2 + rows[place]

    given = numba.njit("void(float64[:], int64[:], float64[:])")(halve)
    plain = relax_map(halve, np.ones(8), processors=2, time=1)
    assert np.array_equal(relax_map(given, np.ones(8), processors=2, time=1).x, plain.x)
    np.testing.assert_allclose(plain.x, 2 * np.arange(8), atol=1e-5)


def test_a_compiled_function_that_returns_the_wrong_thing() -> None:
    text = numba.njit(lambda processor, update, u: "soon")
    with pytest.raises(InputError, match="time function") as raised:
        relax(PROBLEM, time=text)
    assert "\n" not in str(raised.value)


def test_values_that_are_not_numbers_diverge() -> None:
    def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        out[:] = np.nan

    found = relax(PROBLEM, method=update, time=1)
    assert found.status == "diverged"
    assert "not finite" in found.reason


def test_rows_that_a_compiled_pattern_makes_up_are_refused() -> None:
    made_up = numba.njit(lambda processor, update, u: np.array([10**9 + update]))
    with pytest.raises(InputError, match="pattern function: processor 0, update 0: rows are 0 to"):
        relax(load_problem("laplace2d:4"), processors=2, pattern=made_up)


@pytest.mark.parametrize("processors", [1, 2])
def test_a_plain_time_function_goes_on_after_a_stop_as_a_compiled_one(processors: int) -> None:
    def time(_processor: int, update: int, u: float) -> float:
        return 1.0 + update % 3 + 0.1 * u

    found = []
    for function in (time, numba.njit(time)):
        fault = "stop(700ms) on processor 0 at 5.3s; stop(2s) on processor 0 at 9s"
        result = relax(
            load_problem("laplace2d:4"), processors=processors, time=function, fault=fault,
            max_time=20, tolerance=None,
        )  # fmt: skip
        found.append((result.updates.tolist(), result.x.tolist()))
    assert found[0] == found[1]

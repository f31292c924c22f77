"""What cannot be used is refused in one line: what is wrong, where, what would be right."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array, eye_array

from paracosm.cluster.cluster import ring, switch
from paracosm.cluster.link import Link
from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.run import relax, relax_map, run_relaxation
from paracosm.validation import validated

MATRICES = Path(__file__).parents[1] / "data" / "matrices"
A = load_problem("laplace2d:4").A


def with_entry(row: int, column: int, value: float) -> csr_array:
    changed = A.tolil()
    changed[row, column] = value
    return changed.tocsr()


def refused(words: list[str] | str, *arguments: Any, **more: Any) -> None:
    with pytest.raises(InputError) as raised:
        relax(*arguments, **more)
    describe_error(raised.value, words)


def describe_error(error: Exception, words: list[str] | str) -> None:
    message = str(error)
    assert "\n" not in message
    assert len(message) < 250
    for word in [words] if isinstance(words, str) else words:
        assert word in message, message


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (with_entry(2, 2, 0.0), ["diagonal", "zero in 1 row: 3 (counted from 1)"]),
        (A - csr_array(np.diag([4.0] * 7 + [0] * 9)), ["7 rows: 1, 2, 3, 4, 5, ..."]),
        (with_entry(5, 6, nan), ["1 entry is NaN or infinite", "row 6, column 7", "(nan)"]),
        (with_entry(5, 5, inf), ["NaN or infinite", "(inf)", "row 6, column 6"]),
        (csr_array(([1.0], ([0], [0])), shape=(2, 2)), ["1 row is empty: 2"]),
    ],
)
def test_matrices(matrix: Any, words: list[str]) -> None:
    refused(words, matrix)


def test_a_zero_on_the_diagonal_matters_only_where_it_divides() -> None:
    zero = with_entry(2, 2, 0.0)
    for update in ("jacobi", "gauss-seidel", "sor(1.1)", "coordinate", "anderson"):
        refused("diagonal", zero, method=update)
    for update in ("richardson(0.1)", "second-order-richardson(0.1)"):
        relax(zero, method=update, max_sweeps=3)
    found = relax(zero, method="block-jacobi", time=1, processors=1)
    np.testing.assert_allclose(found.x, np.ones(16), rtol=1e-10)


def test_a_singular_block() -> None:
    singular = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 3.0]])
    refused(["block", "singular"], singular, method="block-jacobi", pattern=[[0, 1], [2]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"b": np.ones(15)}, ["right-hand side", "15 entries", "16 rows"]),
        ({"b": np.ones((4, 4))}, ["right-hand side", "must be a vector", "(4, 4)"]),
        ({"b": np.full(16, nan)}, ["right-hand side", "16 entries are NaN or infinite"]),
        ({"b": 1j * np.ones(16)}, ["right-hand side", "real numbers"]),
        ({"x0": np.ones(17)}, ["first iterate", "17 entries"]),
        ({"x0": np.r_[np.ones(15), inf]}, ["first iterate", "entry 16 (inf)"]),
        ({"solution": np.ones(3)}, ["solution", "3 entries"]),
    ],
)
def test_vectors(given: dict[str, Any], words: list[str]) -> None:
    refused(words, A, **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"processors": 17}, ["more processors (17) than rows (16)"]),
        ({"processors": 17, "pattern": "cyclic"}, ["more processors (17) than rows (16)"]),
        ({"processors": 17, "pattern": "nonzeros"}, ["more processors (17) than rows (16)"]),
        ({"processors": 17, "pattern": "random"}, ["17", "16"]),
        ({"processors": 0}, ["processor", "1"]),
        ({"processors": -3}, ["processor"]),
        ({"pattern": [[0, 1], [2]]}, ["13 rows are in no block", "first of them 3"]),
        ({"pattern": [[0, 1], list(range(2, 17))]}, ["block 1 names row 16", "0 to 15"]),
        ({"pattern": [[0, 0], list(range(1, 16))]}, ["block 0 names a row twice"]),
        ({"pattern": [[], list(range(16))]}, ["block 0"]),
        ({"pattern": "contigous"}, ['did you mean "contiguous"?']),
        ({"method": "jacoby"}, ['did you mean "jacobi"?']),
        ({"method": "sor(2.5)"}, ["above 0 and below 2"]),
        ({"method": "jacobi(omega=0)"}, ["omega"]),
        ({"method": "coordinate(0)"}, ["count"]),
        ({"method": "coordinate(1e300)"}, ["count", "from 1 to 1,000,000, not 1e+300"]),
        ({"method": "anderson(1e300)"}, ["window", "from 0 to 100, not 1e+300"]),
        ({"method": "anderson(1e400)"}, ["a number is at most 1e308, not 1e400"]),
        ({"method": "anderson(2.5)"}, ["window is a whole number from 0 to 100"]),
        ({"method": "anderson", "pattern": "random"}, ["each row has one processor"]),
        ({"method": "anderson", "pattern": "contiguous; cyclic after 3s"}, ["fixed blocks"]),
        ({"read": "begin"}, ["read: "]),
        ({"read": "gauss-seidel", "method": "block-jacobi"}, ["block-jacobi"]),
        ({"norm": 1}, ["norm: "]),
        ({"tolerance": -1e-3}, ["tolerance: "]),
        ({"tolerance": nan}, ["tolerance: "]),
        ({"scale_factor": 0}, ["scale_factor: "]),
        ({"scale_factor": -1}, ["scale_factor: "]),
        ({"detect": "procesor"}, ['did you mean "processor"?']),
        ({"detect": "local(every=0)"}, ["every is a whole number from 1"]),
        ({"detect": "snapshot(every=2.5)"}, ["snapshot: every is a whole number from 1"]),
        ({"detect": "snapshot(3, 4)"}, ["tree(every=10) or snapshot(every=10)"]),
        ({"detect": "snapshot", "pattern": "overlapping(rows=1)"}, ["each row has one processor"]),
        ({"detect": "snapshot", "pattern": "random"}, ["one fixed pattern"]),
        ({"detect": "snapshot", "pattern": "contiguous; nonzeros after 3s"}, ["one fixed pattern"]),
        ({"synchronous": True, "read": "completion"}, ["synchronous"]),
        ({"synchronous": True, "detect": "processor"}, ["synchronous"]),
        ({"synchronous": True, "barrier": -1}, ["barrier"]),
        ({"fault": "unifrm(-1, 1)"}, ['did you mean "uniform"?']),
        ({"fault": "stop on processor 5 at 3s", "processors": 4}, ["processor 5"]),
        ({"fault": "bitflip(3) on row 16 at 3s"}, ["16"]),
        ({"fault": "bitflip(3) in halo at 3s"}, ["halo"]),
        ({"checkpoint": "alpha=2"}, ["omega is missing"]),
        ({"checkpoint": "alpha=2, omega=0s"}, ["omega must be above 0"]),
        ({"matrix_free": True}, ["only grid problems are stencils"]),
    ],
)
def test_what_the_arguments_say(given: dict[str, Any], words: list[str]) -> None:
    refused(words, A, **given)


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("0", ["time: processor", "update 0: 0 s", "above 0"]),
        (0.0, ["time: processor", "update 0: 0 s"]),
        ("uniform(0, 0)", ["0 s"]),
        ("normal(10, -1)", ["normal: sd"]),
        ("normall(10, 1)", ['did you mean "normal"?']),
        ("-5", ["-5"]),
        (["1s", "2s", "3s"], ["3 distributions for 4 processors"]),
        ("recorded(5s, 1s)", ["processor", "update 2", "a recording has come to its end"]),
        ({"copy": "1s", "compute": "2s"}, ["write copy, compute and update"]),
        ("nowhere.json", ["no measurement at", "nowhere.json"]),
    ],
)
def test_times(time: Any, words: list[str]) -> None:
    refused(words, A, time=time, processors=4)


def test_a_duration_that_rounds_to_no_tick() -> None:
    refused(["rounds to 0 ticks", "larger scale factor"], A, time="4ms", scale_factor=100.0)


def test_networks() -> None:
    two = switch(workers=2, servers=0, link=Link())
    refused(["2 workers for 3 processors"], A, cluster=two, processors=3)
    refused(["pattern random", "overlap"], A, cluster=two, pattern="random")
    refused(["one fixed pattern"], A, cluster=two, pattern="contiguous; cyclic after 10s")
    # No wire joins processors 0 and 2, whose rows are neighbours here.
    rows = list(np.arange(16).reshape(4, 4)[[0, 2, 1, 3]])
    refused(["no link joins", "worker0", "worker2"], A, cluster=ring(4, Link()), pattern=rows)


@pytest.mark.parametrize("kind", [coo_array, csc_matrix, csr_array, lambda a: a.toarray()])
def test_every_kind_of_matrix_is_taken(kind: Any) -> None:
    expected = relax(A, max_sweeps=30)
    found = relax(kind(A), max_sweeps=30)
    assert found.x.tobytes() == expected.x.tobytes()
    whole = relax(kind(A.astype(np.int32)), max_sweeps=30)
    assert whole.x.tobytes() == expected.x.tobytes()


def test_input_is_left_as_it_was() -> None:
    b, x0 = np.ones(16), np.zeros(16)
    before = A.data.copy()
    relax(A, b, x0, fault="uniform(-1, 1) in A at 3s; uniform(-1, 1) in b at 3s", max_sweeps=9)
    assert (b == 1).all()
    assert not x0.any()
    assert A.data.tobytes() == before.tobytes()


# The same through a study file or the command line.

GRID = {"problem": "laplace2d:4"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "nothing to solve: give either problem or matrix"),
        ({**GRID, "matrix": "a.mtx"}, "either problem or matrix"),
        ({"problm": "laplace2d:4"}, 'did you mean "problem"?'),
        ({**GRID, "processors": 0}, "processors: "),
        ({**GRID, "processors": 2.5}, "processors: "),
        ({**GRID, "method": "jacoby"}, 'did you mean "jacobi"?'),
        ({**GRID, "read": "end"}, "read: "),
        ({**GRID, "time": "normall(1, 2)"}, 'did you mean "normal"?'),
        ({**GRID, "memory": "shared", "latency": "1ms"}, "latency: has no effect"),
        ({**GRID, "memory": "shared", "duplex": "half"}, "duplex: has no effect"),
        ({**GRID, "memory": "shared", "sharing": "serial"}, "sharing: has no effect"),
        ({**GRID, "cluster": {"workers": 2}, "pipelined": False}, "pipelined: has no effect"),
        ({**GRID, "barrier": "1s"}, "barrier: has no effect"),
        ({**GRID, "tolerance": None}, "tolerance: without one, give max_time or max_sweeps"),
        ({**GRID, "tolerance": -1}, "tolerance: "),
        ({**GRID, "speeds": "3:2"}, "worker 3: compute 10x slower"),
        ({**GRID, "pattern": "contigous"}, 'did you mean "contiguous"?'),
        ({**GRID, "bandwidth": "25"}, "no unit"),
        ({**GRID, "latency": "5"}, "no unit"),
        ({**GRID, "processors": 4, "workers": 4}, "workers and processors are the same"),
        ({**GRID, "processors": 10**9}, "processors: "),
        ({**GRID, "norm": 3}, "norm: "),
        ({**GRID, "max_sweeps": 0}, "max_sweeps: "),
        ({**GRID, "scale_factor": 0}, "scale_factor: "),
        ({**GRID, "fault": "unifrm(1, 2)"}, 'did you mean "uniform"?'),
        ({**GRID, "checkpoint": "alpha=2"}, "omega is missing"),
        ({**GRID, "detect": "local(0)"}, "every is a whole number"),
    ],
)
def test_what_a_study_file_says(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as raised:
        validated(RelaxConfig, given, "relax")
    describe_error(raised.value, words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"problem": "laplace2d"}, "a size is missing"),
        ({"problem": "laplase2d:4"}, 'did you mean "laplace2d"?'),
        ({"problem": "laplace2d:0"}, "not a size"),
        ({**GRID, "processors": 17}, "more processors (17) than rows (16)"),
        ({**GRID, "rhs": "unifrm"}, 'did you mean "uniform"?'),
        ({**GRID, "start": "zeroes"}, 'did you mean "zeros"?'),
        ({**GRID, "speeds": "1,2", "processors": 3}, "speeds: 2 for 3 processors"),
        ({**GRID, "speeds": "1,-2", "processors": 2}, "speeds: must be finite and above 0"),
        ({**GRID, "time": ["1s", "2s", "3s"], "processors": 4}, "3 distributions for 4 processors"),
        ({"matrix": "nowhere.mtx"}, "nowhere.mtx: no such file"),
        ({**GRID, "fault": "stop on processor 4 at 1s"}, "processor 4"),
        ({**GRID, "read": "gauss-seidel", "method": "richardson"}, "read gauss-seidel"),
    ],
)
def test_what_only_shows_when_it_is_made(given: dict[str, Any], words: str) -> None:
    config = validated(RelaxConfig, given, "relax")
    with pytest.raises(InputError) as raised:
        run_relaxation(config)
    describe_error(raised.value, words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**GRID, "speeds": "1,2", "processors": 3}, "speeds: 2 for 3 processors"),
        ({**GRID, "time": ["1s", "2s", "3s"], "processors": 4}, "3 distributions for 4 processors"),
        ({**GRID, "time": "nowhere.json"}, "nowhere.json"),
        ({"matrix": "nowhere.mtx"}, "nowhere.mtx: no such file"),
        ({**GRID, "cluster": "nowhere.yaml"}, "nowhere.yaml"),
    ],
)
def test_what_shows_before_a_matrix_is_made(given: dict[str, Any], words: str) -> None:
    config = validated(RelaxConfig, given, "relax")
    with pytest.raises(InputError) as raised:
        config.check()
    describe_error(raised.value, words)


def test_numpy_files(tmp_path: Path) -> None:
    path = tmp_path / "b.npy"
    np.save(path, np.ones(16))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"(16,), ", b"(16L,),"))  # as Python 2 wrote it
    assert load_problem("laplace2d:4", rhs=str(path)).b.tolist() == [1] * 16
    for content, words in (
        (whole + whole, "256 bytes more than its shape (16,) takes"),
        (whole[:6] + bytes(100), "not a NumPy file of numbers"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError) as raised:
            load_problem("laplace2d:4", rhs=str(path))
        describe_error(raised.value, ["b.npy", words])


def test_a_diverging_iteration_is_stopped_and_keeps_its_metrics() -> None:
    rows: list[tuple[str, float]] = []

    class Sink:
        def metric(
            self,
            virtual_time: float,
            wall_time: float,
            node: str,
            name: str,
            value: float,
            step: int,
        ) -> None:
            rows.append((name, value))

    config = RelaxConfig(
        problem="laplace2d:6", method="richardson(0.5)", time="10s", max_sweeps=10_000
    )
    run = run_relaxation(config, metrics=Sink())
    assert run.summary["status"] == "diverged"
    largest = 8 - 8 * np.sin(np.pi / 14) ** 2  # eigenvalue of the 6 x 6 Laplacian
    assert run.summary["growth_rate"] == pytest.approx(0.5 * largest - 1, rel=0.1)
    assert "growing by a factor of" in run.summary["reason"]
    residuals = [value for name, value in rows if name == "residual"]
    assert len(residuals) == len(run.result.residuals)
    assert residuals[-1] > 1e10 * residuals[0]
    assert run.summary["spectral_radius"]["value"] > 1


def test_an_identity_is_solved_by_one_sweep() -> None:
    found = relax(eye_array(5).tocsr(), np.arange(5.0), time=1)
    assert (found.status, found.virtual_time) == ("converged", 1.0)
    assert found.x.tolist() == [0, 1, 2, 3, 4]


def test_more_processors_than_unknowns_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paracosm.cluster.fields.switch", None)
    config = RelaxConfig(problem="laplace2d:100", processors=1_000_000)
    with pytest.raises(InputError, match=r"more processors \(1000000\) than rows \(10000\)"):
        config.check()


@pytest.mark.parametrize("place", ["A", "b", "x0", "solution"])
def test_numbers_under_a_mask_are_not_read(place: str) -> None:
    given: dict[str, Any] = {"A": np.diag([4.0, 4.0]), "b": np.ones(2)}
    given[place] = np.ma.masked_array(given.get(place, np.ones(2)), mask=False)
    with pytest.raises(InputError, match="a masked array is no argument"):
        relax(**given, processors=2)


def test_a_masked_first_iterate_of_a_map_and_reads_that_are_none_are_refused() -> None:
    def halved(x: Any, rows: Any, out: Any) -> None:
        out[:] = x[rows] / 2

    with pytest.raises(InputError, match="a masked array is no argument"):
        relax_map(halved, np.ma.ones(2))
    with pytest.raises(InputError, match="reads: give a matrix of numbers"):
        relax_map(halved, np.ones(2), reads="all", latency=1)


@pytest.mark.parametrize("seed", [None, "3", 1.5, -1, True, [1, 2]])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(InputError, match="a seed is a whole number from 0 on"):
        relax(np.diag([4.0, 4.0]), processors=2, seed=seed)


def test_a_map_is_a_function() -> None:
    with pytest.raises(InputError, match="G: give a function of x, rows and out, not 5"):
        relax_map(5, np.ones(2))

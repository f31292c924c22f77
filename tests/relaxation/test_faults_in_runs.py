"""Faults and checkpoints in running iterations: what is kept true, and what they cost."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse.linalg import spsolve

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem, problem_from
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.run import relax, relax_map, run_relaxation
from paracosm.relaxation.simulate import _play, _prepare_run, _Reporter
from paracosm.relaxation.spec import RunSpec
from paracosm.relaxation.state import Run

PROBLEM = load_problem("laplace2d:10", seed=5)
SOLUTION = spsolve(PROBLEM.A.tocsc(), PROBLEM.b)
GIVEN: dict[str, Any] = {
    "processors": 10,
    "time": "normal(10, 2)",
    "max_sweeps": 20_000,
    "seed": 3,
}
MODELS = (
    "uniform(-100, 100)",
    "uniform(-1e8, 1e8)",
    "bitflip(51)",
    "bitflip(54)",
    "signflip",
    "shuffle",
)
EPS = np.finfo(float).eps


def run(**more: Any) -> RelaxationResult:
    return relax(PROBLEM, **{**GIVEN, **more})


def spec_of(monkeypatch: pytest.MonkeyPatch, **more: Any) -> RunSpec:
    """Return what `relax` asks the simulation for."""
    asked: list[RunSpec] = []
    module = importlib.import_module("paracosm.relaxation.run")
    with monkeypatch.context() as patch:
        patch.setattr(module, "solve", lambda spec, _: asked.append(spec))
        run(**more)
    return asked[0]


def played(spec: RunSpec) -> Run:
    state = _prepare_run(spec)
    _play(state, _Reporter(state, None))
    return state


def check_residual(state: Run, largest: float) -> None:
    """Hold the residual that the loop keeps against b - A x, with A and b as faults made them.

    It is computed anew at every fault, and when it has fallen by 1e6: rounding errors are those of
    an x as large as the fault, or of a residual 1e6 times as large as it is now.
    """
    a = state.arrays
    x, b = a.iterate.x, a.matrix.b
    fresh = b - state.A @ x
    largest = max(abs(x).max(), 1e7 * min(largest / 1e7, abs(fresh).max()))
    scale = abs(b).max() + abs(state.A).sum(axis=1).max() * largest
    np.testing.assert_allclose(a.iterate.residual, fresh, rtol=0, atol=100 * EPS * scale)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("target", ["", "in b", "in A", "in halo"])
@pytest.mark.parametrize("where", ["", "on 7 components", "on processor 4"])
def test_the_residual_is_that_of_x_after_every_kind_of_fault(
    monkeypatch: pytest.MonkeyPatch, model: str, target: str, where: str
) -> None:
    cluster = switch(workers=10, servers=0, link=Link()) if target == "in halo" else None
    if target == "in A":
        model = model.replace("1e8", "1")
    fault = f"{model} {target} {where} at 333s"
    given = {"fault": fault, "tolerance": None, "cluster": cluster}
    for read in ("start", "completion"):
        # At the very instant of the fault, and much later.
        for until in (333, 2000):
            state = played(spec_of(monkeypatch, **given, read=read, max_time=until))
            assert len(state.faults) == 1
            if np.isfinite(state.arrays.iterate.x).all():  # a corrupted matrix may make it diverge
                check_residual(state, 1e8 if "1e8" in model else 100)


@pytest.mark.parametrize("policy", ["scope=all", "scope=block", "monitor=component", ""])
@pytest.mark.parametrize("read", ["start", "completion"])
@pytest.mark.parametrize(
    "model", ["uniform(-1e6, 1e6)", "signflip", "exponentflip on 3 components"]
)
def test_the_residual_is_that_of_x_after_rollbacks(
    monkeypatch: pytest.MonkeyPatch, policy: str, read: str, model: str
) -> None:
    checkpoint = ", ".join(filter(None, ["alpha=1.5, omega=10s", policy]))
    if policy == "monitor=component":
        checkpoint += ", scope=block"
    given = {"fault": f"{model} every 150s", "checkpoint": checkpoint, "read": read}
    for until in (600, 3000):
        state = played(spec_of(monkeypatch, **given, max_time=until, tolerance=None))
        assert len(state.faults) > 1
        if np.isfinite(state.arrays.iterate.x).all():
            check_residual(state, 1e6)


@pytest.mark.parametrize("target", ["", "on 1 component", "on rows 20-29", "on processor 9"])
@pytest.mark.parametrize("model", MODELS)
def test_after_a_transient_fault_it_converges_all_the_same(model: str, target: str) -> None:
    """To a residual that is small when it is computed anew, and so to SciPy's solution."""
    if model == "shuffle" and target == "on 1 component":
        return
    result = run(fault=f"{model} {target} at random")
    assert result.status == "converged"
    fresh = np.linalg.norm(PROBLEM.b - PROBLEM.A @ result.x)
    assert fresh <= 1e-6
    assert result.residual == pytest.approx(fresh, rel=1e-9)
    least = 8 * np.sin(np.pi / 22) ** 2
    assert np.linalg.norm(result.x - SOLUTION) <= 1.01e-6 / least
    (mark,) = result.marks
    assert (mark.what, 0 < mark.time < result.fault_free_time) == ("fault", True)
    assert mark.fault.startswith(model.split("(")[0])


def test_a_residual_that_rises_again_after_the_fault() -> None:
    """Read at start: results in flight first put everything right, then those computed from what
    the fault left come in, and the residual is larger again by a factor of 1e10.
    """
    for seed in range(60):
        result = run(fault="uniform(-100, 100) at random", seed=seed, time="normal(10, 1)")
        assert result.status == "converged", seed
        assert result.virtual_time < 3.5 * result.fault_free_time
        assert result.residual <= 1e-6


def test_a_large_fault_leaves_no_false_convergence() -> None:
    """Kept incrementally through a fault of 1e8, the residual would be wrong by 1e-8."""
    result = run(fault="uniform(-1e8, 1e8) at 200s", tolerance=1e-11)
    assert result.status == "converged"
    assert np.linalg.norm(PROBLEM.b - PROBLEM.A @ result.x) <= 1e-11


@pytest.mark.parametrize("target", ["A", "b"])
def test_a_system_that_a_fault_changed_is_not_solved(target: str) -> None:
    result = run(fault=f"uniform(-0.01, 0.01) in {target} at 100s")
    assert result.status == "stopped"
    assert "a system that a fault has changed" in result.reason
    assert result.residual > 1e-4
    assert result.residual == pytest.approx(np.linalg.norm(PROBLEM.b - PROBLEM.A @ result.x))


def test_marks_by_hand() -> None:
    """A fault that flips all signs of x just after an instant in step."""
    before = run(time=10, max_time=55)
    result = run(time=10, fault="signflip at 55s", max_time=55)
    np.testing.assert_array_equal(result.x, -before.x)
    (mark,) = result.marks
    assert (mark.time, mark.relaxations) == (55.0, 500)
    assert mark.fault == "signflip in x: 100 components"
    assert mark.before == pytest.approx(before.residual, rel=1e-10)
    assert mark.residual == pytest.approx(np.linalg.norm(PROBLEM.b + PROBLEM.A @ before.x))


def test_a_rollback_puts_the_checkpoint_back() -> None:
    """Checkpoints at 40 and 80 s, the latter with what was written at 80 s."""
    saved = run(time=10, max_time=80, read="completion")
    given = {"time": 10, "read": "completion", "checkpoint": "alpha=2, omega=40s"}
    result = run(fault="uniform(-100, 100) at 95s", max_time=95, **given)
    np.testing.assert_array_equal(result.x, saved.x)
    assert (result.checkpoints, result.rollbacks) == (2, 1)
    assert [mark.what for mark in result.marks] == ["checkpoint", "checkpoint", "fault", "rollback"]
    assert [mark.time for mark in result.marks] == [40, 80, 95, 95]
    assert result.marks[-1].residual == pytest.approx(saved.residual, rel=1e-10)
    early = run(fault="uniform(-100, 100) at 35s", max_time=35, **given)
    assert not early.x.any()  # before the first checkpoint it is the first iterate


def test_updates_under_way_may_be_rolled_back_each_in_turn() -> None:
    """They come from a later x than that of the checkpoint, of 200 s before."""
    struck = {"fault": "uniform(-100, 100) at 399s", "checkpoint": "alpha=1.2, omega=200s"}
    result = run(**struck)
    rollbacks = np.array([mark.time for mark in result.marks if mark.what == "rollback"])
    assert len(rollbacks) > 1
    assert rollbacks[0] == 399
    assert rollbacks[-1] < 399 + 5 * 10  # within a few updates
    assert run(read="completion", **struck).rollbacks == 1  # nothing is under way
    # What processors have of others' rows goes back with x, and so does what is sent.
    linked = run(cluster=switch(10, link=Link(bandwidth=1e9, latency=1e-3)), **struck)
    assert [mark.time for mark in linked.marks if mark.what == "rollback"] == list(rollbacks)


def test_what_checkpoints_cost() -> None:
    given = {"time": 10, "tolerance": None, "max_sweeps": 20}
    plain = run(**given)
    costly = run(**given, checkpoint="alpha=2, omega=45s, cost=3s")
    # At 45, 90, 135 and 180 s of computing; all processors wait.
    assert costly.checkpoints == 4
    assert costly.virtual_time == plain.virtual_time + 4 * 3
    assert costly.x.tobytes() == plain.x.tobytes()
    struck = run(
        **given, read="completion", fault="uniform(-100, 100) at 102s",
        checkpoint="alpha=2, omega=45s, cost=3s, restore=7s",
    )  # fmt: skip
    assert (struck.rollbacks, struck.checkpoints) == (1, 4)
    assert struck.virtual_time == plain.virtual_time + 4 * 3 + 7


def test_a_block_alone_goes_back() -> None:
    given = {"time": 10, "read": "completion", "max_time": 95}
    before = run(**given)
    saved = run(**{**given, "max_time": 80})
    result = run(
        **given, fault="uniform(-100, 100) on processor 3 at 95s",
        checkpoint="alpha=2, omega=40s, scope=block",
    )  # fmt: skip
    assert result.rollbacks == 1
    own = np.arange(30, 40)
    np.testing.assert_array_equal(result.x[own], saved.x[own])
    far = np.r_[0:20, 50:100]  # the neighbours' own residual grew as well
    np.testing.assert_array_equal(result.x[far], before.x[far])


def test_components_are_watched_by_their_processors() -> None:
    """Nobody looks at the whole residual: the block finds the fault when it is read next."""
    given = {"read": "completion", "fault": "uniform(-100, 100) on processor 3 at 450s"}
    plain, clean = run(**given), run(read="completion")
    policy = "alpha=3, omega=100s, monitor=component"
    for scope in ("all", "block"):
        result = run(**given, checkpoint=f"{policy}, scope={scope}")
        assert result.status == "converged"
        rollbacks = [mark.time for mark in result.marks if mark.what == "rollback"]
        assert rollbacks
        assert 450 <= rollbacks[0] < 480
        # A neighbour may notice first: its own going back must not make the others forget.
        assert result.virtual_time < plain.virtual_time - 100
        assert not run(read="completion", checkpoint=f"{policy}, scope={scope}").rollbacks
    everything = run(**given, checkpoint=policy)
    assert everything.rollbacks == 1
    assert everything.virtual_time < clean.virtual_time + 60


def test_not_a_number_is_rolled_back() -> None:
    """Bit 62 makes numbers below 2 huge, infinite or NaN."""
    broken = run(fault="bitflip(62) at 500s", read="completion")
    assert broken.status == "diverged"
    assert not broken.residual < 1e100
    repaired = run(fault="bitflip(62) at 500s", read="completion", checkpoint="alpha=2, omega=10s")
    assert repaired.status == "converged"
    assert repaired.rollbacks == 1
    assert repaired.residual <= 1e-6


def test_a_processor_that_stops_for_good_and_one_that_restarts() -> None:
    gone = run(fault="stop on processor 4 at 100s", max_time=5000)
    assert gone.status == "stopped"
    assert gone.last_update[4] <= 100
    assert gone.residual > 1e-3
    back = run(fault="stop(1000s) on processor 4 at 100s")
    assert back.status == "converged"
    begins = back.last_update[4]
    assert begins > 1100
    plain = run()
    assert back.updates[4] < plain.updates[4] + 80
    assert back.virtual_time > plain.virtual_time


def test_a_stopped_processor_loses_its_update_by_hand() -> None:
    """All take 10 s; P0 stops from 25 to 41: its third update would have been at 30."""
    result = run(time=10, fault="stop(16s) on processor 0 at 25s", max_time=61, tolerance=None,
                 timeline=1000)  # fmt: skip
    assert result.updates.tolist() == [4] + [6] * 9
    own = result.spans.processor == 0
    assert result.spans.end[own].tolist() == [10, 20, 30, 51, 61, 71]


def test_when_all_have_stopped_it_ends() -> None:
    faults = "; ".join(f"stop on processor {who} at {50 + who}s" for who in range(10))
    result = run(fault=faults)
    assert result.status == "stopped"
    assert "all processors have stopped" in result.reason


def test_stale_values_by_hand() -> None:
    """In step, 10 s each; P3 reads at 25 s, and writes what follows from that until 62 s."""
    x, A, b = np.zeros(100), PROBLEM.A.toarray(), PROBLEM.b
    own = slice(30, 40)
    seen: NDArray[np.float64] | None = None
    for second in range(10, 101, 10):
        new = x + (b - A @ x) / 4
        if second in (30, 40, 50, 60, 70):  # that at 70 was begun at 60, in the fault
            assert seen is not None
            new[own] = (seen + (b - A @ seen) / 4)[own]
        x = new
        if second == 20:
            seen = x.copy()
    result = run(time=10, fault="stale(37s) on processor 3 at 25s", max_time=100, tolerance=None)
    np.testing.assert_allclose(result.x, x, rtol=1e-12, atol=1e-15)


def test_faults_come_as_often_as_they_should() -> None:
    result = run(fault="bitflip(3) on 1 component every 50s", max_time=20_000, tolerance=None)
    struck = [mark.time for mark in result.marks]
    assert len(struck) == pytest.approx(400, abs=5 * 20)
    assert (np.diff(struck) > 0).all()


def test_a_fault_does_not_change_the_durations() -> None:
    given = {"max_time": 800, "tolerance": None, "timeline": 10_000}
    plain = run(**given)
    struck = run(**given, fault="uniform(-1, 1) every 100s", checkpoint="alpha=2, omega=10s")
    assert plain.spans.end.tobytes() == struck.spans.end.tobytes()
    assert plain.spans.processor.tolist() == struck.spans.processor.tolist()


def test_two_faults_have_streams_of_their_own() -> None:
    alone = run(fault="uniform(-1, 1) at random(0s, 100s)", max_time=100)
    both = run(
        fault="uniform(-1, 1) at random(0s, 100s); bitflip(5) at random(200s, 300s)", max_time=100
    )
    assert alone.x.tobytes() == both.x.tobytes()


def test_a_fault_in_a_message_is_gone_with_the_next() -> None:
    cluster = switch(workers=10, servers=0, link=Link(latency=5.0))
    plain = run(cluster=cluster)
    struck = run(cluster=cluster, fault="uniform(-1, 1) in halo at 500s")
    assert struck.status == "converged"
    assert struck.marks[0].fault.startswith("uniform(-1, 1) in a message to processor")
    assert struck.virtual_time == pytest.approx(plain.virtual_time, rel=0.05)
    # What the fault struck is not x; x is what was computed from it.
    given = {"cluster": cluster, "tolerance": None, "fault": "uniform(-1, 1) in halo at 500s"}
    for until, changed in ((500, 0), (530, 1)):
        x = run(**{**given, "max_time": until}).x
        clean = run(cluster=cluster, tolerance=None, max_time=until).x
        assert (abs(x - clean).max() > 1e-3) == changed


def test_a_fault_in_a_map() -> None:
    def G(x: Any, rows: Any, out: Any) -> None:  # noqa: N802
        out[:] = np.cos(x[rows]) / 2

    given = {"processors": 3, "time": "normal(10, 1)", "seed": 1, "max_sweeps": 1000}
    plain = relax_map(G, np.zeros(9), **given)
    struck = relax_map(G, np.zeros(9), **given, fault="uniform(-5, 5) at 100s")
    assert struck.status == plain.status == "converged"
    assert np.linalg.norm(struck.x - np.cos(struck.x) / 2) <= 1e-6
    np.testing.assert_allclose(struck.x, plain.x, atol=1e-5)


@pytest.mark.parametrize(("at", "detected"), [(61, 0), (63, 1)])
def test_a_fault_is_detected_within_two_mean_updates(at: int, detected: int) -> None:
    # Nine updates take 10 s and one 100 s, in the mean 19 s. The slow processor looks at its row at
    # 100 s, so that a fault at 62 s is noticed just in time.
    config = RelaxConfig(
        problem=problem_from(4 * np.eye(10), np.ones(10)),
        processors=10,
        time="10s",
        speeds=(1.0,) * 9 + (0.1,),
        tolerance=None,
        max_time=150,
        fault=f"uniform(99, 100) in b on processor 9 at {at}s",
        checkpoint="alpha=2, omega=1000s, scope=block, monitor=component",
    )
    faults = run_relaxation(config).summary["faults"]
    assert (faults["detected"], faults["false_alarms"]) == (detected, 1 - detected)


def test_an_interval_beyond_the_run_is_said_before_it() -> None:
    """Jacobi on 5 x 5 points: rho = cos(pi / 6), and ln(1e-6) / ln(rho) = 96 sweeps of 10 s."""
    said: list[str] = []
    given: dict[str, Any] = {
        "problem": "laplace2d:5", "processors": 5, "time": 10, "relative": True, "tolerance": 1e-6,
        "baseline": False, "max_sweeps": 1,
    }  # fmt: skip
    run_relaxation(RelaxConfig(**given, checkpoint="alpha=2, omega=970s"), announce=said.append)
    assert any("omega=970 s is longer than the run, which takes about 960 s" in s for s in said)
    said.clear()
    run_relaxation(RelaxConfig(**given, checkpoint="alpha=2, omega=950s"), announce=said.append)
    assert not any("omega" in sentence for sentence in said)


@pytest.mark.parametrize("model", ["uniform(-1, 1)", "stop(1s)", "stale(5s)"])
def test_faults_that_leave_no_time_to_compute_are_refused_soon(model: str) -> None:
    """A million faults would come before the first update of 1 ms; ten thousand are enough."""
    with pytest.raises(InputError, match=r"faults in .* between two updates: give a longer inter"):
        relax(load_problem("laplace2d:4"), time="1ms", fault=f"{model} every 1ns")


def test_what_is_no_fault_of_a_relaxation_is_refused_before_anything_is_computed() -> None:
    told: list[str] = []
    config = RelaxConfig(problem="laplace2d:4", processors=1, fault="slow(3x, 5s)")
    with pytest.raises(InputError, match="are those of a training"):
        run_relaxation(config, announce=told.append)
    assert told == []

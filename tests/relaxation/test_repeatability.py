"""Same seed, same run; streams of their own; Ctrl-C keeps what there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paracosm.cluster import Link, switch
from paracosm.relaxation import simulate
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.run import relax, run_relaxation

PROBLEM = load_problem("laplace2d:10", seed=1)
GIVEN: dict[str, Any] = {"processors": 5, "time": "normal(10, 3)", "timeline": 10_000}

EVERYTHING: list[dict[str, Any]] = [
    {},
    {"read": "completion"},
    {"pattern": "random(blocks=12)"},
    {"method": "coordinate(3)"},
    {"pattern": "graph(method=bisection)", "method": "block-jacobi"},
    {"fault": "bitflip(0..51) on 10% every 100s", "checkpoint": "alpha=2, omega=30s"},
    {"fault": "uniform(-5, 5) at random; stop(50s) at random"},
    {"detect": "processor(time=exponential(30))"},
    {"cluster": switch(workers=5, servers=0, link=Link(1.0, 5.0)), "latency_jitter": "500ms"},
    {
        "cluster": switch(workers=5, servers=0, link=Link(100.0, 5.0)),
        "latency_jitter": "exponential(9)",
        "detect": "snapshot(2)",
    },
]


def run(**more: Any) -> RelaxationResult:
    return relax(PROBLEM, **{**GIVEN, "max_sweeps": 3000, **more})


@pytest.mark.parametrize("more", EVERYTHING)
def test_same_seed_same_run_to_the_bit(more: dict[str, Any]) -> None:
    one, two, other = (run(**more, seed=seed) for seed in (7, 7, 8))
    assert one.x.tobytes() == two.x.tobytes()
    assert one.residuals.tobytes() == two.residuals.tobytes()
    assert one.times.tobytes() == two.times.tobytes()
    assert one.spans.end.tobytes() == two.spans.end.tobytes()
    assert [(m.time, m.fault, m.residual) for m in one.marks] == [
        (m.time, m.fault, m.residual) for m in two.marks
    ]
    assert one.x.tobytes() != other.x.tobytes()


def begins(result: RelaxationResult, processor: int) -> list[float]:
    own = result.spans.processor == processor
    return result.spans.begin[own].tolist()


@pytest.mark.parametrize(
    "more",
    [
        {"pattern": "random(blocks=12)"},
        {"method": "coordinate(3)"},
        {"read": "completion"},
        {"detect": "processor(time=exponential(30))"},
        {"detect": "snapshot"},
        {"fault": "uniform(-5, 5) every 100s"},
        {"cluster": switch(workers=5, servers=0, link=Link(1.0, 5.0)), "latency_jitter": "1s"},
    ],
)
def test_other_random_things_leave_the_durations_alone(more: dict[str, Any]) -> None:
    until = {"tolerance": None, "max_time": 500}
    plain, changed = run(**until), run(**until, **more)
    for processor in range(5):
        assert begins(plain, processor) == begins(changed, processor)


def test_another_processor_leaves_the_others_alone() -> None:
    until = {"tolerance": None, "max_time": 500}
    five, six = run(**until), run(**until, processors=6)
    for processor in range(5):
        assert begins(five, processor) == begins(six, processor)
    assert begins(six, 5) != begins(six, 4)


def test_another_distribution_for_one_leaves_the_others_alone() -> None:
    until = {"tolerance": None, "max_time": 500}
    same, slower = ([f"normal({mean}, 3)"] + ["normal(10, 3)"] * 4 for mean in (10, 40))
    plain, changed = run(**until, time=same), run(**until, time=slower)
    assert plain.updates[0] > 2 * changed.updates[0]
    for processor in range(1, 5):
        assert begins(plain, processor) == begins(changed, processor)


def test_durations_are_those_of_the_distribution() -> None:
    found = run(tolerance=None, max_time=20_000)
    durations = found.spans.end - found.spans.begin
    assert durations.size > 9000
    assert durations.mean() == pytest.approx(10, abs=5 * 3 / np.sqrt(durations.size))
    assert durations.std() == pytest.approx(3, rel=0.05)


def test_phases_follow_each_other_and_may_be_drawn_together() -> None:
    phases = {"copy": "uniform(1, 2)", "compute": "uniform(5, 6)", "update": "uniform(0.1, 0.2)"}
    apart = run(time=phases).spans
    lengths = np.stack(
        [apart.copied - apart.begin, apart.computed - apart.copied, apart.end - apart.computed]
    )
    for length, low, high in zip(lengths, (1, 5, 0.1), (2, 6, 0.2), strict=True):
        assert low <= length.min() < low + 0.02 * (high - low) + 1e-9
        assert high - 0.02 * (high - low) - 1e-9 < length.max() <= high
    assert abs(np.corrcoef(lengths)[0, 1]) < 0.1
    joint = run(time={**phases, "joint": True}).spans
    lengths = np.stack([joint.copied - joint.begin, joint.computed - joint.copied])
    assert np.corrcoef(lengths)[0, 1] == pytest.approx(1)


def test_progress_sees_the_whole_history() -> None:
    rows: list[Any] = []
    calls: list[tuple[float, int]] = []

    def progress(virtual_time: float, relaxations: int, new: Any) -> None:
        calls.append((virtual_time, relaxations))
        rows.extend(new.tolist())

    result = run(progress=progress, tolerance=None, max_sweeps=50_000)
    assert len(calls) >= 3
    assert calls == sorted(calls)
    seen = np.array(rows)
    assert (np.diff(seen[:, 1]) > 0).all()
    steps = np.rint(result.sweeps * 100)
    kept = steps[steps < calls[-1][1]]  # the history is thinned as it grows
    assert len(kept) > 500
    assert set(kept[1:].tolist()) <= set(seen[:, 1].tolist())
    plain = run(tolerance=None, max_sweeps=50_000)
    assert plain.x.tobytes() == result.x.tobytes()


@pytest.mark.parametrize("fault", [None, "uniform(-5, 5) every 97s"])
def test_rows_do_not_depend_on_how_often_there_is_progress(
    fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for size in (1000, 54_321, 10**9):
        monkeypatch.setattr(simulate, "_FIRST_SLICE", size)
        monkeypatch.setattr(simulate, "_next_slice", lambda before, seconds, size=size: size)
        rows: list[Any] = []
        result = run(
            progress=lambda _time, _relaxations, new, rows=rows: rows.extend(new[:, :3].tolist()),
            tolerance=None,
            max_sweeps=20_000,
            fault=fault,
        )
        assert len(rows) > 8192  # the history was thinned more than once
        assert rows == sorted(rows)
        steps = {row[1] for row in rows}
        assert {round(100 * sweep) for sweep in result.sweeps.tolist()[:-1]} <= steps
        found.append(rows)
    assert found[0] == found[1] == found[2]


def test_ctrl_c_keeps_what_there_is() -> None:
    def progress(virtual_time: float, relaxations: int, new: Any) -> None:
        if relaxations > 50_000:
            raise KeyboardInterrupt

    result = run(tolerance=None, max_sweeps=1e9, progress=progress)
    assert result.status == "interrupted"
    assert result.relaxations > 50_000
    assert result.residuals[-1] < 1e-6 < result.residuals[0]
    assert result.residual == pytest.approx(np.linalg.norm(PROBLEM.b - PROBLEM.A @ result.x))
    assert result.updates.sum() * 20 == result.relaxations


@pytest.mark.parametrize("place", ["method", "pattern", "time"])
def test_ctrl_c_in_a_function_of_the_users(place: str) -> None:
    calls = 0

    def count(result: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 400:
            raise KeyboardInterrupt
        return result

    functions = {
        "method": lambda x, rows, A, b, out: count(x[rows] + (b - A @ x)[rows] / 4),
        "pattern": lambda who, update, u: count(np.arange(20 * who, 20 * who + 20)),
        "time": lambda who, update, u: count(5 + 10 * u),
    }
    result = run(**{place: functions[place]})
    assert result.status == "interrupted"
    assert 380 < result.updates.sum() <= 400
    assert 0 < result.residuals[-1] < result.initial_residual
    assert result.residual == pytest.approx(np.linalg.norm(PROBLEM.b - PROBLEM.A @ result.x))


def test_an_interrupted_run_has_a_summary() -> None:
    def progress(relaxations: int, virtual_time: float | None) -> None:
        if relaxations > 50_000:
            raise KeyboardInterrupt

    config = RelaxConfig(problem="laplace2d:10", tolerance=None, max_sweeps=1e9)
    run = run_relaxation(config, progress=progress)
    assert run.summary["status"] == "interrupted"
    assert run.summary["relaxations"] > 50_000
    assert run.timeline is not None

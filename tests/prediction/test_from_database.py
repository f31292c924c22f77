"""Predictions from a database: what is looked up, what is estimated, what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_database import (
    CONV,
    CPU,
    GPU,
    KNOWN,
    MICRO,
    VIEW,
    WARM,
    make_database,
    make_graph,
    op,
    timing,
)

from paracosm.errors import InputError
from paracosm.graphs.file import load_graph
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.graphs.summary import fingerprint
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.replica import choose_environment
from paracosm.prediction.run import run_prediction
from paracosm.profiling import environment_here
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.durations import Found, find_durations
from paracosm.profiling.samples import IterationTiming, LinkTiming, OpTiming, at_one_speed
from paracosm.validation import validated


def predicted(tmp_path: Path, timings: list[OpTiming], *extra: Op, **asked: Any) -> dict[str, Any]:
    """Return the summary of a prediction for the old chip."""
    database = make_database(tmp_path / "a.db", timings)
    graph = make_graph(tmp_path / "a.graph", *extra)
    given = {"graph": graph, "db": database, "hardware": "old chip", **asked}
    return run_prediction(PredictConfig(**given), seed=0).summary


def profiles_with(monkeypatch: pytest.MonkeyPatch, profile: Callable[..., Any]) -> None:
    """Let this process time ops as the commands do, by a function."""
    monkeypatch.setattr("paracosm.profiling.profiler.own_allocator", lambda: CPU.allocator)
    monkeypatch.setattr("paracosm.profiling.profiler.profile", profile)


def duration_of(found: Found, op: int) -> float:
    estimate = found.durations[op]
    assert estimate is not None
    return estimate.duration


def test_measured_ops_add_up(tmp_path: Path) -> None:
    summary = predicted(tmp_path, [*KNOWN, *WARM])
    assert summary["iteration_time"] == pytest.approx(500 * MICRO)
    assert summary["examples_per_second"] == pytest.approx(8 / (500 * MICRO))
    (row,) = summary["throughput"]
    assert row["workers"] == 1
    assert row["examples_per_second"] == summary["examples_per_second"]
    assert row["steps_per_second"] == pytest.approx(1 / summary["iteration_time"])
    assert summary["coverage"] == {"exact": 1.0}
    assert summary["breakdown"]["phase"] == {
        "forward": pytest.approx(300 * MICRO),
        "backward": pytest.approx(200 * MICRO),
    }
    assert summary["baselines"]["sum of warm timings"] == pytest.approx(350 * MICRO)
    assert summary["peak_memory"] == 12_000
    assert summary["status"] == "done"
    assert summary["measured"] is None


def test_warm_timings_on_request(tmp_path: Path) -> None:
    summary = predicted(tmp_path, [*KNOWN, *WARM], cache="warm")
    assert summary["iteration_time"] == pytest.approx(350 * MICRO)


def test_timings_of_the_other_cache_alone_are_named_and_not_taken_silently(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"all timings of Old Chip .* with warm data: --cache warm"
    ):
        predicted(tmp_path, WARM)


def test_the_roofline_takes_the_best_rates_that_were_measured(tmp_path: Path) -> None:
    """1e6 flops in 200 us and 8000 bytes in 100 us: the ops that set the rates take their time."""
    assert predicted(tmp_path, KNOWN)["baselines"]["roofline"] == pytest.approx(500 * MICRO)


def test_an_op_of_a_known_type_is_estimated_from_the_others(tmp_path: Path) -> None:
    """A ReLU takes 100 ns an element here; one of 3,000 elements was not timed."""
    known = [CONV, *(op("aten.relu.default", size) for size in range(1000, 20000, 1500))]
    timings = [timing(each, each.bytes_read / 40 * MICRO) for each in known[1:]]
    summary = predicted(tmp_path, [*timings, KNOWN[0]], op("aten.relu.default", 3000))
    assert summary["iteration_time"] == pytest.approx(800 * MICRO, rel=0.05)
    assert set(summary["coverage"]) & {"interpolated", "estimated"}
    assert "unknown" not in summary["coverage"]
    assert summary["interval"]["low"] <= summary["iteration_time"] <= summary["interval"]["high"]


def test_a_new_op_of_another_machine_is_estimated_and_marked(tmp_path: Path) -> None:
    summary = predicted(tmp_path, KNOWN, op("aten.gelu.default", 1000))
    assert summary["coverage"]["unknown"] > 0
    assert summary["durations"]["unknown"] == "estimated from flops and bytes"
    assert summary["profiled"] == 0


def test_a_new_op_is_refused_on_request_with_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no timing of aten.gelu.default: --new-ops profile .*"):
        predicted(tmp_path, KNOWN, op("aten.gelu.default", 1000), new_ops="refuse")


def test_a_new_op_without_flops_and_bytes_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no timing of mine\.strange, and no flops or bytes"):
        predicted(tmp_path, KNOWN, Op("mine.strange"))


def test_an_op_of_a_known_type_of_which_nothing_was_recorded_is_refused(tmp_path: Path) -> None:
    """As in a trace of another program: it would be told to take no longer than its launch."""
    for recorded in ("", '{"args":[]}'):
        with pytest.raises(InputError, match=r"no timing of aten\.relu\.default, and no flops"):
            predicted(tmp_path, KNOWN, Op("aten.relu.default", recorded))
        (tmp_path / "a.db").unlink()


def test_new_ops_of_another_machine_cannot_be_profiled_here(tmp_path: Path) -> None:
    for asked in ({"new_ops": "profile"}, {"exact": True}):
        with pytest.raises(InputError, match="can be profiled only there"):
            predicted(tmp_path, KNOWN, **asked)


def test_a_view_that_nobody_timed_needs_no_timing(tmp_path: Path) -> None:
    database = make_database(tmp_path / "a.db", KNOWN)
    graph = make_graph(tmp_path / "a.graph", VIEW, resource="host")
    config = PredictConfig(graph=graph, db=database, hardware="old", new_ops="refuse")
    summary = run_prediction(config, seed=0).summary
    assert summary["iteration_time"] == pytest.approx(500 * MICRO)
    assert summary["untimed"] == ["aten.view.default"]


def test_only_what_is_missing_is_profiled_and_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default types that nobody timed; on request every op without a timing of its own."""
    new, other = op("aten.gelu.default", 1000), op("aten.relu.default", 5000)
    asked: list[list[Op]] = []

    def profile(ops: Any, settings: Any, keep: Any, **_: Any) -> Any:
        asked.append(list(ops))
        keep([timing(op, 10 * MICRO) for op in ops])
        return type("Done", (), {"interrupted": False, "refused": {}})

    profiles_with(monkeypatch, profile)
    graph = load_graph(make_graph(tmp_path / "a.graph", new, other))
    for exact, wanted in ((False, [new]), (True, [new, other])):
        database = make_database(tmp_path / f"{exact}.db", KNOWN)
        found = find_durations(graph, database, CPU, new_ops="profile", exact=exact)
        assert asked.pop() == wanted
        assert found.profiled == len(wanted)
        assert duration_of(found, graph.ops.index(new)) == pytest.approx(10 * MICRO)
        with ProfileDatabase.open(database) as kept:
            assert len(kept.timings(CPU)) == len(KNOWN) + len(wanted)


def test_what_cannot_be_profiled_is_estimated_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = op("aten.gelu.default", 1000)
    done = type("Done", (), {"interrupted": False, "refused": {new: "needs two of them"}})
    profiles_with(monkeypatch, lambda *_, **__: done)
    graph = load_graph(make_graph(tmp_path / "a.graph", new))
    found = find_durations(graph, make_database(tmp_path / "a.db", KNOWN), CPU, new_ops="profile")
    assert (found.profiled, found.refused) == (0, {"aten.gelu.default": "needs two of them"})
    assert duration_of(found, graph.ops.index(new)) > 0


def test_a_gpu_is_replayed_with_a_host_that_runs_ahead(tmp_path: Path) -> None:
    """The shortest timing of an op in a row, 50 us, is what a launch takes: 50 + 500."""
    timings = [replace(each, environment=GPU) for each in (*KNOWN, *WARM)]
    summary = predicted(tmp_path, timings, hardware="h100")
    assert summary["launch"] == pytest.approx(50 * MICRO)
    assert summary["iteration_time"] == pytest.approx(550 * MICRO)
    assert summary["breakdown"]["lane"] == {
        "host": pytest.approx(150 * MICRO),
        "compute": pytest.approx(500 * MICRO),
    }
    slow = predicted(tmp_path, timings, hardware="h100", launch="1ms")
    assert slow["iteration_time"] == pytest.approx(3.2e-3)
    assert slow["bottleneck"].startswith("Launching: the device is idle 84%")


def test_cold_timings_of_a_gpu_say_nothing_of_launches(tmp_path: Path) -> None:
    """Their kernels were issued while the device was busy."""
    timings = [replace(each, environment=GPU) for each in KNOWN]
    summary = predicted(tmp_path, timings, hardware="h100")
    assert summary["launch"] == pytest.approx(5 * MICRO)
    assert summary["durations"]["launching an op"].startswith("assumed")


def test_launches_have_no_effect_on_a_cpu(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="launch: has no effect on a CPU"):
        predicted(tmp_path, KNOWN, launch="5us")


def test_the_machine_that_varies_widens_the_interval(tmp_path: Path) -> None:
    """Probes of 0.9 to 1.1 ms: p10 to p90 is 0.16 ms of 1 ms, half of that either way; and sessions
    differ as much, and by 2 %, both this one and that of an iteration."""
    probes = (9e-4, 11e-4)
    timings = [replace(each, probe=probe) for each, probe in zip(KNOWN, probes, strict=True)]
    summary = predicted(tmp_path, timings)
    times = [each.duration * 1e-3 / probe for each, probe in zip(KNOWN, probes, strict=True)]
    time = 2 * times[0] + times[1]  # each at the speed at which the probe takes 1 ms
    assert summary["iteration_time"] == pytest.approx(time)
    between = math.hypot(0.02, 0.08 / 1.282)
    common = math.hypot(0.08, 1.645 * math.sqrt(2) * between)
    assert summary["interval"]["high"] == pytest.approx(time * (1 + common), rel=1e-6)
    assert summary["interval"]["low"] == pytest.approx(time * (1 - common), rel=1e-6)


def test_untuned_malloc_costs_what_new_memory_was_measured_to(tmp_path: Path) -> None:
    """Three blocks of 40 MB at 2 ms for 10 MB of new memory; with malloc tuned, it is said."""
    graph = make_graph(tmp_path / "large.graph", block=40_000_000)
    database = make_database(tmp_path / "a.db", KNOWN)
    asked = {"graph": graph, "db": database, "hardware": "old chip"}
    said: list[str] = []
    kept = run_prediction(PredictConfig(**asked), seed=0, announce=said.append).summary
    assert "malloc takes 120 MB of new memory in every iteration" in said[-1]
    with pytest.raises(InputError, match="lacks the cost of new memory on Old Chip"):
        run_prediction(PredictConfig(**asked, allocator="default"), seed=0)
    with ProfileDatabase.open(database) as opened:
        opened.add_links(
            [LinkTiming("new memory", "", 10_000_000, 1, CPU, timing(CONV, 2e-3).time)]
        )
    new = run_prediction(PredictConfig(**asked, allocator="default"), seed=0).summary
    assert new["iteration_time"] == pytest.approx(kept["iteration_time"] + 24e-3)
    assert new["durations"]["page faults"] == "measured by the byte: 24 ms"


@pytest.mark.parametrize("slower", [0.5, 1.1, 3.0])
def test_a_session_on_a_busy_machine_leaves_a_prediction_as_it_was(
    tmp_path: Path, slower: float
) -> None:
    """Other ops were timed then, and one of the graph's; neither says more of the graph's time."""
    known = [replace(each, session="quiet", measured_at="2026-01-01") for each in (*KNOWN, *WARM)]
    others = [(op("aten.add.Tensor", n), 1e-5 * n) for n in range(1, 30)]
    busy = [
        replace(
            timing(each, slower * seconds, probe=slower * 1e-3),
            session="busy",
            measured_at="2026-01-02",
        )
        for each, seconds in [(CONV, 200e-6), *others]
    ]
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    before = predicted(tmp_path / "before", known)
    after = predicted(tmp_path / "after", [*known, *busy])
    assert after["coverage"] == before["coverage"] == {"exact": pytest.approx(1.0)}
    assert after["iteration_time"] == pytest.approx(before["iteration_time"], rel=1e-12)
    assert after["baselines"] == pytest.approx(before["baselines"], rel=1e-12)


def test_a_measured_iteration_is_shown_beside(tmp_path: Path) -> None:
    database = make_database(tmp_path / "a.db", KNOWN)
    mark = fingerprint(load_graph(make_graph(tmp_path / "a.graph")))
    with ProfileDatabase.open(database) as opened:
        time = timing(CONV, 625 * MICRO).time
        opened.add_iterations([IterationTiming(mark, "toy", CPU, time, probe=1.1e-3)])
    measured = predicted(tmp_path, [])["measured"]
    assert measured["iteration_time"] == pytest.approx(625 * MICRO)
    assert measured["error"] == pytest.approx(-0.2)
    assert measured["slower"] == pytest.approx(0.1)
    assert measured["error_at_its_speed"] == pytest.approx(500 * 1.1 / 625 - 1)


def test_a_database_of_other_machines_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    here = replace(CPU, hardware="New Chip")
    with pytest.raises(InputError) as refused:
        choose_environment([(CPU, 2), (GPU, 1)], here, None, "a.db")
    assert str(refused.value) == (
        "a.db: no timings of this machine, only of Old Chip 7 (family 6), torch 2.13.0, "
        "threads 1, malloc pinned, denormals flushed; NVIDIA H100, torch 2.13.0, CUDA 12.8, cuda "
        'caching, denormals kept: --hardware "Old Chip 7" predicts for that one'
    )


def test_another_setting_of_this_machine_is_said(tmp_path: Path) -> None:
    here = replace(CPU, threads=2, framework="torch 2.14.0")
    with pytest.raises(InputError, match=r"\(framework torch 2.13.0, not .*, threads 1, not 2\)"):
        choose_environment([(CPU, 2)], here, None, "a.db")
    assert choose_environment([(CPU, 2)], here, "old", "a.db") == CPU


def test_this_machine_is_the_default_and_wins_among_several() -> None:
    two = replace(CPU, threads=2)
    assert choose_environment([(two, 9), (CPU, 1)], CPU, None, "a.db") == CPU
    assert choose_environment([(two, 9), (CPU, 1)], CPU, "old chip", "a.db") == CPU
    assert choose_environment([(two, 9), (CPU, 1)], CPU, "OLD, threads 2", "a.db") == two
    with pytest.raises(InputError, match=r'"old" matches each of Old Chip 7 .*: be more specific'):
        choose_environment([(two, 9), (CPU, 1)], None, "old", "a.db")
    with pytest.raises(InputError, match='no timings of "B200"'):
        choose_environment([(two, 9)], CPU, "B200", "a.db")
    with pytest.raises(InputError, match=r"a\.db: no timings of ops"):
        choose_environment([], CPU, None, "a.db")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "nothing to predict: give one of model, graph, profile"),
        ({"model": "vgg19", "graph": "a"}, "give one of .*, not model and graph"),
        ({"model": "vgg19", "batch": 0}, "batch: input should be greater than or equal to 1"),
        ({"model": "vgg19", "shape": "3xtwo"}, "shape: write sizes such as 3x32x32"),
        ({"model": "vgg19", "shape": "3x0"}, "shape: sizes are 1 to 1,000,000,000, not 3x0"),
        ({"graph": "a", "batch": 4}, "batch: has no effect, leave it out: the graph is captured"),
        ({"model": "gpt2", "hardware": "b", "threads": 2}, "threads: has no effect"),
        ({"model": "gpt2", "exact": True, "new_ops": "refuse"}, "exact profiles missing ops"),
        ({"model": "gpt2", "nwe_ops": "refuse"}, 'unknown key "nwe_ops": did you mean "new_ops"'),
    ],
)
def test_bad_arguments_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        validated(PredictConfig, asked, "test")
    assert re.search(message.replace("?", r"\?"), str(refused.value)), refused.value


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "vgg18"}, 'unknown model "vgg18": did you mean "vgg19"'),
        ({"model": "vgg19"}, "profiles.db: no such database: paracosm profile ops writes one"),
        ({"model": "vgg19", "shape": "128"}, "vgg19 takes channels x height x width"),
        ({"graph": "a.graph"}, "a.graph: no such file"),
    ],
)
def test_what_is_not_there_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        validated(PredictConfig, asked, "test").check()


def test_a_model_for_a_gpu_is_captured_for_a_cpu_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    graph = load_graph(make_graph(tmp_path / "a.graph"))
    monkeypatch.setattr("paracosm.graphs.capture.options", lambda options: graph)
    database = make_database(
        tmp_path / "a.db", [replace(each, environment=GPU) for each in (*KNOWN, *WARM)]
    )
    config = PredictConfig(model="resnet18", db=database, hardware="H100")
    said: list[str] = []
    summary = run_prediction(config, seed=0, announce=said.append).summary
    assert (summary["device"], summary["captured_for"]) == ("cuda", "cpu")
    assert said[-1].startswith("Captured for cpu: PyTorch has no CUDA here")


def test_a_new_op_is_really_profiled_where_the_timings_are_this_machine_s(tmp_path: Path) -> None:
    """The paper's fallback, with nothing put in the place of anything."""
    here = environment_here()
    known = [replace(each, environment=here) for each in KNOWN]
    database = make_database(tmp_path / "a.db", known)
    vector = TensorArgument((1000,), "float32")
    new = Op("aten.add.Tensor", encode_arguments([vector, vector], {}), 1000, 8000, 4000)
    graph = make_graph(tmp_path / "a.graph", new)
    summary = run_prediction(PredictConfig(graph=graph, db=database), seed=0).summary
    assert (summary["profiled"], summary["not_profiled"]) == (1, {})
    assert summary["coverage"] == {"exact": pytest.approx(1.0)}
    with ProfileDatabase.open(database) as kept:
        times = {t.cache: t for t in kept.timings(here, name=new.name)}
    assert {t.source for t in times.values()} == {"new op"}
    assert set(times) == {"cold", "warm"}
    (new_op,) = at_one_speed([times["cold"]], KNOWN[0].probe)
    assert summary["iteration_time"] == pytest.approx(500 * MICRO + new_op.duration)

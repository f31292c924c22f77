"""Generated schedules against the engine: the same updates by the same workers, as stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import series

from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.run import schedule_rule


def both(**arguments: Any) -> tuple[TrainingResult, TrainingResult]:
    """Run generated, and, by asking for a timeline, on the engine."""
    common = {"timing_only": True, "message_size": "1MB", **arguments}
    generated = TrainConfig.model_validate({**common, "timeline": False})
    assert schedule_rule(generated, generated.resolve_cluster()) is not None
    return train(generated, 3), train(TrainConfig.model_validate({**common, "timeline": True}), 3)


def agree(generated: TrainingResult, engine: TrainingResult) -> None:
    """Instants of the one are whole picoseconds, of the other floating-point numbers.

    Workers that share a link fairly amplify every rounding from step to step: up to 3e-6 was seen.
    """
    for name in ("staleness", "utilisation.compute", "utilisation.send", "utilisation.receive"):
        ours, theirs = series(generated, name), series(engine, name)
        assert [(r.node, r.step) for r in ours] == [(r.node, r.step) for r in theirs]
        times = [r.virtual_time for r in theirs]
        assert [r.virtual_time for r in ours] == pytest.approx(times, rel=1e-5)
        values = [r.value for r in theirs]
        assert [r.value for r in ours] == pytest.approx(values, rel=1e-5, abs=1e-5)
    for key in ("updates", "examples", "mean_staleness", "dropped"):
        assert generated.summary[key] == engine.summary[key], key
    for key in ("virtual_time", "examples_per_second"):
        assert generated.summary[key] == pytest.approx(engine.summary[key], rel=1e-5), key


ALGORITHMS = (
    "asgd",
    "ssgd",
    "staleness-aware",
    "delay-adaptive",
    "dc-asgd",
    "softsync(n=2)",
    "fedbuff(buffer=3)",
    "ssp(slack=0)",
    "ssp(slack=2)",
    "backup-workers",
    "rennala(gradients=3)",
)


@settings(max_examples=150, deadline=None)
@given(
    algorithm=st.sampled_from(ALGORITHMS),
    workers=st.integers(2, 9),
    servers=st.integers(1, 3),
    updates=st.integers(1, 60),
    compute=st.sampled_from(["uniform(0.5s, 2s)", "exponential(1s)"]),
    latency=st.sampled_from(["0s", "100ms", "1s"]),
    overhead=st.sampled_from(["0s", "50ms"]),
    bandwidth=st.sampled_from(["1MB/s", "8MB/s"]),
    pipelined=st.booleans(),
    duplex=st.sampled_from(["full", "half"]),
    sharing=st.sampled_from(["serial", "fair"]),
)
def test_the_schedule_is_the_engine_s(
    servers: int, updates: int, algorithm: str, **arguments: Any
) -> None:
    if algorithm.startswith("rennala"):  # whose updates take many gradients, most of them dropped
        updates = 1 + updates // 5
    servers = 1 if algorithm.startswith(("backup-workers", "rennala")) else servers
    agree(*both(algorithm=algorithm, servers=servers, updates=updates, **arguments))


@pytest.mark.parametrize("sharing", ["fair", "serial", "packets(1kB)"])
def test_overhead_holds_ports_where_bytes_take_no_time(sharing: str) -> None:
    generated, engine = both(
        workers=3, compute="uniform(0.5s, 2s)", overhead="50ms", sharing=sharing, updates=20
    )
    agree(generated, engine)
    (server,) = (r for r in series(generated, "utilisation.send") if r.node == "server0")
    assert server.value > 0


@settings(max_examples=30, deadline=None)
@given(
    algorithm=st.sampled_from(ALGORITHMS),
    workers=st.integers(2, 6),
    updates=st.integers(1, 30),
    sharing=st.sampled_from(["serial", "fair"]),
    bandwidth=st.sampled_from(["inf", "1MB/s"]),
)
def test_workers_in_step(algorithm: str, **arguments: Any) -> None:
    """Constant durations: much is at one time, and happens in the same order."""
    agree(*both(algorithm=algorithm, compute="1s", latency="100ms", **arguments))


def test_workers_that_need_more_compute_times_than_others_get_them(tmp_path: Path) -> None:
    cluster = {
        "topology": "star",
        "workers": [{"count": 1, "speed": 40}, {"count": 3}],
        "servers": 1,
        "links": {"default": {"latency": "10ms"}},
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(cluster))
    arguments = {"cluster": str(path), "updates": 900, "compute": "exponential(1s)"}
    agree(*both(algorithm="asgd", **arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {"algorithm": "backup-workers(interrupt=true)"},
        {"algorithm": "fedbuff(steps=2)"},
        {"algorithm": "ssgd", "topology": "all-reduce"},
        {"update_time": "1ms"},
        {"until": "3s"},
        {"compute": "recorded(1s, 2s, 3s)"},
        {"timing_only": False},
    ],
)
def test_what_no_rule_can_say_is_left_to_the_engine(arguments: dict[str, Any]) -> None:
    config = TrainConfig.model_validate({"timing_only": True, **arguments})
    assert schedule_rule(config, config.resolve_cluster()) is None


@pytest.mark.parametrize(("updates", "has_timeline"), [(16_000, True), (17_000, False)])
def test_timelines_that_nobody_asked_for_hold_up_no_schedule(
    updates: int, has_timeline: bool
) -> None:
    config = TrainConfig.model_validate(
        {"algorithm": "asgd", "workers": 2, "updates": updates, "timing_only": True}
        | {"compute": "20ms"}
    )
    assert (train(config, 0).timeline is not None) is has_timeline

"""The compiled schedule against the engine: the same events, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.training import Metrics, TrainConfig, TrainingResult, train
from paracosm.training.schedule import simple_exchange


def both(**arguments: Any) -> tuple[TrainingResult, TrainingResult]:
    """Run compiled, and, by asking for a timeline, on the engine."""
    serial = {} if "cluster" in arguments else {"sharing": "serial"}
    common = {"timing_only": True, "message_size": "1MB", **serial, **arguments}
    compiled = TrainConfig.model_validate({**common, "timeline": False})
    assert simple_exchange(compiled, compiled.resolve_cluster()) is not None
    return train(compiled, 3), train(TrainConfig.model_validate({**common, "timeline": True}), 3)


def agree(compiled: TrainingResult, engine: TrainingResult) -> None:
    assert isinstance(compiled.metrics, Metrics)
    assert isinstance(engine.metrics, Metrics)
    for name in ("staleness", "utilisation.compute", "utilisation.send", "utilisation.receive"):
        ours = compiled.metrics.series(name)
        theirs = engine.metrics.series(name)
        assert [(r.node, r.step) for r in ours] == [(r.node, r.step) for r in theirs]
        assert [r.virtual_time for r in ours] == [r.virtual_time for r in theirs]
        if name == "staleness":
            assert [r.value for r in ours] == [r.value for r in theirs]
        else:  # sums of the same numbers, in another order
            assert [r.value for r in ours] == pytest.approx([r.value for r in theirs])
    for key in ("virtual_time", "updates", "examples", "mean_staleness", "examples_per_second"):
        assert compiled.summary[key] == engine.summary[key], key


ALGORITHMS = (
    "asgd",
    "ssgd",
    "staleness-aware",
    "delay-adaptive",
    "dc-asgd",
    "softsync(n=2)",
    "fedbuff(buffer=3)",
)


@settings(max_examples=60, deadline=None)
@given(
    algorithm=st.sampled_from(ALGORITHMS),
    workers=st.integers(2, 9),
    updates=st.integers(1, 60),
    compute=st.sampled_from(["1s", "uniform(0.5s, 2s)", "exponential(1s)", "0s"]),
    latency=st.sampled_from(["0s", "100ms", "1s", "250ms"]),
    bandwidth=st.sampled_from(["inf", "1MB/s", "8MB/s"]),
    pipelined=st.booleans(),
)
def test_the_schedule_is_the_engine_s(
    algorithm: str,
    workers: int,
    updates: int,
    compute: str,
    latency: str,
    bandwidth: str,
    pipelined: bool,
) -> None:
    agree(
        *both(
            algorithm=algorithm,
            workers=workers,
            updates=updates,
            compute=compute,
            latency=latency,
            bandwidth=bandwidth,
            pipelined=pipelined,
        )
    )


def test_workers_that_need_more_compute_times_than_others_get_them(tmp_path: Path) -> None:
    cluster = {
        "topology": "star",
        "workers": [{"count": 1, "speed": 40}, {"count": 3}],
        "servers": 1,
        "links": {"default": {"latency": "10ms", "sharing": "serial"}},
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(cluster))
    arguments = {"cluster": str(path), "updates": 900, "compute": "exponential(1s)"}
    agree(*both(algorithm="asgd", **arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {"algorithm": "ssp"},
        {"algorithm": "fedbuff(steps=2)"},
        {"algorithm": "ssgd", "topology": "all-reduce"},
        {"servers": 2},
        {"update_time": "1ms"},
        {"until": "3s"},
        {"compute": "recorded(1s, 2s, 3s)"},
        {"timing_only": False},
    ],
)
def test_what_is_not_a_simple_exchange_is_left_to_the_engine(arguments: dict[str, Any]) -> None:
    config = TrainConfig.model_validate({"timing_only": True, **arguments})
    assert simple_exchange(config, config.resolve_cluster()) is None

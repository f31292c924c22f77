"""Traces without a device: ops of the host are the computing, and what is between them the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_left_out import Event, summary_of, written

from paracosm.replays import replay_traces


def span(category: str, name: str, begin: float, duration: float, thread: int = 1) -> Event:
    lane = {"pid": 10, "tid": thread, "ts": 1e6 + begin, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, **lane, "args": {}}


def step(number: int, at: float, *extra: Event) -> list[Event]:
    """1000 us, of which an op takes 300, with one of 100 within, and another one 250."""
    return [
        span("user_annotation", f"ProfilerStep#{number}", at, 1000),
        span("cpu_op", "aten::linear", at + 100, 300),
        span("cpu_op", "aten::addmm", at + 150, 100),
        span("cpu_op", "aten::relu", at + 500, 250),
        *extra,
    ]


TWO = [*step(3, 0), *step(4, 1000)]


def microseconds(path: Path, *what_ifs: str) -> float:
    return 1e6 * replay_traces([path], list(what_ifs)).last.outcome.iteration_time


@pytest.mark.parametrize(
    ("what_if", "expected"),
    [
        ("compute: 2x faster", 1000 - 275),
        ("compute: 2x slower", 1000 + 550),
        ("host: 2x faster", 1000 - 225),
        ("kernel aten::linear: none", 1000 - 300),
        ("compute: none", 450),
    ],
)
def test_what_ifs_of_ops(what_if: str, expected: float, tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    assert microseconds(path, what_if) == pytest.approx(expected, abs=1e-3)


def test_the_parts_of_an_iteration(tmp_path: Path) -> None:
    summary = summary_of(written(tmp_path, TWO))
    assert summary.replayed is not None
    times = summary.replayed.breakdown["0"]
    assert times["compute"] == pytest.approx(550e-6, abs=1e-9)
    assert times["host"] == pytest.approx(450e-6, abs=1e-9)
    assert summary.replayed.bottleneck == "Computation: it takes 55% of the time."
    assert "ops of the host are taken for the computing" in str(summary.notes)


def test_a_host_that_mostly_waits_between_its_ops(tmp_path: Path) -> None:
    events = [
        span("user_annotation", "ProfilerStep#0", 0, 1000),
        span("cpu_op", "aten::mm", 0, 200),
    ]
    summary = summary_of(written(tmp_path, events))
    assert summary.replayed is not None
    expected = "The host between ops: for 80% of the time no op runs."
    assert summary.replayed.bottleneck == expected


def test_a_kernel_that_does_not_say_its_device_is_of_one(tmp_path: Path) -> None:
    kernel = span("kernel", "gemm", 200, 300) | {"tid": 7, "pid": 0, "args": {"stream": 7}}
    summary = summary_of(written(tmp_path, [*TWO, kernel]))
    assert summary.replayed is not None
    assert summary.replayed.breakdown["0"]["compute"] == pytest.approx(150e-6, abs=1e-9)
    assert "no span of a device" not in str(summary.notes)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_ops_are_played_as_they_ran(data: Any, tmp_path: Path) -> None:
    """Each op is faster by half of its time, whatever is around it."""
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90)), min_size=1))
    events, at = [], 0
    for gap, length in lengths:
        at += gap
        events.append(span("cpu_op", "aten::mm", at, length))
        at += length
    events.insert(0, span("user_annotation", "ProfilerStep#0", 0, at + 10))
    path = written(tmp_path, events)
    assert microseconds(path) == pytest.approx(at + 10, abs=1e-3)
    work = sum(length for _, length in lengths)
    if work:
        faster = microseconds(path, "compute: 2x faster")
        assert faster == pytest.approx(at + 10 - work / 2, abs=1e-3)

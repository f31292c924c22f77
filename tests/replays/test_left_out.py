"""Steps and spans that cannot be used: the others come to what they are, and what is left out is
said.

A step of these traces is 1000 us of the host, which launches a kernel of 300 us and one of 250 us:
550 us of computing, whatever other steps look like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.replays import parts as traced_parts
from paracosm.replays import replay_traces, summarise_replays
from paracosm.results import ReplaySummary

Event = dict[str, Any]
LENGTH = 1000  # us, of a step

COMPUTE, HOST = 550e-6, 450e-6


def step(number: int, *, origin: float = 1e6, first: int = 3) -> list[Event]:
    """The mark of a step; two ops, their calls and kernels; and a call that waits for these."""
    at = origin + LENGTH * (number - first)

    def on_host(category: str, name: str, begin: float, duration: float, **more: Any) -> Event:
        lane = {"pid": 10, "tid": 1, "ts": at + begin, "dur": duration, "args": more}
        return {"ph": "X", "cat": category, "name": name, **lane}

    def on_device(name: str, begin: float, duration: float, correlation: int) -> Event:
        lane = {"pid": 0, "tid": 7, "ts": at + begin, "dur": duration}
        arguments = {"correlation": correlation, "stream": 7, "device": 0}
        return {"ph": "X", "cat": "kernel", "name": name, **lane, "args": arguments}

    one, two = 2 * number, 2 * number + 1
    return [
        on_host("user_annotation", f"ProfilerStep#{number}", 0, LENGTH),
        on_host("cpu_op", "aten::mm", 10, 40),
        on_host("cuda_runtime", "cudaLaunchKernel", 20, 10, correlation=one),
        on_device("gemm", 40, 300, one),
        on_host("cpu_op", "aten::add", 100, 40),
        on_host("cuda_runtime", "cudaLaunchKernel", 110, 10, correlation=two),
        on_device("add", 400, 250, two),
        on_host("cuda_runtime", "cudaDeviceSynchronize", 800, 190),
    ]


def kernels(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["cat"] == "kernel"]


def written(folder: Path, events: Sequence[Event], rank: int = 0, ranks: int = 1) -> Path:
    path = folder / f"rank{rank}.json"
    header = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": ranks}}
    path.write_text(json.dumps({**header, "traceEvents": list(events)}))
    return path


def summary_of(*paths: Path, **options: Any) -> ReplaySummary:
    return summarise_replays(replay_traces(paths, **options))


def check(summary: ReplaySummary, steps: list[int], left_out: Sequence[int]) -> None:
    assert summary.replayed is not None
    assert summary.steps_left_out is not None
    assert list(summary.steps) == steps
    assert summary.steps_left_out.keys() == set(map(str, left_out))
    for times in summary.replayed.breakdown.values():
        assert times["compute"] == pytest.approx(COMPUTE, abs=1e-9)
        assert times["host"] == pytest.approx(HOST, abs=1e-9)
    assert summary.iteration_time == pytest.approx(1e-3, abs=1e-9)


def no_clock(events: list[Event]) -> None:
    for event in kernels(events):
        event.update(ts=0, dur=0)


def one_without_clock(events: list[Event]) -> None:
    kernels(events)[1].update(ts=0, dur=0)


def negative(events: list[Event]) -> None:
    kernels(events)[0]["dur"] = -300


def no_number(events: list[Event]) -> None:
    kernels(events)[0]["ts"] = float("nan")


def infinite(events: list[Event]) -> None:
    kernels(events)[1]["dur"] = float("inf")


def huge(events: list[Event]) -> None:
    kernels(events)[1]["ts"] = 1.8e19


def far(events: list[Event]) -> None:
    kernels(events)[0]["ts"] += 1e13


def text(events: list[Event]) -> None:
    kernels(events)[0]["ts"] = "unknown"


def without_time(events: list[Event]) -> None:
    del kernels(events)[0]["ts"], kernels(events)[0]["dur"]


def dropped(events: list[Event]) -> None:
    for event in kernels(events):
        events.remove(event)


def one_dropped(events: list[Event]) -> None:
    events.remove(kernels(events)[0])


def without_end(events: list[Event]) -> None:
    del events[0]["dur"]


def empty(events: list[Event]) -> None:
    events[1:] = []


DAMAGES = [
    *(no_clock, one_without_clock, negative, no_number, infinite, huge, far, text, without_time),
    *(dropped, one_dropped, without_end, empty),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("bad", [3, 4, 5])
@pytest.mark.parametrize("origin", [0.0, 1e6, 1.7e15])
def test_a_damaged_step_leaves_the_others_as_they_are(
    damage: Callable[[list[Event]], None], bad: int, origin: float, tmp_path: Path
) -> None:
    steps = {number: step(number, origin=origin) for number in (3, 4, 5)}
    damage(steps[bad])
    path = written(tmp_path, [event for events in steps.values() for event in events])
    check(summary_of(path), [number for number in steps if number != bad], [bad])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), count=st.integers(2, 7))
def test_any_steps_may_be_damaged(data: st.DataObject, count: int, tmp_path: Path) -> None:
    numbers = list(range(3, 3 + count))
    bad = data.draw(st.lists(st.sampled_from(numbers), unique=True, max_size=count - 1))
    events = []
    for number in numbers:
        own = step(number)
        if number in bad:
            data.draw(st.sampled_from(DAMAGES))(own)
        events += own
    path = written(tmp_path, data.draw(st.permutations(events)))
    check(summary_of(path), [number for number in numbers if number not in bad], bad)


@pytest.mark.parametrize("damage", [no_clock, dropped, empty])
def test_a_damaged_step_of_a_large_trace_is_left_out_too(
    damage: Callable[[list[Event]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced_parts, "LARGE", 10)
    monkeypatch.setattr(traced_parts, "BLOCK", 16)  # two steps in a part
    events = []
    for number in range(3, 10):
        own = step(number)
        if number in (5, 8):
            damage(own)
        events += own
    check(summary_of(written(tmp_path, events)), [3, 4, 6, 7, 9], [5, 8])


def test_ranks_whose_steps_differ_are_played_in_those_that_all_have(tmp_path: Path) -> None:
    ranks = [(3, 4, 5, 6), (4, 5, 7), (4, 6, 7)]
    paths = [
        written(tmp_path, [event for number in steps for event in step(number)], rank, 3)
        for rank, steps in enumerate(ranks)
    ]
    summary = summary_of(*paths)
    check(summary, [4], [3, 5, 6, 7])
    assert summary.steps_left_out is not None
    assert summary.steps_left_out["5"] == "rank 2: its trace has no such step"
    assert summary.steps_left_out["3"] == (
        "rank 1: its trace has no such step; rank 2: its trace has no such step"
    )


def test_a_step_that_is_damaged_on_one_rank_is_left_out_on_all(tmp_path: Path) -> None:
    steps = {number: step(number) for number in (3, 4, 5)}
    whole = [event for events in steps.values() for event in events]
    damaged = {number: step(number) for number in (3, 4, 5)}
    one_dropped(damaged[4])
    other = [event for events in damaged.values() for event in events]
    summary = summary_of(written(tmp_path, whole, 0, 2), written(tmp_path, other, 1, 2))
    check(summary, [3, 5], [4])
    assert summary.steps_left_out == {"4": "rank 1: 1 of 2 launches lacks its kernel"}


def test_a_step_that_is_marked_twice_counts_once(tmp_path: Path) -> None:
    events = [*step(3), *step(4), *step(5)]
    events[8]["name"] = "ProfilerStep#3"  # what was step 4
    summary = summary_of(written(tmp_path, events))
    check(summary, [3, 5], [])
    assert summary.notes is not None
    said = "; ".join(next(iter(summary.notes.values())))
    assert "step 3 is marked again later, which is left out" in said


def test_steps_that_jump_are_not_taken_for_neighbours(tmp_path: Path) -> None:
    # Step 4 lies between them, without a mark: its 1000 us belong to neither.
    events = [*step(3), *step(4)[1:], *step(5)]
    summary = summary_of(written(tmp_path, events))
    check(summary, [3, 5], [])
    assert summary.notes is not None
    assert "2 spans of the device left out that no step launched" in str(summary.notes)


def test_kernels_outside_of_all_steps_are_counted(tmp_path: Path) -> None:
    events = [*step(2)[1:], *step(3), *step(4), *step(5)[1:]]
    summary = summary_of(written(tmp_path, events))
    check(summary, [3, 4], [])
    assert "4 spans of the device left out that no step launched" in str(summary.notes)


def test_spans_that_do_not_say_their_launch_are_played_where_they_ran(tmp_path: Path) -> None:
    events = [*step(3), *step(4), *step(5)]
    for event in kernels(events):
        del event["args"]["correlation"]
    summary = summary_of(written(tmp_path, events))
    check(summary, [3, 4, 5], [])
    assert "6 spans of the device without the call that launched them" in str(summary.notes)


def test_where_no_step_is_whole_all_count_and_this_is_said(tmp_path: Path) -> None:
    events = []
    for number in (3, 4):
        own = step(number)
        one_dropped(own)
        events += own
    summary = summary_of(written(tmp_path, events))
    assert list(summary.steps) == [3, 4]
    assert summary.all_faulty
    assert summary.replayed is not None
    assert summary.replayed.breakdown["0"]["compute"] == pytest.approx(250e-6, abs=1e-9)
    assert summary.steps_left_out == dict.fromkeys("34", "1 of 2 launches lacks its kernel")


def test_a_device_without_any_time_is_refused(tmp_path: Path) -> None:
    events = [*step(3), *step(4)]
    no_clock(events)
    with pytest.raises(InputError, match="none of its 4 spans of the device has a time"):
        summary_of(written(tmp_path, events))


def test_steps_that_are_asked_for_are_left_out_as_well(tmp_path: Path) -> None:
    steps = {number: step(number) for number in (3, 4, 5)}
    no_clock(steps[4])
    path = written(tmp_path, [event for events in steps.values() for event in events])
    check(summary_of(path, steps=[4, 5]), [5], [4])


def test_the_command_and_the_report_say_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paracosm.cli import main

    steps = {number: step(number) for number in (3, 4, 5)}
    no_clock(steps[5])
    path = written(tmp_path, [event for events in steps.values() for event in events])
    assert main(["replay", str(path), "--out", str(tmp_path / "run")]) == 0
    said = "1 of 3 steps: step 5: 2 of 2 launches have a kernel without a time"
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "run" / "report.html").read_text()


def test_the_graph_of_a_trace_is_of_a_whole_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paracosm.cli import main

    steps = {number: step(number) for number in (3, 4, 5)}
    no_clock(steps[4])  # which would be the median
    path = written(tmp_path, [event for events in steps.values() for event in events])
    assert main(["graph", "import", str(path), "--out", str(tmp_path / "x.graph")]) == 0
    said = capsys.readouterr().out
    assert "2 nodes, step 5 of 3, 4, 5, step 4: 2 of 2 launches have a kernel without" in said


def test_a_trace_that_is_given_twice(tmp_path: Path) -> None:
    path = written(tmp_path, [])
    with pytest.raises(InputError, match="is given twice: give one trace of each rank"):
        replay_traces([path, path])

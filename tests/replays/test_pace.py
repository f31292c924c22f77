"""The time of an iteration where the device is behind its host: by hand, and as laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import Event, all_reduce, host, kernel, launch, step, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.replays import parts as traced_parts
from paracosm.replays.job import read_job
from paracosm.replays.outcome import Outcome, intervals_of, outcome_of, replayed
from paracosm.replays.outcome import traced_times as as_traced
from paracosm.replays.run import changed, replay_traces
from paracosm.replays.traced import WORK, TracedJob
from paracosm.timeline.analysis import covered

SETTINGS: Any = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}
KERNELS = 10  # of a step


def behind(steps: int, took: float = 149, every: float = 100, stream: int = 7) -> list[Event]:
    """Steps of ten kernels of 149 us, 1 us apart, which the host launches every 100 us.

    The first kernel begins at 50 us, within its call; all others follow each other.
    """
    events = []
    for number in range(steps):
        begin = KERNELS * every * number
        events.append(step(3 + number, begin, begin + KERNELS * every))
        for place in range(KERNELS):
            which = KERNELS * number + place
            call = begin + every * place + 10
            at = 50 + (took + 1) * which
            events += [
                launch(which, call, call + 80),
                kernel(which, at, at + took, f"gemm{place}", stream),
            ]
    return events


def microseconds(traced: TracedJob, *what_ifs: str) -> float:
    return 1e6 * under(traced, *what_ifs).iteration_time


def under(traced: TracedJob, *what_ifs: str) -> Outcome:
    played = replayed(changed(traced, [parse_change(text) for text in what_ifs]))
    return outcome_of(traced, played, replayed(traced.job))


def test_an_iteration_is_as_long_as_the_device_takes(tmp_path: Path) -> None:
    """Five steps: the kernels begin at 50 us and end at 50 + 49 x 150 + 149 us."""
    traced = read_job([write(tmp_path, behind(5))])
    expected = (49 * 150 + 149) / 5
    measured = outcome_of(traced, as_traced(traced))
    assert 1e6 * measured.iteration_time == pytest.approx(expected)
    assert microseconds(traced) == pytest.approx(expected)
    assert 1e6 * measured.breakdowns[0].compute == pytest.approx(10 * 149)
    assert measured.breakdowns[0].total == pytest.approx(measured.iteration_time)
    # All kernels are launched earlier, the first one as well.
    assert microseconds(traced, "host: 2x faster") == pytest.approx(expected)
    # The host's pace: the last kernel begins 1 us after the end of its call, at 4,990 us.
    assert microseconds(traced, "compute: 2x faster") == pytest.approx((4991 + 74.5 - 50) / 5)
    assert microseconds(traced, "compute: 2x slower") == pytest.approx((49 * 299 + 298) / 5)


def test_one_step_of_a_device_that_is_behind(tmp_path: Path) -> None:
    traced = read_job([write(tmp_path, behind(1))])
    assert microseconds(traced) == pytest.approx(9 * 150 + 149)
    # Some of its kernels run in the next step.
    traced = read_job([write(tmp_path, behind(5))], steps=[5])
    assert microseconds(traced) == pytest.approx(10 * 150)
    # It is behind by 500 us for each step, and is not faster than its host where it is not.
    assert microseconds(traced, "compute: 1.25x faster") == pytest.approx(10 * (149 / 1.25 + 1))
    assert microseconds(traced, "compute: 2x faster") == pytest.approx(1000)
    assert microseconds(traced, "host: 2x faster") == pytest.approx(10 * 150)


def test_a_device_that_is_behind_by_several_steps(tmp_path: Path) -> None:
    """Kernels of 449 us: when the last of six steps begins, the device is in the second."""
    traced = read_job([write(tmp_path, behind(6, took=449))], steps=[8])
    assert microseconds(traced) == pytest.approx(10 * 450)
    assert microseconds(traced, "compute: 2x faster") == pytest.approx(10 * 225.5)


def test_what_ran_before_the_profile_began_is_of_no_step(tmp_path: Path) -> None:
    """Of the first of three steps the profiler has seen the kernels, and no call or mark."""
    events = [
        event
        for event in behind(3)
        if event["cat"] == "kernel" or (event["ts"] >= 1000 and event["name"] != "ProfilerStep#3")
    ]
    traced = read_job([write(tmp_path, events)])
    # The last of the kernels before ends at 50 + 9 x 150 + 149 us, the last one at 50 + 29 x 150
    # + 149 us.
    assert microseconds(traced) == pytest.approx(20 * 150 / 2)


def test_a_trace_without_calls_is_divided_by_time(tmp_path: Path) -> None:
    events = [event for event in behind(3) if event["cat"] != "cuda_runtime"]
    traced = read_job([write(tmp_path, events)])
    # Of the kernels, 20 begin before 3,000 us, the end of the last step: at 50 us + 150 us k.
    compute = rows_of(traced, "compute")
    assert np.bincount(traced.ranks[0].iteration[compute]).tolist() == [7, 6, 7]
    assert microseconds(traced) == pytest.approx(1000)


def on_device(steps: int, streams: tuple[int, ...] = (7,)) -> list[Event]:
    """The steps of `behind`, marked on the streams alone, and the wait for their end."""
    events = [event for event in behind(steps) if event["cat"] != "user_annotation"]
    for number in range(steps):
        begin = 50 + 150 * KERNELS * number
        for stream in streams:
            name = f"ProfilerStep#{3 + number}"
            mark = kernel(0, begin, begin + 150 * KERNELS - 1, name, stream)
            events.append({**mark, "cat": "gpu_user_annotation", "args": {"External id": 1}})
    done = 49 + 150 * KERNELS * steps
    wait = host("cuda_runtime", "cudaDeviceSynchronize", 1000 * steps, done + 1, correlation=-1)
    return [*events, wait]


@pytest.mark.parametrize("streams", [(7,), (7, 20)])
def test_steps_that_are_marked_on_the_device_alone(
    streams: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(tmp_path, on_device(5, streams))
    traced = read_job([path])
    assert traced.steps == (3, 4, 5, 6, 7)
    assert microseconds(traced) == pytest.approx((49 * 150 + 149) / 5)
    # The last kernel begins 1 us after the end of its call, and the host waits for it.
    assert microseconds(traced, "compute: 2x faster") == pytest.approx((4991 + 74.5 - 50) / 5)
    assert microseconds(read_job([path], steps=[5])) == pytest.approx(9 * 150 + 149)
    replays = replay_traces([path])
    assert 1e6 * replays.unchanged.outcome.iteration_time == pytest.approx(7499 / 5)


def test_marks_on_the_host_come_before_those_on_the_device(tmp_path: Path) -> None:
    marks = [event for event in on_device(4) if event["cat"] == "gpu_user_annotation"]
    traced = read_job([write(tmp_path, [*behind(4, took=49), *marks])])
    assert microseconds(traced) == pytest.approx(1000)


def test_a_device_that_keeps_up_has_the_steps_of_its_host(tmp_path: Path) -> None:
    traced = read_job([write(tmp_path, behind(4, took=49))])
    assert microseconds(traced) == pytest.approx(1000)
    assert microseconds(traced, "host: 1.25x faster") == pytest.approx(800)


def test_the_slowest_device_of_several_ranks(tmp_path: Path) -> None:
    """Both meet at the end of each step, on a stream that runs beside the kernels.

    Rank 1 has 10 kernels of 149 us a step, rank 0 of 89 us.
    """
    paths = []
    for rank, took in enumerate((89, 149)):
        events = behind(3, took=took)
        for number in range(3):
            last = 50 + 150 * (KERNELS * number + 9) + 149
            call = KERNELS * 100 * number + 995
            begin = last if rank else max(50 + 90 * (KERNELS * number + 9) + 89, call + 4)
            events += [
                launch(900 + number, call, call + 4),
                all_reduce(900 + number, begin, last + 100),
            ]
        paths.append(write(tmp_path, events, rank, 2))
    traced = read_job(paths)
    assert microseconds(traced) == pytest.approx((29 * 150 + 149 + 100) / 3)
    faster = microseconds(traced, "worker 1: compute 1.2x faster")
    # The second kernel is launched at 190 us; from there they follow each other.
    assert faster == pytest.approx((190 + 29 * (1 + 149 / 1.2) + 100 - 50) / 3)
    # Whatever one host does earlier, the iteration is not longer.
    assert microseconds(traced, "worker 0: host 10x faster") <= microseconds(traced) + 1e-6


def test_parts_of_a_large_trace_have_the_pace_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, behind(8))
    whole = replay_traces([path], ["host: 2x faster", "compute: 1.25x faster"])
    monkeypatch.setattr(traced_parts, "LARGE", 10)
    monkeypatch.setattr(traced_parts, "BLOCK", 60)
    parts = replay_traces([path], ["host: 2x faster", "compute: 1.25x faster"])
    assert parts.parts > 1
    for one, other in zip(
        (whole.unchanged, *whole.scenarios), (parts.unchanged, *parts.scenarios), strict=True
    ):
        assert other.outcome.iteration_time == pytest.approx(one.outcome.iteration_time, rel=2e-3)


@st.composite
def loops(draw: st.DrawFn) -> tuple[list[Event], int]:
    """A loop of some steps that launches to two streams, and sometimes waits for the device."""
    steps = draw(st.integers(1, 4))
    now, number = 0, 0
    free = {7: 0, 20: 0}
    events: list[Event] = []
    for at in range(steps):
        began = now
        for _ in range(draw(st.integers(0, 5))):
            now += draw(st.integers(0, 10))
            took, delay = draw(st.integers(0, 60)), draw(st.integers(0, 5))
            stream = draw(st.sampled_from(sorted(free)))
            begin = max(free[stream], now + 2) + delay
            name = draw(st.sampled_from(["gemm", "add"]))
            events += [
                launch(number, now, now + 2),
                kernel(number, begin, begin + took, name, stream),
            ]
            free[stream], now, number = begin + took, now + 2, number + 1
            if draw(st.integers(0, 4)) == 0:
                back = max(now, *free.values()) + 1
                wait = host("cuda_runtime", "cudaDeviceSynchronize", now, back, correlation=-1)
                events.append(wait)
                now = back
        now += draw(st.integers(1, 20))
        events.append(step(at, began, now))
    return events, steps


FASTER = st.tuples(
    st.sampled_from(["compute", "host", "kernel gemm", "kernel add"]),
    st.sampled_from([1.5, 2.0, 10.0]),
)


def rows_of(traced: TracedJob, what: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    (rank,), (program,) = traced.ranks, traced.job.programs
    if what == "host":
        return rank.work == WORK.index("host")
    compute = rank.work == WORK.index("compute")
    names = np.array(traced.job.names)[program.name]
    return compute & (names == what.removeprefix("kernel ")) if " " in what else compute


@settings(max_examples=200, **SETTINGS)
@given(loop=loops(), change=FASTER)
def test_laws_of_a_whole_trace(
    loop: tuple[list[Event], int], change: tuple[str, float], tmp_path: Path
) -> None:
    """No iteration is shorter than a resource is busy, and no change gains more than its share."""
    events, steps = loop
    traced = read_job([write(tmp_path, events)])
    (what, factor) = change
    before = under(traced)
    measured = outcome_of(traced, as_traced(traced))
    assert before.iteration_time == pytest.approx(measured.iteration_time, abs=1e-9)
    marks = [event for event in events if event["cat"] == "user_annotation"]
    loop_time = max(event["ts"] + event["dur"] for event in marks)
    assert 1e6 * before.iteration_time * steps >= loop_time - 1e-3
    rows = rows_of(traced, what)
    if not rows.any():
        return
    job_after = changed(traced, [parse_change(f"{what}: {factor}x faster")])
    unchanged = replayed(traced.job)
    after = outcome_of(traced, replayed(job_after), unchanged)
    for stream in (7, 20):
        work = sum(
            event["dur"] / (factor if what in ("compute", f"kernel {event['name']}") else 1)
            for event in events
            if event["cat"] == "kernel" and event["tid"] == stream
        )
        assert 1e6 * after.iteration_time * steps >= work - 1e-3
    assert after.iteration_time <= before.iteration_time + 1e-9
    ((first, last),) = intervals_of(traced, unchanged, unchanged)
    busy = covered(
        unchanged.begin[0][rows].clip(first, last), unchanged.end[0][rows].clip(first, last)
    )
    gained = (before.iteration_time - after.iteration_time) * steps
    assert gained <= busy * (1 - 1 / factor) + 1e-9


@settings(max_examples=200, **SETTINGS)
@given(loop=loops(), change=FASTER, data=st.data())
def test_laws_of_some_steps(
    loop: tuple[list[Event], int],
    change: tuple[str, float],
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """What the device is behind at the first of them makes none of them shorter or longer."""
    events, steps = loop
    first = data.draw(st.integers(0, steps - 1))
    traced = read_job([write(tmp_path, events)], steps=range(first, steps))
    (what, factor) = change
    before = under(traced)
    if not rows_of(traced, what).any():
        return
    after = under(traced, f"{what}: {factor}x faster")
    assert after.iteration_time <= before.iteration_time + 1e-9
    (begin,) = (event["ts"] for event in events if event["name"] == f"ProfilerStep#{first}")
    launched = {
        event["args"]["correlation"]
        for event in events
        if event["name"] == "cudaLaunchKernel" and event["ts"] >= begin
    }
    for stream in (7, 20):
        work = sum(
            event["dur"] / (factor if what in ("compute", f"kernel {event['name']}") else 1)
            for event in events
            if event["cat"] == "kernel"
            and event["tid"] == stream
            and event["args"]["correlation"] in launched
        )
        assert 1e6 * after.iteration_time * (steps - first) >= work - 1e-3


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[list[Event]], int]:
    """Two ranks, each with kernels on a stream of its own pace, that meet in every step."""
    steps = draw(st.integers(1, 4))
    now, free = [0, 0], [{7: 0, 20: 0}, {7: 0, 20: 0}]
    events: list[list[Event]] = [[], []]
    number = 0
    for at in range(steps):
        began, arrive = list(now), [0, 0]
        for rank in range(2):
            for _ in range(draw(st.integers(0, 3))):
                now[rank] += draw(st.integers(0, 10))
                begin = max(free[rank][7], now[rank] + 2)
                end = begin + draw(st.integers(0, 60))
                events[rank] += [
                    launch(number, now[rank], now[rank] + 2),
                    kernel(number, begin, end, "gemm"),
                ]
                free[rank][7], now[rank], number = end, now[rank] + 2, number + 1
            now[rank] += draw(st.integers(0, 10))
            arrive[rank] = max(free[rank][20], now[rank] + 2)
        done = max(arrive) + draw(st.integers(1, 40))
        for rank in range(2):
            events[rank] += [
                launch(number, now[rank], now[rank] + 2),
                all_reduce(number, arrive[rank], done),
            ]
            free[rank][20], now[rank], number = done, now[rank] + 2, number + 1
            if draw(st.integers(0, 3)) == 0:
                back = max(now[rank], *free[rank].values()) + 1
                wait = host(
                    "cuda_runtime", "cudaDeviceSynchronize", now[rank], back, correlation=-1
                )
                events[rank].append(wait)
                now[rank] = back
            now[rank] += draw(st.integers(1, 20))
            events[rank].append(step(at, began[rank], now[rank]))
    return events, steps


@settings(max_examples=150, **SETTINGS)
@given(
    pair=pairs(),
    what=st.sampled_from(
        [
            *("compute", "host", "worker 0: compute", "worker 1: compute", "worker 0: host"),
            *("worker 1: host", "all_reduce"),
        ]
    ),
    factor=st.sampled_from([1.5, 2.0, 10.0]),
    first=st.integers(0, 3),
)
def test_laws_of_ranks_that_meet(
    pair: tuple[list[list[Event]], int], what: str, factor: float, first: int, tmp_path: Path
) -> None:
    """Whatever is faster on whichever rank makes no iteration longer, nor shorter than its work."""
    events, steps = pair
    first = min(first, steps - 1)
    paths = [write(tmp_path, own, rank, 2) for rank, own in enumerate(events)]
    traced = read_job(paths, steps=range(first, steps))
    kernels = [
        (rank, event)
        for rank, own in enumerate(events)
        for event in own
        if event["cat"] == "kernel" and event["name"] == "gemm"
    ]
    before = under(traced)
    colon = "" if what.startswith("worker") else ":"
    try:
        after = under(traced, f"{what}{colon} {factor}x faster")
    except InputError:  # nothing of it is in these steps
        return
    assert after.iteration_time <= before.iteration_time + 1e-9
    for rank, own in enumerate(events):
        (begin,) = (event["ts"] for event in own if event["name"] == f"ProfilerStep#{first}")
        launched = {
            event["args"]["correlation"]
            for event in own
            if event["name"] == "cudaLaunchKernel" and event["ts"] >= begin
        }
        faster = factor if what in ("compute", f"worker {rank}: compute") else 1
        work = sum(
            event["dur"] / faster
            for owner, event in kernels
            if owner == rank and event["args"]["correlation"] in launched
        )
        assert 1e6 * after.iteration_time * (steps - first) >= work - 1e-3

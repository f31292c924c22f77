"""One rank's trace played again: by hand, on real traces, and on traces that a model made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import BACKWARD, MAIN, Event, all_reduce, host, kernel, launch, step, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.replays.job import job_of_traces, read_job
from paracosm.replays.outcome import Outcome, Times, outcome_of, replayed, traced_times
from paracosm.replays.run import changed, replay_traces
from paracosm.replays.traced import WORK, TracedJob
from paracosm.timeline.kineto import read_kineto
from paracosm.timeline.kineto.trace import window_of

DATA = Path(__file__).parents[1] / "data" / "kineto"
# Files are written anew for each example.
SETTINGS: Any = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}

# Kernel A is launched onto an idle stream, B behind it; C, on another stream, waits for B; the host
# waits for C and then works for 35 us.
TWO_STREAMS: list[Event] = [
    *(step(0, 0, 100), launch(1, 10, 15), kernel(1, 20, 40, "A")),
    *(launch(2, 15, 20), kernel(2, 41, 50, "B")),
    host("cuda_runtime", "cudaStreamWaitEvent", 20, 21, correlation=9),
    *(launch(3, 21, 25), kernel(3, 52, 60, "C", stream=20)),
    host("cuda_runtime", "cudaStreamSynchronize", 30, 65, correlation=10),
]


def under(traced: TracedJob, *what_ifs: str) -> tuple[Outcome, Times]:
    times = replayed(changed(traced, [parse_change(text) for text in what_ifs]))
    return outcome_of(traced, times), times


def microseconds(traced: TracedJob, *what_ifs: str) -> float:
    return 1e6 * under(traced, *what_ifs)[0].iteration_time


def rows_named(traced: TracedJob, name: str, rank: int = 0) -> list[int]:
    code = traced.job.names.index(name)
    return np.flatnonzero(traced.job.programs[rank].name == code).tolist()


@pytest.mark.parametrize(
    ("what_ifs", "expected"),
    [
        ([], 100),
        # A 20-30, B 31-35.5, C 37.5-41.5, the host from 46.5 on.
        (["compute: 2x faster"], 81.5),
        (["kernel A: 2x faster"], 90),
        (["kernel c: 2x slower"], 108),
        # The host synchronises at 30 us, when all is done.
        (["kernel *: none"], 30 + 5 + 35),
        # The latency of the launch (5), A, gap (1), B, gap (2), C.
        (["host: none"], 5 + 20 + 1 + 9 + 2 + 8),
        # Calls end at 5, 7.5, 10 and 12.5 us; A runs from 12.5; then as above, 2.5 and 17.5 us.
        (["host: 2x faster"], 12.5 + 20 + 1 + 9 + 2 + 8 + 2.5 + 17.5),
        (
            ["worker 0: host 2x faster", "compute: 2x faster"],
            12.5 + 10 + 1 + 4.5 + 2 + 4 + 2.5 + 17.5,
        ),
    ],
)
def test_two_streams_and_a_host_that_waits(
    what_ifs: list[str], expected: float, tmp_path: Path
) -> None:
    traced = read_job([write(tmp_path, TWO_STREAMS)])
    assert microseconds(traced, *what_ifs) == pytest.approx(expected, abs=1e-5)


def test_the_parts_of_an_iteration_add_up(tmp_path: Path) -> None:
    traced = read_job([write(tmp_path, TWO_STREAMS)])
    part = outcome_of(traced, traced_times(traced)).breakdowns[0]
    assert 1e6 * part.compute == pytest.approx(20 + 9 + 8)
    assert 1e6 * part.host == pytest.approx(100 - 37)
    assert (part.exposed_communication, part.waiting, part.data_loading) == (0, 0, 0)
    assert part.total == pytest.approx(100e-6)


def test_an_event_that_was_recorded_between_streams_is_waited_for(tmp_path: Path) -> None:
    """The trace says that stream 20 waits for what was on stream 7 when event 8 was recorded: A."""
    wait = {
        "cuda_sync_kind": "Stream Wait Event",
        "wait_on_stream": 7,
        "wait_on_cuda_event_record_corr_id": 8,
    }
    events = [
        *(launch(1, 0, 5), kernel(1, 10, 30, "A")),
        host("cuda_runtime", "cudaEventRecord", 5, 6, correlation=8),
        *(launch(2, 6, 10), kernel(2, 31, 60, "B")),
        host("cuda_runtime", "cudaStreamWaitEvent", 10, 11, correlation=9),
        {
            **kernel(9, 11, 12, "Stream Wait Event", 20, **wait),
            "cat": "cuda_sync",
        },
        *(launch(3, 12, 15), kernel(3, 32, 40, "C", stream=20)),
    ]
    traced = read_job([write(tmp_path, events)])
    _, times = under(traced, "kernel A: 2x faster")
    (row,) = rows_named(traced, "C")
    assert 1e6 * times.begin[0][row] == pytest.approx(20 + 2)  # and not after B


def test_what_takes_no_time_at_the_end_of_a_trace_is_played_too(tmp_path: Path) -> None:
    events = [launch(1, 0, 0), kernel(1, 0, 0), launch(2, 3, 3), kernel(2, 3, 3)]
    assert microseconds(read_job([write(tmp_path, events)])) == pytest.approx(3)
    with pytest.raises(InputError, match=r"rank0.json: everything in the trace takes no time$"):
        replay_traces([write(tmp_path, events[:2])])


def test_the_loop_waits_for_the_backward_pass(tmp_path: Path) -> None:
    """Autograd's thread runs from 20 to 50, between an op of the loop and the next one at 60."""
    events = [
        *(step(1, 0, 100), host("cpu_op", "aten::mm", 5, 15)),
        host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 20, 50, BACKWARD),
        *(launch(1, 30, 35, BACKWARD), kernel(1, 40, 45)),
        host("cpu_op", "aten::add_", 60, 70),
    ]
    traced = read_job([write(tmp_path, events)])
    assert microseconds(traced) == pytest.approx(100)
    # 20 us to the hand-over, 30 us of backward pass, 50 us from there: all twice as fast.
    assert microseconds(traced, "host: 2x faster") == pytest.approx(50)
    work = traced.job.lanes.index(f"thread {BACKWARD}")
    program = traced.job.programs[0]
    assert 1e6 * program.duration[program.lane == work].sum() == pytest.approx(30)


def test_data_loading_is_told_from_other_work(tmp_path: Path) -> None:
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        *(step(1, 0, 100), host("user_annotation", loading, 10, 60)),
        *(host("cpu_op", "aten::stack", 20, 50), launch(1, 70, 75), kernel(1, 80, 90)),
    ]
    traced = read_job([write(tmp_path, events)])
    part = under(traced)[0].breakdowns[0]
    assert 1e6 * part.data_loading == pytest.approx(50)
    assert microseconds(traced, "data loading: none") == pytest.approx(50)
    assert microseconds(traced, "data loading: 2x faster") == pytest.approx(75)
    assert microseconds(traced, "host: 2x faster") == pytest.approx(75)


def test_a_copy_to_pageable_memory_keeps_the_host(tmp_path: Path) -> None:
    copy = {**kernel(2, 31, 40, "Memcpy DtoH (Device -> Pageable)"), "cat": "gpu_memcpy"}
    call = host("cuda_runtime", "cudaMemcpyAsync", 12, 42, correlation=2)
    events = [step(1, 0, 50), launch(1, 0, 5), kernel(1, 10, 30), call, copy]
    traced = read_job([write(tmp_path, events)])
    # The kernel 10 shorter: copy 21 to 30, the call until 32, 8 more of the host.
    assert microseconds(traced, "compute: 2x faster") == pytest.approx(40)
    assert microseconds(traced, "copies: 3x faster") == pytest.approx(50 - 6)


def test_a_blocking_copy_keeps_the_host(tmp_path: Path) -> None:
    """ROCm does not say that memory is pageable, and waits in the call instead."""
    copy = {**kernel(2, 31, 40, "Memcpy DtoH (Device -> Host)"), "cat": "gpu_memcpy"}
    call = host("hip_runtime", "hipMemcpyWithStream", 12, 42, correlation=2)
    events = [step(1, 0, 50), launch(1, 0, 5), kernel(1, 10, 30), call, copy]
    traced = read_job([write(tmp_path, events)])
    assert microseconds(traced) == pytest.approx(50)
    # As from pageable memory: the kernel 10 shorter, and all else after it.
    assert microseconds(traced, "compute: 2x faster") == pytest.approx(40)


@pytest.mark.parametrize("late", [0, 3, 12])
def test_clocks_of_host_and_device_that_differ(late: int, tmp_path: Path) -> None:
    """The device has ended by its clock when the call that has waited for it has returned."""
    events = [
        *(step(1, 0, 90), launch(1, 0, 5), kernel(1, 10, 50), launch(2, 5, 10)),
        *(kernel(2, 50, 60 + late), launch(3, 75, 80), kernel(3, 81, 85)),
        host("hip_runtime", "hipDeviceSynchronize", 12, 60, correlation=90),
    ]
    traced = read_job([write(tmp_path, events)])
    assert microseconds(traced) == pytest.approx(90)
    # Of the kernels, 50 us are before the end of the call.
    assert microseconds(traced, "compute: 2x faster") == pytest.approx(90 - 25)
    compute = traced.ranks[0].work == WORK.index("compute")
    assert 1e6 * traced.job.programs[0].duration[compute].sum() == pytest.approx(54 + late)
    # Other streams are not waited for, by calls that do not say for which one they wait.
    events[-1]["name"] = "hipStreamSynchronize"
    events += [launch(4, 10, 12), kernel(4, 14, 61, stream=20)]
    assert microseconds(read_job([write(tmp_path, events)])) == pytest.approx(90)


def test_a_full_queue_keeps_the_host(tmp_path: Path) -> None:
    """1,025 kernels of 10 us are launched in 1 us each: the driver takes 1,022 at a time."""
    kernels = range(1025)
    # Kernel k runs from 5 + 10 k us on. Call 1022 ends when kernel 0 does, and so on.
    events = [step(1, 0, 10_300)]
    for k in kernels:
        events += [launch(k, k, k + 1), kernel(k, 5 + 10 * k, 15 + 10 * k)]
    traced = read_job([write(tmp_path, events)])
    assert microseconds(traced) == pytest.approx(10_300)
    # Kernels a hundred times as slow: calls 1022 to 1024 wait for kernels 0 to 2.
    _, times = under(traced, "compute: 1000x slower")
    calls = rows_named(traced, "cudaLaunchKernel")
    begins = 1e6 * times.begin[0][calls]
    assert begins[1021] == pytest.approx(1021)
    assert begins[1022:] == pytest.approx([10_005, 20_005, 30_005])


def test_what_ran_before_the_window_is_there_and_is_not_waited_for(tmp_path: Path) -> None:
    events = [
        *(launch(1, 0, 5), kernel(1, 10, 130), step(1, 100, 200)),
        *(launch(2, 110, 115), kernel(2, 131, 150)),
    ]
    traced = read_job([write(tmp_path, events)], steps=[1])
    work = [WORK[code] for code in traced.ranks[0].work]
    assert work.count("compute") == 2
    assert microseconds(traced) == pytest.approx(100)
    (first, second) = rows_named(traced, "gemm")
    end = replayed(traced.job).end[0]
    assert 1e6 * end[[first, second]] == pytest.approx([30, 50])


@pytest.mark.parametrize(
    "file",
    [
        "event_sync.json.gz",
        "event_sync_streams.json.gz",
        pytest.param("resnet.json.gz", marks=pytest.mark.slow),
    ],
)
def test_real_traces_are_played_as_they_were(file: str) -> None:
    traced = read_job([DATA / file])
    times = replayed(traced.job)
    assert times.end[0] == pytest.approx(traced.ranks[0].end, abs=1e-9)
    assert times.begin[0] == pytest.approx(traced.ranks[0].begin, abs=1e-9)


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    """Return what a device with some streams and a host that launches and waits would do."""
    now = draw(st.integers(0, 20))
    free = dict.fromkeys((7, 20, 24), 0)
    events: list[Event] = []
    for number in range(draw(st.integers(1, 30))):
        stream = draw(st.sampled_from(sorted(free)))
        length, delay, took = draw(st.tuples(*[st.integers(0, 15)] * 3))
        end = now + length
        begin = max(free[stream], now + draw(st.integers(0, length))) + delay
        events += [launch(number, now, end), kernel(number, begin, begin + took, stream=stream)]
        free[stream] = begin + took
        now = end
        if draw(st.booleans()):
            waited = draw(st.sampled_from(sorted(free)))
            name = draw(st.sampled_from(["cudaStreamSynchronize", "cudaDeviceSynchronize"]))
            reached = max(free.values()) if "Device" in name else free[waited]
            back = max(now, reached) + draw(st.integers(0, 3))
            events.append(host("cuda_runtime", name, now, back, correlation=1000 + number))
            now = back
        if draw(st.booleans()):
            wait = host("cuda_runtime", "cudaStreamWaitEvent", now, now + 1, correlation=-1)
            events.append(wait)
            now += 1
        now += draw(st.integers(0, 10))
    return events


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=traces())
def test_whatever_ran_is_played_as_it_was(events: list[Event], tmp_path: Path) -> None:
    traced = read_job([write(tmp_path, events)])
    times = replayed(traced.job)
    assert times.end[0] == pytest.approx(traced.ranks[0].end, abs=1e-9)
    last = max((event["ts"] + event["dur"] for event in events), default=0)
    first = min(event["ts"] for event in events)
    assert times.end[0].max() == pytest.approx((last - first) * 1e-6, abs=1e-9)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=traces(), factor=st.sampled_from([1.5, 2, 10]))
def test_what_is_faster_never_takes_longer(
    events: list[Event], factor: float, tmp_path: Path
) -> None:
    traced = read_job([write(tmp_path, events)])
    before = replayed(traced.job).end[0]
    kernels = sum(event["dur"] for event in events if event["cat"] == "kernel")
    if kernels:
        after = under(traced, f"compute: {factor}x faster")[1].end[0]
        assert (after <= before + 1e-9).all()


def test_collectives_alone_are_as_long_as_they_were(tmp_path: Path) -> None:
    path = write(tmp_path, [step(1, 0, 50), launch(1, 0, 5), all_reduce(1, 10, 30)], 0, 2)
    with pytest.raises(InputError, match="there is no trace of rank 1: give one of every rank"):
        read_job([path])
    traced = read_job([path], alone=True)
    part = outcome_of(traced, replayed(traced.job)).breakdowns[0]
    assert 1e6 * part.exposed_communication == pytest.approx(20)


def test_steps_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_STREAMS)
    with pytest.raises(InputError, match=r"rank0.json: no step 7: it has 0 to 0$"):
        read_job([path], steps=[7])
    path = write(tmp_path, TWO_STREAMS[1:])
    with pytest.raises(InputError, match=r"no step 7: it has none$"):
        read_job([path], steps=[7])
    assert job_of_traces([read_kineto(path)]).steps == ()


def test_the_launches_of_the_step_before_fill_the_queue_of_the_next() -> None:
    """The host waits for the device all through step 102, for what step 101 has launched too.

    The mark of the step is 72.08 ms long. The device takes 95.7 ms for each of the steps that
    follow, says the rest of that trace.
    """
    traced = read_job([DATA / "resnet.json.gz"], steps=[102])
    before, after = microseconds(traced), microseconds(traced, "compute: 1.25x faster")
    assert before == pytest.approx(95_700, rel=1e-3)
    assert after < 0.83 * before


WORKS, OTHER_PROCESS = 5, 2  # a thread, and a process


def on_another_thread(process: int = 1, waits: int = WORKS) -> list[Event]:
    """Two steps of 1,000 us, marked on a thread without ops; another one works and launches.

    From 400 us of a step on, a thread waits for its kernel, which ends at 900 us.
    """
    events = []
    for number in range(2):
        at = 1000 * number
        mine = [
            host("cpu_op", "aten::mm", at + 100, at + 140, WORKS),
            launch(number, at + 110, at + 120, WORKS),
        ]
        wait = host(
            "cuda_runtime", "cudaDeviceSynchronize", at + 400, at + 905, waits, correlation=-1
        )
        (mine if waits == WORKS else events).append(wait)
        events += [{**event, "pid": process} for event in mine]
        events += [step(number, at, at + 1000), kernel(number, at + 120, at + 900)]
    return events


@pytest.mark.parametrize("process", [1, OTHER_PROCESS])
@pytest.mark.parametrize("waits", [WORKS, MAIN])
def test_a_step_is_as_long_as_its_mark_whatever_thread_works(
    process: int, waits: int, tmp_path: Path
) -> None:
    traced = read_job([write(tmp_path, on_another_thread(process, waits))])
    assert microseconds(traced) == pytest.approx(1000)
    assert traced.ranks[0].marks.size == 3
    # The kernel ends 390 us earlier. A thread that waits for another one has no call that shows it.
    if waits == WORKS:
        assert microseconds(traced, "compute: 2x faster") == pytest.approx(1000 - 390)


def test_a_step_of_which_the_threads_do_little_is_as_long_as_its_mark(tmp_path: Path) -> None:
    """As one of 13,336 ms of which another thread was seen to work in the first 1.5."""
    events = [
        *(step(0, 0, 13_336_000), host("cpu_op", "aten::mm", 100, 1_500, WORKS)),
        *(launch(1, 200, 210, WORKS), kernel(1, 220, 300)),
    ]
    traced = read_job([write(tmp_path, events)])
    assert microseconds(traced) == pytest.approx(13_336_000)


def test_autograd_is_not_the_loop_of_steps_that_another_thread_marks(tmp_path: Path) -> None:
    events = [step(0, 0, 1000), host("cpu_op", "aten::mm", 10, 100, WORKS)]
    for number in range(5):
        at = 200 + 100 * number
        name = "autograd::engine::evaluate_function: MmBackward0"
        events += [
            host("cpu_op", name, at, at + 90, BACKWARD),
            launch(number, at + 10, at + 20, BACKWARD),
            kernel(number, at + 25, at + 50),
        ]
    trace = read_kineto(write(tmp_path, events))
    assert trace.lanes[window_of(trace).thread].number == str(WORKS)
    traced = read_job([trace.path])
    assert microseconds(traced) == pytest.approx(1000)
    assert microseconds(traced, "host: 2x faster") == pytest.approx(500)


def test_of_two_processes_the_one_that_marks_the_steps_counts(tmp_path: Path) -> None:
    """The other one has more ops, and marks one of the steps as well, at another time."""
    events = [
        *(step(0, 0, 100), step(1, 100, 300), host("cpu_op", "aten::mm", 10, 20)),
        *({**host("cpu_op", "aten::mm", at, at + 5), "pid": 9} for at in range(0, 300, 10)),
        {**step(1, 50, 1050), "pid": 9},
    ]
    traced = read_job([write(tmp_path, events)])
    assert microseconds(traced) == pytest.approx(150)

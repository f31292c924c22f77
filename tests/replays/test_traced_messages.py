"""Messages between two ranks: by hand, by a pipeline played kernel by kernel, what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import Event, host, kernel, launch, step, write
from pipeline_kernels import Kernel, Span, kernels_of, played

from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.replays.job import read_job
from paracosm.replays.outcome import outcome_of, replayed, traced_times
from paracosm.replays.run import changed
from paracosm.replays.traced import TracedJob
from paracosm.timeline.kineto.communication import collective_of
from paracosm.timeline.kineto.device import Calls, device_spans
from paracosm.timeline.kineto.read import read_kineto
from paracosm.timeline.kineto.trace import window_of

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def ends(traced: TracedJob, *what_ifs: str) -> list[float]:
    """Return when the last task of each rank ends, in microseconds."""
    times = replayed(changed(traced, [parse_change(text) for text in what_ifs]))
    return [1e6 * float(end.max()) for end in times.end]


def message(way: str, other: int, group: str = "pp") -> dict[str, Any]:
    """Return what PyTorch's profiler says of a message."""
    key = "Dst Rank" if way == "send" else "Src Rank"
    return {
        "Collective name": way,
        "In msg nelems": 1024,
        "dtype": "Half",
        "Group size": 4,
        "Process Group Name": group,
        "Process Group Ranks": "[0, 1, 2, 3]",
        key: other,
    }


def two_stages(folder: Path, late: float = 0.0, buffered: bool = False) -> list[Path]:
    """Write a step of two ranks; 0 computes from 5 to 15, and sends 1 what it then works on.

    Rank 1 receives from 4 on and has all at 20; buffered: it comes at 60, and has all at 63.
    """
    sent = 18 if buffered else 20
    came, got = (60, 63) if buffered else (4, 20)
    first = [
        *(step(1, 0, 100), launch(1, 0, 2), kernel(1, 5, 15), launch(2, 2, 4)),
        kernel(2, 15, sent, SEND_RECV, 20, **message("send", 1)),
    ]
    second = [
        *(step(1, late, 100 + late), launch(1, late, 2 + late)),
        kernel(1, came + late, got + late, SEND_RECV, **message("recv", 0)),
        *(launch(2, 2 + late, 4 + late), kernel(2, got + late, got + 30 + late)),
    ]
    return [write(folder, first, 0, 2), write(folder, second, 1, 2)]


@pytest.mark.parametrize(
    ("what_if", "first", "second"),
    [
        ("", 20, 50),
        ("links: bandwidth 5x", 15 + 1, 16 + 30),
        ("send: 5x faster", 16, 46),
        ("recv: none", 15, 45),
        ("latency: +2 us", 22, 52),
        ("worker 0: compute 2x faster", 10 + 5, 15 + 30),
        ("worker 1: compute 2x faster", 20, 20 + 15),
    ],
)
def test_a_message_begins_when_both_ranks_have_come(
    what_if: str, first: float, second: float, tmp_path: Path
) -> None:
    times = replayed(
        changed(read_job(two_stages(tmp_path)), [parse_change(what_if)] if what_if else [])
    )
    # The steps end at 100; what ran on the device, before.
    assert 1e6 * np.array([end[end < 99e-6].max() for end in times.end]) == pytest.approx(
        [first, second]
    )


def test_a_rank_that_waits_for_a_message_is_said_to(tmp_path: Path) -> None:
    traced = read_job(two_stages(tmp_path))
    for times in (traced_times(traced), replayed(traced.job)):
        sender, receiver = outcome_of(traced, times).breakdowns
        assert 1e6 * np.array([sender.compute, sender.exposed_communication]) == pytest.approx(
            [10, 5]
        )
        assert 1e6 * receiver.waiting == pytest.approx(11)
        assert 1e6 * receiver.exposed_communication == pytest.approx(5)
        assert outcome_of(traced, times).straggler is None


@pytest.mark.parametrize(
    ("what_if", "sent", "got"),
    [
        ("", 18, 63),
        # The receiver comes at 60 all the same, then later than that: the copy takes 3 us.
        ("worker 0: compute 2x slower", 28, 63),
        ("worker 0: compute 10x slower", 108, 111),
    ],
)
def test_a_sender_does_not_wait_where_the_data_waited_in_a_buffer(
    what_if: str, sent: float, got: float, tmp_path: Path
) -> None:
    traced = read_job(two_stages(tmp_path, buffered=True))
    times = replayed(changed(traced, [parse_change(what_if)] if what_if else []))
    assert traced.job.roles == ("buffered message from 0 to 1 pp",)
    message_rows = [program.role >= 0 for program in traced.job.programs]
    assert 1e6 * times.end[0][message_rows[0]] == pytest.approx([sent])
    after = np.flatnonzero(message_rows[1])[0] + 1  # what it takes out of the buffer
    assert 1e6 * times.end[1][after] == pytest.approx(got)


def test_clocks_are_set_by_messages_of_both_directions(tmp_path: Path) -> None:
    """Rank 1 is a millisecond behind; 0 sends at 10 and receives from 40, 1 the other way round."""
    first = [
        *(step(1, 0, 100), launch(1, 0, 2), kernel(1, 10, 20, SEND_RECV, **message("send", 1))),
        *(launch(2, 2, 4), kernel(2, 40, 55, SEND_RECV, **message("recv", 1))),
    ]
    second = [
        *(step(1, 1000, 1100), launch(1, 1000, 1002)),
        kernel(1, 1005, 1022, SEND_RECV, **message("recv", 0)),
        *(launch(2, 1002, 1004), kernel(2, 1050, 1053, SEND_RECV, **message("send", 0))),
    ]
    traced = read_job([write(tmp_path, first, 0, 2), write(tmp_path, second, 1, 2)])
    # The receivers end 2 us after the senders.
    assert traced.moved == {1: pytest.approx(-1e-3)}


STAGES, BATCHES, FORWARD, BACKWARD, TRANSFER = 4, 6, 900, 2000, 150


def pipeline(factor: dict[int, float], transfer: int) -> list[list[Span]]:
    """Return the reference's spans; computing of a stage takes its factor times as long."""
    stages = [kernels_of(each, STAGES, BATCHES, FORWARD, BACKWARD) for each in range(STAGES)]
    slowed = [
        [Kernel(k.name, round(k.duration * factor.get(stage, 1.0)), k.messages) for k in kernels]
        for stage, kernels in enumerate(stages)
    ]
    return played(slowed, transfer)


def events(number: int, span: Span, form: str) -> list[Event]:
    """Return a kernel as it shows: with its call, and what the form says of messages."""
    wanted = span.kernel.messages
    if not wanted:
        return [launch(number, number, number + 1), kernel(number, span.begin, span.end)]
    at, late = number + 0.1, number + 0.5
    said: list[Event] = []
    own: dict[str, Any] = {}
    if form == "kernel" and len(wanted) == 1:
        own = message(*wanted[0])
    elif form == "ranges" and len(wanted) == 1:
        (way, other) = wanted[0]
        arrow = "->" if way == "send" else "<-"
        said = [host("user_annotation", f"nccl:{way} 9{arrow}{other}", number, number + 1)]
    else:
        for place, (way, other) in enumerate(wanted):
            begin = at + 0.1 * place
            said.append(
                host("cpu_op", "record_param_comms", begin, begin + 0.05, **message(way, other))
            )
        said.append(host("user_annotation", "nccl:coalesced", number + 0.4, number + 1))
    name = SEND_RECV if form == "kernel" else "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"
    run = [launch(number, late, number + 1), kernel(number, span.begin, span.end, name, **own)]
    return [*said, *run]


def written(folder: Path, spans: list[list[Span]], form: str = "kernel") -> list[Path]:
    last = max(ran[-1].end for ran in spans) + 10
    paths = []
    for stage, ran in enumerate(spans):
        shown = [event for at, span in enumerate(ran) for event in events(at, span, form)]
        end = host("cuda_runtime", "cudaDeviceSynchronize", len(ran) + 1, ran[-1].end)
        path = write(folder, [step(1, 0, last), *shown, end], stage, STAGES)
        paths.append(path)
    return paths


@pytest.mark.parametrize("form", ["kernel", "ranges", "coalesced"])
def test_a_pipeline_is_replayed_as_it_ran(form: str, tmp_path: Path) -> None:
    spans = pipeline({}, TRANSFER)
    traced = read_job(written(tmp_path, spans, form))
    times = replayed(traced.job)
    for rank, end in zip(traced.ranks, times.end, strict=True):
        assert 1e6 * end == pytest.approx(1e6 * rank.end, abs=1e-3)


@pytest.mark.parametrize(
    ("what_if", "factor", "transfer"),
    [
        ("compute: 2x faster", dict.fromkeys(range(STAGES), 0.5), TRANSFER),
        ("worker 2: compute 3x slower", {2: 3.0}, TRANSFER),
        ("links: bandwidth 3x", {}, TRANSFER // 3),
        ("send: 10x slower", {}, 10 * TRANSFER),
    ],
)
def test_what_ifs_of_a_pipeline_are_those_of_a_pipeline_that_is_so(
    what_if: str, factor: dict[int, float], transfer: int, tmp_path: Path
) -> None:
    traced = read_job(written(tmp_path, pipeline({}, TRANSFER), "coalesced"))
    times = replayed(changed(traced, [parse_change(what_if)]))
    expected = pipeline(factor, transfer)
    for rank, program in enumerate(traced.job.programs):
        streams = [at for at, lane in enumerate(traced.job.lanes) if lane == "stream 7"]
        ends_at = times.end[rank][np.isin(program.lane, streams)]
        assert 1e6 * ends_at.max() == pytest.approx(expected[rank][-1].end, abs=1e-3)


def test_modern_and_old_names_of_kernels() -> None:
    """The names that NCCL has given its kernels since 2.4, and what is none of them."""
    kinds = {
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": (
            "reduce_scatter"
        ),
        "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)": "all_reduce",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": (
            "all_reduce"
        ),
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "all_reduce",
        "nccldevkernel_broadcast_ring_ll": "broadcast",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "collective",
        "nccl:coalesced": "",
        "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp)": "",
    }
    assert {name: collective_of(name) for name in kinds} == kinds


def test_the_range_around_a_launch_says_what_a_generic_kernel_is(tmp_path: Path) -> None:
    shown = [
        host("cpu_op", "record_param_comms", 0, 9, **{"Collective name": "_allgather_base"}),
        *(launch(1, 2, 4), kernel(1, 5, 9, "ncclDevKernel_Generic(ncclDevComm*)")),
        *(launch(2, 12, 14), kernel(2, 15, 19, "ncclDevKernel_Generic(ncclDevComm*)")),
    ]
    trace = read_kineto(write(tmp_path, shown))
    spans = device_spans(trace, window_of(trace))
    calls = Calls(trace, spans)
    found = [calls.of(int(row), int(call)) for row, call in zip(spans.row, spans.call, strict=True)]
    assert [each.kind for said in found for each in said] == ["all_gather", "collective"]


def test_ranks_of_long_groups_by_their_first_and_stride(tmp_path: Path) -> None:
    said = {
        "Collective name": "allreduce",
        "Group size": 64,
        "Process Group Ranks": "[1, ..., 127]",
        "Global rank start": 1,
        "Global rank stride": 2,
    }
    trace = read_kineto(write(tmp_path, [kernel(1, 0, 5, "ncclDevKernel_AllReduce", **said)]))
    assert trace.collectives[0].ranks == tuple(range(1, 128, 2))
    said["Group size"] = 10**12
    with pytest.raises(InputError, match="name or arguments are none: ncclDevKernel_AllReduce"):
        read_kineto(write(tmp_path, [kernel(1, 0, 5, "ncclDevKernel_AllReduce", **said)]))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (
            [message("send", 1)],
            [],
            "rank1.json: 0 messages from rank 0 in group pp, which sends 1: the traces are not of",
        ),
        (
            [message("send", 3)],
            [],
            "rank0.json: send to rank 3, and there is no trace of rank 3: give one of every rank",
        ),
        (
            [{"Collective name": "recv", "Process Group Ranks": "[0, 1, 2, 3]"}],
            [],
            r"rank0.json: recv from a rank that the trace does not name: newer versions of PyTorch",
        ),
    ],
)
def test_messages_that_do_not_match_are_refused(
    first: list[dict[str, Any]], second: list[dict[str, Any]], reason: str, tmp_path: Path
) -> None:
    paths = []
    for rank, said in enumerate((first, second)):
        shown = [kernel(at + 1, 10, 20, SEND_RECV, **each) for at, each in enumerate(said)]
        calls = [launch(at + 1, at, at + 1) for at in range(len(said))]
        work = [launch(9, 20, 21), kernel(9, 22, 25)]
        paths.append(write(tmp_path, [step(1, 0, 30), *work, *calls, *shown], rank, 2))
    with pytest.raises(InputError, match=reason):
        read_job(paths)


def test_two_ranks_of_a_group_need_no_names(tmp_path: Path) -> None:
    old = {"Collective name": "send"}, {"Collective name": "recv"}
    paths = [
        write(
            tmp_path,
            [step(1, 0, 30), launch(1, 0, 1), kernel(1, begin, 20, SEND_RECV, **said)],
            rank,
            2,
        )
        for rank, (begin, said) in enumerate(zip((5, 12), old, strict=True))
    ]
    traced = read_job(paths)
    assert traced.job.communicators.ranks(0) == (0, 1)
    waits = [breakdown.waiting for breakdown in outcome_of(traced, traced_times(traced)).breakdowns]
    assert 1e6 * np.array(waits) == pytest.approx([7, 0])


def test_one_stage_alone_takes_messages_as_long_as_they_were(tmp_path: Path) -> None:
    path = two_stages(tmp_path)[1]
    traced = read_job([path], alone=True)
    assert len(traced.job.communicators) == 0
    assert ends(traced) == pytest.approx([100])

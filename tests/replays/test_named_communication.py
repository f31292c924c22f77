"""Replays of jobs whose communication is not NCCL's: recognised, said, or as the user says.

In these traces each step has 550 us of computing on one stream, 40 to 340 and 400 to 650 us, and a
kernel of 200 us on another one, 350 to 550 us: 50 of these are exposed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_left_out import step, summary_of, written

from paracosm.errors import InputError
from paracosm.results import ReplaySummary


def job(folder: Path, name: str, ranks: int = 2, count: int = 2) -> list[Path]:
    """Traces of ranks that run a kernel of this name in each of two steps."""
    paths = []
    for rank in range(ranks):
        events = []
        for number in range(3, 3 + count):
            at = 1e6 + 1000 * (number - 3)
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10}
            kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 20}
            arguments = {"correlation": 100 + number, "stream": 20, "device": 0}
            events += [
                *step(number),
                {
                    **launch,
                    "tid": 1,
                    "ts": at + 70,
                    "dur": 10,
                    "args": {"correlation": 100 + number},
                },
                {**kernel, "ts": at + 350, "dur": 200, "args": arguments},
            ]
        paths.append(written(folder, events, rank, ranks))
    return paths


def parts(summary: ReplaySummary) -> dict[str, float]:
    assert summary.replayed is not None
    return {name: round(1e6 * time, 3) for name, time in summary.replayed.breakdown["0"].items()}


# The computing stream is busy for 550 us; beside it 340 to 350 and 650 to 1000 us nothing runs.
EXPOSED = {"compute": 550, "exposed_communication": 50, "waiting": 0, "host": 400}
COMPUTES = {"compute": 600, "exposed_communication": 0, "waiting": 0, "host": 400}


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void mscclpp::allreduce_kernel<half>(half*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, int)",
        "void deep_ep::intranode::dispatch<8,768>(int4*)",
        "nvshmemi_proxy_rma_entrypoint(void*)",
    ],
)
def test_communication_of_every_library_can_be_changed(name: str, tmp_path: Path) -> None:
    paths = job(tmp_path, name)
    summary = summary_of(*paths, what_ifs=["links: bandwidth 2x", "collectives: none"])
    assert {**parts(summary), "data_loading": 0} == {**EXPOSED, "data_loading": 0}
    assert not summary.notes
    assert len(summary.what_ifs) == 2


def test_what_looks_like_communication_is_said_and_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paracosm.cli import main

    paths = job(tmp_path, "my_allreduce_v3", count=6)
    summary = summary_of(*paths)
    assert parts(summary)["compute"] == COMPUTES["compute"]
    assert summary.notes is not None
    for path in paths:
        (note,) = summary.notes[str(path)]
        assert note.startswith("6 kernels that look like communication taken for computing")
    with pytest.raises(InputError, match="--communication"):
        summary_of(*paths, what_ifs=["links: bandwidth 2x"])
    command = ["replay", *map(str, paths), "--what-if", "links: bandwidth 2x"]
    assert main(command) == 2
    assert main([*command, "--communication", "my_allreduce*"]) == 0
    assert "look like" not in capsys.readouterr().out
    named = summary_of(*paths, communication=["MY_ALLREDUCE*=all_reduce"])
    assert parts(named)["exposed_communication"] == EXPOSED["exposed_communication"]
    assert named.lateness is not None
    assert named.lateness.collectives[0].kind == "all_reduce"
    silent = summary_of(*paths, communication=["my_allreduce=none"])
    assert parts(silent)["compute"] == COMPUTES["compute"]
    assert not silent.notes


def test_a_known_name_can_be_taken_back(tmp_path: Path) -> None:
    paths = job(tmp_path, "void vllm::cross_device_reduce_1stage<half, 2>(int)")
    for pattern in ("cross_device*", "vllm::cross*", "stage<half", "void vllm*"):
        summary = summary_of(*paths, communication=[f"{pattern}=none"])
        assert parts(summary)["compute"] == COMPUTES["compute"]


def test_a_pattern_of_no_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'"ring" has no effect: .* there are add, gemm, my_rung'):
        summary_of(*job(tmp_path, "my_rung"), communication=["ring"])


def test_what_one_rank_does_alone_waits_for_nobody(tmp_path: Path) -> None:
    one, other = job(tmp_path, "my_put")
    trace: Any = json.loads(other.read_text())
    trace["traceEvents"] = [
        event for event in trace["traceEvents"] if event["args"].get("correlation", 0) != 103
    ]
    other.write_text(json.dumps(trace))
    summary = summary_of(one, other, communication=["my_put=one_sided"])
    assert parts(summary)["exposed_communication"] == EXPOSED["exposed_communication"]


def test_collectives_without_a_group_among_several_ranks_are_said(tmp_path: Path) -> None:
    summary = summary_of(*job(tmp_path, "void mscclpp::allreduce_kernel<half>(half*)", ranks=4))
    assert summary.notes == {
        "all traces": ["8 calls that do not say their group taken for collectives of all ranks"]
    }

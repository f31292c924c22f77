"""Steps of Kineto traces as graphs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.graphs.file import load_graph
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.importers.kineto import read_kineto_graph
from paracosm.simulation.replay import replay

DATA = Path(__file__).parents[2] / "data" / "kineto"


def span(
    category: str, name: str, begin: int, end: int, tid: int = 3, **args: Any
) -> dict[str, Any]:
    times = {"ts": begin, "dur": end - begin}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, **times, "args": args}


def names(graph: Graph) -> list[str]:
    return [graph.ops[code].name for code in graph.op]


def test_a_step_by_hand(tmp_path: Path) -> None:
    """mm launches two kernels and add, on the other thread, a collective that waits for them."""
    group = {"Process Group Ranks": "[0, 1]", "In msg nelems": 8, "dtype": "Float"}
    group["Collective name"] = "allreduce"
    path = tmp_path / "trace.json"
    events = [
        span("user_annotation", "ProfilerStep#4", 0, 100),
        span("cpu_op", "aten::linear", 1, 30),
        span("cpu_op", "aten::mm", 2, 29),
        span("cuda_runtime", "cudaLaunchKernel", 3, 5, correlation=1),
        span("kernel", "gemm(int)", 10, 20, stream=7, correlation=1),
        span("cuda_runtime", "cudaMemsetAsync", 6, 8, correlation=2),
        span("gpu_memset", "Memset (Device)", 21, 22, stream=7, correlation=2),
        span("cpu_op", "autograd::engine::evaluate_function: AddBackward0", 40, 60, 4),
        span("cuda_runtime", "cudaStreamWaitEvent", 41, 42, 4, correlation=8),
        span("cuda_runtime", "cudaLaunchKernel", 43, 45, 4, correlation=3),
        span("kernel", "ncclDevKernel", 50, 55, stream=20, correlation=3, **group),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    graph = read_kineto_graph(path)
    assert names(graph)[:2] == ["aten.mm", "aten.mm"]
    assert [RESOURCES[code] for code in graph.resource] == ["compute", "memory", "communication"]
    assert [PHASES[code] for code in graph.phase] == ["forward", "forward", "backward"]
    assert 1e6 * graph.duration == pytest.approx([10, 1, 5])
    assert [graph.predecessors(row).tolist() for row in range(3)] == [[], [0], [1]]
    assert graph.groups == ((0, 1),)
    assert graph.bytes_read.tolist() == [0, 0, 32]
    assert graph.provenance["step"] == 4


def test_what_is_no_part_of_the_forward_pass_stands_in_none(tmp_path: Path) -> None:
    """Autograd's thread copies a bucket after its last op, and the loop then reads the loss."""
    path = tmp_path / "trace.json"
    events = [
        span("user_annotation", "ProfilerStep#4", 0, 100),
        span("cpu_op", "aten::mm", 2, 29),
        *launched(1, 3, 10),
        span("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 40, 50, 4),
        *launched(2, 43, 50, 4),
        span("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 52, 60, 4),
        *launched(3, 53, 60, 4),
        span("cpu_op", "aten::item", 70, 80),
        *launched(4, 73, 80),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    graph = read_kineto_graph(path)
    phases = [PHASES[code] for code in graph.phase]
    assert phases == ["forward", "backward", "backward", "other"]


def test_a_backward_pass_on_the_thread_of_the_loop_is_told_by_its_ops(tmp_path: Path) -> None:
    """So it runs without a device; and nothing marks the steps."""
    path = tmp_path / "trace.json"
    engine = "autograd::engine::evaluate_function: MmBackward0"
    ops = (("aten::mm", 0), (engine, 15), ("aten::mm", 45), (engine, 60), ("aten::add_", 75))
    events = [span("cpu_op", name, begin, begin + 10) for name, begin in ops]
    path.write_text(json.dumps({"traceEvents": events}))
    phases = [PHASES[code] for code in read_kineto_graph(path).phase]
    assert phases == ["forward", "backward", "forward", "backward", "other"]


def launched(number: int, call: int, begin: int, tid: int = 3) -> list[dict[str, Any]]:
    """Return a call and the kernel of 5 us that it launches."""
    return [
        span("cuda_runtime", "cudaLaunchKernel", call, call + 2, tid, correlation=number),
        span("kernel", "gemm(int)", begin, begin + 5, stream=7, correlation=number),
    ]


def test_a_real_step() -> None:
    """1,219 spans: 870 kernels, and 349 copies and memsets, as in the original trace."""
    graph = read_kineto_graph(DATA / "resnet.json.gz", step=101)
    assert Counter(graph.resource.tolist()) == {0: 870, 2: 349}
    assert graph.provenance["step"] == 101
    total = replay(graph, graph.duration).makespan
    assert total == pytest.approx(94.5698e-3, rel=1e-4)
    assert {PHASES[code] for code in graph.phase} == {"forward", "backward", "optimizer"}


def test_the_step_of_median_duration_is_taken() -> None:
    assert read_kineto_graph(DATA / "resnet.json.gz").provenance["step"] == 102
    assert read_kineto_graph(DATA / "event_sync_streams.json.gz").provenance["step"] is None
    with pytest.raises(InputError, match="no step 7: it has 101 to 102"):
        read_kineto_graph(DATA / "resnet.json.gz", step=7)


def test_streams_wait_for_what_the_profiler_has_seen() -> None:
    """Three products on three streams, each after a memset; that on stream 24 waits for 20."""
    graph = read_kineto_graph(DATA / "event_sync_streams.json.gz")
    before = [graph.predecessors(row).tolist() for row in range(len(graph))]
    assert before == [[], [0], [], [2], [1], [4]]
    assert set(names(graph)) == {"aten.mm"}


def test_a_trace_without_a_device_has_the_outermost_ops(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [
        span("cpu_op", "aten::linear", 0, 10),
        span("cpu_op", "aten::mm", 1, 9),
        span("cpu_op", "aten::relu", 10, 14),
        span("cpu_op", "autograd::engine::evaluate_function: ReluBackward0", 20, 27, 4),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    graph = read_kineto_graph(path)
    assert names(graph)[:2] == ["aten.linear", "aten.relu"]
    assert 1e6 * graph.duration == pytest.approx([10, 4, 7])
    assert [graph.predecessors(row).tolist() for row in range(3)] == [[], [0], []]
    assert [PHASES[code] for code in graph.phase] == ["forward", "forward", "backward"]


def test_a_step_in_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([span("user_annotation", "ProfilerStep#1", 0, 9)]))
    with pytest.raises(InputError, match=r"trace.json: nothing ran in step 1$"):
        read_kineto_graph(path)


def test_the_command_knows_a_trace_by_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "step.graph"
    command = ["graph", "import", str(DATA / "resnet.json.gz"), "--out", str(out)]
    assert main([*command, "--step", "101"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 1,219 nodes")
    assert load_graph(out).provenance["step"] == 101
    assert main([*command, "--force", "--train"]) == 2
    assert "--train has no effect on a trace of PyTorch's profiler" in capsys.readouterr().err

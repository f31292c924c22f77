"""Collectives and messages of the host: gloo, MPI and UCC, in traces without a device."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hand_made import MAIN, Event, host, step, write

from paracosm.errors import InputError
from paracosm.graphs.importers.kineto import read_kineto_graph
from paracosm.replays import replay_traces
from paracosm.replays.outcome import Breakdown
from paracosm.timeline.kineto import read_kineto
from paracosm.timeline.kineto.communication import collective_of
from paracosm.timeline.kineto.host_communication import host_communication

GLOO = 9  # a thread of gloo's


def op(begin: float, end: float, name: str = "aten::mm", thread: int = MAIN) -> Event:
    return host("cpu_op", name, begin, end, thread)


def marked(begin: float, end: float, name: str = "gloo:all_reduce", thread: int = GLOO) -> Event:
    return host("user_annotation", name, begin, end, thread)


def two_ranks(folder: Path, late: float = 0.0) -> list[Path]:
    """Write a step of two ranks: 1 comes 100 us after 0, and leaves 10 us before it.

    Rank 0 computes on from 450 to 600 while it communicates. 1's clock is `late` us behind.
    """
    first = [step(0, 0, 1000), op(0, 400), op(400, 410, "c10d::allreduce_"), marked(420, 700)]
    first += [op(450, 600), op(700, 900)]
    second = [step(0, 0, 1000), op(0, 500), op(500, 510, "c10d::allreduce_"), marked(520, 690)]
    second += [op(690, 880)]
    second = [{**event, "ts": event["ts"] + late} for event in second]
    return [write(folder, first, 0, 2), write(folder, second, 1, 2)]


def in_us(times: Breakdown) -> list[float]:
    parts = times.compute, times.exposed_communication, times.waiting, times.host
    return [round(1e6 * part, 3) for part in parts]


def iteration(paths: list[Path], *what_ifs: str, alone: bool = False) -> float:
    return 1e6 * replay_traces(paths, list(what_ifs), alone=alone).last.outcome.iteration_time


def test_parts_of_an_iteration(tmp_path: Path) -> None:
    replays = replay_traces(two_ranks(tmp_path))
    # 0 waits from 420 to 520, and computes from 450; then its transfer is hidden until 600.
    expected = [[750, 100, 30, 120], [690, 170, 0, 140]]
    assert [in_us(each) for each in replays.measured.breakdowns] == expected
    assert [in_us(each) for each in replays.unchanged.outcome.breakdowns] == expected
    straggler = replays.measured.straggler
    assert straggler is not None
    assert straggler.rank == 1
    assert straggler.lateness == pytest.approx(100e-6)


@pytest.mark.parametrize(
    ("what_if", "expected"),
    [
        # 0 goes on at 600 with 200 of an op and 100 of its host.
        ("collectives: none", 900),
        # They leave at 520 + 340; 0 needs 20 more, in place of 10.
        ("all_reduce: 2x slower", 520 + 340 + 20 + 300),
        # 1 calls at 250, comes at 270 (it begins 10 later), and the others as it.
        ("worker 1: compute 2x faster", 1000 - 100),
    ],
)
def test_what_ifs(what_if: str, expected: float, tmp_path: Path) -> None:
    assert iteration(two_ranks(tmp_path), what_if) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("late", "moved"), [(40.0, False), (5000.0, True)])
def test_clocks_are_set_only_if_ranks_could_not_have_met(
    late: float, moved: bool, tmp_path: Path
) -> None:
    """Ranks leave a collective of the host one after another, and tell little of their clocks."""
    traced = replay_traces(two_ranks(tmp_path, late)).traced
    assert bool(traced.moved) == moved


def test_spans_on_the_calling_thread_come_one_after_another(tmp_path: Path) -> None:
    """MPI's thread does the second when it has done the first."""
    events = [
        *(step(0, 0, 300), op(0, 10, "c10d::allreduce_"), op(10, 20, "c10d::allreduce_")),
        *(marked(5, 105, "mpi:all_reduce", MAIN), marked(15, 205, "mpi:all_reduce", MAIN)),
        *(op(20, 150), op(205, 300)),
    ]
    paths = [write(tmp_path, events, 0, 2)]
    replays = replay_traces(paths, alone=True)
    assert in_us(replays.unchanged.outcome.breakdowns[0]) == [225, 70, 0, 5]
    assert iteration(paths, "all_reduce: none", alone=True) == pytest.approx(245, abs=0.01)
    # The first is done at 55, the second at 105: the op ends at 150.
    assert iteration(paths, "all_reduce: 2x faster", alone=True) == pytest.approx(245, abs=0.01)


def test_calls_of_spans(tmp_path: Path) -> None:
    """Gloo reduces and scatters by an all-reduce; its own ops are no computing, nor is waiting."""
    events = [
        *(step(0, 0, 200), op(0, 10, "c10d::_reduce_scatter_base_"), marked(12, 50)),
        *(op(60, 70, "c10d::allreduce_"), marked(72, 90), op(75, 80, "aten::add", GLOO)),
        *(op(70, 95, "_c10d_functional::wait_tensor"), op(100, 200)),
    ]
    trace = host_communication(read_kineto(write(tmp_path, events)))
    spans = trace.of("kernel")
    calls = [trace.text(row) for row in trace.of("runtime").tolist()]
    assert calls == ["c10d::_reduce_scatter_base_", "c10d::allreduce_"]
    assert trace.correlation[spans].tolist() == trace.correlation[trace.of("runtime")].tolist()
    assert [trace.text(row) for row in trace.of("op").tolist()] == ["aten::mm"]
    assert {trace.lane_names[lane] for lane in trace.lane[spans].tolist()} == {"gloo thread 9"}


def test_messages_both_ways_at_once(tmp_path: Path) -> None:
    """Each rank sends first: neither waits with that for what it receives."""

    def rank(own: int) -> Path:
        other = ["", "", str(1 - own), "0"]
        events = [step(0, 0, 200), op(0, 20 + 60 * own)]
        for at, call, name in ((100, "c10d::send", "send"), (110, "c10d::recv_", "recv")):
            called = host("cpu_op", call, at, at + 8)
            events += [{**called, "args": {"Concrete Inputs": other}}]
            events += [marked(at + 2, 150 + 10 * (name == "recv"), f"gloo:{name}", MAIN)]
        return write(tmp_path, [*events, op(160, 200)], own, 2)

    paths = [rank(0), rank(1)]
    assert iteration(paths) == pytest.approx(200, abs=0.01)
    # Between the calls, and from the last one to 160, both only wait.
    assert iteration(paths, "collectives: none") == pytest.approx(200 - 160 + 118, abs=0.01)


def test_groups_that_ranges_do_not_tell(tmp_path: Path) -> None:
    names = ["gloo:all_reduce", "gloo:broadcast"]
    paths = [
        write(tmp_path, [step(0, 0, 100), op(0, 10), marked(20, 50, names[rank])], rank, 2)
        for rank in range(2)
    ]
    with pytest.raises(InputError, match=r"or the job has several groups, .* --alone takes"):
        replay_traces(paths)


def test_an_imported_graph_says_that_they_are_among_its_ops(tmp_path: Path) -> None:
    path = write(tmp_path, [step(0, 0, 100), op(0, 10), marked(20, 50)])
    notes = str(read_kineto_graph(path).provenance["notes"])
    assert "1 span of communication on the host not told from ops: gloo:all_reduce" in notes


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # All names in PyTorch's ProcessGroupGloo.cpp, ProcessGroupMPI.cpp, ProcessGroupUCC.cpp.
        *((f"gloo:{kind}", kind) for kind in ("all_gather", "all_reduce", "all_to_all", "barrier")),
        *((f"gloo:{kind}", kind) for kind in ("broadcast", "gather", "reduce", "scatter", "send")),
        *(("gloo:recvAnySource", "recv"), ("gloo:sparse_all_reduce", "all_reduce")),
        *(("mpi:reduce_scatter", "reduce_scatter"), ("mpi:recvAnySource", "recv")),
        *(("ucc:all_gather", "all_gather"), ("ucc:recv", "recv"), ("ucc:scatter", "scatter")),
        *(("c10d::allreduce_", "all_reduce"), ("c10d::_allgather_base_", "all_gather")),
        *(("c10d::alltoall_base_", "all_to_all"), ("c10d::recv_any_source_", "recv")),
        ("c10d::allreduce_coalesced_", "all_reduce"),
    ],
)
def test_names(name: str, kind: str) -> None:
    assert collective_of(name) == kind


JOB = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

def train(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.3)
    done = lambda profiler: profiler.export_chrome_trace(f"{sys.argv[1]}/rank{rank}.json")
    steps = schedule(wait=1, warmup=1, active=3, repeat=1)
    cpu = [ProfilerActivity.CPU]
    with profile(activities=cpu, schedule=steps, on_trace_ready=done) as profiler:
        for _ in range(6):
            loss = model(torch.ones(64, 256)).sum()
            loss.backward()
            dist.all_reduce(loss.detach())
            profiler.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(int(sys.argv[2]),), nprocs=2)
"""


def covered(spans: list[tuple[float, float]], begin: float, end: float) -> float:
    """The length of a union within limits."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total


@pytest.mark.slow
def test_a_job_of_pytorch(tmp_path: Path) -> None:
    """Computing and exposed communication are those of the spans as they are in the file."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "job.py", str(tmp_path), str(port)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300, capture_output=True)
    paths = [tmp_path / "rank0.json", tmp_path / "rank1.json"]
    replays = replay_traces(paths)
    assert abs(replays.error) < 0.02
    for path, measured in zip(paths, replays.measured.breakdowns, strict=True):
        events = [event for event in json.loads(path.read_text())["traceEvents"] if "dur" in event]
        events = [{**event, "to": event["ts"] + event["dur"]} for event in events]
        spans = {
            kind: [(event["ts"], event["to"]) for event in events if event["name"].startswith(kind)]
            for kind in ("ProfilerStep", "gloo:", "c10d::")
        }
        begin = min(first for first, _ in spans["ProfilerStep"])
        end = max(last for _, last in spans["ProfilerStep"])
        ops = [(event["ts"], event["to"]) for event in events if event.get("cat") == "cpu_op"]
        computing = covered(ops, begin, end) - covered(spans["c10d::"], begin, end)
        either = covered([*ops, *spans["gloo:"]], begin, end)
        assert 3e6 * measured.compute == pytest.approx(computing, rel=1e-4)
        # While a call runs, others may communicate.
        exposed = 3e6 * (measured.exposed_communication + measured.waiting)
        assert either - covered(ops, begin, end) - 1 <= exposed <= either - computing + 1
        assert exposed > 0
        assert 3e6 * measured.total == pytest.approx(end - begin, rel=1e-4)

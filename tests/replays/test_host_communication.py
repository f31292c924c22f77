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
from paracosm.timeline.kineto.process_groups import groups_of_threads, process_groups
from paracosm.timeline.kineto.trace import Lane

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


WORLD, ROW, COLUMN = (11, 12), (13, 14), (15, 16)  # threads, in the order of the groups


def grid_of_ranks(folder: Path, *without: int, groups: bool = True) -> list[Path]:
    """Write a step of ranks 0, 1 above 2, 3; rank 2 computes until 300, the others until 100.

    After it the rows reduce, then the columns, then all. At 500 each rank calls once more for its
    row and column, without waiting: rank 3 in another order than the others. Spans of the threads
    `without` are left out on rank 3.
    """
    paths = []
    for rank in range(4):
        starts = [300 if rank == 2 else 100]  # of the calls in the row, the column and all
        starts += [350 if rank in (2, 3) else 150, 400]
        events = [step(0, 0, 700), op(0, starts[0], thread=1), op(600, 700, thread=1)]
        ends = [350 if rank in (2, 3) else 150, 400, 450]
        for call, end, threads in zip(starts, ends, (ROW, COLUMN, WORLD), strict=True):
            events.append(op(call, call + 10, "c10d::allreduce_", 1))
            events.append(marked(call + 10, end, thread=threads[0]))
        both = [("c10d::allreduce_", "gloo:all_reduce", ROW)]
        both += [("c10d::broadcast_", "gloo:broadcast", COLUMN)]
        for number, (call, name, threads) in enumerate(both[::-1] if rank == 3 else both):
            begin = 500 + 10 * number
            events.append(op(begin, begin + 10, call, 1))
            events.append(marked(begin + 20, 590, name, threads[1]))
        events += [op(520, 525, "c10d::barrier", 1), marked(540, 600, "gloo:barrier", WORLD[1])]
        events = [event for event in events if rank != 3 or event["tid"] not in without]
        path = write(folder, events, rank, 4)
        if groups:
            content = json.loads(path.read_text())
            members = {"0": [0, 1, 2, 3]}
            members |= {"1": [0, 1]} if rank < 2 else {"2": [2, 3]}
            members |= {"4": [1, 3]} if rank % 2 else {"3": [0, 2]}
            content["distributedInfo"]["pg_config"] = [
                {"pg_name": name, "backend_config": "cpu:gloo,cuda:gloo", "ranks": ranks}
                for name, ranks in members.items()
            ]
            path.write_text(json.dumps(content))
        paths.append(path)
    return paths


def test_threads_of_gloo_tell_the_groups(tmp_path: Path) -> None:
    paths = grid_of_ranks(tmp_path)
    replays = replay_traces(paths)
    assert replays.traced.groups == 5  # two rows, two columns, and all
    assert replays.traced.ungrouped == 0
    # Rank 3 waits for 2 in its row; 0 waits for 2 in its column, and 1 for 3, from 160 to 360.
    waiting = [in_us(each)[2] for each in replays.measured.breakdowns]
    # In the last round all come first at 520, and then at 530: in rank 3's row 2 waits for it, and
    # in its column it waits for 1.
    assert waiting == [200, 200, 10, 210]
    # All are there at 110, leave the row at 150, the column at 200 and the world at 250.
    what_if = "worker 2: compute 3x faster"
    assert iteration(paths, what_if) == pytest.approx(700 - 200, abs=0.01)


def test_groups_are_not_told_without_both_threads_of_each(tmp_path: Path) -> None:
    for folder, paths in (
        ("idle", lambda folder: grid_of_ranks(folder, COLUMN[1])),
        ("unlisted", lambda folder: grid_of_ranks(folder, groups=False)),
    ):
        (tmp_path / folder).mkdir()
        with pytest.raises(InputError, match=r"rank3\.json: .*let each group communicate twice"):
            replay_traces(paths(tmp_path / folder))


@pytest.mark.parametrize(
    ("process", "numbers", "expected"),
    [
        (100, (130, 101, 102, 131), {101: "a", 102: "a", 130: "b", 131: "b"}),
        (100, (4, 101, 102, 5), {101: "a", 102: "a", 4: "b", 5: "b"}),  # numbers began again
        (100, (101, 102, 130), {}),  # one has not worked
        (99, (130, 101, 102, 131), {}),  # not numbered as Linux does
    ],
)
def test_groups_of_threads(
    process: int, numbers: tuple[int, ...], expected: dict[int, str]
) -> None:
    listed = [{"pg_name": name, "ranks": [0, 1], "backend_config": "cpu:gloo"} for name in "ab"]
    listed.insert(1, {"pg_name": "c", "ranks": [0, 1], "backend_config": "cuda:nccl"})
    threads = {number: Lane("thread", "100", str(number)) for number in numbers}
    lanes = [Lane("thread", "100", str(process)), *threads.values()]
    told = groups_of_threads(process_groups(listed), threads, lanes)
    assert {number: group.name for number, group in told.items()} == expected


@pytest.mark.parametrize("number", ["9" * 5000, "main", "-5"])
def test_threads_without_a_number_tell_no_groups(number: str) -> None:
    listed = [{"pg_name": name, "ranks": [0, 1], "backend_config": "gloo"} for name in "ab"]
    lanes = [Lane("thread", "1", text) for text in ("1", "2", "3", "4", number)]
    threads = dict(enumerate(lanes[1:]))
    assert groups_of_threads(process_groups(listed), threads, lanes) == {}


def test_an_only_group_has_all_threads() -> None:
    (group,) = process_groups([{"pg_name": "0", "ranks": [0, 1], "backend_config": "cpu:gloo"}])
    assert groups_of_threads([group], {9: Lane("thread", "1", "x")}, []) == {9: group}
    assert process_groups([{"pg_name": "0"}]) == process_groups(None) == ()


def test_all_reduces_of_two_sizes_do_not_meet(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        sizes = {"Input Dims": [[50 + 50 * rank]], "Input type": ["float"]}
        events = [step(0, 0, 100), op(0, 10), {**marked(20, 50), "args": sizes}]
        paths.append(write(tmp_path, events, rank, 2))
    expected = "is all_reduce of 400 bytes .* rank 0 is all_reduce of 200 bytes: .*several groups"
    with pytest.raises(InputError, match=expected):
        replay_traces(paths)


@pytest.mark.parametrize(("ranks", "peer"), [([0, 1, 2, 3], 1), ([0, 2], -1)])
def test_the_place_of_a_message_is_a_rank_only_if_all_groups_agree(
    ranks: list[int], peer: int, tmp_path: Path
) -> None:
    called = {**op(0, 20, "c10d::send"), "args": {"Concrete Inputs": ["", "", "1", "0"]}}
    path = write(tmp_path, [called, marked(5, 10, "gloo:send", MAIN)], 0, 4)
    content = json.loads(path.read_text())
    content["distributedInfo"]["pg_config"] = [{"ranks": [0, 1, 2, 3]}, {"ranks": ranks}]
    path.write_text(json.dumps(content))
    trace = host_communication(read_kineto(path))
    (message,) = trace.collectives.values()
    assert (message.peer, message.place) == (peer, -1)


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


GRID = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

def train(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    calls = [(torch.ones(1000), rows[rank // 2]), (torch.ones(2000), columns[rank % 2])]
    calls = calls[::-1] if rank == 3 else calls
    done = lambda profiler: profiler.export_chrome_trace(f"{sys.argv[1]}/rank{rank}.json")
    steps = schedule(wait=0, warmup=1, active=6, repeat=1)
    settings = {"activities": [ProfilerActivity.CPU], "record_shapes": True}
    with profile(**settings, schedule=steps, on_trace_ready=done) as profiler:
        for _ in range(7):
            torch.ones(64, 64) @ torch.ones(64, 64)
            works = [dist.all_reduce(each, group=group, async_op=True) for each, group in calls]
            for work in works:
                work.wait()
            dist.all_reduce(torch.ones(3000))
            profiler.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(int(sys.argv[2]),), nprocs=4)
"""


def traced_by_pytorch(job: str, ranks: int, folder: Path) -> list[Path]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (folder / "job.py").write_text(job)
    command = [sys.executable, "job.py", str(folder), str(port)]
    subprocess.run(command, cwd=folder, check=True, timeout=300, capture_output=True)
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


@pytest.mark.slow
def test_a_job_of_pytorch_with_several_groups(tmp_path: Path) -> None:
    """Each group has a size of its own, so what it meets in is known; rank 3 calls out of order."""
    traced = replay_traces(traced_by_pytorch(GRID, 4, tmp_path)).traced
    sizes = {
        (traced.job.roles[role], size)
        for program in traced.job.programs
        for role, size in zip(program.role.tolist(), program.size.tolist(), strict=True)
        if role >= 0
    }
    rows, columns = {("group 1", 4000), ("group 2", 4000)}, {("group 3", 8000), ("group 4", 8000)}
    assert sizes == {("group 0", 12000), *rows, *columns}


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
    paths = traced_by_pytorch(JOB, 2, tmp_path)
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

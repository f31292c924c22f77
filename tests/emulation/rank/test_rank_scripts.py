"""Ordinary training scripts in backend mode: they end, and with the values they should have."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rank_processes import LIMIT, SCRIPTS, Ran, environment

from paracosm.emulation.job import _free_port
from paracosm.emulation.records import Collective, Group, Iteration, Note, Wait

Run = Callable[..., Ran]


def test_ddp_trains_as_one_process_does(run_rank: Run, run_alone: Run) -> None:
    """Every rank has the same data: the mean of the gradients is the gradient of one."""
    options = ("--accumulate", "2", "--batch-norm", "--find-unused-parameters", "--workers", "1")
    ran = run_rank("ddp.py", *options, "--backend", "nccl", world_size=8, latency="1ms")
    assert ran.exit_code == 0, ran.err
    assert ran.loss == pytest.approx(run_alone("ddp.py", *options).loss, abs=2e-6)
    assert len(ran.of(Iteration)) == 8
    assert [(group.size, group.backend) for group in ran.of(Group)] == [(8, "nccl")]
    # of the second backward pass alone, as no_sync says: the gradients, and which were used
    kinds = Counter(each.kind for each in ran.of(Collective))
    assert kinds["all_reduce"] == 2 * 8
    reduced = [each for each in ran.of(Collective) if each.kind == "all_reduce"]
    ends = [wait.end for wait in ran.of(Wait)]
    for each in reduced:
        assert each.done - each.asked >= 1e-3
        assert any(each.done <= end for end in ends)


@pytest.mark.slow
def test_fsdp_over_a_thousand_ranks_trains_as_one_process_does(
    run_rank: Run, run_alone: Run
) -> None:
    """Where all rows of a weight are alike, the copies of one shard are the whole of it."""
    options = ("--constant", "--steps", "5")
    alone = run_alone("fsdp2.py", *options)
    ran = run_rank("fsdp2.py", *options, "--replicas", "16", world_size=1024)
    assert ran.exit_code == 0, ran.err
    assert ran.loss == pytest.approx(alone.loss, abs=2e-6)
    assert sorted(group.size for group in ran.of(Group)) == [16, 64, 1024]
    kinds = Counter(each.kind for each in ran.of(Collective))
    assert kinds["reduce_scatter"] == kinds["all_reduce"] == 5 * 3


def test_collectives_give_what_they_would_among_ranks_with_the_same_data(run_rank: Run) -> None:
    ran = run_rank("collectives.py", world_size=4)
    assert ran.exit_code == 0, ran.err
    assert outcomes(ran.out) == EXPECTED


def outcomes(printed: str) -> dict[str, int]:
    """Return the checksum of each collective."""
    lines = [line.rsplit(maxsplit=1) for line in printed.splitlines() if "(" in line]
    return {line.split()[0]: int(number) for line, number in lines}


def weighted(values: list[int]) -> int:
    """Return the checksum of the script."""
    return sum(place * value for place, value in enumerate(values, 1))


OWN = [i % 7 + 1 for i in range(1000)]
EXPECTED = {
    **dict.fromkeys(
        ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_list"), 4 * weighted(OWN)
    ),
    **dict.fromkeys(("all_reduce_max", "broadcast", "scatter", "ring"), weighted(OWN)),
    **dict.fromkeys(("all_gather", "all_gather_single", "gather", "all_to_all"), weighted(4 * OWN)),
    "all_reduce_integers": 4 * weighted([1, 2, 3, 4, 5]),
    "all_reduce_async": 4 * 3 * weighted(OWN),
    "all_gather_object": weighted([42] * 4),
    "broadcast_objects": 42,
    "barrier": 0,
    "sub_group": 2 * weighted(OWN),
}


@pytest.mark.slow
def test_collectives_give_what_gloo_gives(run_rank: Run) -> None:
    port = str(_free_port(None))
    told = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPTS / "collectives.py"), "--steps", "2"],
            env=environment(**told, RANK=str(rank)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    try:
        printed = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert run_rank("collectives.py", "--steps", "2", world_size=4).out == printed[0]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 7, 1024])
@pytest.mark.parametrize(
    "options",
    [
        ("--static-graph",),
        ("--gradient-as-bucket-view", "--bucket-cap-mb", "0.005"),
        ("--workers", "2", "--start-method", "spawn"),
        ("--backend", "cpu:gloo,cuda:nccl"),
        ("--init-method", "tcp://10.0.0.1:29500"),
        ("--compile", "--steps", "3"),
    ],
)
def test_ddp_trains_as_one_process_does_however_it_is_asked(
    run_rank: Run, run_alone: Run, options: tuple[str, ...], world: int
) -> None:
    if world != 7 and options[0] in ("--compile", "--workers"):
        pytest.skip("long, and the world makes no difference")
    alone = [] if options[0] in ("--init-method", "--backend") else options
    ran = run_rank("ddp.py", *options, world_size=world)
    assert ran.exit_code == 0, ran.err
    assert ran.loss == pytest.approx(run_alone("ddp.py", *alone).loss, abs=5e-6)
    assert ran.of(Wait)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "world", "rank"),
    [
        ("ddp.py", ("--zero",), 16, 0),
        ("ddp.py", ("--sampler", "--workers", "2"), 64, 63),
        ("ddp.py", ("--backend", "mpi"), 3, 2),
        ("fsdp2.py", (), 2, 1),
        ("fsdp1.py", (), 8, 3),
        ("tensor_parallel.py", (), 8, 7),
        ("tensor_parallel.py", ("--replicas", "8"), 64, 5),
        ("pipeline.py", ("--schedule", "gpipe"), 4, 0),
        ("pipeline.py", (), 4, 0),
        ("pipeline.py", ("--shapes",), 4, 1),
        ("pipeline.py", ("--shapes", "--schedule", "gpipe"), 4, 3),
        ("pipeline.py", ("--shapes", "--batch", "64", "--parts", "16"), 16, 15),
    ],
)
def test_a_script_ends(
    run_rank: Run, script: str, arguments: tuple[str, ...], world: int, rank: int
) -> None:
    ran = run_rank(script, *arguments, world_size=world, rank=rank, latency="20us")
    assert ran.exit_code == 0, ran.err
    assert len(ran.of(Iteration)) >= 3
    assert {record.rank for record in ran.records} == {rank}
    assert not ran.of(Note)
    assert all(each.done >= each.begun >= each.asked for each in ran.of(Collective))


@pytest.mark.slow
def test_tensor_parallel_weights_that_are_alike_train_as_one_process_does(
    run_rank: Run, run_alone: Run
) -> None:
    alone = run_alone("tensor_parallel.py", "--constant")
    ran = run_rank("tensor_parallel.py", "--constant", world_size=16)
    assert ran.loss == pytest.approx(alone.loss, rel=1e-5)


@pytest.mark.slow
def test_a_stage_in_the_middle_must_be_told_shapes(run_rank: Run) -> None:
    ran = run_rank("pipeline.py", world_size=4, rank=2)
    assert ran.exit_code == 1
    assert "PipelineStage(..., input_args=...) tells it" in ran.err


@pytest.mark.slow
def test_a_checkpoint_is_saved_and_said_to_be_of_one_rank(run_rank: Run, tmp_path: Path) -> None:
    ran = run_rank("fsdp1.py", "--save", str(tmp_path / "saved"), world_size=8)
    assert ran.exit_code == 0, ran.err
    assert (tmp_path / "saved" / ".metadata").is_file()
    assert ["loaded by this rank alone" in note.text for note in ran.of(Note)] == [True]

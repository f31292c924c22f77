"""Contraction into chains, and the folding of ranks, on small programs by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paracosm.jobs.job import Program
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation.folding import Chains, contract, fold_ranks


def written(*tasks: tuple[str, str, list[int]], kinds: tuple[str, ...] = ()) -> Program:
    writer = ProgramWriter(Codebook(), Codebook(["compute", "network"]), Codebook())
    for row, (name, lane, after) in enumerate(tasks):
        kind = kinds[row] if kinds else "task"
        role = None if kind == "task" else "all"
        writer.add(name, lane, 1.0, after, kind=kind, role=role)
    return writer.program()


def members(chains: Chains) -> list[list[int]]:
    return [
        chains.rows[first:last].tolist()
        for first, last in zip(chains.first[:-1], chains.first[1:], strict=True)
    ]


def waits(chains: Chains) -> list[list[int]]:
    return [
        chains.dependencies[first:last].tolist()
        for first, last in zip(chains.offsets[:-1], chains.offsets[1:], strict=True)
    ]


def test_the_picture_in_the_docstring() -> None:
    # a b c d e on compute; r follows b, s follows r, d waits for r (s is never waited for).
    program = written(
        ("a", "compute", []),
        ("b", "compute", [0]),
        ("r", "network", [1]),
        ("c", "compute", [1]),
        ("s", "network", [2]),
        ("d", "compute", [2, 3]),
        ("e", "compute", []),
    )
    chains = contract(program, 2)
    # b ends a chain because r waits for it; r because d does.
    assert members(chains) == [[0, 1], [3], [5, 6], [2], [4]]
    assert waits(chains) == [[], [], [3], [0], []]


def test_a_dependency_that_follows_from_another_one_is_dropped() -> None:
    # c waits for r, which waits for a: that c waits for a as well says nothing; so d for r.
    program = written(
        ("a", "compute", []),
        ("r", "network", [0]),
        ("c", "compute", [0, 1]),
        ("d", "compute", [1, 2]),
    )
    chains = contract(program, 2)
    assert members(chains) == [[0], [2, 3], [1]]
    assert waits(chains) == [[], [2], [0]]


def test_what_communicates_is_a_chain_of_its_own() -> None:
    program = written(
        *((name, "network", []) for name in "abcd"),
        kinds=("task", "collective", "collective", "task"),
    )
    chains = contract(program, 2)
    assert members(chains) == [[0], [1], [2], [3]]
    assert chains.ordinal.tolist()[1:3] == [0, 1]


def pipeline_of_replicas(speeds: list[float]) -> list[int]:
    """Classes of 2 stages x 2 replicas: rank 0 sends to 2, 1 to 3; 0 meets 1, and 2 meets 3."""
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    first, second = (ProgramWriter(names, lanes, roles) for _ in range(2))
    done = first.add("work", "compute", 1.0)
    first.add("x", "network", 1.0, [done], kind="send", role="next", size=8)
    first.add("reduce", "network", 1.0, [done], kind="collective", role="data", size=8)
    second.add("x", "network", 0.0, kind="receive", role="last", size=8)
    second.add("reduce", "network", 1.0, kind="collective", role="data", size=8)
    job = write_job(
        [first, second],
        [0, 0, 1, 1],
        write_communicators([(0, 2), (1, 3), (0, 1), (2, 3)]),
        [
            {"next": 0, "data": 2},
            {"next": 1, "data": 2},
            {"last": 0, "data": 3},
            {"last": 1, "data": 3},
        ],
        speed=speeds,
    )
    return fold_ranks(job).class_of.tolist()


@pytest.mark.parametrize(
    ("speeds", "classes"),
    [
        ([1, 1, 1, 1], [0, 0, 1, 1]),
        # Rank 0 is slow: 1 meets it, 2 gets its message, 3 meets 2. All are told apart.
        ([0.5, 1, 1, 1], [0, 1, 2, 3]),
    ],
)
def test_ranks_are_alike_that_meet_alike_ranks(speeds: list[float], classes: list[int]) -> None:
    assert pipeline_of_replicas(speeds) == classes


def test_a_ring_of_alike_ranks_is_one_rank() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    sent = writer.add("x", "send", 2.0, kind="send", role="right", size=8)
    writer.add("x", "receive", 0.0, [sent], kind="receive", role="left", size=8)
    ranks = 5
    groups = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    of_rank = [{"right": rank, "left": (rank - 1) % ranks} for rank in range(ranks)]
    folding = fold_ranks(write_job([writer], [0] * ranks, write_communicators(groups), of_rank))
    assert folding.class_of.tolist() == [0] * ranks
    assert len(folding.offsets) == 2  # one link, from the class to itself
    np.testing.assert_array_equal(folding.members, [0, 0])

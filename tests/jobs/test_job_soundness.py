"""Jobs whose arrays do not go together are refused before a compiled loop reads them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.jobs import Codebook, Job, ProgramWriter, write_communicators, write_job
from paracosm.jobs.check import check_job
from paracosm.network import Stations


def codes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def offsets(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def sound() -> Job:
    """Two ranks of one program: work, a meeting, work; offsets 0 0 1 2, dependencies 0 1."""
    writer = ProgramWriter(Codebook(), Codebook(), Codebook())
    done = writer.add("a", "compute", 1.0)
    met = writer.add("meet", "network", 1.0, [done], kind="collective", role="all", size=8)
    writer.add("b", "compute", 1.0, [met])
    return write_job([writer], [0, 0], write_communicators([(0, 1)]), [{"all": 0}] * 2)


def two_ways() -> Stations:
    network = Stations(switch(2, 0, Link()))
    network.connect("worker0", "worker1")
    network.connect("worker1", "worker0")
    return network


def test_what_goes_together_is_accepted() -> None:
    check_job(sound())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dependencies": offsets(2, 1)}, "task 1 depends on row 2: rows depend on earlier ones"),
        ({"dependencies": offsets(1, 1)}, "task 1 depends on row 1"),
        ({"dependencies": offsets(77, 1)}, "task 1 depends on row 77"),
        ({"dependencies": offsets(-5, 1)}, "task 1 depends on row -5"),
        ({"offsets": offsets(0, 0, 1)}, "offsets: 3 entries for 3 rows, not one more"),
        ({"offsets": offsets(0, 0, 5, 9)}, "offsets must ascend from 0 to 2"),
        ({"offsets": offsets(0, 2, 1, 2)}, "offsets must ascend from 0 to 2"),
        ({"role": codes(-1, 5, -1)}, "task 1: there is no role 5, only 1 of them"),
        ({"role": codes(-1, -1, -1)}, "task 1: a collective needs a role"),
        ({"role": codes(0, 0, -1)}, "task 0: a task has no role"),
        ({"lane": codes(0, 9, 0)}, "task 1: there is no lane 9, only 2 of them"),
        ({"kind": codes(0, 9, 0)}, "task 1: there is no kind 9"),
        ({"step": codes(0, 99, 0)}, "task 1: there is no step 99"),
        ({"name": codes(0, 1, 99)}, "task 2: there is no name 99"),
        ({"duration": np.ones(2)}, "duration has 2 entries for 3 tasks"),
        ({"allocated": offsets(1)}, "allocated has 1 entries for 3 tasks"),
        ({"size": offsets(0, -8, 0)}, "task 1: -8 bytes; give 0 or more"),
    ],
)
def test_a_program_that_leads_nowhere_is_named(changes: dict[str, Any], message: str) -> None:
    job = sound()
    program = dataclasses.replace(job.programs[0], **changes)
    refused(dataclasses.replace(job, programs=(program,)), f"job: program 0: {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": codes(0, 3)}, "rank 1: there is no program 3, only 1 of them"),
        ({"program": codes(), "speed": np.ones(0), "labels": ()}, "no ranks"),
        ({"speed": np.ones(3)}, "3 speeds for 2 ranks"),
        ({"speed": np.array([1.0, 0.0])}, "rank 1: speed must be finite and above 0, not 0.0"),
        ({"speed": np.array([1.0, np.nan])}, "rank 1: speed must be finite and above 0, not nan"),
        ({"labels": ("one",)}, "1 labels for 2 ranks"),
        ({"policies": ("in order",)}, "1 policies for 2 lanes"),
        ({"policies": ("in order", "fofo")}, 'unknown policy "fofo": did you mean "fifo"?'),
        ({"communicator": np.array([[0], [4]])}, 'role "all": rank 1: there is no communicator 4'),
        ({"communicator": np.array([[0]])}, "communicator has shape (1, 1), not ranks x roles"),
        ({"communicators": write_communicators([(0, 7)])}, "member 1: there is no rank 7"),
        ({"communicators": write_communicators([(0, 0)])}, "communicator 0 has rank 0 twice"),
        (
            {"communicators": write_communicators([(0, 1)], two_ways())},
            "job: 2 connections for 1 communicators",
        ),
    ],
)
def test_ranks_and_groups_that_are_not_there_are_named(
    changes: dict[str, Any], message: str
) -> None:
    refused(dataclasses.replace(sound(), **changes), message)


def test_a_rank_that_calls_on_a_communicator_of_others_is_named() -> None:
    """Ranks 0 and 2 call on the group of 0 and 1: as many as it has, but not those."""
    writer, idle = (ProgramWriter(*books) for books in [(Codebook(), Codebook(), Codebook())] * 2)
    writer.add("meet", "network", 1.0, kind="collective", role="all", size=8)
    groups = write_communicators([(0, 1)])
    job = write_job([writer, idle], [0, 1, 0], groups, [{"all": 0}, {}, {"all": 0}])
    refused(job, "communicator of rank 0, rank 1: rank 2 calls on it and is not among them")


def test_jobs_that_cannot_be_written_down() -> None:
    groups = write_communicators([])
    with pytest.raises(InputError, match="at least one program"):
        write_job([], [], groups, [])
    writers = [ProgramWriter(Codebook(), Codebook(), Codebook()) for _ in range(2)]
    with pytest.raises(InputError, match="program 1 has codebooks of its own"):
        write_job(writers, [0, 1], groups, [{}, {}])
    with pytest.raises(InputError, match="communicators of 1 ranks for a job of 2 ranks"):
        write_job(writers[:1], [0, 0], groups, [{}])


def refused(job: Job, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_job(job)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)

"""Jobs whose arrays do not go together are refused before a compiled loop reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.jobs.check import check_job
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job


def two_ranks(**changes: Any) -> Job:
    """Two ranks of one program: work, a meeting, work."""
    writer = ProgramWriter(Codebook(), Codebook(), Codebook())
    done = writer.add("a", "compute", 1.0)
    met = writer.add("meet", "network", 1.0, [done], kind="collective", role="all", size=8)
    writer.add("b", "compute", 1.0, [met])
    usual: dict[str, Any] = {
        "program": [0, 0],
        "communicators": write_communicators([(0, 1)]),
        "communicator": [{"all": 0}] * 2,
    }
    return write_job([writer], **{**usual, **changes})


def test_what_goes_together_is_accepted() -> None:
    check_job(two_ranks())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": [], "communicator": []}, "no ranks"),
        ({"speed": [1.0, 0.0]}, "rank 1: speed must be finite and above 0, not 0.0"),
        ({"speed": [1.0, np.nan]}, "rank 1: speed must be finite and above 0, not nan"),
        ({"communicator": [{"all": 0}, {"all": 4}]}, "there is no communicator 4, only 1"),
        ({"communicators": write_communicators([(0, 7)])}, "there is no rank 7, only 2 of them"),
        ({"communicators": write_communicators([(0, 0)])}, "communicator 0 has rank 0 twice"),
    ],
)
def test_ranks_and_groups_that_are_not_there_are_named(
    changes: dict[str, Any], message: str
) -> None:
    refused(two_ranks(**changes), message)


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

"""Jobs that last longer than the clock goes: 2**63 - 1 picoseconds, 106 days."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation import replay_job


def relay(ranks: int, seconds: float, lane: str | None = "compute") -> Job:
    """Each rank works when the one before has: ranks x seconds."""
    books = Codebook(), Codebook(), Codebook()
    writers, groups = [], []
    of_rank: list[dict[str, int]] = [{} for _ in range(ranks)]
    for rank in range(ranks):
        writer, after = ProgramWriter(*books), []
        if rank:
            after = [writer.add("get", "receive", 0.0, kind="receive", role="last")]
            of_rank[rank]["last"] = rank - 1
        done = writer.add("work", lane, seconds, after)
        if rank < ranks - 1:
            writer.add("put", "send", 0.0, [done], kind="send", role="next")
            of_rank[rank]["next"] = rank
            groups.append((rank, rank + 1))
        writers.append(writer)
    return write_job(writers, range(ranks), write_communicators(groups), of_rank)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("lane", ["compute", None])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_instants_beyond_the_clock_are_refused(ranks: int, lane: str | None, fold: bool) -> None:
    """8e6 s a rank, each of which alone is accepted; sums wrap around to all kinds of numbers."""
    assert replay_job(relay(1, 8e6, lane), fold=fold).makespan == 8e6
    with pytest.raises(InputError, match="106 days"):
        replay_job(relay(ranks, 8e6, lane), fold=fold)


def test_a_seed_below_0_is_refused() -> None:
    with pytest.raises(InputError, match="a seed is a whole number from 0 on, not -1"):
        replay_job(relay(2, 1.0), duration_cv=0.1, seed=-1)

"""Communication that does not fit together is refused, and the first misfit named."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.jobs.check import check_job
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

Calls = list[tuple[str, str, str, int]]  # name, kind, role, bytes


def job_of(calls: list[Calls], groups: list[tuple[int, ...]], of_rank: list[dict[str, int]]) -> Job:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writers = []
    for of_writer in calls:
        writer = ProgramWriter(names, lanes, roles)
        for name, kind, role, size in of_writer:
            writer.add(name, "network", 1.0, kind=kind, role=role, size=size)
        writers.append(writer)
    return write_job(writers, range(len(calls)), write_communicators(groups), of_rank)


def meet(name: str, size: int = 8) -> tuple[str, str, str, int]:
    return (name, "collective", "all", size)


def test_what_fits_is_accepted() -> None:
    send, receive = ("x", "send", "next", 4), ("y", "receive", "last", 4)
    check_job(
        job_of(
            [[meet("a"), send], [receive, meet("a")]],
            [(0, 1), (0, 1)],
            [{"all": 0, "next": 1}, {"all": 0, "last": 1}],
        )
    )


@pytest.mark.parametrize(
    ("calls", "groups", "of_rank", "message"),
    [
        (
            [[meet("a"), meet("b")], [meet("a"), meet("c")]],
            [(0, 1)],
            [{"all": 0}] * 2,
            (
                "collectives of rank 0, rank 1 do not match: the 2nd is b of 8 bytes on rank 0, "
                "c of 8 bytes on rank 1"
            ),
        ),
        (
            [[meet("a")] * 3, [meet("a")] * 2],
            [(0, 1)],
            [{"all": 0}] * 2,
            "collectives of rank 0, rank 1 do not match: rank 0 has 3, rank 1 has 2",
        ),
        (
            [[meet("a")], [meet("a")], []],
            [(0, 1, 2)],
            [{"all": 0}] * 3,
            'of rank 0, rank 1, rank 2, rank 0 calls "all" and rank 2 never does',
        ),
        (
            [[meet("a")], [meet("a")]],
            [(0, 1)],
            [{"all": 0}, {}],
            'rank 1 communicates as "all" and has no communicator for it',
        ),
        (
            [[("x", "send", "next", 4)], [("x", "receive", "last", 5)]],
            [(0, 1)],
            [{"next": 0}, {"last": 0}],
            (
                "messages of rank 0, rank 1 do not match: the 1st is x of 4 bytes on rank 0, "
                "x of 5 bytes on rank 1"
            ),
        ),
        (
            [[("x", "receive", "last", 4)], [("x", "send", "next", 4)]],
            [(0, 1)],
            [{"last": 0}, {"next": 0}],
            "messages go from its first of two ranks to its second; rank 0 receives",
        ),
        (
            [[("x", "send", "next", 4)], [("x", "send", "next", 4)], []],
            [(0, 1)],
            [{"next": 0}, {"next": 0}, {}],
            "messages go from its first of two ranks to its second; rank 1 sends",
        ),
        (
            [[meet("a"), ("x", "send", "all", 4)], []],
            [(0, 1)],
            [{"all": 0}, {}],
            'role "all": one program uses it as collective and as send',
        ),
        (
            [[meet("a"), ("b", "collective", "again", 8)], [meet("a")]],
            [(0, 1)],
            [{"all": 0, "again": 0}, {"all": 0}],
            "rank 0 uses it in two roles",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    calls: list[Calls], groups: list[tuple[int, ...]], of_rank: list[dict[str, int]], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_job(job_of(calls, groups, of_rank))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_large_group_is_not_listed_in_full() -> None:
    calls = [[meet("a")]] * 9 + [[meet("b")]]
    with pytest.raises(InputError, match="rank 5 and 4 more do not match"):
        check_job(job_of(calls, [tuple(range(10))], [{"all": 0}] * 10))

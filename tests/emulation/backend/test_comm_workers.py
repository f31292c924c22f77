"""How many comm workers a group has."""

from __future__ import annotations

import pytest

from paracosm.emulation.backend.runtime import Member


@pytest.mark.parametrize(
    ("asked", "device", "given", "expected"),
    [
        ("gloo", "cpu", None, 2),
        ("nccl", "cpu", None, 1),
        ("NCCL", "cuda", None, 1),
        ("cpu:gloo,cuda:nccl", "cpu", None, 2),
        ("cpu:gloo,cuda:nccl", "cuda", None, 1),
        ("undefined", "cpu", None, 2),
        ("", "cuda", None, 1),
        ("nccl", "cuda", 4, 4),
    ],
)
def test_a_backend_has_so_many_comm_workers(
    asked: str, device: str, given: int | None, expected: int
) -> None:
    member = Member("0", 0, (0, 1), asked, 1800.0, given)
    assert member.pool("all_reduce", -1, device)[1] == expected
    assert member.pool("send", 1, device)[1] == 1
    assert member.pool("send", 1, device)[0] != member.pool("recv", 1, device)[0]

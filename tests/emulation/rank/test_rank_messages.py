"""Messages that one recorded rank hands to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paracosm.emulation.rank.messages import Messages, assumed_sources, awaited_rank


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bfloat16, torch.bool])
def test_what_was_sent_is_received_in_order(dtype: torch.dtype, tmp_path: Path) -> None:
    first = torch.arange(6).reshape(2, 3).to(dtype)
    one, other = Messages(tmp_path, 0), Messages(tmp_path, 1)
    one.send(1, first)
    one.send(2, first + first)
    one.send(1, None)  # an activation, which nobody computed
    one.send(1, first + first)
    one.save()
    like = torch.empty(2, 3, dtype=dtype)
    assert other.has_next(0)
    received = other.receive(0, like)
    assert received is not None
    assert received.dtype == dtype
    assert torch.equal(received, first)
    assert not other.has_next(0)
    assert other.receive(0, like) is None
    last = other.receive(0, like)
    assert last is not None
    assert torch.equal(last, first + first)


def test_what_does_not_fit_is_not_received(tmp_path: Path) -> None:
    one, other = Messages(tmp_path, 0), Messages(tmp_path, 1)
    one.send(1, torch.zeros(3))
    one.send(1, torch.ones(3))
    one.save()
    assert other.receive(0, torch.empty(4)) is None
    assert other.receive(0, torch.empty(3, dtype=torch.float64)) is None


def test_an_expected_message_stands_for_the_next(tmp_path: Path) -> None:
    messages = Messages(tmp_path, 1)
    messages.receive(0, torch.empty(1))
    messages.expect(0, [torch.full((1,), 5.0)])
    received = messages.receive(0, torch.empty(1))
    assert received is not None
    assert received.item() == 5


def test_ranks_wait_for_one_another_without_a_circle(tmp_path: Path) -> None:
    two, one = Messages(tmp_path, 2), Messages(tmp_path, 1)
    assert two.wait_for(1)
    assert awaited_rank(tmp_path, 2) == 1
    assert not one.wait_for(2)  # which waits itself
    one.assumes.add(0)
    one.save()
    assert assumed_sources(tmp_path, 1) == [0]
    again = Messages(tmp_path, 2)
    assert not again.wait_for(1)  # it was recorded
    again.save()
    assert awaited_rank(tmp_path, 2) is None

"""What servers do with reads and gradients, one call after the other."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from real_training.store import TrainingStore, parse_update_rule

from paracosm.errors import InputError


def store(algorithm: str, workers: int, tensors: int = 1) -> TrainingStore:
    every = {number: torch.zeros(1) for number in range(tensors)}
    return TrainingStore(every, parse_update_rule(algorithm), 1.0, workers, tensors)


def value(of: TrainingStore, tensor: int = 0) -> float:
    return float(of.snapshots[-1][1][tensor])


def test_what_was_read_stays_as_it_was() -> None:
    its = store("asgd", 2)
    read = its.read(0)
    its.push(1, 0, torch.tensor([3.0]))
    assert float(read[0]) == 0
    assert float(its.read(0)[0]) == -3


def test_tensors_are_sent_in_the_order_that_is_set() -> None:
    its = store("asgd", 1, tensors=3)
    assert list(its.read(0)) == [0, 1, 2]
    its.sending = [2, 0, 1]
    assert list(its.read(0)) == [2, 0, 1]


def test_a_gradient_counts_less_the_more_updates_came_between() -> None:
    its = store("staleness-aware", 2)
    its.read(0)
    for _ in range(4):
        its.read(1)
        its.push(1, 0, torch.tensor([1.0]))  # of staleness 0: whole
    its.push(0, 0, torch.tensor([1.0]))  # of staleness 4: a quarter
    its.keep_snapshot()
    assert value(its) == -4.25


def test_a_synchronous_update_has_the_mean_of_all_workers() -> None:
    its = store("ssgd", 2)
    for worker in range(2):
        its.read(worker)
    its.push(1, 0, torch.tensor([1.0]))
    its.keep_snapshot()
    assert value(its) == 0
    its.push(0, 0, torch.tensor([2.0]))
    its.wait_for_updates(1)
    its.keep_snapshot()
    assert value(its) == -1.5


def test_what_waits_for_a_worker_that_has_left_is_dropped() -> None:
    its = store("ssgd", 2)
    its.read(0)
    its.push(0, 0, torch.tensor([1.0]))
    its.leave(1)
    its.wait_for_updates(0)
    its.read(0)
    its.push(0, 0, torch.tensor([1.0]))
    its.wait_for_updates(0)
    its.keep_snapshot()
    assert (value(its), its.dropped, its.updates) == (0, 2, [])


def test_who_is_ahead_reads_once_the_slowest_has_pushed_all_its_gradients() -> None:
    its = store("ssp(slack=0)", 2, tensors=2)
    for tensor in range(2):
        its.push(0, tensor, torch.ones(1))
    reading = threading.Thread(target=its.read, args=(0,), daemon=True)
    reading.start()
    its.push(1, 0, torch.ones(1))
    reading.join(0.2)
    assert reading.is_alive()
    its.push(1, 1, torch.ones(1))
    reading.join(60)
    assert not reading.is_alive()
    assert its.reads[-1][1:] == (0, 2, 2)


def test_nobody_waits_for_a_worker_that_has_left() -> None:
    its = store("ssp(slack=0)", 2)
    for _ in range(3):
        its.push(0, 0, torch.ones(1))
    its.leave(1)
    assert float(its.read(0)[0]) == -3


def test_notes_are_written_in_order_and_at_different_times(tmp_path: Path) -> None:
    its = store("asgd", 2, tensors=2)
    for worker in (0, 1):
        its.read(worker)
        its.push(worker, 1, torch.ones(1))
    its.keep_snapshot()
    its.write(tmp_path / "noted.npz")
    with np.load(tmp_path / "noted.npz") as arrays:
        assert arrays["reads"][:, 1:].tolist() == [[0, 0, 0], [1, 0, 1]]
        assert arrays["updates"][:, 1:].tolist() == [[0, 1, 1, 0], [1, 1, 2, 1]]
        times = [arrays["reads"][:, 0], arrays["updates"][:, 0]]
        assert (np.diff(np.stack(times).ravel("F")) > 0).all()
        assert arrays["snapshots"].tolist() == [[0, -2]]
        assert arrays["snapshot_times"][0] > times[1][-1]


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("sspp", 'unknown algorithm of a real job "sspp": did you mean "ssgd"?'),
        ("ssp(slack=-1)", 'algorithm "ssp(slack=-1)": write asgd or'),
    ],
)
def test_a_rule_that_there_is_not_is_refused(algorithm: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_update_rule(algorithm)
    assert message in str(refused.value)

"""Training over schedules of jobs that fail: what is lost, what is restored, what goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import series
from small_network import TENSORS, data, initial
from test_scheduled import SEED, config, cut, mixed
from torch.nn.functional import cross_entropy
from training_on_schedule import train_plainly

from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.simulation.rollback import Block, Checkpoint, Restore, with_rollbacks
from paracosm.simulation.schedule import Schedule
from paracosm.training import Metrics
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.training.target import FirstPassage, parse_target

WORKERS, STEPS = 3, 12


def job(seed: int, failures: list[float], cuts: Iterable[int] = ()) -> Iterator[Block]:
    """Return a job of which each life is another schedule; times are some microseconds."""
    return with_rollbacks(
        lambda life: cut(mixed(seed + life, WORKERS, STEPS), list(cuts)),
        failures,
        workers=WORKERS,
        tensors=len(TENSORS),
        restart=3e-6,
        interval=20e-6,
        cost=2e-6,
    )


def lasting(events: Iterable[Block]) -> list[Schedule]:
    """Return the blocks without those between a checkpoint, or the begin, and a restore."""
    saved: list[Schedule] = []
    since: list[Schedule] = []
    for event in events:
        if isinstance(event, Schedule):
            since.append(event)
        elif isinstance(event, Checkpoint):
            saved, since = saved + since, []
        else:
            since = []
    return saved + since


FAILURES = [23e-6, 41e-6, 44e-6, 90e-6]


def test_the_failures_are_of_several_kinds() -> None:
    """What the tests below are about: before and after a checkpoint, and with work lost."""
    marks = [mark for mark in job(5, FAILURES) if not isinstance(mark, Schedule)]
    kinds = [type(mark) for mark in marks]
    assert kinds.count(Restore) >= 2
    assert Checkpoint in kinds[kinds.index(Restore) :]
    assert any(mark.lost > 0 for mark in marks if isinstance(mark, Restore))


def test_losses_are_those_of_a_plain_program_over_what_lasts() -> None:
    x, y, _, _ = data()
    drawn: list[list[np.ndarray]] = []
    for worker in range(WORKERS):
        stream = generator(SEED, TrainingStream.BATCHES, worker)
        sampler = BatchSampler(np.arange(len(x)), 8, stream)
        drawn.append([sampler.next() for _ in range(200)])
    blocks = lasting(job(5, FAILURES))
    losses, tensors = train_plainly(
        initial(integer_seed(SEED, TrainingStream.MODEL)),
        cross_entropy,
        torch.from_numpy(x),
        torch.from_numpy(y),
        lambda worker, step: drawn[worker][step],
        [row for block in blocks for row in block.reads.tolist()],
        [row for block in blocks for row in block.updates.tolist()],
        TENSORS,
        0.1,
    )
    result = train_on_schedule(config(workers=WORKERS), job(5, FAILURES), TENSORS, SEED)
    flat = torch.cat([tensors[name].flatten() for name in TENSORS])
    assert torch.allclose(result.parameters, flat, rtol=0, atol=1e-6)
    last = {row.node: row.value for row in series(result, "minibatch_loss")}
    newest = {f"worker{w}": losses[w, s] for w, s in sorted(losses) if (w, s + 1) not in losses}
    assert last == pytest.approx({name: newest[name] for name in last}, abs=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "optimizer"),
    [
        ("asgd", "adam"),
        ("fedbuff(buffer=1)", "sgd(momentum=0.9)"),
        pytest.param("asgd", "sgd(momentum=0.9)", marks=pytest.mark.slow),
        pytest.param("fedbuff(buffer=1)", "adam", marks=pytest.mark.slow),
    ],
)
def test_the_state_of_optimizers_is_restored(optimizer: str, algorithm: str) -> None:
    """As if what is lost had never been asked for."""
    given: dict[str, Any] = {"workers": WORKERS, "optimizer": optimizer, "lr": 0.01}
    failed = train_on_schedule(config(**given), job(5, FAILURES), TENSORS, SEED)
    spared = train_on_schedule(config(**given), lasting(job(5, FAILURES)), TENSORS, SEED)
    assert torch.equal(failed.parameters, spared.parameters)


def test_an_evaluation_after_a_restore_sees_what_was_saved() -> None:
    metrics = Metrics()
    train_on_schedule(
        config(workers=WORKERS, evaluate_every=1), job(5, FAILURES), TENSORS, SEED, metrics
    )
    seen = [(row.virtual_time, row.step, row.value) for row in metrics.series("loss")]
    steps = [step for _, step, _ in seen]
    assert any(later <= earlier for earlier, later in pairwise(steps))
    assert [time for time, _, _ in seen] == sorted(time for time, _, _ in seen)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 60_000_000), max_size=5), st.integers(0, 3))
def test_block_boundaries_have_no_effect(cuts: list[int], seed: int) -> None:
    whole = train_on_schedule(config(workers=WORKERS), job(seed, FAILURES), TENSORS, SEED)
    parts = train_on_schedule(config(workers=WORKERS), job(seed, FAILURES, cuts), TENSORS, SEED)
    assert torch.equal(whole.parameters, parts.parameters)
    assert whole.summary.updates == parts.summary.updates


def test_a_target_that_was_met_by_lost_parameters_has_to_be_met_again() -> None:
    passage = FirstPassage(parse_target("loss <= 0.5"), held=2)
    assert not passage.see(1.0, 10, 0.4)
    passage.interrupt()
    assert not passage.see(2.0, 10, 0.4)
    assert passage.see(3.0, 20, 0.4)
    assert (passage.reached_at, passage.reached_updates) == (2.0, 10)

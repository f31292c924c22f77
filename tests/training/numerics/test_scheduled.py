"""Gradients over a schedule: against the engine, against a plain program, and however it is cut."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import series
from small_network import TENSORS, data, initial
from torch.nn.functional import cross_entropy
from training_on_schedule import train_plainly

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.simulation.schedule import READ, STEP, UPDATE, Schedule
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.numerics.scheduled import events, train_on_schedule

SEED = 3


def config(**arguments: Any) -> TrainConfig:
    common = {
        "model": "small_network:model",
        "data": "small_network:data",
        "batch": 8,
        "lr": 0.1,
        "lookahead": "off",
        "evaluate_every": 10,
    }
    return TrainConfig.model_validate({**common, **arguments})


def rows(result: TrainingResult, name: str) -> list[tuple[str, int, float]]:
    return [(row.node, row.step, row.value) for row in series(result, name)]


def mixed(
    seed: int, workers: int, steps: int, group: int = 1, ties: bool = False, tensors: int = 6
) -> Schedule:
    """Return a schedule in which workers read tensors one by one and update them backwards.

    Pulls, computing and pushes take random times, so that snapshots are mixed and the tensors see
    gradients in different orders. `group` gradients make an update of a tensor.
    """
    rng = np.random.default_rng(seed)
    draw = partial(rng.integers, 1, 3) if ties else partial(rng.integers, 1, 10**6)
    heap = [(int(draw()), worker, worker, 0, 0) for worker in range(workers)]
    heapq.heapify(heap)
    version, gathered = [0] * tensors, [[] for _ in range(tensors)]
    read: dict[tuple[int, int, int], int] = {}
    found: dict[str, list[tuple[int, ...]]] = {"reads": [], "updates": [], "steps": []}
    began = [0] * workers
    count = workers
    while heap:
        time, _, worker, step, phase = heapq.heappop(heap)
        if phase < tensors:
            read[worker, step, phase] = version[phase]
            found["reads"].append((time, worker, step, phase, version[phase]))
        else:
            tensor = 2 * tensors - 1 - phase
            gathered[tensor].append((worker, step, read[worker, step, tensor]))
            if len(gathered[tensor]) == group:
                version[tensor] += 1
                found["updates"] += [
                    (time, w, s, tensor, version[tensor], at) for w, s, at in gathered[tensor]
                ]
                gathered[tensor] = []
        phase, count = phase + 1, count + 1
        if phase == 2 * tensors:
            found["steps"].append((worker, step, began[worker], time, 1))
            began[worker], step, phase = time, step + 1, 0
        if step < steps:
            heapq.heappush(heap, (time + int(draw()), count, worker, step, phase))
    arrays = (
        np.array(found[what], dtype)
        for what, dtype in (("reads", READ), ("updates", UPDATE), ("steps", STEP))
    )
    return Schedule(*arrays, end=time, dropped=0, busy={})


def cut(schedule: Schedule, times: Sequence[int]) -> list[Schedule]:
    """Return the schedule in blocks that begin at the times."""
    edges = [0, *sorted(times), schedule.end + 1]
    blocks = []
    for begin, end in pairwise(edges):
        of = {
            what: (lambda array, at: array[(begin <= array[at]) & (array[at] < end)])(
                getattr(schedule, what), "end" if what == "steps" else "time"
            )
            for what in ("reads", "updates", "steps")
        }
        blocks.append(replace(schedule, end=min(end, schedule.end), **of))
    return blocks


def plainly(schedule: Schedule, workers: int, **arguments: Any) -> Any:
    """Train by the plain program on the model and the batches that SEED stands for."""
    x, y, _, _ = data()
    samplers = [
        BatchSampler(np.arange(len(x)), 8, generator(SEED, TrainingStream.BATCHES, worker))
        for worker in range(workers)
    ]
    drawn: list[list[np.ndarray]] = [[] for _ in range(workers)]

    def batches(worker: int, step: int) -> np.ndarray:
        while len(drawn[worker]) <= step:
            drawn[worker].append(samplers[worker].next())
        return drawn[worker][step]

    return train_plainly(
        initial(integer_seed(SEED, TrainingStream.MODEL)),
        cross_entropy,
        torch.from_numpy(x),
        torch.from_numpy(y),
        batches,
        schedule.reads.tolist(),
        schedule.updates.tolist(),
        TENSORS,
        lr=0.1,
        **arguments,
    )


# Every day each algorithm with one optimizer, and each optimizer with one algorithm.
@pytest.mark.parametrize(
    ("algorithm", "optimizer"),
    [
        pytest.param(*each, marks=() if each[0] == "asgd" or each[1] == "sgd" else pytest.mark.slow)
        for each in product(
            (
                *("asgd", "staleness-aware", "delay-adaptive(2)", "dc-asgd", "softsync(n=2)"),
                *("fedbuff(buffer=3)", "ssp(slack=1)", "ssgd", "backup-workers"),
                *("ssgd(reduce=sum)", "dc-asgd-a"),
            ),
            ("sgd", "sgd(momentum=0.9)", "adam"),
        )
    ],
)
def test_over_the_schedule_of_a_run_come_its_own_losses(algorithm: str, optimizer: str) -> None:
    """The engine decides while it computes; a schedule is made first, by compiled code."""
    job = {
        "algorithm": algorithm,
        "workers": 5,
        "updates": 40,
        "bandwidth": "1Mbit/s",
        "latency": "1ms",
        "compute": "exponential(20ms)",
    }
    wanted = config(optimizer=optimizer, **job)
    made = TrainConfig.model_validate(
        {**job, "timing_only": True, "timeline": False, "message_size": 4 * 111}
    )
    schedule = train(made, SEED).schedule
    assert schedule is not None
    engine, ours = train(wanted, SEED), train_on_schedule(wanted, [schedule], (), SEED)
    for name in ("minibatch_loss", "loss", "test_loss", "accuracy", "staleness", "examples"):
        theirs = rows(engine, name)
        assert [row[:2] for row in rows(ours, name)] == [row[:2] for row in theirs], name
        values = [row[2] for row in theirs]
        assert [row[2] for row in rows(ours, name)] == pytest.approx(values, abs=1e-6), name
    for key in ("updates", "examples", "mean_staleness", "dropped", "final_loss"):
        assert ours.summary[key] == pytest.approx(engine.summary[key], abs=1e-6), key


@pytest.mark.parametrize(
    ("algorithm", "group", "weight"),
    [
        ("asgd", 1, lambda age: 1.0),
        ("staleness-aware", 1, lambda age: 1 / max(1, age)),
        ("softsync(n=1)", 4, lambda age: 1 / max(1, age)),
        ("ssgd", 4, lambda age: 1.0),
    ],
)
def test_mixed_snapshots_give_what_a_plain_program_finds(
    algorithm: str, group: int, weight: Any
) -> None:
    schedule = mixed(0, workers=4, steps=24, group=group)
    assert len(set(schedule.staleness.tolist())) > 1
    whole = [
        version
        for version in np.stack(
            [schedule.reads["version"][schedule.reads["tensor"] == tensor] for tensor in range(6)]
        ).T
        if len(set(version.tolist())) > 1
    ]
    assert whole, "no snapshot is mixed"
    losses, tensors = plainly(schedule, 4, weight=weight)
    result = train_on_schedule(
        config(algorithm=algorithm, workers=4, updates=10_000), [schedule], TENSORS, SEED
    )
    ours: dict[str, list[float]] = {}
    for node, _, value in rows(result, "minibatch_loss"):
        ours.setdefault(node, []).append(value)
    for worker in range(4):
        theirs = [losses[key] for key in sorted(losses) if key[0] == worker]
        assert ours[f"worker{worker}"] == pytest.approx(theirs, abs=1e-6)
    end = torch.cat([tensors[name].reshape(-1) for name in TENSORS])
    assert torch.allclose(result.parameters, end, atol=1e-6)


def test_names_decide_which_tensor_a_number_is() -> None:
    """Numbers follow the names, here in another order than the model's."""
    schedule = mixed(1, workers=3, steps=10)
    order = [3, 0, 5, 1, 4, 2]
    moved = {}
    for what in ("reads", "updates"):
        moved[what] = getattr(schedule, what).copy()
        moved[what]["tensor"] = np.argsort(order)[moved[what]["tensor"]]
    renamed = replace(schedule, **moved)
    names = [TENSORS[number] for number in order]
    wanted = config(workers=3)
    first = train_on_schedule(wanted, [schedule], TENSORS, SEED)
    second = train_on_schedule(wanted, [renamed], names, SEED)
    assert torch.equal(first.parameters, second.parameters)


def test_staleness_is_counted_by_tensor() -> None:
    schedule = mixed(2, workers=4, steps=20)
    result = train_on_schedule(config(workers=4, updates=10_000), [schedule], TENSORS, SEED)
    found = result.summary.staleness
    assert found is not None
    for number, name in enumerate(TENSORS):
        own = schedule.staleness[schedule.updates["tensor"] == number]
        assert found[name].mean == pytest.approx(own.mean())
        assert found[name].max == own.max()
        assert list(found[name].counts) == np.bincount(own).tolist()
    assert result.summary.mean_staleness == pytest.approx(schedule.staleness.mean())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), times=st.lists(st.integers(0, 2 * 10**7), max_size=12))
def test_events_do_not_depend_on_blocks(seed: int, times: list[int]) -> None:
    schedule = mixed(seed, workers=3, steps=5, group=1 + seed % 3)
    assert list(events(cut(schedule, times))) == list(events([schedule]))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), times=st.lists(st.integers(0, 60), max_size=6))
def test_results_do_not_depend_on_blocks(seed: int, times: list[int]) -> None:
    """Here much happens at one instant."""
    schedule = mixed(seed, workers=3, steps=4, ties=True)
    wanted = config(workers=3, updates=10_000)
    whole = train_on_schedule(wanted, [schedule], TENSORS, SEED)
    parts = train_on_schedule(wanted, cut(schedule, times), TENSORS, SEED)
    assert torch.equal(whole.parameters, parts.parameters)
    assert rows(whole, "minibatch_loss") == rows(parts, "minibatch_loss")


def test_together_gradients_are_those_one_by_one_but_for_rounding() -> None:
    schedule = mixed(4, workers=6, steps=12)
    ends = [
        train_on_schedule(
            config(workers=6, updates=10_000, lookahead=mode), [schedule], TENSORS, SEED
        ).parameters
        for mode in ("off", "vmap", "vmap")
    ]
    assert torch.allclose(ends[0], ends[1], atol=1e-5)
    assert torch.equal(ends[1], ends[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates": {"read": 1}}, "step 0 of worker .* as of version 1, having read version 0"),
        ({"updates": {"version": 7}}, "version 7 of .* follows version 0"),
        ({"reads": {"version": 5}}, "reads version 5 of .* when there is version 0"),
        ({"reads": {"worker": 9}}, "a worker of number 9, the cluster 3 workers"),
        ({"reads": {"tensor": 9}}, "a tensor of number 9"),
    ],
)
def test_a_schedule_that_contradicts_itself_is_refused(
    change: dict[str, dict[str, int]], message: str
) -> None:
    schedule = mixed(0, workers=3, steps=2)
    for what, values in change.items():
        for name, value in values.items():
            getattr(schedule, what)[0][name] = value
    with pytest.raises(InputError, match=message):
        train_on_schedule(config(workers=3), [schedule], TENSORS, SEED)


def test_the_first_tensor_that_the_model_does_not_have_is_named() -> None:
    names = ["0.weight", "0.bias", "fc2.weight", "2.bias", "4.weight", "4.bias"]
    with pytest.raises(InputError, match=r'"fc2.weight" is not one; they lack "2.weight"'):
        train_on_schedule(config(), [], names, SEED)
    with pytest.raises(InputError, match=r'5 tensors are not the 6 .*; they lack "4.bias"'):
        train_on_schedule(config(), [], TENSORS[:5], SEED)


@pytest.mark.parametrize("algorithm", ["local-sgd", "easgd", "fedbuff(steps=2)", "ssp(cache=true)"])
def test_algorithms_that_do_more_than_a_schedule_says_are_refused(algorithm: str) -> None:
    with pytest.raises(InputError, match="does more than a schedule"):
        train_on_schedule(config(algorithm=algorithm), [], TENSORS, SEED)


def test_a_run_ends_at_its_virtual_time() -> None:
    schedule = mixed(5, workers=3, steps=30)
    middle = schedule.end // 2
    result = train_on_schedule(config(workers=3, until=middle / 1e12), [schedule], TENSORS, SEED)
    assert result.summary.virtual_time == middle / 1e12
    own = schedule.updates[schedule.updates["time"] <= middle]
    assert result.summary.updates == np.bincount(own["tensor"], minlength=6).min()

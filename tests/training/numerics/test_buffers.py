"""Running statistics of replicas: one by one, on processes, and as an evaluation sees them."""

from __future__ import annotations

from typing import Any

import normalised_network
import numpy as np
import pytest
import torch
from metric_rows import column
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler, make_shards
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.numerics.buffers import Buffers, averaged_over

SEED, WORKERS, UPDATES, BATCH = 2, 3, 12, 10


def run(**arguments: Any) -> TrainingResult:
    given = {
        "model": "normalised_network:model",
        "data": "normalised_network:data",
        "algorithm": "asgd",
        "workers": WORKERS,
        "updates": UPDATES,
        "batch": BATCH,
        "shards": "classes(1)",
        "buffers": "own",
        "compute": "1s",
        "lr": 0.05,
        "evaluate_every": 1,
        **arguments,
    }
    return train(TrainConfig.model_validate(given), SEED)


def plainly() -> list[float]:
    """Return the test loss after each update of synchronous workers, each of whom has a module."""
    x, y, test_x, test_y = map(torch.from_numpy, normalised_network.data())
    modules = [normalised_network.model() for _ in range(WORKERS)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer_seed(SEED, TrainingStream.MODEL))
        state = normalised_network.model().state_dict()
    rng = generator(SEED, TrainingStream.SHARDS)
    shards = make_shards(y.numpy(), WORKERS, "classes(1)", rng)
    samplers = [
        BatchSampler(shards[w], BATCH, generator(SEED, TrainingStream.BATCHES, w))
        for w in range(WORKERS)
    ]
    for module in modules:
        module.load_state_dict(state)
    losses = []
    for _ in range(UPDATES):
        for module, sampler in zip(modules, samplers, strict=True):
            chosen = torch.from_numpy(sampler.next())
            module.zero_grad()
            cross_entropy(module(x[chosen]), y[chosen]).backward()
        for same in zip(*(module.parameters() for module in modules), strict=True):
            mean = torch.stack([each.grad for each in same]).mean(0)
            for each in same:
                each.data -= 0.05 * mean
        judge = normalised_network.model()
        judge.load_state_dict(modules[0].state_dict())
        for name, buffer in judge.named_buffers():
            own = torch.stack([dict(module.named_buffers())[name] for module in modules])
            if own.is_floating_point():
                buffer.copy_(own.mean(0))
        judge.eval()
        losses.append(cross_entropy(judge(test_x), test_y).item())
    return losses


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_the_mean_over_replicas_is_evaluated(topology: str) -> None:
    result = run(algorithm="ssgd", topology=topology)
    assert column(result, "test_loss")[1:] == pytest.approx(plainly(), abs=1e-6)
    shared = run(algorithm="ssgd", topology=topology, buffers="shared")
    assert column(shared, "minibatch_loss") == column(result, "minibatch_loss")
    assert column(shared, "test_loss")[-1] != pytest.approx(plainly()[-1], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["asgd", "fedavg(steps=3)", "ad-psgd"])
def test_on_processes_the_values_are_those_of_one_by_one(algorithm: str) -> None:
    alone, on_processes = (
        run(algorithm=algorithm, lookahead=mode, updates=6) for mode in ("off", "processes")
    )
    for name in ("minibatch_loss", "loss", "test_loss"):
        assert column(alone, name) == column(on_processes, name), name


def test_what_is_computed_ahead_changes_no_other_replica() -> None:
    alone, ahead = (run(lookahead=mode) for mode in ("off", "auto"))
    assert column(alone, "test_loss") == column(ahead, "test_loss")


def test_a_model_without_running_statistics_is_refused() -> None:
    with pytest.raises(InputError, match="buffers: the model has no running statistics"):
        run(model="small_network:model", data="small_network:data", shards="shared")
    with pytest.raises(ValueError, match=r"buffers.* has no effect"):
        run(timing_only=True, batch=BATCH, lr=0.2)


def test_replicas_begin_alike_and_part() -> None:
    module = nn.BatchNorm1d(2)
    buffers = Buffers(module)
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert buffers.mean() == {}
    for replica, factor in ((0, 1.0), (1, 3.0), (0, 1.0)):
        buffers.use(replica)
        module(factor * x)
    # Momentum 0.1; means 2 and 4 of a minibatch.
    found = buffers.mean()
    assert found["running_mean"].tolist() == pytest.approx(
        [(0.1 * 2 * 1.9 + 0.1 * 6) / 2, (0.1 * 4 * 1.9 + 0.1 * 12) / 2]
    )
    assert found["num_batches_tracked"].item() == 2
    buffers.use(1)
    assert functional_call(module.eval(), found, (x,)).shape == x.shape
    assert module.num_batches_tracked is not None
    assert module.num_batches_tracked.item() == 1


def test_tasks_that_begin_together_average_statistics_and_add_counts() -> None:
    start = [np.array([1.0], np.float32), np.array(3)]
    ends = [[np.array([2.0], np.float32), np.array(5)], [np.array([5.0], np.float32), np.array(4)]]
    mean, count = averaged_over(ends, start)
    assert mean.tolist() == [3.5]
    assert count == 6

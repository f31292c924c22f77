"""The moving average that is evaluated, against PyTorch's `AveragedModel`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from metric_rows import column
from small_network import data, initial
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.simulation.rollback import Checkpoint, Restore
from paracosm.studies import KINDS
from paracosm.training import TrainConfig, train
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.training.record import MovingAverage

SEED = 2
DECAY = 0.8


def config(**arguments: Any) -> TrainConfig:
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "batch": 8,
        "lr": 0.3,
        "updates": 12,
        "evaluate_every": 1,
        "lookahead": "off",
        "ema": DECAY,
    }
    made: TrainConfig = KINDS["train"].configured({**common, **arguments}, "test")
    return made


@pytest.mark.parametrize("servers", [1, 3])
def test_the_average_and_its_losses_are_those_of_pytorch(servers: int) -> None:
    module = initial(integer_seed(SEED, TrainingStream.MODEL))
    x, y, test_x, test_y = map(torch.from_numpy, data())
    sampler = BatchSampler(np.arange(len(x)), 8, generator(SEED, TrainingStream.BATCHES, 0))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    losses = [cross_entropy(module(test_x), test_y).item()]
    for _ in range(12):
        chosen = torch.from_numpy(sampler.next())
        optimizer.zero_grad()
        cross_entropy(module(x[chosen]), y[chosen]).backward()
        optimizer.step()
        averaged.update_parameters(module)
        losses.append(cross_entropy(averaged(test_x), test_y).item())
    result = train(config(algorithm="asgd", workers=1, servers=servers), SEED)
    assert column(result, "test_loss") == pytest.approx(losses, rel=1e-5)
    if servers == 1:
        for flat, module_ in ((result.average, averaged.module), (result.parameters, module)):
            expected = torch.cat([p.detach().reshape(-1) for p in module_.parameters()])
            assert torch.allclose(flat, expected, atol=1e-6)


def test_training_goes_on_from_the_parameters_not_from_their_average() -> None:
    averaged = train(config(algorithm="ssgd", workers=3), SEED)
    plain = train(config(algorithm="ssgd", workers=3).model_copy(update={"ema": None}), SEED)
    assert torch.equal(averaged.parameters, plain.parameters)
    assert column(averaged, "minibatch_loss") == column(plain, "minibatch_loss")
    assert column(averaged, "loss") != column(plain, "loss")
    assert plain.average is None


def test_peers_and_schedules_have_an_average_too(tmp_path: Path) -> None:
    peers = train(config(algorithm="ad-psgd", workers=2), SEED)
    assert peers.average is not None
    common: dict[str, Any] = {"algorithm": "asgd", "workers": 3, "updates": 12}
    timing = train(TrainConfig(**common, timing_only=True, timeline=False), SEED)
    assert timing.schedule is not None
    timing.schedule.write(tmp_path / "schedule.parquet")
    engine = train(config(**common, timeline=False), SEED)
    over = train(config(algorithm="asgd", schedule=tmp_path / "schedule.parquet"), SEED)
    assert column(over, "loss") == column(engine, "loss")
    assert torch.equal(over.average, engine.average)


def test_the_average_goes_back_to_the_checkpoint_with_the_parameters() -> None:
    """Saved after 4 updates, lost after 9: what follows is as if the 5 had never been."""
    common: dict[str, Any] = {"algorithm": "asgd", "workers": 1}
    timing = train(TrainConfig(**common, updates=9, timing_only=True, timeline=False), SEED)
    whole = timing.schedule
    assert whole is not None
    at = int(whole.updates["time"][3])
    first, rest = (
        whole.__class__(
            whole.reads[of(whole.reads["time"])],
            whole.updates[of(whole.updates["time"])],
            whole.steps[of(whole.steps["end"])],
            whole.end,
            0,
            {},
        )
        for of in (lambda times: times <= at, lambda times: times > at)
    )
    alone = train_on_schedule(config(**common, updates=4), [first], (), SEED)
    back = train_on_schedule(
        config(**common, updates=20),
        [first, Checkpoint(at, at), rest, Restore(whole.end, whole.end, 0, 0, 1)],
        (),
        SEED,
    )
    assert torch.equal(back.average, alone.average)
    assert torch.equal(back.parameters, alone.parameters)


def test_a_failure_on_the_engine_takes_average_and_rates_back_too() -> None:
    """Updates at 1 s and 2 s are saved; that of 3.5 s is undone by the failure of that instant."""
    arguments: dict[str, Any] = {
        "model": "quadratic:model",
        "data": "quadratic:data",
        "batch": 1,
        "lr": 0.25,
        "compute": "1s",
        "algorithm": "ssgd",
        "workers": 2,
        "updates": 6,
        "lr_schedule": "linear",
        "fault": "stop(2.2s) on worker 1 at 3.5s",
        "checkpoint_cost": "0.5s",
        "checkpoint_every": "2s",
    }
    result = train(config(**arguments), SEED)
    assert result.summary.failures is not None
    assert result.summary.failures.stops == 1
    x, average = 1.0, 0.0
    for update in range(6):
        x *= 1 - 0.25 * (1 - update / 6)
        average = x if update == 0 else DECAY * average + (1 - DECAY) * x
    assert float(result.parameters) == pytest.approx(x)
    assert float(result.average) == pytest.approx(average)


def test_the_first_update_sets_the_average() -> None:
    average = MovingAverage(0.9)
    assert average.value is None
    average.update((torch.tensor([2.0]), torch.tensor([4.0])))
    average.update((torch.tensor([3.0]), torch.tensor([4.0])))
    assert [float(each) for each in average.value] == pytest.approx([2.1, 4.0])


@pytest.mark.parametrize("decay", [0, 1, -0.5, "often"])
def test_a_decay_is_between_0_and_1(decay: object) -> None:
    with pytest.raises(InputError, match="ema"):
        config(ema=decay)

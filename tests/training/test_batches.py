"""Workers whose minibatches differ: means over examples, times in proportion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from metric_rows import column, series
from small_network import data, initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.studies import KINDS
from paracosm.training import TrainingResult, train
from paracosm.training.fields import batches_of, parse_batch_of

SEED = 4


def run(**arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "workers": 3,
        "batch": 8,
        "batch_of": "worker 1: 24",
        "updates": 10,
        "compute": "1s",
    }
    if not arguments.get("timing_only"):
        common |= {"lr": 0.3, "lookahead": "off"}
    given = {k: v for k, v in {**common, **arguments}.items() if v is not None}
    return train(KINDS["train"].configured(given, "test"), SEED)


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_a_synchronous_update_is_the_mean_over_all_examples(topology: str) -> None:
    module = initial(integer_seed(SEED, TrainingStream.MODEL))
    x, y = (torch.from_numpy(each) for each in data()[:2])
    samplers = [
        BatchSampler(np.arange(len(x)), batch, generator(SEED, TrainingStream.BATCHES, worker))
        for worker, batch in enumerate([8, 24, 8])
    ]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    for _ in range(10):
        chosen = torch.from_numpy(np.concatenate([sampler.next() for sampler in samplers]))
        optimizer.zero_grad()
        cross_entropy(module(x[chosen]), y[chosen]).backward()
        optimizer.step()
    result = run(algorithm="ssgd", topology=topology)
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.allclose(result.parameters, expected, atol=2e-6)
    assert result.summary.examples == 10 * 40
    assert result.summary.virtual_time == pytest.approx(10 * 3)
    said = result.summary.durations["compute"]
    assert said.endswith("for 8 examples, in proportion to the batch")


def test_an_asynchronous_worker_with_a_larger_batch_comes_less_often() -> None:
    result = run(algorithm="asgd", updates=7)
    comes = [row for row in series(result, "staleness") if row.node == "worker1"]
    assert [(row.virtual_time, row.step) for row in comes] == [(3, 5)]
    # Workers 0 and 2 at 1, 2, 3 and 4 s; worker 1 at 3 s, where its event was made first.
    assert column(result, "examples", "job") == [8, 16, 24, 32, 56, 64, 72]


def test_without_computing_the_examples_are_the_same() -> None:
    common: dict[str, Any] = {"algorithm": "softsync", "compute": "lognormal(1s, 0.3)"}
    engine = run(**common, timing_only=True, timeline=True)
    played = run(**common, timing_only=True, timeline=False)
    assert played.schedule is not None
    assert column(played, "examples", "job") == column(engine, "examples", "job")
    assert played.summary.examples == engine.summary.examples


def test_over_a_schedule_each_worker_has_its_batch(tmp_path: Path) -> None:
    timing = run(algorithm="ssgd", timing_only=True, timeline=False)
    assert timing.schedule is not None
    timing.schedule.write(tmp_path / "schedule.parquet")
    engine = run(algorithm="ssgd", timeline=False)
    over = run(algorithm="ssgd", schedule=tmp_path / "schedule.parquet", workers=None, compute=None)
    assert column(over, "minibatch_loss") == column(engine, "minibatch_loss")
    assert column(over, "examples") == column(engine, "examples")


@pytest.mark.parametrize("lookahead", ["auto", "vmap"])
def test_gradients_of_different_batches_can_be_computed_together(lookahead: str) -> None:
    batches = ["workers 1..3: 5", "worker 7: 12"]
    alone = run(algorithm="ssgd", workers=9, batch_of=batches)
    together = run(algorithm="ssgd", workers=9, batch_of=batches, lookahead=lookahead)
    assert torch.allclose(alone.parameters, together.parameters, atol=1e-5)


def test_sizes_are_by_worker() -> None:
    given = [parse_batch_of(text) for text in ("worker 0: 2", "rank 3: 7", "workers 4..5: 9")]
    assert batches_of(8, given, 7) == [2, 8, 8, 7, 9, 9, 8]
    assert batches_of(8, (), 2) == [8, 8]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("worker 3: 24", "there are workers 0 to 2, not 3"),
        ("worker 1: 8", "this is the batch of all"),
        (["worker 1: 9", "workers 0..2: 7"], "a worker has two sizes"),
        ("worker 1: many", "write worker 3: 64"),
        ("worker 1: 0", "write worker 3: 64"),
        ("worker 1: 1000001", "of up to 1,000,000 examples"),
        ("server 0: 9", "names no worker by number"),
        ("workers: 9", "names no worker by number"),
        ("workers 2..1: 9", "is not a range"),
        ("node 1: 9", "not name workers or servers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        run(batch_of=given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_has_one_batch() -> None:
    with pytest.raises(InputError, match="cannot be combined with"):
        KINDS["train"].configured({"profile": "job.profile", "batch_of": "worker 1: 9"}, "test")


def test_clients_that_take_turns_are_named_as_clients() -> None:
    with pytest.raises(InputError, match="clients share the workers here: write client 3: 64"):
        run(clients=9)
    with pytest.raises(InputError, match="clients are workers here: write worker 3: 64"):
        run(batch_of="clients 1..2: 24")

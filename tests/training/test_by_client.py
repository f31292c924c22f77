"""Clients with data of their own: what they train on, and how well each is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_network
import torch
from metric_rows import series
from small_network import initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import make_shards
from paracosm.rng import TrainingStream, generator
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.by_client import ClientScore, fairness, measured, quality_of
from paracosm.training.numerics.parameters import ParameterLayout
from paracosm.validation import validated

SEED, CLIENTS = 4, 5

MODULE = f"""
import numpy as np
from small_network import data
from paracosm.models.shards import make_shards
from paracosm.rng import TrainingStream, generator

def shards():
    rng = generator({SEED}, TrainingStream.SHARDS)
    return list(make_shards(data()[1], {CLIENTS}, "dirichlet(0.5)", rng))

def parts():
    return shards()

def overlapping(clients):
    return [[k, k + 1] for k in range(clients)]

def by_client():
    x, y, test_x, test_y = data()
    numbered = enumerate(shards())
    return {{k: (x[shard], y[shard], test_x[k::5], test_y[k::5]) for k, shard in numbered}}

def common():
    x, y, test_x, test_y = data()
    return [(x[shard], y[shard]) for shard in shards()], test_x, test_y

def equal(clients):
    x, y, test_x, test_y = data()
    return [(x[k : k + 2], y[k : k + 2], test_x, test_y) for k in range(clients)]

class Many:
    made = []
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, k):
        self.made.append(k)
        rng = np.random.default_rng(k)
        x, y = rng.normal(0, 1, (15, 5)), np.arange(15) % 3
        return x[:9], y[:9], x[9:], y[9:]

def many(clients):
    return Many(clients)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


def run(**arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "algorithm": "fedavg(epochs=1)",
        "workers": CLIENTS,
        "updates": 5,
        "batch": 4,
        "lr": 0.3,
        "compute": "1s",
    }
    return train(validated(TrainConfig, {**common, **arguments}, "test"), SEED)


def test_clients_learn_from_their_own_what_they_would_from_shards() -> None:
    expected = run(shards="dirichlet(0.5)")
    for own in (
        {"shards": "mine.py:parts"},
        {"data": "mine.py:by_client"},
        {"data": "mine.py:common"},
        {"data": "mine.py:by_client", "clients": CLIENTS, "workers": CLIENTS},
    ):
        found = run(**own)
        assert torch.allclose(found.parameters, expected.parameters, atol=1e-6), own
        assert found.summary.examples == expected.summary.examples
    assert found.summary.virtual_time == pytest.approx(expected.summary.virtual_time)


@pytest.mark.parametrize(
    "lookahead", ["off", "vmap", pytest.param("processes", marks=pytest.mark.slow)]
)
def test_gradients_are_those_of_a_client_s_examples_by_any_method(lookahead: str) -> None:
    expected = run(shards="dirichlet(0.5)", lookahead="off", algorithm="asgd", updates=12)
    found = run(data="mine.py:by_client", lookahead=lookahead, algorithm="asgd", updates=12)
    assert torch.allclose(found.parameters, expected.parameters, atol=1e-5)


@pytest.mark.parametrize("source", ["by_client", "common", "shards"])
def test_each_client_is_judged_by_its_own_examples(source: str) -> None:
    given = {"shards": "dirichlet(0.5)"} if source == "shards" else {"data": f"mine.py:{source}"}
    result = run(**given)
    x, y, test_x, test_y = (torch.from_numpy(each) for each in small_network.data())
    module = initial(0)
    tensors = ParameterLayout.of(module).unflatten(result.parameters)
    module.load_state_dict(tensors)
    rng = generator(SEED, TrainingStream.SHARDS)
    shards = list(make_shards(y.numpy(), CLIENTS, "dirichlet(0.5)", rng))
    losses, accuracies = series(result, "client_loss"), series(result, "client_accuracy")
    sizes = series(result, "client_examples")
    assert [row.step for row in losses] == list(range(CLIENTS))
    for client, shard in enumerate(shards):
        inputs, targets = (x[shard], y[shard])
        if source == "by_client":
            inputs, targets = test_x[client::5], test_y[client::5]
        outputs = module(inputs)
        loss, right = cross_entropy(outputs, targets), (outputs.argmax(1) == targets)
        assert losses[client].value == pytest.approx(loss.item(), rel=1e-5)
        assert accuracies[client].value == pytest.approx(float(right.float().mean()))
        assert sizes[client].value == len(shard)
    quality = result.summary.by_client
    assert quality is not None
    assert quality.examples == ("test" if source == "by_client" else "training")
    assert quality.loss.mean == pytest.approx(np.mean([row.value for row in losses]))
    assert run(shards="shared", algorithm="fedavg").summary.by_client is None


def test_spread_worst_tenth_and_fairness_are_those_by_hand() -> None:
    accuracies = [0.1, 0.9, 0.5, 0.7, 0.3, 1.0, 0.8, 0.6, 0.4, 0.2, 0.9]
    scores = [ClientScore(k, 2 * a, a) for k, a in enumerate(accuracies)]
    quality = quality_of(scores, 40, "test")
    assert (quality.measured, quality.clients) == (11, 40)
    assert quality.accuracy is not None
    assert quality.accuracy.mean == pytest.approx(6.4 / 11)
    assert quality.accuracy.deviation == pytest.approx(np.std(accuracies))
    assert quality.accuracy.worst_tenth == pytest.approx(0.15)  # of two: 1.1 rounded up
    assert quality.accuracy.best_tenth == pytest.approx(0.95)
    assert quality.accuracy.fairness == pytest.approx(6.4**2 / (11 * 4.66))
    assert (quality.loss.worst_tenth, quality.loss.best_tenth) == pytest.approx((1.9, 0.3))
    assert quality_of([ClientScore(0, 1.0, None)], 1, "test").accuracy is None
    assert fairness(np.array([3, 0, 0])) == pytest.approx(1 / 3)
    assert fairness(np.array([2, 2])) == 1
    assert fairness(np.zeros(3)) is None


def test_of_very_many_clients_some_are_judged() -> None:
    assert measured(100, 14, 2000).tolist() == list(range(100))
    some = measured(100_000, 50, 2000)
    assert (len(some), some[0], some[-1]) == (400, 0, 99_999)
    assert len(measured(100_000, 1, 2000)) == 1000
    assert len(measured(100, 50_000, 2000)) == 20


def test_clients_are_made_as_they_are_drawn() -> None:
    result = run(data="mine.py:many", clients=3000, workers=10, updates=20)
    from paracosm.factory import named_function

    made = named_function("data set", "mine.py:Many").made  # type: ignore[attr-defined]
    clients = result.summary.clients
    assert clients is not None
    assert clients.participations == 210  # the last answers go to ten more
    assert result.summary.by_client is not None
    judged = result.summary.by_client.measured
    assert judged == 1000
    # None was made twice, but for the first, which shows that these are clients; 200 are looked at.
    assert len(made) - 1 == len(set(made)) <= 200 + clients.took_part + judged
    turns = {row.step: row.value for row in series(result, "client_participations")}
    assert len(turns) == clients.took_part
    assert sum(turns.values()) == 210
    by_hand = 210**2 / (3000 * sum(count**2 for count in turns.values()))
    assert clients.fairness == pytest.approx(by_hand)


def test_clients_are_drawn_by_the_sizes_that_they_bring() -> None:
    result = run(
        data="mine.py:by_client",
        clients=CLIENTS,
        workers=1,
        updates=600,
        sampling="by-size",
        algorithm="fedavg(steps=1)",
        evaluate_every=600,
    )
    sizes = np.array([row.value for row in series(result, "client_examples")])
    turns = np.zeros(CLIENTS)
    for row in series(result, "client_participations"):
        turns[row.step] = row.value
    assert turns / turns.sum() == pytest.approx(sizes / sizes.sum(), abs=0.06)


def test_a_client_s_batch_is_its_own() -> None:
    shared = {"data": "mine.py:by_client", "clients": CLIENTS, "updates": 1}
    sizes = [row.value for row in series(run(**shared), "client_examples")]
    result = run(**shared, algorithm="fedavg(steps=3)", batch_of=["clients 1..2: 1", "client 4: 2"])
    expected = 3 * sum(min(size, batch) for size, batch in zip(sizes, [4, 1, 1, 4, 2], strict=True))
    assert result.summary.examples == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": "mine.py:by_client", "shards": "iid"}, "shards: has no effect"),
        ({"data": "synthetic(1, 1)", "shards": "iid"}, "comes by client"),
        ({"data": "mine.py:by_client", "workers": 4}, "has 5 clients, not 4: give --clients 5"),
        (
            {"shards": "mine.py:overlapping", "privacy": "examples(clip=1, noise=1)"},
            "clients 0 and 1 both have example 1, whose privacy loss",
        ),
        (
            {"data": "mine.py:equal", "clients": 9, "sampling": "by-size"},
            "by-size has no effect, leave it out: all clients have equally many",
        ),
    ],
)
def test_what_contradicts_the_data_is_said(arguments: dict[str, Any], message: str) -> None:
    if "privacy" in arguments:
        pytest.importorskip("dp_accounting")
    with pytest.raises(InputError, match=message):
        run(**arguments)

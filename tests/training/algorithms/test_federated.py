"""Rounds of local training against plain loops written from the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import federated
import numpy as np
import pytest
import small_network
import torch
from federated import Parameters, Task
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import series
from small_network import data, initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler, Shards, make_shards
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.numerics.local_steps import Steps
from paracosm.training.numerics.parameters import ParameterLayout
from paracosm.training.numerics.prepare import prepare_numerics
from paracosm.training.numerics.rules import SGD, outer_rule
from paracosm.training.numerics.store import LocalSteps, Rule
from paracosm.training.worker import TrainingWorker
from paracosm.validation import validated

SEED, CLIENTS, ROUNDS, BATCH, LR = 4, 5, 6, 4, 0.3
NETWORK = {"model": "small_network:model", "data": "small_network:data", "batch": BATCH, "lr": LR}


def run(algorithm: str, **arguments: Any) -> TrainingResult:
    arguments = {
        **NETWORK,
        "algorithm": algorithm,
        "workers": CLIENTS,
        "updates": ROUNDS,
        "shards": "dirichlet(0.5)",
        "compute": "lognormal(1s, 0.5)",
        "evaluate_every": ROUNDS,
        **arguments,
    }
    return train(validated(TrainConfig, arguments, "test"), SEED)


def shards(scheme: str = "dirichlet(0.5)") -> list[np.ndarray]:
    labels = data()[1]
    return make_shards(labels, CLIENTS, scheme, generator(SEED, TrainingStream.SHARDS))


SIZES = [len(shard) for shard in shards()]


def passes(shard: np.ndarray, client: int) -> Iterator[np.ndarray]:
    """Yield minibatches as a shuffling DataLoader does, pass after pass."""
    rng = generator(SEED, TrainingStream.BATCHES, client)
    while True:
        order = shard[rng.permutation(len(shard))]
        for begin in range(0, len(order), BATCH):
            yield order[begin : begin + BATCH]


def task(steps: int = 0, epochs: int = 0, scheme: str = "dirichlet(0.5)") -> Task:
    x, y, _, _ = data()
    draws: list[Callable[[], np.ndarray]] = [
        partial(next, passes(shard, client))
        if epochs
        else BatchSampler(shard, BATCH, generator(SEED, TrainingStream.BATCHES, client)).next
        for client, shard in enumerate(shards(scheme))
    ]
    return Task(
        initial(integer_seed(SEED, TrainingStream.MODEL)),
        cross_entropy,
        torch.from_numpy(x),
        torch.from_numpy(y),
        draws,
        [epochs * -(-size // BATCH) if epochs else steps for size in SIZES],
        LR,
    )


CASES: dict[str, Callable[[], Parameters]] = {
    "fedavg(steps=3)": lambda: federated.fedavg(task(3), ROUNDS, SIZES),
    "fedavg(epochs=2)": lambda: federated.fedavg(task(epochs=2), ROUNDS, SIZES),
    "fedprox(epochs=3, mu=0.5)": lambda: federated.fedavg(task(epochs=3), ROUNDS, SIZES, mu=0.5),
    "fedprox(steps=3, mu=0.5)": lambda: federated.fedavg(task(3), ROUNDS, SIZES, mu=0.5),
    "fedavgm(steps=3, momentum=0.7, server_lr=0.5)": lambda: federated.fedavgm(
        task(3), ROUNDS, SIZES, 0.7, 0.5
    ),
    "fedadam(steps=3)": lambda: federated.adaptive(
        task(3), ROUNDS, CLIENTS, "adam", 0.03, 0.9, 0.99, 1e-3
    ),
    "fedyogi(epochs=1, server_lr=0.1, beta1=0.5, beta2=0.9, tau=0.01)": lambda: federated.adaptive(
        task(epochs=1), ROUNDS, CLIENTS, "yogi", 0.1, 0.5, 0.9, 0.01
    ),
    "scaffold(steps=3, server_lr=0.8)": lambda: federated.scaffold(task(3), ROUNDS, CLIENTS, 0.8),
    "scaffold(epochs=1)": lambda: federated.scaffold(task(epochs=1), ROUNDS, CLIENTS, 1.0),
    "fednova(epochs=2)": lambda: federated.fednova(task(epochs=2), ROUNDS, SIZES),
    "feddyn(steps=3, alpha=0.4)": lambda: federated.feddyn(task(3), ROUNDS, CLIENTS, 0.4),
    "feddyn(epochs=1)": lambda: federated.feddyn(task(epochs=1), ROUNDS, CLIENTS, 0.1),
    "local-adam(steps=3, beta1=0.8, epsilon=1e-3)": lambda: federated.local_adam(
        task(3), ROUNDS, CLIENTS, 0.8, 0.999, 1e-3
    ),
    "one-bit-adam(freeze=3, epsilon=1e-2)": lambda: federated.one_bit_adam(
        task(scheme="iid"), ROUNDS, CLIENTS, 3, 0.9, 0.999, 1e-2
    ),
    "post-local-sgd(steps=4, after=2)": lambda: federated.post_local_sgd(
        task(), ROUNDS, CLIENTS, 2, 4
    ),
}


OF_ONE_BIT = {"compress": "signsgd(start=3)", "shards": "iid"}  # whose minibatches count equally


@cache
def by_a_plain_loop(algorithm: str) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in CASES[algorithm]()])


@pytest.mark.parametrize("lookahead", ["off", "auto", pytest.param("vmap", marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", CASES)
def test_it_is_what_a_plain_loop_makes_of_it(algorithm: str, lookahead: str) -> None:
    own = OF_ONE_BIT if algorithm.startswith("one-bit-adam") else {}
    found = run(algorithm, lookahead=lookahead, **own).parameters
    expected = by_a_plain_loop(algorithm)
    begin = torch.cat([t.reshape(-1) for t in task().initial()])
    assert (expected - begin).norm() > 0.1
    assert torch.allclose(found, expected, rtol=1e-4, atol=2e-5)


def test_steps_are_fewer_as_the_loss_falls() -> None:
    """AdaComm: a step takes 1 s, the loss is looked at after every 10 s, messages take none."""
    result = run("adacomm(steps=8, interval=10s)", updates=14, compute="1s", evaluate_every=14)
    parameters, steps = federated.adacomm(task(), 14, CLIENTS, 8, 1.0, 10.0)
    assert steps[:2] == [8, 8]
    assert 1 <= steps[-1] < 5
    assert result.summary.virtual_time == sum(steps)
    expected = torch.cat([tensor.reshape(-1) for tensor in parameters])
    assert torch.allclose(result.parameters, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("algorithm", ["fedavg", "fednova", "feddyn", "fedadam", "scaffold"])
def test_several_servers_come_to_what_one_does(algorithm: str) -> None:
    found = {}
    for servers in (1, 3):
        layout = ParameterLayout.of(small_network.model(), servers)
        result = run(algorithm, servers=servers, latency="1ms")
        found[servers] = layout.unflatten(result.parameters)
    for name, tensor in found[1].items():
        assert torch.allclose(tensor, found[3][name], rtol=1e-4, atol=1e-6)


def end_of_round(algorithm: str) -> float:
    """Return when one round ends in which a message takes 1 s and computing no time."""
    config = TrainConfig(
        algorithm=algorithm,
        workers=1,
        updates=1,
        compute="0s",
        message_size="1MB",
        bandwidth="1MB/s",
        timing_only=True,
    )
    return float(train(config).summary["virtual_time"])


def test_both_control_variates_of_scaffold_travel() -> None:
    assert end_of_round("fedavg(steps=1)") == 2
    assert end_of_round("scaffold(steps=1)") == 4


def examples_of(result: TrainingResult) -> list[float]:
    return [row.value for row in series(result, "examples") if row.node == "job"]


@pytest.mark.parametrize("batch", [4, 7, 25, 60, 1000, "all"])
@pytest.mark.parametrize("algorithm", ["fedavg(epochs=2)", "fedadam(epochs=2)"])
def test_an_epoch_is_one_pass_over_the_examples(algorithm: str, batch: int | str) -> None:
    """60 examples, twice; `compute` is of `batch` examples, or of a shard of mean size (12)."""
    result = run(algorithm, updates=1, compute="1s", batch=batch)
    assert examples_of(result) == [2 * 60]
    unit = 60 / CLIENTS if batch == "all" else batch
    assert result.summary["virtual_time"] == pytest.approx(2 * max(SIZES) / unit)
    said = "for a shard of mean size" if batch == "all" else f"for {batch} examples, in proportion"
    assert said in result.summary.durations["compute"]


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [("ssgd", 1), ("asgd", 1), ("fedavg(steps=3)", 3), ("fedbuff(buffer=1, steps=3)", 3)],
)
@pytest.mark.parametrize("batch", [20, 1000, "all"])
def test_a_minibatch_is_at_most_the_shard(algorithm: str, steps: int, batch: int | str) -> None:
    """12 examples each; a whole shard takes 12 / `batch` of the duration of a minibatch."""
    result = run(algorithm, updates=1, compute="1s", batch=batch, shards="iid")
    taking_part = CLIENTS if algorithm in ("ssgd", "fedavg(steps=3)") else 1
    assert examples_of(result) == [12 * steps * taking_part]
    share = 1 if batch == "all" else 12 / int(batch)
    assert result.summary["virtual_time"] == pytest.approx(steps * share)


def test_a_synchronous_update_weights_shards_that_are_smaller_by_their_examples() -> None:
    """Every shard is one minibatch: the mean over all examples, as by a single worker with all."""
    apart = run("ssgd", batch=1000, updates=3)
    whole = run("ssgd", batch="all", updates=3, workers=1, shards="shared")
    assert torch.allclose(apart.parameters, whole.parameters, atol=1e-5)
    assert min(SIZES) < max(SIZES)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=20),
    batch=st.integers(1, 14),
    epochs=st.integers(1, 3),
)
@settings(max_examples=25, deadline=None)
def test_shards_of_all_sizes_are_computed_together_as_alone(
    sizes: list[int], batch: int, epochs: int
) -> None:
    """Look-ahead computes rows of one matrix, whose minibatches end at different steps."""
    together, alone = (steps_of(sizes, batch, epochs, mode) for mode in ("vmap", "off"))
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(one.parameters, other.parameters, atol=1e-5)
        assert one.loss == pytest.approx(other.loss, rel=1e-4)


def steps_of(sizes: list[int], batch: int, epochs: int, mode: str) -> list[Steps]:
    """Return what passes over the shards of a numerics come to, all requested before any."""
    config = {**NETWORK, "batch": batch, "lookahead": mode, "shards": "iid"}
    numerics = prepare_numerics(TrainConfig.model_validate(config), SEED, len(sizes), 1)
    ends = np.cumsum([0, *sizes])
    numerics._shards = Shards(np.array(sizes), lambda k: np.arange(ends[k], ends[k + 1]) % 60)  # type: ignore[attr-defined]
    try:
        pending = [
            numerics.request_steps(client, numerics.initial(), LocalSteps(0, epochs, False))
            for client in range(len(sizes))
        ]
        return [each.result() for each in pending]
    finally:
        numerics.close()


def test_steps_that_a_client_is_asked_for_take_no_more_examples_than_it_has() -> None:
    """Passes of a user's own algorithm: `minibatches` says how many steps they are."""
    result = run(f"{__file__}:TwoPasses", updates=1, compute="1s")
    assert examples_of(result) == [120]
    asked = {"algorithm": f"{__file__}:TwoPasses", "timing_only": True, "updates": 1}
    timing = validated(TrainConfig, asked, "test")
    with pytest.raises(InputError, match="passes over examples depend on data"):
        train(timing)


@dataclass(frozen=True)
class TwoPasses(Algorithm):
    has_rounds = True

    def outer(self) -> Rule:
        return outer_rule(SGD, 1.0)

    async def work(self, me: TrainingWorker) -> None:
        while True:
            assert me.minibatches(2) == 2 * -(-me.examples // BATCH) or not me._state.numerics.real
            me.push(await me.local_steps(0, epochs=2))
            await me.pull()


@pytest.mark.parametrize(
    ("ablated", "baseline"),
    [
        ("fedprox(steps=3, mu=0)", "fedavg(steps=3)"),
        ("fedavgm(steps=3, momentum=0)", "fedavg(steps=3)"),
        ("post-local-sgd(steps=3, after=0)", "local-sgd(3)"),
    ],
)
def test_what_is_left_out_of_an_algorithm_leaves_the_baseline(ablated: str, baseline: str) -> None:
    assert torch.equal(run(ablated).parameters, run(baseline).parameters)


def test_the_optimizer_of_a_client_begins_each_round_afresh() -> None:
    """With one local step, momentum of the client's own has nothing to gather."""
    plain = run("fedavg(steps=1)").parameters
    assert torch.allclose(run("fedavg(steps=1)", optimizer="sgd(momentum=0.9)").parameters, plain)
    kept = run("local-sgd(1)").parameters
    other = run("local-sgd(1)", optimizer="sgd(momentum=0.9)").parameters
    assert not torch.allclose(other, kept, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "fedavg(steps=0)"}, "fedavg: steps must be at least 1, got 0"),
        ({"algorithm": "fedavg(epochs=-1)"}, "fedavg: epochs must be at least 0, got -1"),
        ({"algorithm": "fedprox(mu=-0.1)"}, "fedprox: mu must be at least 0, got -0.1"),
        ({"algorithm": "fedavgm(momentum=1.0)"}, "fedavgm: momentum must be in [0, 1), got 1.0"),
        ({"algorithm": "fedyogi(beta2=1.0)"}, "fedyogi: beta2 must be in [0, 1), got 1.0"),
        ({"algorithm": "fedadam(tau=0.0)"}, "fedadam: tau must be above 0, got 0.0"),
        ({"algorithm": "scaffold(server_lr=0.0)"}, "server_lr must be above 0, got 0.0"),
        ({"algorithm": "feddyn(alpha=0.0)"}, "feddyn: alpha must be above 0, got 0.0"),
        ({"algorithm": "adacomm(interval=0s)"}, "adacomm: interval must be above 0 s, got 0s"),
        ({"algorithm": "adacomm(interval=soon)"}, 'cannot read "soon" as a duration'),
        ({"algorithm": "adacomm", "timing_only": True}, "depends on losses, which timing_only"),
        ({"algorithm": "fednova", "optimizer": "adam"}, "of steps of sgd, not of adam: leave it"),
        (
            {"algorithm": "local-adam", "optimizer": "sgd(momentum=0.9)"},
            "local-adam makes steps of its own, not those of sgd(momentum=0.9): leave it out",
        ),
        ({"algorithm": "one-bit-adam(freeze=0)"}, "freeze must be at least 1, got 0"),
        ({"algorithm": "post-local-sgd(after=-1)"}, "after must be at least 0, got -1"),
        (
            {"algorithm": "scaffold", "optimizer": "adam"},
            "are means of gradients where local steps are those of sgd, not of adam: leave it out",
        ),
        (
            {"algorithm": "fedavg(epochs=1)", "timing_only": True},
            "give steps in place of epochs",
        ),
    ],
)
def test_what_no_round_can_be_made_of_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(TrainConfig, arguments, "test")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("timing_only", [False, True])
def test_more_local_steps_than_minibatches_can_be_drawn_at_once_are_refused(
    timing_only: bool,
) -> None:
    arguments = {"algorithm": "fedavg(steps=1000000000)", "timing_only": timing_only}
    with pytest.raises(InputError, match="algorithm: 1,000,000,000 local steps at a time"):
        train(validated(TrainConfig, arguments, "test"), seed=0)

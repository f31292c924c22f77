"""Differential privacy: clipped, noisy gradients by hand, and accounts against published ones."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import audited
import numpy as np
import pytest
import renyi
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import column, series
from small_network import data, initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError, MissingExtraError
from paracosm.models.shards import BatchSampler, PoissonSampler, make_shards
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.numerics.gradient_methods import Gradient, Request
from paracosm.training.numerics.gradients import Private
from paracosm.training.privacy import (
    _ORDERS,
    ClientAccountant,
    ClientNoise,
    Draw,
    ExampleAccountant,
    Privacy,
    parse_privacy,
)
from paracosm.validation import validated

SEED = 6
NEXT_TO_NONE = "examples(clip=1.2, noise=1e-9)"


def run(**arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "batch": 8,
        "lr": 0.3,
        "updates": 10,
    }
    asked = {k: v for k, v in {**common, **arguments}.items() if v is not None}
    return train(validated(TrainConfig, asked, "test"), SEED)


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_each_example_is_clipped_alone(topology: str) -> None:
    """Against a loop over single examples, each clipped by PyTorch."""
    module = initial(integer_seed(SEED, TrainingStream.MODEL))
    x, y = (torch.from_numpy(each) for each in data()[:2])
    samplers = [
        PoissonSampler(np.arange(len(x)), 8, generator(SEED, TrainingStream.BATCHES, worker))
        for worker in range(2)
    ]
    parameters, clipped = list(module.parameters()), 0
    for _ in range(10):
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for sampler in samplers:
            for index in sampler.next():
                module.zero_grad()
                cross_entropy(module(x[index][None]), y[index][None]).backward()
                clipped += bool(torch.nn.utils.clip_grad_norm_(parameters, 1.2) > 1.2)
                for one, parameter in zip(total, parameters, strict=True):
                    assert parameter.grad is not None
                    one += parameter.grad
        with torch.no_grad():
            for one, parameter in zip(total, parameters, strict=True):
                parameter -= 0.3 * one / 16
    assert 40 < clipped < 160, "most are, not all"
    result = run(algorithm="ssgd", topology=topology, workers=2, privacy=NEXT_TO_NONE)
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    assert torch.allclose(result.parameters, expected, atol=5e-6)


def test_the_noise_of_a_gradient_has_the_deviation_of_the_paper() -> None:
    """One update from the same start: what differs by the noise is lr noise clip / batch."""
    quiet = run(workers=1, updates=1, privacy=NEXT_TO_NONE).parameters
    loud = run(workers=1, updates=1, privacy="examples(clip=1.2, noise=2)").parameters
    drawn = (loud - quiet) / (0.3 * 2 * 1.2 / 8)
    # 111 draws: the deviation of their deviation is 1 / sqrt(222), of their mean 1 / sqrt(111).
    assert len(drawn) == 111
    assert float(drawn.std()) == pytest.approx(1, abs=4 / 222**0.5)
    assert abs(float(drawn.mean())) < 4 / 111**0.5


def test_every_gradient_has_noise_of_its_own_and_a_seed_the_same() -> None:
    common: dict[str, Any] = {"privacy": "examples(clip=1.2, noise=2)", "workers": 3}
    first, again = run(**common), run(**common)
    assert torch.equal(first.parameters, again.parameters)
    assert column(first, "epsilon") == column(again, "epsilon")
    two = run(**common, algorithm="ssgd", updates=1).parameters
    quiet = run(workers=3, algorithm="ssgd", updates=1, privacy=NEXT_TO_NONE).parameters
    # The mean of three independent draws has 1 / sqrt(3) of the deviation.
    drawn = (two - quiet) / (0.3 * 2 * 1.2 / 8)
    assert float(drawn.std()) == pytest.approx(3**-0.5, rel=0.3)


@pytest.mark.parametrize(
    ("algorithm", "shards"), [("asgd", "shared"), ("ssgd", "iid"), ("fedavg(steps=3)", "iid")]
)
def test_the_account_is_that_of_the_gradients_that_were_applied(
    algorithm: str, shards: str
) -> None:
    result = run(
        algorithm=algorithm, shards=shards, workers=3, privacy="examples(clip=1, noise=1.5)"
    )
    # 60 examples: 8 of all 60, or of the 20 of each worker.
    rate, releases = {
        "asgd": (8 / 60, 10),
        "ssgd": (8 / 20, 10),
        "fedavg(steps=3)": (8 / 20, 30),
    }[algorithm]
    expected = renyi.epsilon(rate, 1.5, releases, 1e-5)
    assert result.summary.epsilon == pytest.approx(expected, rel=0.02)
    assert result.summary.privacy is not None
    assert f"{releases} releases about any of them" in result.summary.privacy
    found = column(result, "epsilon")
    assert found[-1] == result.summary.epsilon
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("rate", "noise", "releases", "published"),
    [
        # Abadi et al. 2016, section 3.2: q = 0.01, sigma = 4, T = 10,000
        (0.01, 4.0, 10_000, 1.26),
        # The table of TensorFlow Privacy's MNIST tutorial: 256 of 60,000, 15 and 60 epochs
        (256 / 60_000, 1.3, 3_515, 1.19),
        (256 / 60_000, 1.1, 14_062, 3.01),
    ],
)
def test_the_accountant_agrees_with_what_was_published(
    rate: float, noise: float, releases: int, published: float
) -> None:
    """Both are by the conversion of the time; today's is tighter, and what the library has."""
    assert renyi.epsilon(rate, noise, releases, 1e-5, tight=False) == pytest.approx(
        published, abs=0.01
    )
    accountant = ExampleAccountant(Privacy("examples", 1.0, noise), lambda client: 60_000, True)
    accountant.count([[Draw(0, {round(60_000 * rate): releases})]])
    tight = renyi.epsilon(rate, noise, releases, 1e-5)
    assert accountant.epsilon() == pytest.approx(tight, rel=0.01)
    assert 0.8 * published < accountant.epsilon() < published


@pytest.mark.parametrize(
    ("compress", "released"), [(None, 6), ("topk(0.5, feedback=false)", 6), ("topk(0.5)", 7)]
)
def test_what_later_messages_say_of_dropped_gradients_is_counted(
    compress: str | None, released: int, tmp_path: Path
) -> None:
    """Two of three make an update, at 2, 4 and 6 s. The third one's gradient, at 4.5 s, is late."""
    speeds = [{"count": 1, "speed": speed} for speed in (2.0, 1.0, 1 / 2.25)]
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps({"topology": "star", "workers": speeds, "servers": 1}))
    arguments = {"algorithm": "backup-workers", "cluster": str(path), "compute": "2s"}
    result = run(**arguments, updates=3, privacy="examples(clip=1, noise=1)", compress=compress)
    assert result.summary.dropped == 1
    assert f": {released} releases" in str(result.summary.privacy)


def test_who_never_meets_another_has_a_ledger_of_its_own() -> None:
    def epsilon(together: bool) -> float:
        sizes = {0: 10, 1: 5}
        accountant = ExampleAccountant(Privacy("examples", 1.0, 1.0), sizes.__getitem__, together)
        accountant.count([[Draw(0, {1: 5})], [Draw(1, {1: 7})]])
        return accountant.epsilon()

    assert epsilon(False) == pytest.approx(renyi.epsilon(0.2, 1.0, 7, 1e-5), rel=0.02)
    assert epsilon(True) > epsilon(False)


def test_clients_changes_are_clipped_and_their_mean_gets_noise() -> None:
    """f = x^2 / 2 from 1: a step of 0.5 changes x by 0.5 x, which is clipped to 0.2."""
    quadratic = {"model": "quadratic:model", "data": "quadratic:data", "batch": 1, "lr": 0.5}
    common = {**quadratic, "algorithm": "fedavg(steps=1)", "workers": 2, "updates": 3}
    quiet = run(**common, privacy="clients(clip=0.2, noise=1e-9)")
    assert float(quiet.parameters) == pytest.approx(0.4, abs=1e-5)
    loud = [
        float(train(validated(TrainConfig, asked, "test"), seed).parameters) - 0.8
        for seed in range(60)
        for asked in [{**common, "updates": 1, "privacy": "clients(clip=0.2, noise=0.5)"}]
    ]
    # 60 draws of deviation 0.5 * 0.2 / 2 clients
    assert np.std(loud) == pytest.approx(0.05, rel=0.4)
    assert abs(np.mean(loud)) < 4 * 0.05 / 60**0.5


def test_only_the_change_of_a_client_is_clipped_not_what_has_moved_meanwhile() -> None:
    """fedasync mixes x_read - change into x: two clients in turn, changes of 0.5 x_read."""
    reads, x = [1.0, 1.0], 1.0
    for update in range(5):
        read = reads[update % 2]
        x = 0.4 * x + 0.6 * (read - min(0.5 * read, 0.2))
        reads[update % 2] = x
    quadratic = {"model": "quadratic:model", "data": "quadratic:data", "batch": 1, "lr": 0.5}
    result = run(
        **quadratic,
        algorithm="fedasync(steps=1, decay=constant)",
        workers=2,
        updates=5,
        compute="1s",
        privacy="clients(clip=0.2, noise=1e-9)",
    )
    assert float(result.parameters) == pytest.approx(x, abs=1e-5)


@pytest.mark.parametrize("quantile", [0.5, 0.8])
def test_an_adaptive_clip_is_that_of_a_plain_loop(quantile: float) -> None:
    """Andrew et al. 2021, algorithm 1, with the documented stream of noise."""
    clients, rounds, z = 3, 12, 0.02
    rng = generator(SEED, TrainingStream.CLIENT_NOISE, 0)
    module = initial(integer_seed(SEED, TrainingStream.MODEL))
    x, y = (torch.from_numpy(each) for each in data()[:2])
    shards = make_shards(data()[1], clients, "iid", generator(SEED, TrainingStream.SHARDS))
    samplers = [
        BatchSampler(shards[client], 8, generator(SEED, TrainingStream.BATCHES, client))
        for client in range(clients)
    ]
    parameters = list(module.parameters())

    def flat(tensors: Any) -> torch.Tensor:
        return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

    theta, clip, clips, clipped = flat(parameters), 0.1, [], 0
    for _ in range(rounds):
        total, within = torch.zeros_like(theta), 0
        for sampler in samplers:
            torch.nn.utils.vector_to_parameters(theta.clone(), parameters)
            for _ in range(2):
                chosen = torch.from_numpy(sampler.next())
                module.zero_grad()
                cross_entropy(module(x[chosen]), y[chosen]).backward()
                with torch.no_grad():
                    for parameter in parameters:
                        assert parameter.grad is not None
                        parameter -= 0.3 * parameter.grad
            change = theta - flat(parameters)
            within += float(change.norm()) <= clip
            total += change * min(1.0, clip / float(change.norm()))
        sigma_b = max(clients / 20, z)
        z_sum = (z**-2 - (2 * sigma_b) ** -2) ** -0.5
        noise = torch.from_numpy(rng.standard_normal(len(theta), dtype=np.float32))
        theta = theta - (total + z_sum * clip * noise) / clients
        share = (within + sigma_b * rng.standard_normal()) / clients
        clipped += clients - within
        clip *= np.exp(-0.2 * (share - quantile))
        clips.append(clip)
    assert 0 < clipped < clients * rounds
    result = run(
        algorithm="fedavg(steps=2)",
        workers=clients,
        shards="iid",
        updates=rounds,
        evaluate_every=1,
        privacy=f"clients(clip=adaptive, noise={z}, quantile={quantile})",
    )
    assert column(result, "clip") == pytest.approx([0.1, *clips], rel=1e-6)
    assert torch.allclose(result.parameters, theta, rtol=1e-4, atol=1e-5)
    fixed = run(
        algorithm="fedavg(steps=2)",
        workers=clients,
        shards="iid",
        updates=rounds,
        privacy=f"clients(clip=1, noise={z})",
    )
    assert result.summary.epsilon == fixed.summary.epsilon


def test_what_is_released_together_hides_as_well_as_the_sum_alone() -> None:
    """Two Gaussian mechanisms at once are one: their (sensitivity / deviation)^2 add up. A client
    moves the sum by the clip and the count, less half, by 1/2.
    """
    for clients, noise in ((4, 1.0), (100, 1.0), (30, 0.2)):
        made = ClientNoise(parse_privacy(f"clients(clip=adaptive, noise={noise})"), Steady(0.0))
        for _ in range(clients):
            assert made.factor(torch.tensor([0.05])) == 1
        quiet = made.add(torch.zeros(1), [1.0] * clients)
        drop = -np.log(made.clip / 0.1) / 0.2 + 0.5  # the share within the clip, which is all
        assert (float(quiet), drop) == (0, pytest.approx(1))
        loud = ClientNoise(parse_privacy(f"clients(clip=adaptive, noise={noise})"), Steady(1.0))
        in_sum = float(loud.add(torch.zeros(1), [1.0] * clients)) * clients / 0.1
        in_count = (-np.log(loud.clip / 0.1) / 0.2 + 0.5) * clients
        assert in_sum**-2 + (2 * in_count) ** -2 == pytest.approx(noise**-2, rel=1e-5)


class Steady(np.random.Generator):
    """Draws one value."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self._value = value

    def standard_normal(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return self._value if size is None else np.full(size, self._value, dtype)


def test_servers_clip_changes_by_the_norm_of_the_whole() -> None:
    common: dict[str, Any] = {"algorithm": "fedavg(steps=2)", "workers": 2, "evaluate_every": 1}
    common["privacy"] = "clients(clip=0.05, noise=1e-9)"
    one, several = run(**common), run(**common, servers=3)
    assert column(several, "loss") == pytest.approx(column(one, "loss"), rel=1e-4)
    assert column(one, "loss") != pytest.approx(column(run(**{**common, "privacy": None}), "loss"))


def test_a_client_that_takes_part_in_every_round_is_hidden_by_the_noise_alone() -> None:
    result = run(algorithm="fedavg(steps=2)", workers=3, privacy="clients(clip=0.5, noise=4)")
    expected = renyi.epsilon(1.0, 4.0, 10, 1e-5)
    assert result.summary.epsilon == pytest.approx(expected, rel=0.02)


def test_rounds_of_drawn_clients_give_less_away() -> None:
    common: dict[str, Any] = {"workers": 3, "privacy": "clients(clip=0.5, noise=4)"}
    drawn = run(**common, algorithm="fedavg(steps=2)", clients=12)
    # A fixed number is drawn, so one more takes the place of another: half the noise.
    assert drawn.summary.epsilon == pytest.approx(renyi.epsilon(3 / 12, 2.0, 10, 1e-5), rel=0.02)
    assert "each of a share of 0.25 taken as a draw of a fixed number" in str(drawn.summary.privacy)
    # Weights by examples, or how many come in time, would tell who was drawn.
    for known in (
        {"shards": "sizes(0.5)"},
        {"round_timeout": "1h"},
        {"algorithm": "fedavg(steps=2, take=2)"},
    ):
        told = run(**{**common, "algorithm": "fedavg(steps=2)", "clients": 12, **known})
        assert told.summary.epsilon == pytest.approx(by_participation(told), rel=0.02)
    # Nobody draws who comes next by rounds, so a client is hidden by the noise alone.
    buffered = run(**common, algorithm="fedbuff(buffer=2, steps=2)", clients=12)
    assert buffered.summary.epsilon == pytest.approx(by_participation(buffered), rel=0.02)


def by_participation(result: TrainingResult) -> float:
    """Return epsilon where who takes part is known: k changes of one in one sum count as k^2."""
    turns = Counter((row.value, row.step) for row in series(result, "client"))
    releases: Counter[float] = Counter()
    for (client, _), times in turns.items():
        releases[client] += times**2
    return renyi.epsilon(1, 4.0, max(releases.values()), 1e-5)


@pytest.mark.parametrize(("clients", "drawn", "noise"), [(12, 3, 1.0), (100, 10, 2.0), (8, 4, 0.6)])
def test_a_draw_of_a_fixed_number_hides_less_than_a_poisson_sample(
    clients: int, drawn: int, noise: float
) -> None:
    """Everybody's change is -C but the one's, which is C: sums of `drawn` terms, in units of C.

    Without the one they are around -drawn; with it, in a share of all draws around 2 - drawn. The
    hockey-stick divergence of the two densities is what delta is at an epsilon.
    """
    accountant = ClientAccountant(Privacy("clients", 1.0, noise), drawn / clients)
    accountant._ledgers[0][1.0] = 10**6  # so that the other bound is not the smaller
    accountant.count([[Draw(client, {1: 1})] for client in range(drawn)])
    x = np.linspace(-drawn - 40 * noise, 2 - drawn + 40 * noise, 2_000_001)

    def density(mean: float) -> Any:
        return np.exp(-(((x - mean) / noise) ** 2) / 2) / (noise * (2 * np.pi) ** 0.5)

    rate = drawn / clients
    without = density(-drawn)
    with_it = (1 - rate) * without + rate * density(2 - drawn)

    def delta(epsilon: float) -> float:
        over = [with_it - np.exp(epsilon) * without, without - np.exp(epsilon) * with_it]
        return max(float(np.maximum(each, 0).sum()) * (x[1] - x[0]) for each in over)

    assert delta(accountant.epsilon()) <= 1e-5
    assert delta(renyi.epsilon(rate, noise, 1, 1e-5)) > 1e-5, "a Poisson sample's is too small"


def test_a_client_that_is_twice_in_a_sum_counts_four_times() -> None:
    """Two workers in step fill each buffer of four with two changes each, all clipped."""
    result = run(
        algorithm="fedbuff(buffer=4, steps=1)",
        workers=2,
        updates=3,
        compute="1s",
        privacy="clients(clip=0.01, noise=9)",
    )
    assert result.summary.epsilon == pytest.approx(renyi.epsilon(1, 9.0, 3 * 2**2, 1e-5), rel=0.02)
    assert ": 12 releases" in str(result.summary.privacy)


@given(
    examples=st.integers(20, 50),
    batch=st.integers(1, 60) | st.just("all"),
    workers=st.integers(1, 4),
    shards=st.sampled_from(["shared", "iid", "sizes(0.5)"]),
    algorithm=st.sampled_from(["ssgd", "fedavg(steps=1)", "fedavg(epochs=1)", "local-sgd(1)"]),
    seed=st.integers(0, 50),
)
@settings(max_examples=40, deadline=None)
def test_one_example_moves_what_is_released_by_at_most_its_clipped_gradient(
    examples: int, batch: int | str, workers: int, shards: str, algorithm: str, seed: int
) -> None:
    """An audit: with hardly any noise, all of the same seed but one example.

    In the first step of one worker a sum of clipped gradients moves by C where one is left out, by
    2 C where it is replaced. Means and weights over workers only make less of it. A gradient is a
    sum over what a minibatch should have.
    """
    moved: dict[str, list[torch.Tensor]] = {}
    compute = Private._one

    def see(self: Private, request: Request) -> Gradient:
        made = compute(self, request)
        assert len(set(request.batch.tolist())) == len(request.batch)
        if not torch.as_tensor(request.parameters).any():
            gradients.append(torch.as_tensor(made.gradient) * request.lot)
        return made

    changes: tuple[audited.Change, ...] = ("none", "replaced", "missing")
    for change in changes:
        gradients = moved[change] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Private, "_one", see)
            patch.setattr(audited, "chosen", (examples, change))
            asked = {
                "model": "audited:model",
                "data": "audited:data",
                "batch": batch,
                "lr": 1e-9,
                "algorithm": algorithm,
                "workers": workers,
                "shards": shards,
                "updates": 1,
                "privacy": "examples(clip=0.5, noise=1e-9)",
            }
            train(validated(TrainConfig, asked, "test"), seed)
    for change, most in (("missing", 0.5), ("replaced", 1.0)):
        pairs = list(zip(moved["none"], moved[change], strict=True))
        assert len(pairs) >= 1
        assert max(float((one - other).norm()) for one, other in pairs) <= most * 1.0001


@given(
    batch=st.integers(1, 70) | st.just("all"),
    workers=st.integers(1, 4),
    shards=st.sampled_from(["shared", "iid", "sizes(0.5)"]),
    algorithm=st.sampled_from(
        ["ssgd", "asgd", "fedavg(steps=3)", "fedavg(epochs=2)", "local-sgd(3)", "easgd(period=2)"]
    ),
    compress=st.sampled_from([None, "topk(0.5)"]),
    seed=st.integers(0, 50),
)
@settings(max_examples=40, deadline=None)
def test_the_account_is_that_of_what_was_drawn(
    batch: int | str, workers: int, shards: str, algorithm: str, compress: str | None, seed: int
) -> None:
    """By the formulas, from each sample that was drawn; those of the last moment may be unused."""
    ledgers: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    draw = PoissonSampler._drawn

    def note(self: PoissonSampler, size: int) -> np.ndarray:
        drawn = draw(self, size)
        ledgers[id(self)][size, len(self._indices)] += 1
        return drawn

    if algorithm.startswith("easgd"):
        compress = None
    asked = {
        "model": "audited:model",
        "data": "audited:data",
        "batch": batch,
        "lr": 0.001,
        "algorithm": algorithm,
        "workers": workers,
        "shards": shards,
        "updates": 4,
        "compute": "lognormal(1s, 0.4)",
        "compress": compress,
        "lookahead": None,
        "privacy": "examples(clip=0.5, noise=3)",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PoissonSampler, "_drawn", note)
        patch.setattr(audited, "chosen", (60, "none"))
        known = {key: value for key, value in asked.items() if value is not None}
        result = train(validated(TrainConfig, known, "test"), seed)

    def loss(ledger: Mapping[tuple[int, int], int]) -> float:
        total = [
            sum(n * renyi.divergence(a, size / all_, 3.0) for (size, all_), n in ledger.items())
            for a in _ORDERS
        ]
        return max(0.0, min(map(renyi.converted, _ORDERS, total)))

    together = shards == "shared"
    drawn = [sum(ledgers.values(), Counter())] if together else list(ledgers.values())
    assert result.summary.epsilon is not None
    assert result.summary.epsilon <= 1.02 * max(map(loss, drawn))
    applied: dict[int, int] = Counter()
    for row in series(result, "staleness"):
        applied[int(row.node.removeprefix("worker"))] += 1
    size = 60 if batch == "all" else int(batch)
    if algorithm in ("ssgd", "asgd") and together:
        least = renyi.epsilon(min(1.0, size / 60), 3.0, sum(applied.values()), 1e-5)
        assert result.summary.epsilon >= 0.98 * least


@pytest.mark.parametrize(
    "text",
    [
        "examples(clip=1, noise=1.1)",
        "clients(clip=0.5, noise=2)",
        "clients(clip=adaptive, noise=2)",
        "clients(clip=adaptive, noise=2, quantile=0.7)",
    ],
)
def test_privacy_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_privacy(text)) == text
    assert str(parse_privacy(text[:-1] + ", delta=0.001)")) == text[:-1] + ", delta=0.001)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"privacy": "example(clip=1, noise=1)"}, 'did you mean "examples"?'),
        ({"privacy": "examples(clip=1)"}, "write examples(clip=1, noise=1.1"),
        ({"privacy": "examples(clip=1, noice=1)"}, 'did you mean "noise"?'),
        ({"privacy": "examples(clip=0, noise=1)"}, "clip must be above 0"),
        ({"privacy": "examples(clip=1, noise=1, delta=1)"}, "delta must be above 0 and below 1"),
        ({"privacy": NEXT_TO_NONE, "clip": 1}, "clip: has no effect"),
        ({"privacy": NEXT_TO_NONE, "lookahead": "vmap"}, "lookahead: has no effect"),
        ({"privacy": "examples(clip=adaptive, noise=1)"}, "clip=adaptive follows changes of"),
        ({"privacy": "clients(clip=1, noise=1, quantile=0.7)"}, "no effect without clip=adaptive"),
        ({"privacy": "clients(clip=adaptive, noise=1, quantile=1)"}, "above 0 and below 1, got 1"),
        (
            {
                "privacy": "clients(clip=adaptive, noise=1)",
                "algorithm": "fedavg",
                "servers": 2,
            },
            "clip=adaptive runs on 1 server, not 2",
        ),
        ({"privacy": "clients(clip=1, noise=1)"}, "use examples(clip=1, noise=1.1)"),
        (
            {"privacy": "clients(clip=1, noise=1)", "algorithm": "scaffold"},
            "more than changes by local steps",
        ),
        (
            {"privacy": "clients(clip=1, noise=1)", "algorithm": "diloco"},
            "more than changes by local steps",
        ),
        (
            {"privacy": NEXT_TO_NONE, "shards": "bootstrap(9)"},
            "several clients may share an example",
        ),
        ({"privacy": NEXT_TO_NONE, "timing_only": True, "lr": None}, "privacy: has no effect"),
        ({"privacy": NEXT_TO_NONE, "model": "resnet20", "data": None}, "group normalisation"),
    ],
)
def test_what_hides_nothing_is_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        run(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Without(), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r'pip install "paracosm\[privacy\]"'):
        run(privacy=NEXT_TO_NONE)


class _Without:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "dp_accounting":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

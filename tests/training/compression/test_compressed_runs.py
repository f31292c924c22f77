"""Runs whose messages are compressed: values against plain programs, instants by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import compressing as plain
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import series
from valley import CURVATURE, START

from paracosm.errors import InputError
from paracosm.results import TrainingSummary
from paracosm.studies import KINDS
from paracosm.training.algorithms.registry import ALGORITHMS
from paracosm.training.compression.codecs import parse_codec
from paracosm.training.compression.messages import Compression
from paracosm.training.config import TrainConfig
from paracosm.training.numerics.store import Gradient, Numerics
from paracosm.training.record import TrainingResult
from paracosm.training.run import schedule_rule, train

LR = 0.25
SIZE = 54 * 4  # bytes of the valley's parameters


def run(**arguments: Any) -> TrainingResult:
    common = {
        "model": "valley:model",
        "data": "valley:data",
        "lr": LR,
        "compute": "1s",
        "lookahead": "off",
        "batch": 1,
        "workers": 2,
    }
    return train(KINDS["train"].configured({**common, **arguments}, "test"))


def by_tensor(codec: Any, x: np.ndarray) -> np.ndarray:
    return np.concatenate([codec(x[:48]), codec(x[48:])])


ERROR_FEEDBACK = {
    "topk(0.1)": partial(plain.top_k, k=5),
    "topk(0.1, by_tensor=true)": lambda x: np.concatenate(
        [plain.top_k(x[:48], 5), plain.top_k(x[48:], 1)]
    ),
    "signsgd": partial(by_tensor, plain.scaled_sign),
}


@pytest.mark.parametrize("codec", sorted(ERROR_FEEDBACK))
@pytest.mark.parametrize("algorithm", ["asgd", "ssgd"])
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_keep_errors_of_their_own(codec: str, algorithm: str, workers: int) -> None:
    expected = plain.error_feedback_sgd(
        START,
        workers,
        12,
        LR,
        lambda x: CURVATURE * x,
        ERROR_FEEDBACK[codec],
        synchronous=algorithm == "ssgd",
    )
    result = run(algorithm=algorithm, workers=workers, updates=12, compress=codec)
    np.testing.assert_allclose(result.parameters.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_without_feedback_what_was_left_out_is_forgotten() -> None:
    x = START
    for _ in range(12):
        x = x - LR * plain.top_k(CURVATURE * x, 5)
    result = run(algorithm="asgd", workers=1, updates=12, compress="topk(0.1, feedback=false)")
    np.testing.assert_allclose(result.parameters.numpy(), x, rtol=1e-4, atol=1e-6)


def test_the_majority_s_sign_is_the_step() -> None:
    x = START
    for _ in range(5):
        x = x - 0.01 * np.sign(CURVATURE * x)
    for topology in ("server", "all-reduce"):
        result = run(
            algorithm="ssgd",
            topology=topology,
            workers=3,
            updates=5,
            lr=0.01,
            compress="signsgd(feedback=false)",
        )
        np.testing.assert_allclose(result.parameters.numpy(), x, rtol=1e-4, atol=1e-6)


def test_means_of_parameters_are_sent_as_what_local_steps_have_changed() -> None:
    """Basu et al. 2019, algorithm 1, with workers that all see the same function."""
    x, error = START, np.zeros(54)
    for _ in range(6):
        change = x - x * (1 - LR * CURVATURE) ** 3
        sent = plain.top_k(change + error, 5)
        x, error = x - sent, change + error - sent
    result = run(algorithm="local-sgd(3)", updates=6, compress="topk(0.1)")
    np.testing.assert_allclose(result.parameters.numpy(), x, rtol=1e-4, atol=1e-5)


def test_power_sgd_in_an_all_reduce_is_that_of_the_mean() -> None:
    # All gradients are equal, so that a server that sees one message makes the same of it.
    shared = run(algorithm="ssgd", topology="all-reduce", updates=8, compress="powersgd(1)")
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(25, 0, 0, 0)))
    q = rng.standard_normal((6, 1), np.float32)
    x, error = START, np.zeros(54)
    for _ in range(8):
        p = CURVATURE * x + error
        _, q, low = plain.power_sgd([p[:48].reshape(8, 6)] * 2, q)
        sent = np.concatenate([low.ravel(), p[48:]])
        x, error = x - LR * sent, p - sent
    np.testing.assert_allclose(shared.parameters.numpy(), x, rtol=1e-3, atol=1e-4)


def test_several_servers_get_messages_of_their_own() -> None:
    x, error = START, np.zeros(54)
    for _ in range(6):
        p = CURVATURE * x + error
        sent = np.concatenate([plain.top_k(p[:48], 5), plain.top_k(p[48:], 1)])
        x, error = x - LR * sent, p - sent
    result = run(algorithm="ssgd", servers=2, updates=6, compress="topk(0.1)", latency="1ms")
    np.testing.assert_allclose(result.parameters.numpy(), x, rtol=1e-4, atol=1e-5)


class _Known(Numerics):
    """Vectors that are known, as gradients; counts those that are looked at."""

    real = True

    def __init__(self, sizes: tuple[int, ...] = (6,)) -> None:
        super().__init__((4.0 * sum(sizes),), (tuple((size,) for size in sizes),))
        self.parts = (slice(0, sum(sizes)),)

    def gradient_of(self, values: Any) -> Gradient:
        return Gradient("worker0", 0, None, [0], 1, _Pending(torch.tensor(values)))


class _Pending:
    def __init__(self, gradient: Any) -> None:
        self.gradient = gradient
        self.loss = 0.0
        self.looked_at = False

    def result(self) -> Any:
        self.looked_at = True
        assert self.gradient is not None
        return self

    def discard(self) -> None:
        self.gradient = None


numbers = st.lists(st.floats(-100, 100, width=32), min_size=6, max_size=6)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["topk(0.2)", "randomk(0.3, feedback=true)", "qsgd(feedback=true)", "signsgd"]),
    st.lists(numbers, min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_messages_and_the_last_error_add_up_to_all_gradients(
    codec: str, gradients: list[list[float]], order: Any
) -> None:
    """Whatever is looked at first, and though some are discarded: what is sent is the same."""
    numerics = _Known()

    def sent(shuffled: bool) -> tuple[list[Any], Any]:
        compression = Compression(parse_codec(codec), numerics, 0, is_shared=False)
        made = [numerics.gradient_of(values) for values in gradients]
        messages = [compression.message(0, gradient) for gradient in made]
        assert not any(gradient.pending.pending.looked_at for gradient in made)
        if shuffled:
            made[0].pending.discard()
            turn = list(messages)
            order.shuffle(turn)
            for message in turn:
                assert len(message.value) == 6
        last = compression.message(0, torch.zeros(6))
        error = last.outbox.vector(last) if shuffled else None
        return [message.value for message in messages], error

    found, error = sent(shuffled=True)
    assert all(map(torch.equal, found, sent(shuffled=False)[0]))
    total = torch.tensor(gradients).double().sum(0)
    together = torch.stack(found).double().sum(0) + error.double()
    scale = 1 + torch.tensor(gradients).abs().sum()
    assert (total - together).abs().max() <= 1e-5 * scale


def test_a_message_that_nobody_looks_at_is_not_computed() -> None:
    numerics = _Known()
    compression = Compression(parse_codec("qsgd"), numerics, 0, is_shared=False)
    first, second = (numerics.gradient_of([1.0] * 6) for _ in range(2))
    dropped, kept = (compression.message(0, gradient) for gradient in (first, second))
    first.pending.discard()
    assert not torch.equal(kept.value, compression.message(7, second).value)
    assert not first.pending.looked_at
    assert dropped.decoded is None


@pytest.mark.parametrize("algorithm", ["asgd", "ssgd", "local-sgd(1)"])
def test_messages_of_before_the_start_are_sent_as_they_are(algorithm: str) -> None:
    x, error = START, np.zeros(54)
    for update in range(9):
        p = LR * CURVATURE * x + error
        sent = p if update < 4 else plain.top_k(p, 5)
        x, error = x - sent, p - sent
    arguments: dict[str, Any] = {"algorithm": algorithm, "workers": 1, "updates": 9}
    result = run(**arguments, compress="topk(0.1, start=4)")
    np.testing.assert_allclose(result.parameters.numpy(), x, rtol=1e-4, atol=1e-5)
    if algorithm == "local-sgd(1)":
        return  # whose one worker sends nothing
    pushed = 4 * SIZE + 5 * 190 / 8
    of_two = run(**{**arguments, "workers": 2, "topology": "server"}, compress="topk(0.1, start=4)")
    if algorithm == "ssgd":
        assert of_two.summary.bytes_sent == pytest.approx(2 * (pushed + 9 * SIZE))
    timed = {"model": "valley:model", "data": "valley:data", "compute": "1s", "bandwidth": 100}
    asked = {**timed, **arguments, "workers": 2, "compress": "topk(0.1, start=4)", "batch": 1}
    timing, real = (
        train(KINDS["train"].configured({**asked, "timing_only": alone}, "test")).summary
        for alone in (True, False)
    )
    assert timing.virtual_time == real.virtual_time
    assert timing.bytes_sent == real.bytes_sent


def test_an_all_reduce_takes_longer_before_the_start() -> None:
    common: dict[str, Any] = {"algorithm": "ssgd", "topology": "all-reduce", "updates": 3}
    of_all = run(**common, bandwidth=100, compress="topk(0.1, start=2)")
    # Two rings of 216 bytes among two workers, then a gather of 190 bits of each.
    assert of_all.summary.virtual_time == pytest.approx(3 + 2 * SIZE / 100 + 190 / 8 / 100)
    assert of_all.summary.bytes_sent == pytest.approx(2 * 2 * SIZE + 2 * 190 / 8)


def test_the_share_that_is_sent_falls_while_it_warms_up() -> None:
    """Lin et al. 2018: 25, 6.25, 1.56, 0.4 and then 0.1 % of the numbers."""
    codec = parse_codec("topk(0.0009765625, warmup=8, start=3)")
    shares = [getattr(codec.at(update), "share", 1) for update in range(13)]
    quarters = [0.25, 0.25, 0.0625, 0.0625, 1 / 64, 1 / 64, 1 / 256, 1 / 256]
    assert shares == [1, 1, 1, *map(pytest.approx, quarters), 1 / 1024, 1 / 1024]
    x, error = START, np.zeros(54)
    for update in range(6):
        p = CURVATURE * x + error
        sent = plain.top_k(p, [34, 21, 14, 9, 5, 5][update])  # 54 times 0.1^(1/5), ^(2/5), ...
        x, error = x - LR * sent, p - sent
    result = run(algorithm="asgd", workers=1, updates=6, compress="topk(0.1, warmup=4)")
    np.testing.assert_allclose(result.parameters.numpy(), x, rtol=1e-4, atol=1e-5)


def test_a_compressed_message_takes_its_bytes_on_the_link() -> None:
    # topk(0.1): 5 of 54 numbers, 32 bits and 6 of place: 190 bits. At 1 byte/s, 216 bytes back.
    result = run(algorithm="asgd", workers=1, updates=1, bandwidth=1, compress="topk(0.1)")
    assert result.summary.virtual_time == pytest.approx(1 + 190 / 8 + SIZE)
    assert result.summary.bytes_sent == pytest.approx(190 / 8 + SIZE)
    found = result.summary.compression
    assert found is not None
    assert (found.codec, found.message, found.uncompressed) == ("topk(share=0.1)", 190 / 8, SIZE)
    assert found.ratio == pytest.approx(SIZE / (190 / 8))
    assert TrainingSummary.from_dict(result.summary.to_dict()) == result.summary
    rows = [(row.node, row.step, row.value) for row in series(result, "bytes_sent")]
    # Evaluated when the update is made, and the answer not sent.
    assert rows == [("job", 0, 0), ("job", 1, pytest.approx(190 / 8))]


@pytest.mark.parametrize(
    ("codec", "seconds"),
    [
        # A ring of 4: messages of 190 bits that do not add up pass 3 links, all at a time.
        ("topk(0.1)", 3 * 190 / 8),
        # Sums pass: 2 * 3 steps of a quarter.
        ("fp16", 6 * SIZE / 2 / 4),
        ("randomk(0.1)", 6 * (5 * 4 + 8) / 4),
        # P with the vector: 8 + 6 numbers; then Q: 6.
        ("powersgd(1)", 6 * 14 * 4 / 4 + 6 * 6 * 4 / 4),
    ],
)
def test_an_all_reduce_takes_what_its_messages_take(codec: str, seconds: float) -> None:
    common: dict[str, Any] = {
        "model": "valley:model",
        "data": "valley:data",
        "compute": "1s",
        "batch": 1,
        "algorithm": "ssgd",
        "topology": "all-reduce",
        "workers": 4,
        "updates": 2,
        "bandwidth": 1,
        "compress": codec,
    }
    for timing_only in (False, True):
        config = TrainConfig.model_validate({**common, "timing_only": timing_only})
        assert train(config).summary.virtual_time == pytest.approx(2 * (1 + seconds))


def test_latency_is_paid_by_both_rounds_of_power_sgd() -> None:
    common = {"algorithm": "ssgd", "topology": "all-reduce", "workers": 4, "latency": "1s"}
    assert run(**common, updates=1, compress="fp16").summary.virtual_time == 1 + 6
    assert run(**common, updates=1, compress="powersgd(1)").summary.virtual_time == 1 + 12


def test_a_size_that_is_given_is_of_the_message_before_it_is_compressed() -> None:
    common = {"algorithm": "asgd", "workers": 1, "updates": 1, "compress": "fp16"}
    result = run(**common, bandwidth="1MB/s", message_size="1MB")
    assert result.summary.virtual_time == pytest.approx(1 + 0.5 + 1)


@pytest.mark.parametrize("algorithm", ["asgd", "ssgd", "fedbuff(buffer=3)", "backup-workers"])
@pytest.mark.parametrize("servers", [1, 2])
def test_a_generated_schedule_sends_what_the_engine_sends(algorithm: str, servers: int) -> None:
    if algorithm == "backup-workers" and servers > 1:
        return
    common: dict[str, Any] = {
        "model": "valley:model",
        "data": "valley:data",
        "compute": "uniform(1s, 3s)",
        "algorithm": algorithm,
        "servers": servers,
        "workers": 4,
        "updates": 30,
        "bandwidth": 100,
        "compress": "topk(0.1)",
        "timing_only": True,
        "batch": 1,
    }
    found = []
    for timeline in (False, True):
        config = TrainConfig.model_validate({**common, "timeline": timeline})
        assert schedule_rule(config, config.resolve_cluster()) is not None
        found.append(train(config, 3).summary)
    assert found[0].virtual_time == pytest.approx(found[1].virtual_time, rel=1e-6)
    assert found[0].bytes_sent == pytest.approx(found[1].bytes_sent)
    assert found[0].mean_staleness == found[1].mean_staleness
    real = TrainConfig.model_validate({**common, "timing_only": False, "lookahead": "off"})
    summary = train(real, 3).summary
    assert summary.virtual_time == found[1].virtual_time
    assert summary.bytes_sent == found[1].bytes_sent


def test_every_algorithm_that_sends_changes_sends_them_compressed() -> None:
    for name, algorithm in sorted(ALGORITHMS.items()):
        arguments: dict[str, Any] = {"algorithm": name, "updates": 4, "compress": "signsgd"}
        topology = algorithm().topologies[0]
        if topology == "local":
            continue
        if algorithm.sends_parameters:
            with pytest.raises(InputError) as caught:
                run(**arguments)
            assert f"the workers of {name} send whole parameters" in str(caught.value)
            continue
        found = run(**arguments, bandwidth="1kB/s").summary
        plain_run = run(algorithm=name, updates=4, bandwidth="1kB/s").summary
        assert found.virtual_time < plain_run.virtual_time, name
        assert found.bytes_sent < plain_run.bytes_sent, name
        assert plain_run.compression is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "sequential", "workers": 1}, "sequential sends nothing"),
        ({"algorithm": "easgd"}, "easgd send whole parameters"),
        ({"algorithm": "ad-psgd"}, "ad-psgd send whole parameters"),
        (
            {"timing_only": True, "lr": None, "lookahead": None},
            "messages take no time, and nothing is computed: give --bandwidth",
        ),
        ({"compress": "topk(2)"}, "share must be above 0 and below 1"),
        ({"compress": "powersgd(7)"}, "no tensor gets smaller with rank 7"),
        (
            {"schedule": Path("s.parquet"), "compute": None, "workers": None},
            "cannot be combined with",
        ),
    ],
)
def test_compression_of_nothing_is_refused(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "model": "valley:model",
        "data": "valley:data",
        "lr": LR,
        "compute": "1s",
        "lookahead": "off",
        "batch": 1,
        "workers": 2,
        "compress": "topk(0.1)",
        **arguments,
    }
    known = {key: value for key, value in given.items() if value is not None}
    with pytest.raises(InputError) as caught:
        train(KINDS["train"].configured(known, "test"))
    assert message in str(caught.value)


def test_one_seed_compresses_the_same_way_and_another_one_another() -> None:
    config = TrainConfig.model_validate(
        {
            "model": "valley:model",
            "data": "valley:data",
            "compute": "1s",
            "batch": 1,
            "algorithm": "asgd",
            "updates": 9,
            "compress": "qsgd",
            "lookahead": "off",
        }
    )
    first, again, other = (train(config, seed).parameters for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_links_without_limit_are_said_to_cost_compressed_messages_nothing() -> None:
    said = run(algorithm="asgd", updates=1, compress="fp16").summary.durations["messages"]
    assert said == "compressed by fp16, which takes no time on these links"
    limited = run(algorithm="asgd", updates=1, compress="fp16", bandwidth="1kB/s").summary
    assert limited.durations["messages"] == "compressed by fp16"


@pytest.mark.parametrize(
    ("codec", "of_three", "of_two"),
    [
        # Milliseconds, at 1 byte each: 2 (W - 1) / W of 20 numbers, (W - 1) of 190 bits.
        ("powersgd(1, feedback=false)", 4 / 3 * 80, 80),
        ("topk(0.1, feedback=false)", 2 * 190 / 8, 190 / 8),
    ],
)
def test_an_all_reduce_of_those_who_are_left_takes_what_its_messages_take(
    codec: str, of_three: float, of_two: float
) -> None:
    # Worker 2 stops as it computes for update 6 of 8.
    result = run(
        algorithm="ssgd",
        topology="all-reduce",
        workers=3,
        updates=8,
        bandwidth="1kB/s",
        compress=codec,
        fault="stop(1000s) on worker 2 at 5.7s",
        recovery="elastic",
    ).summary
    assert result.updates == 8
    assert result.virtual_time == pytest.approx(8 + (5 * of_three + 3 * of_two) / 1000)
    assert result.bytes_sent == pytest.approx(5 * 3 * of_three + 3 * 2 * of_two)

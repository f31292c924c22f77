"""DiLoCo and its relatives: values against plain programs, instants against hand calculations."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import diloco as plain
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import series
from small_network import TENSORS, data, initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.algorithms.diloco import StreamingDiLoCo
from paracosm.training.algorithms.registry import parse_algorithm
from paracosm.training.numerics.parameters import ParameterLayout

SEED = 3
LR = 0.02
INNER = {
    "sgd": partial(torch.optim.SGD, lr=LR),
    "adamw(weight_decay=0.1)": partial(torch.optim.AdamW, lr=LR, weight_decay=0.1),
}


def run(**arguments: Any) -> TrainingResult:
    common = {
        "model": "small_network:model",
        "data": "small_network:data",
        "batch": 8,
        "lr": LR,
        "lookahead": "off",
        "workers": 3,
        "compute": "1s",
    }
    return train(TrainConfig.model_validate({**common, **arguments}), SEED)


def batches(workers: int) -> plain.Batch:
    """Return the minibatches that SEED stands for."""
    x, y, _, _ = data()
    samplers = [
        BatchSampler(np.arange(len(x)), 8, generator(SEED, TrainingStream.BATCHES, worker))
        for worker in range(workers)
    ]
    drawn: list[list[np.ndarray]] = [[] for _ in range(workers)]

    def batch(worker: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        while len(drawn[worker]) <= step:
            drawn[worker].append(samplers[worker].next())
        chosen = drawn[worker][step]
        return torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen])

    return batch


def module() -> torch.nn.Module:
    return initial(integer_seed(SEED, TrainingStream.MODEL))


def inner(optimizer: str) -> plain.Inner:
    return lambda module: INNER[optimizer](module.parameters())


def assert_same(
    result: TrainingResult, expected: dict[str, torch.Tensor], fragments: int = 1
) -> None:
    tensors = ParameterLayout.of(module(), fragments=fragments).unflatten(result.parameters)
    for name in TENSORS:
        assert torch.allclose(tensors[name], expected[name], rtol=1e-4, atol=2e-6), name


def rows(result: TrainingResult, name: str) -> list[tuple[str, float, float]]:
    return [(row.node, row.virtual_time, row.value) for row in series(result, name)]


@pytest.mark.parametrize("optimizer", sorted(INNER))
@pytest.mark.parametrize("topology", ["all-reduce", "server"])
def test_diloco_is_algorithm_1_of_its_paper(topology: str, optimizer: str) -> None:
    result = run(
        algorithm="diloco(steps=5, outer_lr=0.6, momentum=0.8)",
        optimizer=optimizer,
        topology=topology,
        updates=6,
    )
    setting = (module(), cross_entropy, 3, batches(3), inner(optimizer))
    expected = plain.diloco(plain.Setting(*setting, rounds=6, steps=5, lr=0.6, momentum=0.8))
    assert_same(result, expected)
    assert result.summary["virtual_time"] == 30
    assert result.summary["examples"] == 6 * 5 * 3 * 8


LAYERS = [["0.weight", "0.bias"], ["2.weight", "2.bias"], ["4.weight", "4.bias"]]


@pytest.mark.parametrize(
    ("fragments", "offsets", "steps", "overlap", "mixing"),
    [
        ([LAYERS[0] + LAYERS[2], LAYERS[1]], [0, 3], 6, 2, 0.5),
        (LAYERS, [0, 2, 4], 7, 5, 0.25),  # several are under way at a time
        (LAYERS, [0, 1, 2], 3, 0, 0.5),
    ],
)
def test_streaming_diloco_is_algorithm_2_of_its_paper(
    fragments: list[list[str]],
    offsets: list[int],
    steps: int,
    overlap: int,
    mixing: float,
) -> None:
    optimizer = "adamw(weight_decay=0.1)"
    parts = len(fragments)
    arguments = f"steps={steps}, fragments={parts}, overlap={overlap}, mixing={mixing}"
    result = run(
        algorithm=f"streaming-diloco({arguments}, outer_lr=0.6, momentum=0.8)",
        optimizer=optimizer,
        updates=4,
    )
    setting = (module(), cross_entropy, 3, batches(3), inner(optimizer))
    expected = plain.streaming_diloco(
        plain.Setting(*setting, rounds=4, steps=steps, lr=0.6, momentum=0.8),
        fragments=fragments,
        offsets=offsets,
        overlap=overlap,
        mixing=mixing,
    )
    assert_same(result, expected, parts)
    assert result.summary["examples"] == 4 * steps * 3 * 8
    assert result.summary["mean_staleness"] == 0


def test_one_fragment_without_overlap_or_mixing_is_diloco() -> None:
    one = run(algorithm="diloco(steps=5)", updates=5)
    same = run(algorithm="streaming-diloco(steps=5, fragments=1, overlap=0, mixing=0)", updates=5)
    assert torch.equal(one.parameters, same.parameters)
    assert one.summary["virtual_time"] == same.summary["virtual_time"]
    assert rows(one, "loss") == rows(same, "loss")


@pytest.mark.parametrize(("buffer", "activation"), [(1, 0.0), (3, 0.0), (3, 0.2), (4, 0.25)])
def test_delayed_nesterov_is_algorithm_3_of_its_paper(buffer: int, activation: float) -> None:
    optimizer = "adamw(weight_decay=0.1)"
    result = run(
        algorithm=f"delayed-nesterov(steps=3, buffer={buffer}, activation={activation})",
        optimizer=optimizer,
        updates=20,
        compute="exponential(1s)",
    )
    order = [int(node.removeprefix("worker")) for node, _, _ in rows(result, "staleness")]
    assert len(order) == 20
    assert len(set(order)) == 3
    expected = plain.delayed_nesterov(
        module(),
        cross_entropy,
        batches(3),
        inner(optimizer),
        order,
        steps=3,
        buffer=buffer,
        lr=0.7,
        momentum=0.9,
        activation=activation,
    )
    assert_same(result, expected)


def test_each_server_delays_the_momentum_of_its_part() -> None:
    # What arrives at one of two servers arrives at the other: the parts are those of one server.
    arguments = {"algorithm": "delayed-nesterov(steps=2, buffer=3)", "updates": 9}
    one, two = (run(servers=servers, **arguments) for servers in (1, 2))
    of = {
        servers: ParameterLayout.of(module(), servers).unflatten(result.parameters)
        for servers, result in ((1, one), (2, two))
    }
    for name in TENSORS:
        assert torch.allclose(of[1][name], of[2][name], rtol=1e-5, atol=1e-7), name


# Fragment 0 of the small network has layers 0 and 4, 63 numbers or 252 bytes; fragment 1 has layer
# 2, 48 numbers or 192 bytes. A ring of 2 moves as many bytes as the vector has, in two messages.
STREAMING = "streaming-diloco(steps=4, fragments=2, overlap=1)"


def spans(result: TrainingResult, resource: str) -> list[tuple[float, float]]:
    """Return begin and end of the spans of worker 0, rounded."""
    assert result.timeline is not None
    return [
        (round(span.begin, 6), round(span.end, 6))
        for span in result.timeline.spans
        if (span.node, span.resource) == ("worker0", resource)
    ]


def timed(algorithm: str, bandwidth: float, updates: int) -> TrainingResult:
    """Run two workers that take a second for a step, at so many bytes a second."""
    config = TrainConfig(
        model="small_network:model",
        data="small_network:data",
        algorithm=algorithm,
        bandwidth=f"{bandwidth}B/s",
        updates=updates,
        workers=2,
        compute="1s",
        timing_only=True,
        timeline=True,
    )
    return train(config, SEED)


def test_what_goes_on_beside_computing_costs_no_time() -> None:
    # Half a second for fragment 0, sent at 4, 8, ...; less for fragment 1, sent at 2, 6, ...: both
    # within the second of the next step. The run is over with the last mean.
    result = timed(STREAMING, 504, 3)
    assert result.summary["virtual_time"] == 3 * 4 + 0.5
    less = round(192 / 504, 6)
    assert spans(result, "send") == [
        *((2, 2 + less), (4, 4.5), (6, 6 + less), (8, 8.5), (10, 10 + less), (12, 12.5)),
    ]
    assert sum(end - begin for begin, end in spans(result, "compute")) == 12.5
    assert spans(result, "wait") == []


def test_a_worker_waits_for_a_mean_that_is_late() -> None:
    # 2 s for fragment 0 and 1.5 s for fragment 1 (of 252 and 189 bytes).
    seconds = {0: 2.0, 1: 192 / 126}
    result = timed(STREAMING, 126, 2)
    now, sent = 0.0, []
    for fragment in (1, 0, 1, 0):
        now += 1.0 if sent else 2.0  # of four steps, each mean is taken after the next one
        sent.append((now, now + seconds[fragment]))
        now = max(now + 1.0, now + seconds[fragment])
    assert result.summary["virtual_time"] == pytest.approx(now)
    assert spans(result, "send") == [(round(a, 6), round(b, 6)) for a, b in sent]


def test_fragments_that_meet_go_one_after_the_other() -> None:
    # Fragment 1 is sent for at 2 s, and takes 3.84 s; it is waited for at step 5, from 5 s on.
    # Fragment 0 is sent for at 4 s, begins when the other is over, and takes 5.04 s; it is waited
    # for at step 7, from 7.84 s on. In between fragment 1 is sent for again.
    result = timed("streaming-diloco(steps=4, fragments=2, overlap=3)", 50, 1)
    assert spans(result, "send") == [(2, 5.84), (5.84, 10.88)]
    assert spans(result, "wait") == [(5, 5.84), (7.84, 10.88)]
    assert result.summary["virtual_time"] == pytest.approx(10.88)


@settings(max_examples=10)
@given(
    steps=st.integers(3, 9),
    overlap=st.integers(0, 8),
    bandwidth=st.floats(20, 2000),
    workers=st.integers(2, 4),
)
def test_it_takes_as_long_as_a_plain_recursion_says(
    steps: int, overlap: int, bandwidth: float, workers: int
) -> None:
    overlap = min(overlap, steps - 1)
    config = TrainConfig(
        model="small_network:model",
        data="small_network:data",
        algorithm=StreamingDiLoCo(steps, fragments=3, overlap=overlap),
        bandwidth=bandwidth,
        updates=4,
        workers=workers,
        compute="exponential(1s)",
        timing_only=True,
        timeline=False,
    )
    times = [
        config.compute.draws(generator(SEED, TrainingStream.COMPUTE, worker))
        for worker in range(workers)
    ]
    # Three layers of 42, 48 and 21 numbers, around a ring.
    seconds = [2 * (workers - 1) * 4 * count / workers / bandwidth for count in (42, 48, 21)]
    offsets = [0, steps // 3, 2 * steps // 3]
    end = plain.streaming_end(times, seconds, 4, steps, offsets, overlap)
    assert train(config, SEED).summary["virtual_time"] == pytest.approx(end)


def test_diloco_waits_for_the_whole_vector() -> None:
    result = timed("diloco(steps=4)", 126, 2)
    whole = 444 / 126
    assert result.summary["virtual_time"] == pytest.approx(8 + 2 * whole)


@given(
    steps=st.integers(1, 12),
    fragments=st.integers(1, 12),
    overlap=st.integers(0, 11),
)
def test_every_fragment_is_sent_for_once_a_round_and_taken_before_it_is_sent_again(
    steps: int, fragments: int, overlap: int
) -> None:
    if fragments > steps or overlap >= steps:
        with pytest.raises(InputError):
            StreamingDiLoCo(steps, fragments=fragments, overlap=overlap)
        return
    algorithm = StreamingDiLoCo(steps, fragments=fragments, overlap=overlap)
    exchanges = algorithm._exchanges()
    under_way: dict[int, int] = {}
    sent: list[list[int]] = [[] for _ in range(fragments)]
    newest = 0
    for _ in range(8 * fragments):
        step, is_taken, fragment = next(exchanges)
        assert step >= newest
        newest = step
        if is_taken:
            assert step == under_way.pop(fragment) + overlap
        else:
            assert fragment not in under_way
            under_way[fragment] = step
            sent[fragment].append(step)
    for fragment, at in enumerate(sent):
        assert [step % steps for step in at] == [fragment * steps // fragments] * len(at)
        assert at == sorted(set(at))
        assert np.all(np.diff(at) == steps)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("diloco(steps=0)", "diloco: steps must be at least 1"),
        ("diloco(outer_lr=0.0)", "diloco: outer_lr must be above 0"),
        ("diloco(momentum=1.0)", "diloco: momentum must be in [0, 1)"),
        ("streaming-diloco(fragments=9)", "fragments must be between 1 and the number of steps, 8"),
        ("streaming-diloco(overlap=8)", "overlap must be at least 0 and below the number of steps"),
        ("streaming-diloco(mixing=1.0)", "mixing must be in [0, 1)"),
        ("streaming-diloco(steps=0)", "streaming-diloco: steps must be at least 1"),
        ("delayed-nesterov(buffer=0)", "delayed-nesterov: buffer must be at least 1"),
        ("delayed-nesterov(activation=0.5)", "activation must be between 0 and 1 / buffer, 0.25"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_algorithm(text)
    assert message in str(caught.value)


def test_a_model_has_a_layer_for_each_fragment() -> None:
    with pytest.raises(InputError, match="4 fragments of a model of 3 layers"):
        run(algorithm="streaming-diloco(fragments=4)", updates=1)


@pytest.mark.parametrize(
    ("algorithm", "rounds", "steps", "numbers"),
    [
        ("ssgd", 1000, 1, 4810),
        ("diloco(steps=50)", 20, 50, 4810),
        # What is seen is the last mean, of the hidden layer.
        ("streaming-diloco(steps=50, fragments=2, overlap=5)", 20, 50, 4160),
    ],
)
def test_the_times_of_the_guide(algorithm: str, rounds: int, steps: int, numbers: int) -> None:
    config = TrainConfig(
        algorithm=algorithm,
        topology="all-reduce",
        workers=8,
        bandwidth="10Mbit/s",
        compute="10ms",
        updates=rounds,
        timing_only=True,
    )
    result = train(config)
    # A ring of 8: 14 messages of an eighth.
    waiting = 14 * 4 * numbers / 8 / 1.25e6
    computing = rounds * steps * 0.01
    time = computing + (waiting if "streaming" in algorithm else rounds * waiting)
    assert result.summary["virtual_time"] == pytest.approx(time)
    guide = (Path(__file__).parents[3] / "docs" / "diloco.md").read_text()
    assert f"| {time:.2f} s |" in guide

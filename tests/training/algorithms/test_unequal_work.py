"""Clients that do unequal work: drawn, as much as fits into a time, or a part, as stragglers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federated import Parameters, Task
from metric_rows import series
from small_network import data, initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler, make_shards
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.algorithms.registry import parse_algorithm
from paracosm.training.local_work import StepsWithin, UniformSteps, read_steps
from paracosm.validation import validated

SEED, CLIENTS, ROUNDS, BATCH, LR = 4, 5, 6, 4, 0.3


def run(algorithm: str, **arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {
        "algorithm": algorithm,
        "workers": CLIENTS,
        "updates": ROUNDS,
        "batch": BATCH,
        "compute": "1s",
    }
    if not arguments.get("timing_only"):
        common |= {"model": "small_network:model", "data": "small_network:data", "lr": LR}
        common |= {"shards": "dirichlet(0.5)", "lookahead": "off"}
    return train(validated(TrainConfig, {**common, **arguments}, "test"), SEED)


def shards() -> list[np.ndarray]:
    rng = generator(SEED, TrainingStream.SHARDS)
    return list(make_shards(data()[1], CLIENTS, "dirichlet(0.5)", rng))


SIZES = [len(shard) for shard in shards()]


def task(of_passes: bool = False) -> Task:
    def passes(shard: np.ndarray, client: int) -> Any:
        rng = generator(SEED, TrainingStream.BATCHES, client)
        while True:
            order = shard[rng.permutation(len(shard))]
            yield from (order[begin : begin + BATCH] for begin in range(0, len(order), BATCH))

    x, y, _, _ = data()
    draws: list[Callable[[], np.ndarray]] = [
        partial(next, passes(shard, client))
        if of_passes
        else BatchSampler(shard, BATCH, generator(SEED, TrainingStream.BATCHES, client)).next
        for client, shard in enumerate(shards())
    ]
    module = initial(integer_seed(SEED, TrainingStream.MODEL))
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    return Task(module, cross_entropy, *tensors, draws, [0] * CLIENTS, LR)


def in_rounds(
    task: Task,
    steps: Callable[[int, int], int],  # from a round and a client
    counted: Callable[[int], Sequence[int]] = lambda number: range(CLIENTS),
    mu: float = 0.0,
) -> Parameters:
    """The mean by examples of those who count in each round."""
    w = task.initial()
    for number in range(ROUNDS):
        task.steps = [steps(number, client) for client in range(CLIENTS)]
        made = [task.local(client, w, mu) for client in range(CLIENTS)]
        who = counted(number)
        total = sum(SIZES[client] for client in who)
        w = [
            sum((SIZES[client] / total * made[client][place] for client in who), 0 * tensor)
            for place, tensor in enumerate(w)
        ]
    return w


def stragglers(number: int, count: int) -> list[int]:
    """The stragglers of a round, the first of which is number 0."""
    order = generator(SEED, TrainingStream.STRAGGLERS, number + 1).permutation(CLIENTS)
    return sorted(order[:count].tolist())


class Parts:
    """Which part of the work each client does: the k-th that is drawn of its own stream."""

    def __init__(self, work: int, slow: Callable[[int], Sequence[int]] | None = None) -> None:
        self.work, self.slow, self.drawn = work, slow, [0] * CLIENTS

    def __call__(self, number: int, client: int) -> int:
        if self.slow is not None and client not in self.slow(number):
            return self.work
        rng = generator(SEED, TrainingStream.LOCAL_WORK, client, self.drawn[client])
        self.drawn[client] += 1
        return int(rng.integers(1, self.work + 1))


def agree(result: TrainingResult, expected: Parameters) -> None:
    flat = torch.cat([tensor.reshape(-1) for tensor in expected])
    assert torch.allclose(result.parameters, flat, rtol=1e-4, atol=2e-5)


def test_steps_are_drawn_for_each_participation() -> None:
    result = run("fedavg(steps=uniform(1, 7))")
    agree(result, in_rounds(task(), Parts(7)))
    again = Parts(7)
    steps = [[again(number, client) for client in range(CLIENTS)] for number in range(ROUNDS)]
    assert len({*sum(steps, [])}) > 4  # noqa: RUF017 - of numbers
    whole = [min(BATCH, size) for size in SIZES]
    seconds = [max(n * size / BATCH for n, size in zip(own, whole, strict=True)) for own in steps]
    assert result.summary.virtual_time == pytest.approx(sum(seconds))


def test_partial_work_of_stragglers_counts_with_fedprox() -> None:
    slow = partial(stragglers, count=3)
    result = run("fedprox(steps=6, mu=0.5, stragglers=0.6)")
    agree(result, in_rounds(task(), Parts(6, slow), mu=0.5))
    assert result.summary.dropped == 0


def test_stragglers_do_some_of_the_passes() -> None:
    parts = Parts(4, partial(stragglers, count=3))
    result = run("fedprox(epochs=4, mu=0.5, stragglers=0.6)")

    def steps(number: int, client: int) -> int:
        return parts(number, client) * -(-SIZES[client] // BATCH)

    agree(result, in_rounds(task(of_passes=True), steps, mu=0.5))


def test_fedavg_drops_stragglers_unless_their_part_counts() -> None:
    slow = partial(stragglers, count=3)

    def others(number: int) -> list[int]:
        return sorted({*range(CLIENTS)} - {*slow(number)})

    dropped = run("fedavg(steps=6, stragglers=0.6)")
    agree(dropped, in_rounds(task(), Parts(6, slow), others))
    assert dropped.summary.dropped == 3 * ROUNDS
    counted = run("fedavg(steps=6, stragglers=0.6, partial=true)")
    agree(counted, in_rounds(task(), Parts(6, slow)))


def test_a_part_takes_a_straggler_as_long_as_the_whole_takes_others() -> None:
    for algorithm in ("fedavg", "fedprox", "fedadam", "scaffold"):
        result = run(f"{algorithm}(steps=8, stragglers=0.4)", timing_only=True)
        assert result.summary.virtual_time == pytest.approx(8 * ROUNDS)
        assert result.summary.dropped == (0 if algorithm in ("fedprox", "scaffold") else 2 * ROUNDS)
    applied = run("fedavg(stragglers=0.4)", timing_only=True)
    per_round = np.bincount([row.step for row in series(applied, "staleness")])[1:]
    assert per_round.tolist() == [3] * ROUNDS


@pytest.mark.parametrize(
    ("algorithm", "updates", "steps", "seconds"),
    [
        # 10 of 1 s, 25 of 0.4 s, 30 of a third of a second, 1 of 20 s
        ("fedavg(steps=10s)", 1, 10 + 25 + 30 + 1, 20),
        ("fedbuff(buffer=3, steps=10s)", 1, 10 + 25 + 30, 10),
        ("fedasync(steps=10s)", 3, 10 + 25 + 30, 10),
    ],
)
def test_as_many_steps_as_fit_into_a_time(
    algorithm: str, updates: int, steps: int, seconds: float, tmp_path: Path
) -> None:
    speeds = tmp_path / "speeds.csv"
    speeds.write_text("client,speed\n0,1\n1,2.5\n2,0.05\n3,3\n")
    result = run(
        algorithm,
        workers=4,
        clients=4,
        updates=updates,
        client_speed=speeds,
        timing_only=True,
    )
    assert result.summary.examples == BATCH * steps
    assert result.summary.virtual_time == pytest.approx(seconds)


def test_local_steps_within_a_time_are_those_of_a_plain_loop() -> None:
    steps = [10 * BATCH // min(BATCH, size) for size in SIZES]
    agree(run("fedavg(steps=10s)"), in_rounds(task(), lambda number, client: steps[client]))


def test_work_is_written_as_it_is_read() -> None:
    for text in ("fedavg(steps=uniform(1, 20))", "fedbuff(steps=10s)", "fedasync(steps=1.5min)"):
        algorithm = parse_algorithm(text)
        assert parse_algorithm(str(algorithm)) == algorithm
    assert read_steps("x", '"uniform(2, 3)"') == UniformSteps(2, 3)
    assert read_steps("x", "250ms") == StepsWithin(0.25)
    assert parse_algorithm("fedprox(partial=false)").partial is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("fedavg(steps=0)", "fedavg: steps must be at least 1, got 0"),
        ("fedavg(steps=uniform(0, 3))", r"steps=uniform\(0, 3\): write uniform\(1, 20\)"),
        ("fedavg(steps=uniform(5, 3))", r"steps=uniform\(5, 3\): write uniform\(1, 20\)"),
        ("fedbuff(steps=often)", 'such as 10s, got "often"'),
        ("fedasync(steps=0s)", 'such as 10s, got "0s"'),
        ("fedavg(stragglers=1.5)", r"stragglers must be in \[0, 1\], got 1.5"),
        ("fedavg(stragglers=0.95)", "all 5 workers would be stragglers, and dropped"),
        ("fedavg(steps=10s, stragglers=0.5)", "less work already: leave stragglers out"),
        ("scaffold(partial=false)", "scaffold: partial must be true"),
        ("feddyn(partial=false)", "feddyn: partial must be true"),
    ],
)
def test_work_that_cannot_be_is_refused(algorithm: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(algorithm, timing_only=True)


def test_work_that_needs_something_else_is_refused() -> None:
    with pytest.raises(InputError, match="stragglers are dropped by 1 server, not by 2"):
        run("fedavg(stragglers=0.4)", servers=2)
    with pytest.raises(InputError, match="known before, not measured"):
        run("fedavg(steps=1ms)", compute="measured")
    with pytest.raises(InputError, match="1,000,000 at most"):
        run("fedavg(steps=1s)", compute="1ns", timing_only=True)

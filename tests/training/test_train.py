"""A run from the outside: its end, its metrics, what it says of itself."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from metric_rows import all_rows, column, series

from paracosm.errors import InputError
from paracosm.models.client_data import evaluation_sets
from paracosm.models.data_sets import load_data
from paracosm.timeline.analysis import check
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.numerics.store import Gradient
from paracosm.training.worker import TrainingWorker
from paracosm.validation import validated

HELD_PORTS = {"sharing": "serial", "pipelined": False}  # as Zhang et al. model a network


def run(seed: int = 0, **arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {"updates": 40, "workers": 4}
    if not arguments.get("timing_only"):
        common["lookahead"] = "off"
    given = {**common, **arguments}
    # None takes a default back.
    given = {k: v for k, v in given.items() if v is not None or k == "algorithm"}
    return train(validated(TrainConfig, given, "test"), seed)


def test_the_metrics_are_complete() -> None:
    result = run(updates=10, evaluate_every=4, algorithm="ssgd", workers=3)
    assert [row.step for row in series(result, "loss")] == [0, 4, 8, 10]
    examples = series(result, "examples")
    assert [(r.step, r.value) for r in examples if r.node == "job"] == [
        (step, 32 * 3 * step) for step in range(1, 11)
    ]
    assert [r.value for r in examples if r.node == "evaluation"] == [0, 384, 768, 960]
    assert len(column(result, "minibatch_loss")) == len(column(result, "staleness")) == 30
    nodes = {row.node for row in series(result, "utilisation.compute")}
    assert nodes == {"server0", "worker0", "worker1", "worker2"}


def test_utilisation_is_the_busy_share_of_the_virtual_time() -> None:
    # Synchronous, c = 1 s, L = 0.25 s, W = 2, one update: computing ends at 1 s, the gradients are
    # in at 1.25 and 1.5 s, the answers at 1.75 and 2 s.
    result = run(
        algorithm="ssgd", workers=2, updates=1, compute="1s", latency="250ms", **HELD_PORTS
    )
    assert result.summary["virtual_time"] == 2
    rows = all_rows(result)
    found = {(r.node, r.name.removeprefix("utilisation.")): r.value for r in rows if "." in r.name}
    assert found["server0", "receive"] == found["server0", "send"] == 0.25
    assert found["worker0", "send"] == found["worker1", "receive"] == 0.125
    # Worker 0 has its answer at 1.75 s and computes again until the run ends.
    assert found["worker0", "compute"] == pytest.approx(1.25 / 2)
    assert found["worker1", "compute"] == 0.5


def test_utilisation_of_shared_ports_counts_every_second_once() -> None:
    # c = 1 s, 1 MB at 4 MB/s, W = 2: both gradients are in at 1.5 s, both answers at 2 s.
    result = run(
        algorithm="ssgd",
        workers=2,
        updates=1,
        compute="1s",
        bandwidth="4MB/s",
        message_size="1MB",
    )
    assert result.summary["virtual_time"] == 2
    assert column(result, "utilisation.receive") == [0.25] * 3
    assert column(result, "utilisation.send") == [0.25] * 3


@pytest.mark.parametrize("sharing", ["serial", "fair"])
def test_the_timeline_is_consistent(sharing: str) -> None:
    result = run(algorithm="asgd", latency="1ms", bandwidth="1Gbit/s", sharing=sharing)
    assert result.timeline is not None
    ports = ("send", "receive") if sharing == "serial" else ()
    assert check(result.timeline, exclusive=("compute", *ports)) == []
    nodes = {span[0] for span in result.timeline.spans}
    assert nodes == {"server0", "worker0", "worker1", "worker2", "worker3"}


def test_a_timeline_that_is_not_wanted_is_not_recorded() -> None:
    assert run(timeline=False).timeline is None
    assert run(updates=20_000, timing_only=True).timeline is None


def test_a_run_ends_at_the_virtual_time_it_is_given() -> None:
    result = run(algorithm="asgd", workers=2, compute="1s", updates=1000, until="3.5s")
    assert result.summary["updates"] == 6
    assert result.summary["virtual_time"] == 3.5
    assert result.summary["status"] == "done"
    assert result.summary["throughput"][0]["steps_per_second"] == 6 / 3.5


def test_too_many_workers_are_refused_before_their_cluster_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paracosm.cluster.fields.star", None)
    with pytest.raises(InputError, match="a training has 100,000 at most, not 1,000,000"):
        run(workers=1_000_000)


def test_an_interrupt_ends_the_run_with_what_it_has() -> None:
    def progress(updates: int, virtual_time: float) -> None:
        if updates == 7:
            raise KeyboardInterrupt

    config = TrainConfig(updates=40, lookahead="off")
    result = train(config, progress=progress)
    assert result.summary["status"] == "interrupted"
    assert result.summary["updates"] == 7
    assert len(column(result, "minibatch_loss")) == 7


@pytest.mark.parametrize("keep_going", [False, True])
def test_an_exploding_loss_names_the_gradient_that_did_it(keep_going: bool) -> None:
    result = run(
        lr=100, workers=8, updates=60, keep_going=keep_going, loss_limit=50, evaluate_every=60
    )
    divergence = result.summary["divergence"]
    exploded = [r for r in series(result, "minibatch_loss") if not r.value <= 50]
    first = exploded[0]
    assert (divergence["update"], divergence["worker"]) == (first.step, first.node)
    ages = {(r.step, r.node): r.value for r in series(result, "staleness")}
    assert divergence["staleness"] == ages[first.step, first.node]
    assert result.summary["updates"] == (60 if keep_going else first.step)
    assert result.summary["status"] == "diverged"


def test_an_evaluation_that_explodes_ends_the_run_as_well() -> None:
    result = run(lr=1e4, updates=1, workers=1)
    assert result.summary["status"] == "diverged"
    assert result.summary["final_loss"] > 1e4
    divergence = result.summary["divergence"]
    assert (divergence["update"], divergence["worker"], divergence["staleness"]) == (
        1,
        "worker0",
        0,
    )
    assert divergence["loss"] == result.summary["final_loss"]


def test_the_final_loss_of_a_run_that_diverged_is_the_one_it_ended_with() -> None:
    result = run(lr=1e4, workers=8, updates=3000)
    assert result.summary["status"] == "diverged"
    assert not result.summary["final_loss"] <= 1e4


def test_a_run_until_a_time_makes_as_many_updates_as_fit_and_evaluates_by_time() -> None:
    result = run(workers=2, compute="1s", updates=None, until="300s", evaluate_every=None)
    assert result.summary["updates"] == 600
    times = [row.virtual_time for row in series(result, "loss")]
    # The first update at 5 s, 10 s, ... is followed by an evaluation, and so is the last one.
    assert times == [0, *range(5, 301, 5), 300]


def test_an_all_reduce_holds_everybody_s_ports() -> None:
    # One round: 1 s of computing, then 2 (W - 1) = 2 steps of 1 s.
    result = run(
        algorithm="ssgd", topology="all-reduce", workers=2, updates=1, compute="1s", latency="1s"
    )
    assert column(result, "utilisation.send") == pytest.approx([2 / 3] * 2)
    assert column(result, "utilisation.receive") == pytest.approx([2 / 3] * 2)
    assert result.timeline is not None
    shown = [s[:5] for s in result.timeline.spans if s[2] == "all-reduce"]
    assert sorted(shown) == [
        (f"worker{w}", port, "all-reduce", 1, 3) for w in (0, 1) for port in ("receive", "send")
    ]
    assert check(result.timeline) == []


def test_half_duplex_takes_the_steps_of_a_ring_in_turn() -> None:
    link = {"default": {"latency": "1s", "duplex": "half", "pipelined": False}}
    cluster = {"topology": "switch", "workers": 2, "links": link}
    result = run(algorithm="local-sgd(1)", cluster=cluster, workers=None, updates=1, compute="1s")
    assert result.summary["virtual_time"] == 5


def test_abandoned_gradients_are_dropped_and_not_counted_as_examples() -> None:
    result = run(
        algorithm="backup-workers(1, interrupt=True)",
        workers=3,
        updates=50,
        batch=1,
        compute="exponential(1s)",
    )
    assert result.summary["examples"] == 100
    assert 49 <= result.summary["dropped"] <= 50


def test_every_gradient_counts_once_with_several_servers() -> None:
    result = run(
        algorithm="asgd",
        workers=2,
        servers=2,
        updates=200,
        compute="uniform(1s, 3s)",
        latency="10ms",
        pipelined=False,
    )
    assert result.timeline is not None
    pushed = {
        name: sum(s[:3] == (name, "send", "push") for s in result.timeline.spans)
        for name in ("worker0", "worker1")
    }
    nodes = [row.node for row in series(result, "staleness")]
    assert len(nodes) == 200
    for name, transfers in pushed.items():
        # Two transfers a gradient; at most two gradients were on their way at the end.
        assert 0 <= transfers / 2 - nodes.count(name) <= 2


def test_an_evaluation_looks_at_examples_that_are_evenly_spread() -> None:
    digits = load_data("digits")
    assert len(digits.train_x) == 1437
    chosen = [0, 160, 319, 479, 638, 798, 957, 1117, 1276, 1436]
    (x, y), _ = evaluation_sets(digits, 10)
    assert torch.equal(x, digits.train_x[chosen])
    assert torch.equal(y, digits.train_y[chosen])
    (x, _), _ = evaluation_sets(digits, 1437)
    assert x is digits.train_x


def test_what_guessing_comes_to_is_that_of_the_shares_of_classes() -> None:
    from sklearn.datasets import load_digits

    labels = load_digits().target
    labels = labels[np.random.default_rng(0).permutation(len(labels))]  # as the data set is split
    shares = np.bincount(labels[360:]) / len(labels[360:])
    chance = train(TrainConfig(updates=1)).summary.chance
    assert chance is not None
    assert chance.accuracy == max(np.bincount(labels[:360])) / 360
    assert chance.loss == pytest.approx(-np.sum(shares * np.log(shares)))
    assert chance.examples == 360
    assert train(TrainConfig(updates=1, timing_only=True)).summary.chance is None


def test_a_loss_that_is_not_a_number_counts_as_exploded() -> None:
    limit = 1e300  # of single precision: only an infinite loss is above it
    quadratic = {"model": "quadratic:model", "data": "quadratic:data"}
    result = run(**quadratic, lr=1e9, loss_limit=limit, updates=40)
    assert result.summary["status"] == "diverged"
    assert not math.isfinite(result.summary["divergence"]["loss"])


def test_measured_compute_times_are_the_clock_s() -> None:
    result = run(compute="measured", workers=2)
    assert result.summary["durations"]["compute"].startswith("measured")
    assert 0 < result.summary["virtual_time"] < result.summary["wall_time"]


@pytest.mark.parametrize(
    ("given", "compute", "network"),
    [
        ({}, "assumed: lognormal(20ms, 0.1) a gradient", "assumed: links that take no time"),
        ({"compute": "lognormal(20ms, 0.1)"}, "modelled: lognormal(20ms, 0.1)", "assumed: links"),
        ({"latency": "0s"}, "assumed: lognormal", "modelled: links of unlimited bandwidth"),
        ({"bandwidth": "inf"}, "assumed: lognormal", "modelled: links of unlimited bandwidth"),
    ],
)
def test_compute_and_links_are_assumed_where_nobody_gave_them(
    given: dict[str, str], compute: str, network: str
) -> None:
    durations = train(
        TrainConfig(workers=2, updates=2, timing_only=True, **given)
    ).summary.durations
    assert durations is not None
    assert durations["compute"].startswith(compute)
    assert durations["network"].startswith(network)


def test_a_measured_run_is_replayed_to_the_bit(tmp_path: Path) -> None:
    first = run(compute="measured", workers=3, latency="1ms")
    assert first.recording is not None
    first.recording.save(tmp_path / "recording.json")
    again = run(compute="measured", workers=3, latency="1ms", recording=tmp_path / "recording.json")
    assert first.timeline is not None
    assert again.timeline is not None
    assert list(first.timeline.spans) == list(again.timeline.spans)
    assert column(first, "loss") == column(again, "loss")


@pytest.mark.parametrize(
    "servers", [*(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2)), 4]
)
def test_servers_hold_parts_of_one_vector(servers: int) -> None:
    """With nothing to wait for, partitioned synchronous SGD is synchronous SGD."""
    result = run(algorithm="ssgd", servers=servers, updates=20)
    alone = run(algorithm="ssgd", servers=1, updates=20)
    assert column(result, "loss") == pytest.approx(column(alone, "loss"), rel=1e-5)


def test_messages_are_as_large_as_the_parameters_they_carry() -> None:
    # 64 * 64 + 64 + 64 * 10 + 10 floats of 4 bytes, each way, at 19,240 bytes/s: 1 s each.
    size = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    result = run(algorithm="asgd", workers=1, updates=1, compute="1s", bandwidth=size)
    assert result.summary["virtual_time"] == pytest.approx(3)
    other = run(
        algorithm="asgd", workers=1, updates=1, compute="1s", bandwidth=1e6, message_size="1MB"
    )
    assert other.summary["virtual_time"] == pytest.approx(3)


def test_an_all_reduce_takes_what_a_ring_takes() -> None:
    # 2 (W - 1) steps of size / W bytes: 6 steps of 1 kB at 1 kB/s, and of 0.5 s latency.
    result = run(
        algorithm="ssgd",
        topology="all-reduce",
        compute="1s",
        updates=2,
        bandwidth=1e3,
        latency="500ms",
        message_size="4kB",
    )
    assert result.summary["virtual_time"] == pytest.approx(2 * (1 + 6 * 1.5))


def test_momentum_at_the_server_is_that_of_pytorch() -> None:
    lr, momentum = 0.1, 0.9
    parameter = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=lr, momentum=momentum)
    for _ in range(10):
        optimizer.zero_grad()
        ((parameter**2).sum() / 2).backward()
        optimizer.step()
    result = run(
        model="quadratic:model",
        data="quadratic:data",
        algorithm="ssgd",
        optimizer=f"sgd(momentum={momentum})",
        lr=lr,
        updates=10,
    )
    assert float(result.parameters) == pytest.approx(float(parameter.detach()))


def test_a_shorter_step_shortens_adam_s_step() -> None:
    """Adam divides by the gradient's size, so scaling the gradient would change nothing."""
    quadratic = {"model": "quadratic:model", "data": "quadratic:data", "optimizer": "adam"}
    result = run(
        **quadratic, algorithm="staleness-aware", workers=3, lr=0.01, updates=20, compute="1s"
    )
    parameter = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.Adam([parameter])
    read = [1.0, 1.0, 1.0]
    for update, tau in enumerate([0, 1] + [2] * 18):
        optimizer.param_groups[0]["lr"] = 0.01 / max(1, tau)
        parameter.grad = torch.tensor([read[update % 3]])
        optimizer.step()
        read[update % 3] = float(parameter.detach())
    assert float(result.parameters) == pytest.approx(float(parameter.detach()))


@pytest.mark.parametrize(
    "optimizer",
    [
        "adagrad",
        "adamw",
        "nadam",
        "radam",
        "adamax",
        "adadelta",
        "rmsprop",
        "adam(betas=(0.8, 0.9))",
    ],
)
def test_every_optimizer_of_pytorch_does_what_it_does_there(optimizer: str) -> None:
    name, _, options = optimizer.partition("(")
    kinds = {kind.lower(): kind for kind in dir(torch.optim) if kind[0].isupper()}
    arguments = {"betas": (0.8, 0.9)} if options else {}
    parameter = torch.ones(1, requires_grad=True)
    stepper = getattr(torch.optim, kinds[name])([parameter], lr=0.05, **arguments)
    for _ in range(12):
        parameter.grad = parameter.detach().clone()
        stepper.step()
    result = run(
        model="quadratic:model",
        data="quadratic:data",
        algorithm="ssgd",
        optimizer=optimizer,
        lr=0.05,
        updates=12,
    )
    assert float(result.parameters) == pytest.approx(float(parameter.detach()))


def test_workers_share_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker reads is the server's vector itself, so every version exists once."""
    read: dict[int, list[torch.Tensor]] = {}
    original = TrainingWorker.compute_gradient

    async def compute_gradient(me: TrainingWorker) -> Gradient:
        gradient = await original(me)
        read.setdefault(gradient.versions[0], []).append(gradient.parameters)
        return gradient

    monkeypatch.setattr(TrainingWorker, "compute_gradient", compute_gradient)
    run(algorithm="ssgd", workers=16, updates=3)
    assert [len(snapshots) for snapshots in read.values()] == [16, 16, 16]
    for snapshots in read.values():
        assert len({snapshot.data_ptr() for snapshot in snapshots}) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"timing_only": True, "bandwidth": "1Gbit/s"},
        {"model": "resnet18", "data": "quadratic:data"},
    ],
)
def test_a_caller_has_its_threads_back(arguments: dict[str, Any]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with suppress(InputError):  # of a model that cannot take the data
            run(updates=2, evaluate_every=None, **arguments)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_gradients_are_computed_on_one_thread() -> None:
    seen: list[int] = []
    train(
        TrainConfig(updates=3, lookahead="off"),
        progress=lambda updates, time: seen.append(torch.get_num_threads()),
    )
    assert seen == [1, 1, 1]


def test_adding_a_worker_changes_no_other_worker_s_compute_times() -> None:
    def durations(workers: int) -> list[float]:
        result = run(algorithm="asgd", workers=workers, timing_only=True, updates=100)
        assert result.timeline is not None
        spans = [s for s in result.timeline.spans if s[:2] == ("worker1", "compute")]
        return [span[4] - span[3] for span in spans[:10]]

    assert np.allclose(durations(2), durations(5)[: len(durations(2))], rtol=1e-9)


def test_the_unchanged_run_is_the_run_without_the_change() -> None:
    # Where a server's port is full, rounding decides who comes first: engine and generated schedule
    # end at different times.
    config = {"workers": 16, "updates": 300, "timing_only": True, "timeline": True}
    network = {"bandwidth": "1Gbit/s", "message_size": "12.5MB"}
    alone = train(TrainConfig(**config, **network)).summary
    extra = train(TrainConfig(**config, **network, what_if="links: bandwidth 4x")).summary
    for name in ("virtual_time", "mean_staleness", "updates"):
        assert extra["unchanged"][name] == alone[name], name


def test_a_change_is_compared_with_the_unchanged_run() -> None:
    """ssgd, c = 1 s, W = 2, 1 MB at 4 MB/s: a round is 1 + 0.5 + 0.5 = 2 s, as messages share.

    With one worker twice as slow and 8 MB/s, gradients come alone: 2 + 0.125 + 0.25 = 2.375 s.
    """
    common: dict[str, Any] = {
        "algorithm": "ssgd",
        "workers": 2,
        "updates": 3,
        "compute": "1s",
        "bandwidth": "4MB/s",
        "message_size": "1MB",
    }
    plain = run(**common)
    changes = ["worker 1: compute 2x slower", "links: bandwidth 2x"]
    result = run(what_if=changes, **common)
    assert result.summary["what_if"] == changes
    assert result.summary["virtual_time"] == pytest.approx(3 * 2.375)
    assert result.summary["unchanged"]["virtual_time"] == pytest.approx(3 * 2)
    assert result.summary["cluster"]["links"]["bandwidth"] == "64 Mbit/s"
    assert result.summary["unchanged"]["cluster"]["links"]["bandwidth"] == "32 Mbit/s"
    for name, value in plain.summary.items():
        if name != "wall_time":
            assert result.summary["unchanged"][name] == value, name
    assert column(result, "loss") == column(plain, "loss"), "the same gradients, at other times"


def test_a_change_of_the_bandwidth_makes_the_size_of_messages_count() -> None:
    """19,240 bytes each way at as many a second."""
    result = run(
        algorithm="asgd",
        workers=1,
        updates=1,
        compute="1s",
        timing_only=True,
        what_if=["bandwidth: 19240 B/s"],
    )
    assert result.summary["virtual_time"] == pytest.approx(3)
    assert result.summary["unchanged"]["virtual_time"] == 1


def test_a_slower_server_updates_more_slowly() -> None:
    result = run(
        workers=1, updates=2, compute="1s", update_time="1s", what_if="server 0: compute 2x slower"
    )
    assert result.summary["virtual_time"] == 6
    assert result.summary["unchanged"]["virtual_time"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what_if": "all_reduce: 2x slower"}, "train cannot change that; it can change how fast"),
        ({"what_if": "workers: 8"}, "train cannot change that"),
        ({"what_if": "worker 2: +1 s"}, "train cannot change that"),
        ({"what_if": "host: 2x faster"}, "train cannot change that"),
        ({"what_if": "server 0: compute 2x slower"}, "updates take no time; give update_time"),
        ({"what_if": "worker 4: compute 2x slower"}, "there are workers 0 to 3, not 4"),
        ({"what_if": "link 0-1: latency 1 ms"}, "no link joins"),
        ({"what_if": "latency: 2x"}, "has no effect: there is no latency"),
        ({"what_if": "compute: 2x faster", "compute": "measured"}, "measured durations vary"),
        (
            {"what_if": "latency: 1 ms", "algorithm": "sequential", "workers": 1},
            "has no effect: sequential sends nothing",
        ),
        ({"sharing": "serial", "algorithm": "sequential", "workers": 1}, "sharing: has no effect"),
        ({"optimizer": "sgd(momentums=0.9)"}, 'did you mean "momentum"?'),
        ({"optimizer": "sgd(momentum=abc)"}, "sgd(momentum=abc)"),
        ({"optimizer": "adam(capturable=True)"}, "adam(capturable=True)"),
        ({"algorithm": "backup-workers", "servers": 2}, "runs on 1 server, not 2"),
        ({"algorithm": None}, "write the algorithm as text"),
        ({"timing_only": True, "lr": 0.1}, "lr: has no effect"),
        ({"model": "mpl"}, 'did you mean "mlp"?'),
        ({"optimizer": "sgd(lr=1)"}, "given by lr"),
        ({"optimizer": "sgd(0.9)"}, "name its options"),
        ({"servers": 5}, "5"),
        ({"shards": "dirichlet(-1)"}, "dirichlet"),
        ({"model": "quadratic:nothing"}, "nothing"),
        ({"shards": "iid", "workers": 5000}, "5000"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        run(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


PROGRAM = """
import hashlib
from paracosm.training import TrainConfig, train

for algorithm, lookahead in [("asgd", "off"), ("asgd", "vmap"), ("backup-workers", "off")]:
    config = TrainConfig(
        algorithm=algorithm, workers=5, updates=60, latency="1ms", bandwidth="1Gbit/s",
        lookahead=lookahead,
    )
    result = train(config, seed=7)
    rows = [(row.node, row.name, row.value, row.step, row.virtual_time)
            for row in result.metrics.rows]
    digest = hashlib.sha256(repr((list(result.timeline.spans), rows)).encode()).hexdigest()
    print(algorithm, lookahead, digest)
"""


@pytest.mark.slow
def test_one_seed_gives_one_run_whatever_the_hash_seed() -> None:
    one, other = (
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        for hash_seed in ("0", "1")
    )
    assert one == other
    assert len(one) == 3


def test_a_run_that_ends_by_time_says_that_time_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paracosm.training.record.AT_ONCE", 50)
    config = TrainConfig.model_validate(
        {"timing_only": True, "compute": "0s", "until": "1s", "workers": 2, "timeline": True}
    )
    with pytest.raises(
        InputError, match="virtual time does not advance from 0 s, after 50 updates"
    ):
        train(config, 0)


def test_bytes_of_unknown_messages_are_not_said_to_be_none() -> None:
    arguments = {"workers": 2, "updates": 4, "timing_only": True}
    assert train(TrainConfig.model_validate(arguments)).summary.bytes_sent is None
    sized = train(TrainConfig.model_validate({**arguments, "message_size": "1kB"})).summary
    assert sized.bytes_sent == 8000.0

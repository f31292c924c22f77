"""Every algorithm on f(x) = x^2 / 2 against its formula, worked out by hand for a known schedule.

The gradient at x is x, all workers start at x = 1, and compute times are constant, so who reads
which version, and when, can be told in advance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from metric_rows import all_rows, column, series
from quadratic import LR, run

from paracosm.errors import InputError
from paracosm.training.algorithms.registry import ALGORITHMS, parse_algorithm
from paracosm.training.config import TrainConfig
from paracosm.training.run import train


def end(**arguments: Any) -> float:
    """Return the parameter that the run ends with."""
    return float(run(**arguments).parameters)


def unequal(tmp_path: Path, *speeds: float, latency: str = "0s", servers: int = 1) -> str:
    """Write a cluster file whose workers have these speeds."""
    content = {
        "topology": "star" if servers else "switch",
        "workers": [{"count": 1, "speed": speed} for speed in speeds],
        "servers": servers,
        "links": {"default": {"latency": latency}},
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_sequential_is_gradient_descent() -> None:
    assert end(algorithm="sequential", workers=1, updates=5) == pytest.approx(0.75**5)


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_synchronous_workers_on_equal_gradients_are_gradient_descent(topology: str) -> None:
    result = run(algorithm="ssgd", workers=4, updates=5, topology=topology)
    assert float(result.parameters) == pytest.approx(0.75**5)
    assert result.summary["virtual_time"] == 5
    assert result.summary["examples"] == 20
    assert column(result, "staleness") == [0] * 20


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_summed_gradients_are_a_larger_step_of_sgd_and_none_of_adam(topology: str) -> None:
    arguments = {"algorithm": "ssgd(reduce=sum)", "workers": 4, "topology": topology}
    assert end(**arguments, updates=5, lr=0.1) == pytest.approx((1 - 4 * 0.1) ** 5)
    # A first step of Adam is as long as the learning rate, however long the gradient is.
    assert end(**arguments, updates=1, optimizer="adam") == pytest.approx(1 - LR)


def test_two_asynchronous_workers_in_turn_apply_the_gradient_before_last() -> None:
    # Both read x0; from then on each update comes from the parameters two updates ago.
    x = [1.0, 1 - LR * 1.0]
    for _ in range(5):
        x.append(x[-1] - LR * x[-2])
    result = run(algorithm="asgd", workers=2, updates=6)
    assert float(result.parameters) == pytest.approx(x[6])
    assert column(result, "staleness") == [0, 1, 1, 1, 1, 1]


def test_staleness_aware_divides_the_step_by_the_staleness() -> None:
    # Three workers: staleness 0, 1, 2, 2, ...; steps of LR, LR, LR/2, LR/2, ...
    x = [1.0, 1.0, 1.0]  # the reads of the three workers
    now = 1.0
    for update, tau in enumerate([0, 1, 2, 2, 2, 2]):
        now -= LR / max(1, tau) * x[update % 3]
        x[update % 3] = now
    assert end(algorithm="staleness-aware", workers=3, updates=6) == pytest.approx(now)


def test_delay_adaptive_shortens_only_steps_beyond_the_threshold() -> None:
    x, now = [1.0, 1.0, 1.0], 1.0
    for update, step in enumerate([1, 1, 1 / 2, 1 / 2]):
        now -= LR * step * x[update % 3]
        x[update % 3] = now
    assert end(algorithm="delay-adaptive(1)", workers=3, updates=4) == pytest.approx(now)
    same = end(algorithm="asgd", workers=3, updates=4)
    assert end(algorithm="delay-adaptive", workers=3, updates=4) == same


def test_softsync_takes_the_mean_of_scaled_gradients_and_answers_at_once() -> None:
    # n = 1, two workers. Worker 0 is answered before each update, worker 1 after it.
    x1 = 1 - LR * (1 + 1) / 2
    x2 = x1 - LR * (1.0 / 1 + x1) / 2  # worker 0 read x0 (staleness 1), worker 1 read x1 (0)
    result = run(algorithm="softsync", workers=2, updates=2)
    assert float(result.parameters) == pytest.approx(x2)
    assert column(result, "staleness") == [0, 0, 1, 0]


def test_ssp_lets_the_fast_worker_lead_by_the_slack_only(tmp_path: Path) -> None:
    # Worker 0 is four times as fast as worker 1, which finishes at 4 s, 8 s, ...
    cluster = unequal(tmp_path, 4, 1)
    for slack, by_the_fast in ((0, 1), (2, 3)):
        result = run(algorithm=f"ssp({slack})", cluster=cluster, updates=by_the_fast + 1, compute=4)
        rows = series(result, "staleness")
        assert [row.node for row in rows] == ["worker0"] * by_the_fast + ["worker1"]
        assert rows[-1].virtual_time == 4


def test_ssp_releases_a_held_worker_when_the_slowest_moves(tmp_path: Path) -> None:
    result = run(algorithm="ssp(0)", cluster=unequal(tmp_path, 4, 1), updates=4, compute=4)
    rows = series(result, "staleness")
    assert [(row.node, row.virtual_time) for row in rows] == [
        ("worker0", 1),
        ("worker1", 4),
        ("worker0", 5),
        ("worker1", 8),
    ]


def test_backup_workers_drop_what_comes_late(tmp_path: Path) -> None:
    # Worker 2 needs 2.5 s, rounds take 1 s: it brings its gradient of round 0 in round 2, is
    # answered, and misses the rest.
    cluster = unequal(tmp_path, 1, 1, 0.4)
    result = run(algorithm="backup-workers(1)", cluster=cluster, updates=4)
    assert float(result.parameters) == pytest.approx(0.75**4)
    assert result.summary["virtual_time"] == 4
    assert {row.node for row in series(result, "staleness")} == {"worker0", "worker1"}


def test_a_worker_that_is_late_for_a_round_joins_the_next(tmp_path: Path) -> None:
    # Rounds end at 1, 2, 3, ... s with workers 0 and 1. Worker 2 is done with its first one at
    # 2.5 s, is given 0.75^2, and reports at 5 s, when the fifth round is over.
    cluster = unequal(tmp_path, 1, 1, 0.4)
    result = run(algorithm="fedavg(steps=1, take=2)", cluster=cluster, updates=6)
    assert float(result.parameters) == pytest.approx(0.75**6)
    assert {(row.node, row.value) for row in series(result, "staleness")} == {
        ("worker0", 0),
        ("worker1", 0),
    }
    assert result.summary.dropped == 2


def test_interrupted_backup_workers_start_every_round_afresh(tmp_path: Path) -> None:
    # With work for 2.5 s and rounds of 1 s, worker 2 never finishes, and its port stays silent.
    cluster = unequal(tmp_path, 1, 1, 0.4)
    result = run(algorithm="backup-workers(1, interrupt=True)", cluster=cluster, updates=4)
    assert float(result.parameters) == pytest.approx(0.75**4)
    utilisation = {
        (row.node, row.name): row.value for row in all_rows(result) if "utilis" in row.name
    }
    assert utilisation["worker2", "utilisation.compute"] == pytest.approx(1)


def test_dc_asgd_corrects_the_gradient_to_first_order() -> None:
    strength = 0.5
    x = [1.0, 1 - LR]
    for read in (1.0, x[1], None):
        read = x[2] if read is None else read
        gradient = read + strength * read * read * (x[-1] - read)
        x.append(x[-1] - LR * gradient)
    result = end(algorithm=f"dc-asgd({strength})", workers=2, updates=4)
    assert result == pytest.approx(x[4])


def test_fedbuff_averages_changes_weighted_by_age() -> None:
    # Two workers, buffer 2, two local steps: a change is x (1 - 0.75^2) of what was read.
    change = 1 - 0.75**2
    x1 = 1 - (change + change) / 2
    x2 = x1 - (change * 1.0 / 2**0.5 + change * x1) / 2
    result = run(algorithm="fedbuff(buffer=2, steps=2)", workers=2, updates=2)
    assert float(result.parameters) == pytest.approx(x2)
    assert result.summary["examples"] == 8


def halved(delay: int) -> float:
    return float(0.5**delay)


@pytest.mark.parametrize(
    ("decay", "shares"),
    [
        ("decay=constant", (1, 1)),
        ("a=2", (1 / 4, 1)),
        ("decay=hinge, a=2, b=0.5", (1 / 2, 1)),
        (f"decay={__file__}:halved", (1 / 2, 1)),
    ],
)
def test_fedbuff_weighs_the_age_of_changes_as_it_is_told(
    decay: str, shares: tuple[float, float]
) -> None:
    change = 1 - 0.75**2
    x1 = 1 - (change + change) / 2
    x2 = x1 - (change * 1.0 * shares[0] + change * x1 * shares[1]) / 2
    algorithm = f"fedbuff(buffer=2, steps=2, {decay})"
    assert end(algorithm=algorithm, workers=2, updates=2) == pytest.approx(x2)


@pytest.mark.parametrize(
    ("decay", "factors"),
    [
        (f"{__file__}:halved", {1: 1 / 2, 2: 1 / 4, 3: 1 / 8}),
        ("constant", {1: 1.0, 2: 1.0, 3: 1.0}),
        ("polynomial", {1: 2**-0.5, 2: 3**-0.5, 3: 0.5}),
        ("hinge, a=2, b=1", {1: 1.0, 2: 1 / 3, 3: 1 / 5}),
    ],
)
def test_fedasync_mixes_what_clients_made_by_its_delay(
    decay: str, factors: dict[int, float]
) -> None:
    # Three workers in turn: delays 1, 2, 3, 3, ...; two local steps with a proximal term.
    read, now, mu = [1.0, 1.0, 1.0], 1.0, 0.5
    for update, delay in enumerate([1, 2, 3, 3, 3, 3]):
        start = y = read[update % 3]
        for _ in range(2):
            y -= LR * (y + mu * (y - start))
        share = 0.6 * factors[delay]
        now = (1 - share) * now + share * y
        read[update % 3] = now
    algorithm = f"fedasync(steps=2, mu=0.5, decay={decay})"
    assert end(algorithm=algorithm, workers=3, updates=6) == pytest.approx(now)


def test_local_sgd_averages_after_its_local_steps() -> None:
    result = run(algorithm="local-sgd(3)", workers=4, updates=2)
    assert float(result.parameters) == pytest.approx(0.75**6)
    assert result.summary["virtual_time"] == 6
    assert result.summary["examples"] == 24


def test_easgd_workers_read_the_centre_of_before_their_move() -> None:
    # The first gradients are at 1, and each later one where its worker was before its move.
    a, x, centre = 0.45, [0.75, 0.75], 1.0
    for _ in range(3):
        for worker in (0, 1):
            difference = a * (x[worker] - centre)
            x[worker] = x[worker] * 0.75 - difference
            centre += difference
    result = run(algorithm="easgd(period=1)", workers=2, updates=6)
    assert float(result.parameters) == pytest.approx(centre)
    assert column(result, "staleness") == [0, 1, 1, 1, 1, 1]


def test_easgd_pulls_worker_and_centre_together() -> None:
    a, mine, centre = 0.5, 0.75**2, 1.0
    for _ in range(3):
        difference = a * (mine - centre)
        mine, centre = (mine * 0.75 - difference) * 0.75, centre + difference
    result = end(algorithm="easgd(period=2, elasticity=0.5)", workers=1, updates=3)
    assert result == pytest.approx(centre)


def test_gossip_averages_while_it_computes(tmp_path: Path) -> None:
    cluster = unequal(tmp_path, 1, 1 / 1.5, latency="0.2s", servers=0)
    result = run(algorithm="ad-psgd", cluster=cluster, updates=3)
    # Worker 0 needs 1 s for a gradient and asks as it begins; worker 1 needs 1.5 s and answers;
    # 0.2 s each way.
    # 0.2 s: both are averaged, 1. 1 s: worker 0 steps to 0.75.
    # 1.2 s: both are averaged, 0.875. 1.5 s: worker 1, which began at 1, steps to 0.625.
    # 2 s: worker 0, which began at 0.75, steps from the mean to 0.875 - 0.25 * 0.75.
    assert float(result.parameters) == pytest.approx((0.875 - 0.25 * 0.75 + 0.625) / 2)
    rows = series(result, "staleness")
    assert [(row.node, round(row.virtual_time, 9)) for row in rows] == [
        ("worker0", 1),
        ("worker1", 1.5),
        ("worker0", 2),
    ]
    # Since they read, worker 0 was averaged once, and worker 1 twice.
    assert [row.value for row in rows] == [1, 2, 1]


def test_a_step_waits_for_a_mean_that_is_late(tmp_path: Path) -> None:
    cluster = unequal(tmp_path, 1, 1 / 1.5, latency="0.7s", servers=0)
    result = run(algorithm="ad-psgd", cluster=cluster, updates=2)
    rows = series(result, "staleness")
    assert [(row.node, row.virtual_time) for row in rows] == [("worker0", 1.4), ("worker1", 1.5)]


# An update of these is a round of many local steps.
ROUNDS = {
    *("adacomm", "diloco", "local-adam", "local-sgd", "scaffold", "streaming-diloco"),
    *("fedadam", "fedavg", "fedavgm", "feddyn", "fednova", "fedprox", "fedyogi"),
}
LEARNERS = [(name, 1) for name in sorted(ALGORITHMS)] + [("asgd", 2), ("ssgd", 2), ("fedbuff", 2)]
# Every day one of each way to take part; each algorithm has a formula above as well.
EVERYDAY = {
    *(("asgd", 1), ("ssgd", 2), ("fedavg", 1), ("ad-psgd", 1), ("easgd", 1)),
}


@pytest.mark.parametrize(
    ("name", "servers"),
    [pytest.param(*each, marks=[] if each in EVERYDAY else pytest.mark.slow) for each in LEARNERS],
)
def test_every_algorithm_learns_digits(name: str, servers: int) -> None:
    arguments: dict[str, Any] = {"algorithm": name, "workers": 4, "lr": 0.1}
    arguments["updates"] = 100 if name in ROUNDS else 300
    if name == "sequential":
        arguments["workers"] = 1
    elif name == "one-bit-adam":
        arguments["lr"] = 0.003
    elif servers > 1:
        arguments |= {"servers": servers, "latency": "1ms"}
    result = train(TrainConfig.model_validate(arguments))
    losses = column(result, "loss")
    assert losses[-1] < losses[0] / 3
    assert result.summary["final_accuracy"] > 0.8


def test_the_schedule_does_not_depend_on_whether_gradients_are_computed() -> None:
    for name in sorted(name for name, kind in ALGORITHMS.items() if not kind.decides_by_losses):
        one_layer = "streaming-diloco(fragments=1)" if name == "streaming-diloco" else name
        arguments: dict[str, Any] = {
            "algorithm": one_layer,
            "workers": 1 if name == "sequential" else 4,
            "updates": 20,
            "compute": "lognormal(1s, 0.5)",
            "batch": 1,
        }
        real = run(**arguments)
        timing = train(TrainConfig(timing_only=True, **arguments))
        assert real.timeline is not None
        assert timing.timeline is not None
        assert list(real.timeline.spans) == list(timing.timeline.spans), name
        assert column(real, "staleness") == column(timing, "staleness"), name


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_an_algorithm_is_written_as_it_is_read(name: str) -> None:
    assert str(parse_algorithm(name)) == name
    assert parse_algorithm(str(ALGORITHMS[name]())) == ALGORITHMS[name]()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssp(3, true, 4)", "takes the parameters slack, cache"),
        ("ssp(slack=x)", 'slack must be a whole number, got "x"'),
        ("ssp(1, slack=2)", "slack is given twice"),
        ("asgd(3)", "takes no parameters"),
        ("asgd(tau=3)", "takes no parameters"),
        ("ssp(3", "write name or name(key=value, ...)"),
        ("fedbuff(buffer=0)", "buffer must be above 0"),
        ("fedbuff(decay=linear)", "decay must be constant, polynomial, hinge or file.py:function"),
        ("fedasync(decay=none.py:f)", 'decay "none.py:f": no such file: none.py'),
        ("fedprox(mu=1e300)", "mu must be at most 1e+09, got 1e+300"),
        ("diloco(outer_lr=1e10)", "outer_lr must be at most 1e+09, got 1e+10"),
        ("easgd(elasticity=1.0)", "elasticity must be in [0, 1)"),
        ("ssgd(reduce=max)", 'reduce must be "mean" or "sum"'),
        ("ringmaster(-1)", "threshold must be at least 0"),
        ("rennala(0)", "gradients must be at least 1"),
        ("softsync(n=0)", "n must be at least 1"),
        ("dc-asgd-a(decay=1.0)", "decay must be in [0, 1)"),
        ("ad-psgd(graph=torus)", 'graph must be "complete" or "ring"'),
    ],
)
def test_what_no_algorithm_says_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_algorithm(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "workers", "message"),
    [
        ("sequential", 2, "sequential runs on 1 worker"),
        ("softsync(n=5)", 4, "n must be between 1 and the number of workers"),
        ("backup-workers(4)", 4, "below the number of workers"),
        ("ad-psgd", 1, "at least 2 workers"),
        ("ad-psgd(graph=ring)", 3, "an even number of workers"),
    ],
)
def test_an_algorithm_refuses_numbers_of_workers_it_cannot_run_on(
    algorithm: str, workers: int, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        run(algorithm=algorithm, workers=workers, updates=1)
    assert message in str(caught.value)


@pytest.mark.parametrize("algorithm", ["ringmaster", "rennala", "ssp(cache=true)"])
def test_what_is_decided_by_one_version_runs_on_one_server(algorithm: str) -> None:
    with pytest.raises(InputError, match=r"1 server, not 2"):
        run(algorithm=algorithm, servers=2, updates=1)

"""Clients that take turns at the workers: against a plain program, by hand, and by the law."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_rows import all_rows
from pyarrow import parquet

from paracosm.errors import InputError
from paracosm.timeline.analysis import check
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.availability import Trace, read_columns
from paracosm.training.clients import Clients
from paracosm.validation import validated
from reference.clients import Outcome, Scenario, one_by_one, rounds

LOSSES = ("dropped_out", "gone", "late")


def run(seed: int = 0, **arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {"updates": 30, "timing_only": True, "compute": "1s", "workers": 2}
    wanted = {**common, **arguments}
    if not wanted["timing_only"]:
        wanted = {"lookahead": "off", "shards": "bootstrap(20)", **wanted}
    return train(validated(TrainConfig, wanted, "test"), seed)


def rows(result: TrainingResult, *names: str) -> list[tuple[float, str, float]]:
    return [(r.virtual_time, r.name, r.value) for r in all_rows(result) if r.name in names]


def write(path: Path, header: str, lines: list[str]) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def trace(path: Path, intervals: list[list[tuple[float, float]]]) -> Path:
    lines = [f"{c},{b!r},{e!r}" for c, own in enumerate(intervals) for b, e in own]
    return write(path, "client,begin,end", lines)


def of_two(folder: Path, *intervals: list[tuple[float, float]], **arguments: Any) -> TrainingResult:
    """Run with two clients that are there at these times, asynchronously."""
    there = trace(folder / "trace.csv", list(intervals))
    return run(**{"algorithm": "asgd", "clients": 2, "availability": there, **arguments})


def per_client(path: Path, scenario: Scenario, size: float) -> Path:
    lines = [
        f"{client},{scenario.speed[client]!r},{size / up!r}B/s,{size / down!r}B/s"
        for client, (up, down) in enumerate(zip(scenario.up, scenario.down, strict=True))
    ]
    return write(path, "client,speed,uplink,downlink", lines)


def scenario_of(seed: int, timeout: float) -> Scenario:
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(4, 25))
    intervals: list[list[tuple[float, float]]] = []
    for _ in range(clients):
        now, own = rng.uniform(-20, 5), []
        while now < 5000:
            end = now + rng.exponential(20)
            if end > 0:
                own.append((max(0.0, now), end))
            now = end + rng.exponential(rng.choice([5, 60]))
        intervals.append(own)
    return Scenario(
        seed=seed,
        active=int(rng.integers(1, 1 + clients // 2)),
        updates=40,
        intervals=intervals,
        compute=(1.0, 3.0),
        steps=int(rng.integers(1, 4)),
        speed=rng.lognormal(0, 0.7, clients).tolist(),
        up=rng.uniform(0.1, 3, clients).tolist(),
        down=rng.uniform(0.1, 1, clients).tolist(),
        dropout=float(rng.choice([0.0, 0.3])),
        timeout=timeout,
    )


def as_simulated(scenario: Scenario, algorithm: str, folder: Path, **more: Any) -> TrainingResult:
    table = per_client(folder / "clients.csv", scenario, 1000.0)
    low, high = scenario.compute
    return run(
        scenario.seed,
        algorithm=algorithm,
        clients=len(scenario.intervals),
        workers=scenario.active,
        updates=scenario.updates,
        availability=trace(folder / "trace.csv", scenario.intervals),
        dropout=scenario.dropout,
        client_speed=table,
        client_uplink=table,
        client_downlink=table,
        compute=f"uniform({low}s, {high}s)",
        message_size="1000B",
        **more,
    )


def agree(result: TrainingResult, expected: Outcome) -> None:
    applied = rows(result, "client")
    assert [(pytest.approx(time, abs=1e-6), c) for time, c in expected.applied] == [
        (time, client) for time, _, client in applied
    ]
    until = expected.applied[-1][0]
    lost = sorted(row for row in rows(result, *LOSSES) if row[0] <= until + 1e-6)
    assert [(pytest.approx(time, abs=1e-6), *what) for time, *what in sorted(expected.lost)] == lost


@pytest.mark.parametrize("sharing", ["fair", "serial"])
@pytest.mark.parametrize("seed", range(12))
def test_one_by_one_clients_do_what_the_plain_program_says(
    seed: int, sharing: str, tmp_path: Path
) -> None:
    scenario = scenario_of(seed, float("inf"))
    if sharing == "serial":
        # The server's port would be held: messages take no time here.
        scenario.up = scenario.down = [1e-13] * len(scenario.intervals)
    algorithm = f"fedasync(steps={scenario.steps})"
    result = as_simulated(scenario, algorithm, tmp_path, sharing=sharing)
    agree(result, one_by_one(scenario))


@pytest.mark.parametrize("seed", range(24))
def test_rounds_do_what_the_plain_program_says(seed: int, tmp_path: Path) -> None:
    scenario = scenario_of(100 + seed, (4.0, 8.0, float("inf"))[seed % 3])
    limit = {} if scenario.timeout == float("inf") else {"round_timeout": scenario.timeout}
    result = as_simulated(scenario, f"fedavg(steps={scenario.steps})", tmp_path, **limit)
    agree(result, rounds(scenario))


@pytest.mark.parametrize("seed", range(12))
def test_rounds_of_those_who_come_first_do_what_the_plain_program_says(
    seed: int, tmp_path: Path
) -> None:
    scenario = scenario_of(300 + seed, (4.0, 8.0, float("inf"))[seed % 3])
    scenario.active = min(5, len(scenario.intervals))
    scenario.take = (0, 2, 3)[seed % 3]
    scenario.at_least = 1 + seed % 2
    limit = {} if scenario.timeout == float("inf") else {"round_timeout": scenario.timeout}
    asked = f"steps={scenario.steps}, take={scenario.take}, at_least={scenario.at_least}"
    agree(as_simulated(scenario, f"fedavg({asked})", tmp_path, **limit), rounds(scenario))
    assert (scenario.take > 0) <= any(how == "late" for _, how, _ in rounds(scenario).lost)


# By hand


def test_a_round_with_too_few_reports_begins_again(tmp_path: Path) -> None:
    # Client 1 goes at 1.5 s, when client 0 has reported: that is not enough, and both places are
    # taken anew by clients 0 and 2, who report a second later.
    there = trace(tmp_path / "trace.csv", [[(0.0, 99.0)], [(0.0, 1.5)], [(1.2, 99.0)]])
    speeds = write(tmp_path / "speeds.csv", "client,speed", ["0,1", "1,0.25", "2,1"])
    result = run(
        algorithm="fedavg(steps=1, at_least=2)",
        clients=3,
        updates=1,
        availability=there,
        client_speed=speeds,
    )
    assert sorted(rows(result, "client", "gone")) == [
        (1.5, "gone", 1),
        (2.5, "client", 0),
        (2.5, "client", 2),
    ]
    assert result.summary.dropped == 2


def test_a_round_goes_on_at_its_time_out_with_those_that_came(tmp_path: Path) -> None:
    # Speeds 1, 1/2, 1/10: 1 s, 2 s, 10 s. All three take part in each round of 5 s.
    table = write(tmp_path / "speeds.csv", "client,speed", ["0,1", "1,0.5", "2,0.1"])
    result = run(
        algorithm="ssgd",
        clients=3,
        workers=3,
        updates=2,
        client_speed=table,
        round_timeout="5s",
    )
    assert sorted(rows(result, "client")) == [(t, "client", c) for t in (5, 10) for c in (0, 1)]
    assert rows(result, "late") == [(5, "late", 2), (10, "late", 2)]
    assert result.summary.dropped == 2
    assert result.summary.clients is not None
    assert result.summary.clients.to_dict() == {
        "clients": 3,
        "took_part": 3,
        "participations": 9,  # the last answers go to three more
        "dropped_out": 0,
        "gone": 0,
        "late": 2,
        "fairness": 1.0,
    }
    assert result.summary.durations["population"] == (
        f"modelled: 3, 3 at a time, rounds end after 5 s, speed {table}"
    )
    waited = sorted(row[2] for row in rows(result, "waiting"))
    assert waited == [3, 3, 4, 4]


def test_a_round_without_anybody_by_its_time_out_waits_for_the_first(tmp_path: Path) -> None:
    table = write(tmp_path / "speeds.csv", "client,speed", ["0,0.5", "1,0.25"])
    common = {"algorithm": "ssgd", "clients": 2, "updates": 1, "client_speed": table}
    result = run(**common, round_timeout="500ms")
    assert sorted(rows(result, "client", "late")) == [(2, "client", 0), (2, "late", 1)]


def test_a_client_that_goes_is_replaced_at_once_and_its_work_is_lost(tmp_path: Path) -> None:
    # Client 0 is there until 1.5 s: its second gradient is lost, and client 1's ends at 2.5 s.
    result = of_two(tmp_path, [(0.0, 1.5)], [(1.2, 100.0)], workers=1, updates=2)
    assert rows(result, "client", "gone") == [
        (1, "client", 0),
        (1.5, "gone", 0),
        (2.5, "client", 1),
    ]
    assert result.summary.dropped == 1
    assert result.summary.virtual_time == 2.5


def test_a_vacant_place_is_taken_as_soon_as_somebody_comes(tmp_path: Path) -> None:
    result = of_two(tmp_path, [(0.0, 100.0)], [(3.25, 100.0)], updates=6, latency="250ms")
    # 1.25 s, then 1.5 s each; the parameters that client 1 reads are there at 3.5 s.
    assert rows(result, "client")[:3] == [
        (1.25, "client", 0),
        (2.75, "client", 0),
        (4.25, "client", 0),
    ]
    assert [row[0] for row in rows(result, "client")] == [1.25, 2.75, 4.25, 4.75, 5.75, 6.25]


def test_what_a_client_that_goes_was_sending_leaves_the_port_to_others(tmp_path: Path) -> None:
    # Both send 100 B from 1 s on, into 10 B/s. At 3 s client 0 is gone, and client 1 has sent 10 B;
    # the other 90 B take it until 12 s.
    result = run(
        algorithm="ssgd",
        clients=2,
        updates=1,
        bandwidth="10B/s",
        message_size="100B",
        client_uplink="100B/s",
        availability=trace(tmp_path / "trace.csv", [[(0.0, 3.0)], [(0.0, 99.0)]]),
    )
    assert rows(result, "client", "gone") == [(3, "gone", 0), (pytest.approx(12), "client", 1)]


def test_the_timeline_shows_what_was_begun_and_lost() -> None:
    result = run(
        algorithm="fedbuff(buffer=2)",
        clients=20,
        workers=4,
        compute="exponential(1s)",
        availability="onoff(exponential(3s), exponential(3s))",
        dropout=0.2,
        client_uplink="lognormal(1kbit/s, 1)",
        bandwidth="10kbit/s",
        message_size="100B",
        timeline=True,
    )
    assert result.timeline is not None
    assert check(result.timeline, exclusive=("compute",)) == []
    assert result.summary.clients is not None
    assert result.summary.clients.gone > 0
    assert result.summary.clients.dropped_out > 0


# Laws


def test_everybody_is_picked_alike_and_never_twice_at_a_time() -> None:
    result = run(algorithm="ssgd", clients=40, workers=10, updates=500, timeline=False)
    picks = Counter(int(value) for _, _, value in rows(result, "client"))
    # 500 rounds of 10 of 40: binomial(500, 1/4) each, and together 5000.
    assert len(picks) == 40
    variance = 500 * 0.25 * 0.75
    squares = sum((picks[client] - 125) ** 2 for client in range(40)) / variance
    assert squares == pytest.approx(40, abs=5 * (2 * 40) ** 0.5)
    by_round = Counter((time, value) for time, _, value in rows(result, "client"))
    assert set(by_round.values()) == {1}


def test_clients_are_picked_by_the_size_of_their_shards() -> None:
    result = run(
        timing_only=False,
        algorithm="asgd",
        workers=1,
        clients=8,
        updates=600,
        shards="sizes(1)",
        sampling="by-size",
        batch=1,
        lr=1e-3,
        evaluate_every=600,
        timeline=False,
    )
    from paracosm.models import load_data
    from paracosm.models.shards import make_shards
    from paracosm.rng import TrainingStream, generator

    labels = load_data("digits").train_y.numpy()
    sizes = make_shards(labels, 8, "sizes(1)", generator(0, TrainingStream.SHARDS)).sizes
    expected = 600 * sizes / sizes.sum()
    picks = Counter(int(value) for _, _, value in rows(result, "client"))
    squares = sum((picks[c] - expected[c]) ** 2 / expected[c] for c in range(8))
    assert squares == pytest.approx(7, abs=5 * 14**0.5)


@pytest.mark.parametrize("turns", ["onoff(10s, 30s)", "onoff(exponential(10s), uniform(10s, 50s))"])
def test_by_turns_as_many_are_there_at_the_start_as_ever(turns: str) -> None:
    from paracosm.training.availability import Turns, parse_on_off

    availability = Turns(parse_on_off(turns), seed=1)
    for now in (0.0, 7.0, 200.0):
        there = [availability.there_until(client, now) for client in range(2000)]
        count = sum(each is not None for each in there)
        assert count == pytest.approx(500, abs=5 * (2000 * 0.25 * 0.75) ** 0.5)
    # What is left of an exponential period is exponential, of a constant one uniform: mean 10, 5.
    left = [until - 200.0 for until in there if until is not None]
    mean = 10.0 if "exponential" in turns else 5.0
    assert np.mean(left) == pytest.approx(mean, rel=0.15)


def test_fewer_clients_at_a_time_are_less_stale() -> None:
    """FedBuff's staleness is (concurrency - 1) / K: Nguyen et al. 2022, section 3."""
    stale = run(
        algorithm="fedbuff(buffer=4)",
        clients=500,
        workers=17,
        updates=600,
        compute="exponential(1s)",
        timeline=False,
    )
    assert stale.summary.mean_staleness == pytest.approx(4.0, rel=0.05)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**16),
    algorithm=st.sampled_from(
        [
            *("asgd", "ssp(1)", "softsync", "fedbuff(3)", "ssgd", "fedavg(2)", "scaffold(2)"),
            *(
                "backup-workers(1)",
                "backup-workers(1, interrupt=True)",
                "fedasync(2)",
                "rennala(3)",
            ),
            *("ringmaster(3)", "diloco(2)", "delayed-nesterov(2)", "fednova(2)", "feddyn(2)"),
            "fedavg(steps=2, take=2)",
        ]
    ),
    clients=st.integers(5, 12),
    dropout=st.sampled_from([0.0, 0.4]),
    away=st.sampled_from([None, "onoff(exponential(4s), exponential(9s))"]),
    sharing=st.sampled_from(["fair", "serial"]),
)
def test_every_gradient_is_applied_dropped_or_under_way(
    seed: int, algorithm: str, clients: int, dropout: float, away: str | None, sharing: str
) -> None:
    arguments: dict[str, Any] = {
        "algorithm": algorithm,
        "clients": clients,
        "workers": 4,
        "dropout": dropout,
        "compute": "exponential(1s)",
        "client_speed": "lognormal(1, 1)",
        "client_uplink": "lognormal(1kbit/s, 1)",
        "client_downlink": "lognormal(2kbit/s, 1)",
        "bandwidth": "2kbit/s",
        "message_size": "100B",
        "sharing": sharing,
    }
    if algorithm.startswith("diloco"):
        arguments["topology"] = "server"
    if away is not None:
        arguments["availability"] = away
    result = run(seed, **arguments)
    summary = result.summary
    assert summary.clients is not None
    assert summary.updates == 30
    applied = len(rows(result, "client"))
    stopped = len(rows(result, "stopped"))
    lost = summary.clients.dropped_out + summary.clients.gone + summary.clients.late + stopped
    # Each participation has sent what was applied or dropped, was lost, or goes on at the end.
    over = summary.clients.participations - lost - applied
    # Some drop what comes late, or hold what does not fill a buffer yet.
    drops = algorithm.startswith(("backup", "rennala", "ringmaster"))
    assert 0 <= over <= 4 + 4 + (summary.dropped if drops else 0)
    times = [row.virtual_time for row in all_rows(result)]  # type: ignore[attr-defined]
    assert times == sorted(times)
    again = run(seed, **arguments)
    assert rows(again, "client", *LOSSES) == rows(result, "client", *LOSSES)


@settings(deadline=None, max_examples=100)
@given(
    edges=st.lists(st.lists(st.integers(0, 16), unique=True, max_size=8), min_size=1, max_size=4),
    probes=st.lists(st.integers(0, 400), min_size=1, max_size=20),
    unit=st.sampled_from([0.25, 0.1, 1 / 3]),
)
def test_a_trace_that_repeats_is_the_one_that_says_so_again_and_again(
    edges: list[list[int]], probes: list[int], unit: float
) -> None:
    intervals = [
        (client, begin * unit, end * unit)
        for client, own in enumerate(edges)
        for begin, end in zip(sorted(own)[::2], sorted(own)[1::2], strict=False)
    ]
    if not intervals:
        return
    period = 16 * unit
    once = Trace(
        sorted((c, k * period + b, k * period + e) for k in range(30) for c, b, e in intervals)
    )
    again = Trace(intervals, period)
    for client in range(len(edges)):
        for now in (probe * unit for probe in probes):
            until, expected = (each.there_until(client, now) for each in (again, once))
            comes = again.comes_at(client, now)
            assert until is not None or comes > now
            assert comes == math.inf or again.there_until(client, comes) is not None
            if unit != 0.25:  # whose multiples are rounded: whether intervals meet is chance
                continue
            assert until in (expected, math.inf)
            assert until is not None or comes == once.comes_at(client, now)


def test_clients_come_again_with_a_trace_that_repeats(tmp_path: Path) -> None:
    common: dict[str, Any] = {"algorithm": "asgd", "clients": 2, "updates": 12, "workers": 1}
    day = trace(tmp_path / "day.csv", [[(0.0, 3.5)], [(5.0, 7.5)]])
    result = run(**common, availability=f"repeat({day}, 10s)")
    assert (
        rows(result, "client")
        == [
            (10 * k + now, "client", client)
            for k in range(3)
            for now, client in ((1, 0), (2, 0), (3, 0), (6, 1), (7, 1))
        ][:12]
    )
    assert result.summary.durations["population"].endswith(f"there repeat({day}, 10s)")
    without_end = run(**common, availability=f"repeat({day})")
    assert without_end.summary.virtual_time == 17
    written = TrainConfig(clients=2, workers=1, availability=f"repeat({day}, 10s)")
    assert TrainConfig.model_validate(written.model_dump(exclude_defaults=True)) == written


def test_gradients_do_not_change_who_takes_part() -> None:
    arguments: dict[str, Any] = {
        "algorithm": "fedavg(2)",
        "clients": 30,
        "workers": 5,
        "updates": 8,
        "dropout": 0.2,
        "compute": "exponential(1s)",
        "round_timeout": "3s",
        "client_speed": "lognormal(1, 1)",
    }
    names = ("client", *LOSSES)
    # No shard, of 20 examples, is smaller than a minibatch.
    computed = run(timing_only=False, lr=0.1, batch=20, **arguments)
    assert rows(computed, *names) == rows(run(**arguments), *names)
    assert computed.summary.final_loss is not None


def test_a_client_goes_on_through_its_own_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    from paracosm.training.numerics.gradients import GradientSource

    asked: list[list[int]] = []
    request = GradientSource.request

    def noted(self: GradientSource, parameters: Any, batch: Any, *more: Any) -> Any:
        asked.append(batch.tolist())
        return request(self, parameters, batch, *more)

    monkeypatch.setattr(GradientSource, "request", noted)
    result = run(
        timing_only=False,
        algorithm="asgd",
        clients=6,
        workers=2,
        updates=60,
        shards="iid",
        batch=239,
        lr=0.01,
    )
    # Shards of 239 or 240 examples: each minibatch is one client's whole shard, or all but one.
    owners = [frozenset(batch) for batch in asked]
    groups: list[set[int]] = []
    for owner in owners:
        match = next((group for group in groups if len(group & owner) > 200), None)
        if match is None:
            groups.append(set(owner))
        else:
            match |= owner
    assert len(groups) == 6
    assert sum(len(group) for group in groups) <= 1437
    assert not any(a & b for a in groups for b in groups if a is not b)
    assert result.summary.updates == 60


def test_clients_that_were_never_picked_cost_some_bytes() -> None:
    config = TrainConfig(algorithm="fedavg", clients=100_000, client_speed="lognormal(1, 0.5)")
    tracemalloc.start()
    clients = Clients(config, seed=0)
    for _ in range(20):
        picked = clients.pick(100, now=0.0)
        assert len({who.client for who in picked}) == 100
        for who in picked:
            clients.release(who.client)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000 * 200


# What cannot be


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 8, "clients": 4}, "4 clients cannot fill 8 workers"),
        ({"dropout": 0.1}, "each worker is one client: give --clients 1000"),
        ({"clients": 9, "algorithm": "local-sgd"}, "a parameter server picks clients"),
        ({"clients": 9, "round_timeout": "1s"}, "the algorithm has no rounds"),
        ({"clients": 9, "algorithm": "easgd"}, "easgd keeps state at each worker"),
        ({"clients": 9, "algorithm": "ssp(cache=True)"}, "keeps state at each worker"),
        ({"clients": 9, "batch_of": "worker 1: 64"}, "write client 3: 64"),
        ({"clients": 9, "batch_of": "client 9: 64"}, "clients 0 to 8, not 9"),
        ({"clients": 9, "servers": 2}, "1 server picks them, not 2"),
        ({"algorithm": "fedavg(take=3)"}, r"take must be at most the number of workers \(2\), of"),
        ({"algorithm": "fedavg(take=1)", "servers": 2}, "take runs on 1 server, not 2"),
        ({"algorithm": "fedavg(at_least=2)"}, "at_least=2 has no effect where nobody is lost"),
        (
            {"clients": 9, "dropout": 0.1, "algorithm": "fedavg(take=1, at_least=2)"},
            "at_least must be at most take, 1, got 2",
        ),
        ({"clients": 9, "sampling": "by-size"}, "by-size has no effect"),
        ({"clients": 9, "compute": "recorded(1s, 2s, cycle=true)"}, "neither measured nor"),
        ({"clients": 9, "sharing": "packets(1KiB)"}, "cannot withdraw the messages"),
        ({"clients": 9, "client_uplink": "lognormal(10, 1)"}, "has no unit"),
        ({"clients": 9, "client_speed": "uniform(0, 0)"}, "the speed of client 0 must be"),
        ({"clients": 9, "availability": "onoff(1h)"}, "lacks the time that clients are away"),
        ({"clients": 9, "availability": "sometimes"}, "is neither a .csv or .parquet file"),
        ({"clients": 9, "availability": "repeat(sometimes)"}, "repeats no .csv or .parquet file"),
        ({"clients": 9, "availability": "onoff(0s, 1s)"}, "with a finite mean above 0"),
        ({"clients": 9, "availability": "none.csv"}, 'no table of clients at "none.csv"'),
        (
            {"clients": 9, "duplex": "half", "client_uplink": "1Mbit/s"},
            "uplink and downlink need full duplex",
        ),
    ],
)
def test_what_clients_cannot_be_is_said_in_one_line(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(**{"algorithm": "asgd", **arguments})


@pytest.mark.parametrize(
    ("header", "lines", "message"),
    [
        ("client,begin", ["0,1"], "the column end is missing: it has client, begin"),
        ("client,begin,end,end", ["0,1,2,2"], 'two columns have the name "end"'),
        ("client,begin,end", ["7,0,10"], "there is no client 7: the 3 clients have the numbers"),
        ("client,begin,end", ["x,0,10"], '"x" is no client\'s number'),
        ("client,begin,end", ["0,5,5"], "from 5 s to 5 s: intervals must be"),
        ("client,begin,end", ["0,0,5", "0,4,9"], "intervals of client 0 overlap at 4 s"),
        ("client,begin,end", ["0,0,soon"], 'client 0: cannot read "soon" as a duration'),
        ("client,begin,end", ["0,0,"], "client 0 has no end"),
        ("client,begin,end", [], "it has no intervals"),
        (
            "client,begin,end",
            ["0,0,10", "2,0,12.5"],
            "the trace ends at 12.5 s, with client 2, before the run",
        ),
    ],
)
def test_a_trace_that_cannot_be_followed_is_refused(
    header: str, lines: list[str], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "trace.csv", header, lines)
    with pytest.raises(InputError, match=message):
        run(algorithm="asgd", clients=3, updates=1000, availability=path)


def test_a_trace_that_repeats_before_it_ends_is_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.csv", [[(0, 60)], [(0, 90)]])
    with pytest.raises(InputError, match=r"the period must be 90 s or more, as the trace is"):
        run(algorithm="asgd", clients=2, availability=f"repeat({path}, 80s)")


def test_a_trace_that_ends_before_the_run_is_refused_before_it_begins(tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.csv", [[(0, 60)], [(0, 90)]])
    common = {"algorithm": "asgd", "clients": 2, "availability": path, "updates": None}
    assert run(**common, until="90s").summary.virtual_time == 90
    with pytest.raises(InputError, match="ends at 90 s, with client 1"):
        run(**common, until="2min")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0,1", "1,2"], "it lacks client 2, of 3 clients"),
        (["0,1", "0,1", "1,1"], "client 0 is there twice"),
        (["0,1", "1,0", "2,1"], "the speed of client 1 must be finite and above 0, not 0"),
        (["0,1", "1,fast", "2,1"], 'client 1: cannot read "fast" as a number'),
    ],
)
def test_a_table_of_speeds_names_the_client_that_is_wrong(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "speeds.csv", "client,speed", lines)
    with pytest.raises(InputError, match=message):
        run(algorithm="asgd", clients=3, client_speed=path)


def test_a_table_may_be_parquet(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"client": [1, 0], "speed": [2.0, 4.0], "uplink": [50.0, 100.0]})
    parquet.write_table(table, tmp_path / "clients.parquet")
    result = run(
        algorithm="ssgd",
        clients=2,
        updates=1,
        client_speed=tmp_path / "clients.parquet",
        client_uplink=tmp_path / "clients.parquet",
        message_size="100B",
    )
    # 1/4 s and 100 B at 100 B/s; 1/2 s and 100 B at 50 B/s
    assert result.summary.virtual_time == 2.5


def test_what_is_written_of_clients_is_read_back_equal() -> None:
    config = TrainConfig(
        algorithm="fedavg",
        clients=1000,
        workers=10,
        availability="onoff(exponential(1h), lognormal(2h, 1))",
        dropout=0.05,
        round_timeout="1min",
        client_speed="lognormal(1, 0.5)",
        client_uplink="slowdown(lognormal(10Mbit/s, 1), 0.1, 0.2)",
        client_downlink="lines.csv",
    )
    written = config.model_dump(mode="json", exclude_defaults=True)
    assert written["client_uplink"] == "slowdown(lognormal(10Mbit/s, 1), 0.1, 0.2)"
    assert TrainConfig.model_validate(written) == config


@pytest.mark.parametrize("client", [math.inf, math.nan, 0.5])
def test_a_client_that_is_no_whole_number_is_refused(client: float, tmp_path: Path) -> None:
    table = tmp_path / "clients.parquet"
    parquet.write_table(pa.table({"client": [client], "speed": [1.0]}), table)
    with pytest.raises(InputError, match="is no client's number"):
        read_columns(table, ["speed"], 3)

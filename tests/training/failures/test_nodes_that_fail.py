"""Nodes that fail on the engine: instants and values by hand, and against plain programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from metric_rows import all_rows, series
from pydantic import ValidationError
from quadratic import LR, run

from paracosm.errors import InputError
from paracosm.faults.node_failures import failure_instants, parse_mtbf
from paracosm.rng import TrainingStream, generator
from paracosm.timing import parse_distribution
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.numerics.store import LocalSteps, Numerics
from paracosm.validation import validated
from reference.failing_job import failing_job
from reference.failing_training import Period, failing_training

COSTS = {"checkpoint_cost": "0.5s", "checkpoint_every": "2s"}


def timed(seed: int = 0, **arguments: Any) -> TrainingResult:
    config = {"timing_only": True, "message_size": "1kB", "compute": "1s", **arguments}
    return train(TrainConfig.model_validate(config), seed)


def rows(result: TrainingResult, name: str) -> list[tuple[float, str, float]]:
    return [(row.virtual_time, row.node, row.value) for row in series(result, name)]


def instants(result: TrainingResult) -> list[tuple[float, int]]:
    """Return when gradients were applied, and whose."""
    return [(time, int(node[6:])) for time, node, _ in rows(result, "staleness")]


def test_a_worker_that_stops_loses_its_gradient_and_rejoins() -> None:
    """Worker 1 is away from 1.5 s to 4 s: what it began at 1 s is lost, what it begins at 4 s ends
    at 5 s, one update of worker 0 later than it read."""
    result = run(algorithm="asgd", workers=2, updates=8, fault="stop(2.5s) on worker 1 at 1.5s")
    assert instants(result) == [(1, 0), (1, 1), (2, 0), (3, 0), (4, 0), (5, 1), (5, 0), (6, 1)]
    x = [1.0, 0.75, 0.5]  # both read 1
    x.append(x[-1] - LR * x[1])  # at 2 s worker 0, which read after its own update
    x.append(x[-1] * (1 - LR))  # at 3 s and at 4 s it is alone
    x.append(x[-1] * (1 - LR))
    # At 4 s worker 1 asks before the update of that instant.
    x.append(x[-1] - LR * x[4])
    x.append(x[-1] - LR * x[5])
    x.append(x[-1] - LR * x[6])
    assert float(result.parameters) == pytest.approx(x[8])
    assert rows(result, "failure") == [(1.5, "worker1", 2.5)]
    assert rows(result, "restart") == [(4.0, "worker1", 2.5)]
    found = result.summary.failures
    assert found is not None
    assert (found.failures, found.stops, found.lost_gradients) == (1, 0, 1)
    # of two workers' 6 s: half a second of computing, and 2.5 s away
    assert found.lost == pytest.approx(0.5 / 12)
    assert found.restarting == pytest.approx(2.5 / 12)
    assert found.effective == pytest.approx(9 / 12)


def _there(folder: Path, *intervals: str) -> str:
    path = folder / "there.csv"
    path.write_text("\n".join(["client,begin,end", *intervals]))
    return str(path)


@pytest.mark.parametrize(
    ("algorithm", "topology"),
    [("asgd", "server"), ("ssp", "server"), ("ssgd", "server"), ("ssgd", "all-reduce")],
)
def test_a_worker_that_goes_is_as_one_that_stops(
    algorithm: str, topology: str, tmp_path: Path
) -> None:
    there = _there(tmp_path, "0,0s,100s", "1,0s,1.5s", "1,4s,8.25s", "1,9.5s,100s")
    common = {"algorithm": algorithm, "topology": topology, "workers": 2, "updates": 16}
    goes = run(**common, availability=there)
    recovery = "elastic" if algorithm == "ssgd" else "rejoin"
    fault = "stop(2.5s) on worker 1 at 1.5s; stop(1.25s) on worker 1 at 8.25s"
    stops = run(**common, fault=fault, recovery=recovery)
    assert instants(goes) == instants(stops)
    assert float(goes.parameters) == float(stops.parameters)
    assert (
        rows(goes, "away")
        == rows(stops, "failure")
        == [(1.5, "worker1", 2.5), (8.25, "worker1", 1.25)]
    )
    found = goes.summary.failures
    assert found is not None
    assert stops.summary.failures is not None
    assert (found.absences, found.failures) == (2, 0)
    assert found.effective == stops.summary.failures.effective


def test_a_worker_may_come_later(tmp_path: Path) -> None:
    """Worker 0 goes for good at 2.5 s, worker 1 comes at 2.25 s."""
    there = _there(tmp_path, "0,0s,2.5s", "1,2.25s,9s")
    result = run(algorithm="asgd", workers=2, updates=4, availability=there)
    assert instants(result) == [(1, 0), (2, 0), (3.25, 1), (4.25, 1)]
    assert rows(result, "away") == [(0, "worker1", 2.25), (2.5, "worker0", math.inf)]
    assert rows(result, "restart") == [(2.25, "worker1", 2.25)]


def test_a_trace_that_ends_before_the_run_is_refused(tmp_path: Path) -> None:
    there = _there(tmp_path, "0,0s,2.5s", "1,2s,9s")
    with pytest.raises(InputError, match=r"ends at 9 s, with worker 1, before the run"):
        run(algorithm="asgd", workers=2, updates=40, availability=there)
    with pytest.raises(InputError, match=r"ends at 9 s, with worker 1"):
        run(algorithm="asgd", workers=2, until="10s", availability=there)


@pytest.mark.parametrize(
    "algorithm", ["ad-psgd", "streaming-diloco", "scaffold", "ssp(cache=true)"]
)
def test_algorithms_that_need_all_workers_refuse_that_they_go(algorithm: str) -> None:
    with pytest.raises(ValidationError, match=rf"{algorithm[:3]}.*(would restart|cannot continue)"):
        timed(algorithm=algorithm, workers=4, availability="onoff(exponential(9s), 1s)")


def test_the_share_of_workers_that_are_there_is_that_of_their_turns() -> None:
    """Exponential turns of 30 s and 10 s, seen for 750 s at 16 workers: 75 %, within 4 errors.

    The share of time there of one has the variance 2 a b / ((a + b) (1/30 + 1/10) t) with a = 3/4,
    b = 1/4 of its time: an integral of a process with the autocorrelation exp(-(1/30 + 1/10) t).
    """
    turns = "onoff(exponential(30s), exponential(10s))"
    found = timed(algorithm="asgd", workers=16, until="750s", availability=turns).summary.failures
    assert found is not None
    error = (2 * 0.75 * 0.25 / ((1 / 30 + 1 / 10) * 750) / 16) ** 0.5
    assert found.restarting == pytest.approx(0.25, abs=4 * error)
    assert found.absences == pytest.approx(16 * 750 / 40, rel=0.1)


def test_a_gradient_on_its_way_is_lost_with_its_worker() -> None:
    """It was sent at 1 s and would be there at 1.4 s; its worker stops at 1.2 s for a second, asks
    at 2.2 s, reads at 3 s, and its next one is there at 4.4 s."""
    result = run(
        algorithm="asgd",
        workers=1,
        updates=2,
        latency="400ms",
        fault="stop(1s) on worker 0 at 1.2s",
    )
    assert [time for time, _ in instants(result)] == pytest.approx([4.4, 6.2])
    assert result.summary.failures.lost_gradients == 1  # type: ignore[union-attr]


def test_a_synchronous_job_waits_for_a_worker_that_rejoins() -> None:
    result = run(
        algorithm="ssgd",
        workers=2,
        updates=4,
        recovery="rejoin",
        fault="stop(2.5s) on worker 1 at 1.5s",
    )
    assert [time for time, _ in instants(result)] == [1, 1, 5, 5, 6, 6, 7, 7]
    assert float(result.parameters) == pytest.approx(0.75**4)
    assert [age for _, _, age in rows(result, "staleness")] == [0] * 8


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_elastic_updates_do_without_those_that_are_away(topology: str) -> None:
    """Worker 1 is away from 1.5 s to 3.7 s, and takes part from the update at 4 s on."""
    result = run(
        algorithm="ssgd",
        topology=topology,
        workers=2,
        updates=6,
        recovery="elastic",
        fault="stop(2.2s) on worker 1 at 1.5s",
    )
    expected = [(1, 0), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0), (5, 1), (6, 0), (6, 1)]
    assert sorted(instants(result)) == expected
    assert float(result.parameters) == pytest.approx(0.75**6)


def test_the_number_of_local_steps_goes_by_the_means_that_were_made() -> None:
    """One step before each of two means, then three. A worker that fails at 3 s and is back at 4 s
    makes its three steps from there on."""
    result = run(
        algorithm="post-local-sgd(steps=3, after=2)",
        workers=2,
        updates=4,
        recovery="rejoin",
        fault="stop(1s) on worker 1 at 3s",
    )
    assert [time for time, worker in instants(result) if worker == 0] == [1, 2, 7, 10]
    assert float(result.parameters) == pytest.approx(0.75**8)


def test_an_all_reduce_that_loses_a_worker_begins_anew_without_it() -> None:
    """A ring of 3 takes 2 (2/3) 0.2 s, one of 2 takes 0.2 s: from 1.1 s on, when worker 1 stops."""
    result = run(
        algorithm="ssgd",
        topology="all-reduce",
        workers=3,
        updates=2,
        recovery="elastic",
        bandwidth="100MB/s",
        message_size="20MB",
        fault="stop on worker 1 at 1.1s",
    )
    assert [time for time, _ in instants(result)] == pytest.approx([1.3, 1.3, 2.5, 2.5])
    waiting = run(
        algorithm="local-sgd(steps=2)",
        workers=3,
        updates=1,
        recovery="rejoin",
        bandwidth="100MB/s",
        message_size="20MB",
        fault="stop(2s) on worker 1 at 2.1s",
    )
    # It is back at 4.1 s, makes its two steps again, and then the ring of 3 takes its time.
    assert [time for time, _ in instants(waiting)] == pytest.approx([6.1 + 4 / 3 * 0.2] * 3)


@pytest.mark.parametrize("topology", ["server", "all-reduce"])
def test_a_synchronous_job_restarts_from_its_checkpoint(topology: str) -> None:
    """Updates at 1 s and 2 s, a checkpoint until 2.5 s, an update at 3.5 s, which the failure of
    that instant undoes; from 5.7 s on as after the second update."""
    result = run(
        algorithm="ssgd",
        topology=topology,
        workers=2,
        updates=6,
        fault="stop(2.2s) on worker 1 at 3.5s",
        **COSTS,
    )
    times = [time for time, worker in instants(result) if worker == 0]
    assert times == pytest.approx([1, 2, 3.5, 6.7, 7.7, 9.2, 10.2])
    assert float(result.parameters) == pytest.approx(0.75**6)
    assert rows(result, "checkpoint") == [(2, "job", 0.5), (pytest.approx(7.7), "job", 0.5)]
    found = result.summary.failures
    assert found is not None
    assert (found.stops, found.checkpoints, found.lost_gradients) == (1, 2, 2)
    total = result.summary.virtual_time
    assert found.lost == pytest.approx(1 / total)  # the second after the checkpoint
    assert found.saving == pytest.approx(1 / total)
    assert found.restarting == pytest.approx(2.2 / total)
    assert found.goodput == pytest.approx(12 / total)


def test_a_server_that_stops_takes_the_job_back_whatever_the_algorithm() -> None:
    """Two updates at 1 s; the server stops at 2.5 s, and the job begins again at 4.7 s."""
    result = run(
        algorithm="asgd",
        workers=2,
        updates=6,
        fault="stop(2.2s) on server 0 at 2.5s",
        checkpoint_cost="0.5s",
        checkpoint_every="60s",
    )
    times = [time for time, _ in instants(result)]
    assert times == pytest.approx([1, 1, 2, 2, 5.7, 5.7, 6.7, 6.7, 7.7, 7.7])
    clean = run(algorithm="asgd", workers=2, updates=6)
    assert float(result.parameters) == float(clean.parameters)
    assert rows(result, "failure") == [(2.5, "server0", pytest.approx(2.2))]


def test_peers_and_single_workers_restart_too() -> None:
    fault = {"fault": "stop(1s) on worker 0 at 2.5s", **COSTS, "checkpoint_every": "1s"}
    alone = run(algorithm="sequential", workers=1, updates=4, **fault)
    assert float(alone.parameters) == pytest.approx(0.75**4)
    # A second of work, half a second saved; at 2.5 s the second second is over, and not yet saved.
    assert [time for time, _ in instants(alone)] == pytest.approx([1, 2.5, 4.5, 6, 7.5])
    peers = run(algorithm="ad-psgd", workers=2, updates=6, **fault)
    assert peers.summary.updates == 6


def test_slow_periods_stretch_what_falls_into_them() -> None:
    """Threefold from 1.5 s to 5.5 s: half of the second gradient takes 1.5 s, and 2.5 s hold 5/6 of
    the third."""
    result = run(algorithm="asgd", workers=1, updates=4, fault="slow(3x, 4s) on worker 0 at 1.5s")
    assert [time for time, _ in instants(result)] == pytest.approx([1, 3, 5.5 + 1 / 6, 6.5 + 1 / 6])
    assert result.summary.failures.slowdowns == 1  # type: ignore[union-attr]
    server = run(
        algorithm="asgd",
        workers=1,
        updates=2,
        update_time="0.5s",
        fault="slow(2x, 2s) on server 0 at 1s",
    )
    assert [time for time, _ in instants(server)] == pytest.approx([2, 3.5])


def test_a_lost_message_is_sent_again_after_a_time_out() -> None:
    """The gradient of 1 s is lost, as is its second attempt at 1.6 s; the third, at 2.2 s, is there
    at 2.3 s, and the answer at 2.4 s."""
    result = run(
        algorithm="asgd",
        workers=1,
        updates=2,
        latency="100ms",
        resend_after="600ms",
        fault="lose(100%, 1.5s) on worker 0 at 0.5s",
    )
    assert [time for time, _ in instants(result)] == pytest.approx([2.3, 3.5])
    found = result.summary.failures
    assert found is not None
    assert (found.lost_messages, found.resent_messages, found.lost_gradients) == (2, 2, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": "asgd", "fault": "lose(50%)"}, ["resend-after", "waits for"]),
        ({"algorithm": "asgd", "fault": "stop on worker 0 at 1.5s; stop on worker 1 at 2.5s"},
         ["worker0 never comes back"]),
        ({"algorithm": "ssgd", "recovery": "rejoin", "fault": "stop on worker 1 at 1.5s"},
         ["stands still at 2 s", "after 1 updates", "worker1 never comes back"]),
    ],
)  # fmt: skip
def test_a_run_that_stands_still_says_so_in_one_line(
    arguments: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        run(workers=2, updates=50, **arguments)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_job_that_never_gets_on_is_given_up() -> None:
    with pytest.raises(InputError, match="makes no progress: nodes failed or left 10"):
        timed(algorithm="asgd", workers=1, updates=1, mtbf="1ms a worker", restart_cost="1ms")


@pytest.mark.parametrize("algorithm", ["asgd", "ssgd", "ssp(slack=1)", "fedbuff", "softsync"])
@pytest.mark.parametrize("recovery", [None, "elastic"])
def test_faults_that_never_strike_change_nothing(algorithm: str, recovery: str | None) -> None:
    if recovery and algorithm != "ssgd":
        return
    common = {
        "algorithm": algorithm,
        "workers": 4,
        "updates": 30,
        "compute": "lognormal(1s, 0.3)",
        "bandwidth": "1MB/s",
        "latency": "1ms",
        "message_size": "200kB",
        "timeline": True,
    }
    never = "slow(2x, 1s) on worker 0 at 1e9s; lose(1%, 1s) at 1e9s"
    if recovery:
        never += "; stop(1s) on worker 1 at 1e9s"
    plain = run(3, **common)
    faulty = run(3, **common, fault=never, **({"recovery": recovery} if recovery else {}))
    shown = [
        [row._replace(wall_time=0) for row in all_rows(each)]  # type: ignore[attr-defined]
        for each in (plain, faulty)
    ]
    assert shown[0] == shown[1]
    assert plain.parameters.tolist() == faulty.parameters.tolist()
    spans = [
        sorted(span for span in each.timeline.spans if not (recovery and span.resource == "wait"))  # type: ignore[union-attr]
        for each in (plain, faulty)
    ]
    assert spans[0] == spans[1]  # an elastic server waits for something else


def test_values_do_not_move_instants() -> None:
    """With gradients and without, and again: the same run."""
    arguments = {
        "algorithm": "asgd",
        "workers": 3,
        "updates": 40,
        "compute": "lognormal(1s, 0.3)",
        "latency": "10ms",
        "mtbf": "6s a worker",
        "restart_cost": "2s",
        "fault": "lose(10%); slow(3x, 2s) every 5s",
        "resend_after": "200ms",
    }
    real, again, empty = run(5, **arguments), run(5, **arguments), timed(5, **arguments)
    assert rows(real, "staleness") == rows(again, "staleness") == rows(empty, "staleness")
    assert real.parameters.tolist() == again.parameters.tolist()
    assert real.summary.failures == empty.summary.failures
    assert rows(real, "staleness") != rows(run(6, **arguments), "staleness")


def test_random_failures_of_the_job_are_those_of_predicted_schedules() -> None:
    result = timed(
        7,
        algorithm="ssgd",
        workers=3,
        updates=60,
        mtbf="90s a worker, 200s a server",
        checkpoint_cost="500ms",
        restart_cost="1ms",
    )
    struck = [time for time, node, _ in rows(result, "failure")]
    expected = failure_instants(parse_mtbf("90s a worker, 200s a server"), 3, 1, 7)
    assert len(struck) >= 2
    assert struck == list(islice(expected, len(struck)))


@settings(max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 9),
    st.lists(st.integers(1, 60), max_size=6, unique=True).map(sorted),
)
def test_restarts_are_those_of_a_plain_program(
    iteration: int, every: int, cost: int, restart: int, failures: list[int]
) -> None:
    """A synchronous job in ticks of a second, held to `failing_job`."""
    expected, wasted = failing_job(iteration, 12, every, cost, restart, failures)
    assume(expected[-1] not in failures)  # the run is over then
    faults = "; ".join(f"stop({restart}s) on worker 0 at {at}s" for at in failures)
    result = timed(
        algorithm="ssgd",
        workers=2,
        updates=12,
        compute=f"{iteration}s",
        **({"fault": faults} if faults else {}),
        **({"checkpoint_cost": f"{cost}s", "checkpoint_every": f"{every}s"} if faults else {}),
    )
    if not faults:
        return
    last: dict[int, float] = {}
    for row in series(result, "staleness"):
        last[row.step] = row.virtual_time
    assert [last[step] for step in sorted(last)] == pytest.approx(expected)
    found = result.summary.failures
    assert found is not None
    end = result.summary.virtual_time
    lost = sum(work for back, work, _ in wasted if back <= end)
    assert found.lost * end == pytest.approx(lost, abs=1e-9)


PERIODS = st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 12), st.floats(0.05, 4)), max_size=5)
LATENCY, RESEND = 0.0713, 0.3171


def draws(seed: int, worker: int) -> Iterator[float]:
    distribution = parse_distribution("lognormal(1s, 0.4)")
    return distribution.draws(generator(seed, TrainingStream.COMPUTE, worker))


@settings(max_examples=150)
@given(
    st.sampled_from(["asgd", "wait", "elastic"]),
    st.integers(0, 1000),
    PERIODS,
    PERIODS,
    PERIODS,
)
def test_a_random_mix_is_that_of_a_plain_program(
    rule: str,
    seed: int,
    stops: list[tuple[int, float, float]],
    slow: list[tuple[int, float, float]],
    losses: list[tuple[int, float, float]],
) -> None:
    """Every gradient is applied at the same instant, from parameters of the same age, or lost."""
    expected = failing_training(
        rule,
        20,
        [draws(seed, worker) for worker in range(3)],
        LATENCY,
        [Period(*stop) for stop in stops],
        [Period(*each, factor=2.5) for each in slow],
        [Period(*loss) for loss in losses],
        RESEND,
    )
    faults = [f"stop({length!r}s) on worker {w} at {begin!r}s" for w, begin, length in stops]
    faults += [f"slow(2.5x, {length!r}s) on worker {w} at {at!r}s" for w, at, length in slow]
    faults += [f"lose(100%, {length!r}s) on worker {w} at {at!r}s" for w, at, length in losses]
    recovery = {"wait": "rejoin", "elastic": "elastic"}
    result = timed(
        seed,
        algorithm="asgd" if rule == "asgd" else "ssgd",
        workers=3,
        updates=20,
        compute="lognormal(1s, 0.4)",
        latency=f"{LATENCY}s",
        fault=faults,
        timeline=False,
        **({"recovery": recovery[rule]} if stops and rule != "asgd" else {}),
        **({"resend_after": f"{RESEND}s"} if losses else {}),
    )
    applied = [(time, int(node[6:]), age) for time, node, age in rows(result, "staleness")]
    assert [each[1:] for each in applied] == [each[1:] for each in expected.applied]
    assert [each[0] for each in applied] == pytest.approx([each[0] for each in expected.applied])
    ending = (expected.applied[-1][0], result.summary.virtual_time)
    found = result.summary.failures
    if found is not None and not any(ending[0] <= begin <= ending[1] for _, begin, _ in stops):
        assert found.lost_gradients == expected.lost


FAULTS = st.lists(
    st.one_of(
        st.builds("stop({}s) on worker {} at {}s".format, st.integers(1, 9), st.integers(0, 2),
                  st.integers(0, 30)),
        st.builds("stop({}s) every {}s".format, st.integers(1, 3), st.integers(20, 60)),
        st.builds("stop({}s) on server 0 at {}s".format, st.integers(1, 5), st.integers(0, 30)),
        st.builds("slow({}x, {}s) every {}s".format, st.integers(2, 9), st.integers(1, 9),
                  st.integers(1, 30)),
        st.builds("lose({}%, {}s) at {}s".format, st.integers(1, 100), st.integers(1, 9),
                  st.integers(0, 30)),
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip
SYNCHRONOUS = ["ssgd", "fedavg(steps=2)", "local-sgd(steps=2)"]
ALGORITHMS = st.sampled_from(
    [*SYNCHRONOUS, "asgd", "ssp(slack=1)", "fedbuff(buffer=2)", "softsync(n=2)", "easgd",
     "rennala(2)", "ringmaster(2)", "backup-workers", "backup-workers(interrupt=true)",
     "delay-adaptive"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(ALGORITHMS, FAULTS, st.integers(0, 100), st.sampled_from([None, "rejoin", "elastic"]))
def test_no_run_hangs_and_time_never_goes_back(
    algorithm: str, faults: list[str], seed: int, recovery: str | None
) -> None:
    arguments: dict[str, Any] = {
        "algorithm": algorithm,
        "workers": 3,
        "updates": 25,
        "compute": "lognormal(1s, 0.3)",
        "latency": "10ms",
        "timeline": False,
        "fault": faults,
    }
    if algorithm.startswith("local-sgd"):  # which has neither servers nor messages
        faults[:] = [fault for fault in faults if "server" not in fault and "lose" not in fault]
        assume(faults)
    stops_worker = any("stop" in fault and "server" not in fault for fault in faults)
    if algorithm in SYNCHRONOUS and recovery and stops_worker:
        arguments["recovery"] = recovery
    if any("lose" in fault for fault in faults):
        arguments["resend_after"] = "500ms"
    restarts = algorithm in SYNCHRONOUS and stops_worker and not recovery
    if restarts or any("server" in fault for fault in faults):
        arguments |= COSTS
    begun = 0

    def request(self: Numerics, client: int, parameters: Any) -> Numerics:
        nonlocal begun
        begun += 1
        return self

    def request_steps(self: Numerics, client: int, parameters: Any, steps: LocalSteps) -> Numerics:
        nonlocal begun
        begun += steps.count
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Numerics, "request", request)
        patch.setattr(Numerics, "request_steps", request_steps)
        result = timed(seed, **arguments)
    assert result.summary.status == "done"
    assert result.summary.updates == 25
    times = [row.virtual_time for row in all_rows(result)]  # type: ignore[attr-defined]
    assert times == sorted(times)
    found = result.summary.failures
    assert found is not None
    assert found.effective + found.lost + found.saving + found.restarting == pytest.approx(1)
    # Every gradient is applied, dropped, lost, or under way: at most four a worker (easgd).
    assert found.lost_gradients is not None
    applied = result.summary.examples // TrainConfig.model_fields["batch"].default
    assert 0 <= begun - applied - result.summary.dropped - found.lost_gradients <= 3 * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fault": "stop(1s) on worker 4 at 1s"}, "no worker 4; there are 4, from 0"),
        ({"fault": "stop(1s) on server 1 at 1s", **COSTS}, "no server 1; there are 1"),
        ({"fault": "stop(1s) on worker 1"}, "its time is missing"),
        ({"fault": "signflip at 1s"}, "training has stop, slow and lose"),
        ({"fault": "stale(1s) at 1s"}, "training has stop, slow and lose"),
        ({"fault": "stop(1s) on processor 1 at 1s"}, 'write "on worker 3"'),
        ({"fault": "stop(1s) on server 0 at 1s"}, "add --checkpoint-cost"),
        ({"fault": "stop(1s) on server 0 at 1s", "checkpoint_cost": "1s"}, "--checkpoint-every"),
        ({"fault": "stop on server 0 at 1s", **COSTS}, "which never returns: write stop"),
        ({"fault": "slow(2x, 1s) on server 0 at 1s"}, "has no effect: updates take no time"),
        ({"fault": "lose(1%)", "algorithm": "local-sgd"}, "sends no individual messages"),
        ({"fault": "stop(1s) on worker 0 at 1s", **COSTS}, "nothing restarts the job"),
        ({"fault": "lose(1%)", "recovery": "rejoin"}, "no worker fails"),
        ({"resend_after": "1s"}, "no message is lost"),
        ({"restart_cost": "1s"}, "no node fails at random"),
        ({"fault": "stop(1s) every 9s", "recovery": "elastic"}, "asgd .* has no elastic: use rej"),
        (
            {"fault": "stop(1s) every 9s", "recovery": "rejoin", "algorithm": "ad-psgd"},
            "ad-psgd .* has no rejoin: use restart",
        ),
        (
            {"fault": "stop(1s) every 9s", "recovery": "elastic", "algorithm": "ssgd",
             "servers": 2},
            "runs on 1 server, not 2",
        ),
        ({"mtbf": "1h a worker"}, "restart cost .*not specified"),
        ({"mtbf": "1h a worker", "restart_cost": "1s", "compute": "measured"}, "must be modelled"),
        ({"fault": "slow(0.5x, 1s) on worker 0 at 1s"}, "factor must be above 1"),
        ({"fault": "lose(0%)"}, "above 0%"),
        ({"fault": "lose(3)"}, "in percent"),
        ({"fault": "lose(1%) on 10%"}, 'write "on worker 3"'),
        ({"fault": "signflip on worker 3 at 1s"}, "data of a processor"),
        ({"fault": "lose(1%)", "clients": 9}, "come and go by --availability"),
        ({"fault": "stop(1s) every 9s", "algorithm": "scaffold"}, "scaffold cannot continue after"),
        ({"fault": "stop(1s) every 9s", "algorithm": "ssp(cache=true)"}, "cannot continue after"),
        ({"mtbf": "1h a worker", "algorithm": "ringmaster(stop=true)"}, "cannot continue after"),
        ({"mtbf": "1h a server", "algorithm": "delayed-nesterov"}, "cannot restart from"),
        ({"mtbf": "1h a server", "algorithm": "scaffold"}, "cannot restart from"),
        ({"fault": "stop(1s) every 9s", "compress": "topk(0.1)"}, "the codec's error feedback"),
        (
            {"fault": "stop(1s) every 9s", "recovery": "elastic", "algorithm": "streaming-diloco"},
            "streaming-diloco .* has no elastic: use restart",
        ),
    ],
)  # fmt: skip
def test_what_cannot_fail_so_is_refused(arguments: dict[str, Any], words: str) -> None:
    common = {"algorithm": "asgd", "workers": 4, "timing_only": True, "updates": 3}
    if arguments.get("compute") == "measured":
        common.pop("timing_only")
    with pytest.raises((InputError, ValidationError), match=words):
        train(TrainConfig.model_validate({**common, **arguments}))


def test_times_away_and_checkpoints_are_on_the_timeline() -> None:
    result = run(
        algorithm="asgd",
        workers=2,
        updates=6,
        timeline=True,
        fault="stop(2s) on worker 1 at 1.5s; stop(1s) on server 0 at 6.5s",
        **COSTS,
    )
    assert result.timeline is not None
    down = [span for span in result.timeline.spans if span.resource == "down"]
    assert ("worker1", "stopped", 1.5) in [(each.node, each.name, each.begin) for each in down]
    saved = {(each.begin, each.end) for each in down if each.name == "checkpoint"}
    assert (2.0, 2.5) in saved
    assert {each.node for each in down if each.name == "checkpoint"} == {
        *("worker0", "worker1", "server0")
    }
    # In the checkpoint nobody computes.
    for span in result.timeline.spans:
        if span.resource == "compute" and span.begin < 2.0 < span.end:
            assert span.end - span.begin == pytest.approx(1.5)
    assert np.all(np.asarray(result.timeline.spans.end) <= result.summary.virtual_time)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fault": "slow(2x, 1s) on worker 0 every 1ns"}, "every 1ns"),
        pytest.param(
            {"fault": "lose(1%, 1s) every 1ns", "resend_after": "1ms"},
            "every 1ns",
            marks=pytest.mark.slow,
        ),
        ({"fault": "stop(1s) on worker 0 every 1ns"}, "makes no progress"),
        (
            {
                "fault": "stop(1s) every 1ns",
                "algorithm": "ssgd",
                "checkpoint_cost": "1s",
                "checkpoint_every": "1s",
            },
            "makes no progress",
        ),
        (
            {"mtbf": "1ns a worker", "algorithm": "ssgd", "checkpoint_cost": "1s"},
            "makes no progress",
        ),
        pytest.param(
            {
                "fault": ["stop(1ms) on worker 0 every 1ns", "stop(1s) on server 0 at 1h"],
                "checkpoint_cost": "10s",
                "checkpoint_every": "1ns",
                "compute": "1us",
            },
            "makes no progress",
            marks=pytest.mark.slow,
        ),
        ({"availability": "onoff(0.6ms, 0.6ms)", "compute": "1h"}, "makes no progress"),
        pytest.param(
            {"availability": "onoff(0.6ms, 0.6ms)", "compute": "1h", "clients": 5},
            "makes no progress",
            marks=pytest.mark.slow,
        ),
        (
            {"fault": "lose(99.9999%)", "resend_after": "1ns", "bandwidth": "1MB/s"},
            "lost however often they are sent again",
        ),
    ],
)
def test_a_job_without_progress_is_given_up(arguments: dict[str, Any], message: str) -> None:
    """After so many failures, or periods that were looked at: within seconds, in one line."""
    with pytest.raises(InputError) as refused:
        train(validated(TrainConfig, {"timing_only": True, "updates": 20, **arguments}, "test"))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)

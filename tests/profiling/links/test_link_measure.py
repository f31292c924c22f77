"""Transfers that are really measured, and workers that die, fail or hang."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from paracosm.errors import InputError
from paracosm.profiling.environment import Environment
from paracosm.profiling.links import measure as measuring
from paracosm.profiling.links.measure import (
    KINDS,
    LinkSettings,
    Scenario,
    Team,
    WorkerError,
    measure_links,
    scenarios,
    seconds_per_byte,
    team,
)
from paracosm.profiling.samples import LinkTiming, spread_of

QUICK = LinkSettings(sizes=(1024, 65536), ranks=(2,), seconds=0.02)
REDUCE = Scenario("all_reduce", "gloo 2 processes", 2, processes=2, backend="gloo")


def quick(*kinds: str) -> LinkSettings:
    return LinkSettings(kinds=kinds, sizes=QUICK.sizes, ranks=(2,), seconds=0.02)


@pytest.mark.slow
def test_everything_that_a_cpu_has_is_measured() -> None:
    kept: list[LinkTiming] = []
    steps: list[tuple[int, int]] = []
    done = measure_links(quick(*KINDS), keep=kept.append, progress=lambda *s: steps.append(s))
    assert done.timings == kept
    assert done.failed == {}
    assert not done.interrupted
    left = {name for name in done.left_out if "device" not in name}
    assert left == set()
    measured = {(t.kind, t.scenario, t.size) for t in done.timings if t.environment.device == "cpu"}
    expected = {s for s in scenarios(KINDS, [2]) if not s.devices}
    assert measured == {(s.kind, s.name, size) for s in expected for size in QUICK.sizes}
    assert all(t.time.minimum > 0 and t.time.count >= 3 for t in done.timings)
    assert steps[-1][0] == steps[-1][1] == len(done.timings)


@pytest.mark.slow
def test_reducing_gradients_costs_a_core_more_the_more_there_are() -> None:
    """Each byte is copied at least twice, and added up: no core does 100 GB/s of that."""
    settings = LinkSettings(kinds=("ddp",), sizes=(1 << 20, 1 << 23), ranks=(2,), seconds=2.0)
    small, large = measure_links(settings).timings
    assert large.time.median > 2 * small.time.median
    cost = seconds_per_byte([small, large], 8)
    assert cost is not None
    assert 1e-11 < cost < 1e-7


def test_the_cost_of_a_byte_is_that_of_the_nearest_number_of_ranks() -> None:
    def timing(ranks: int, size: int, seconds: float, kind: str = "ddp") -> LinkTiming:
        here = Environment("cpu", "a chip", "torch 2.13.0", 1, "malloc pinned", "flushed")
        return LinkTiming(kind, "", size, ranks, here, spread_of([seconds]))

    known = [timing(2, 10, 1.0), timing(2, 30, 7.0), timing(8, 10, 9.0)]
    known.append(timing(8, 10, 100.0, "all_reduce"))
    assert seconds_per_byte(known, 3) == 8.0 / 40
    assert seconds_per_byte(known, 64) == 0.9
    assert seconds_per_byte(known[3:], 2) is None


def test_what_needs_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    done = measure_links(quick("device to device"))
    assert done.timings == []
    assert done.left_out == {
        "device to device, uni-direct": "needs 2 CUDA devices, here are 1",
        "device to device, bi-direct": "needs 2 CUDA devices, here are 1",
    }


def test_a_worker_that_dies_ends_its_scenario_with_one_line_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Team.run

    def deadly(self: Team, scenario: Scenario, size: int, times: int, rows: int) -> list[float]:
        if scenario.kind == "all_reduce" and size == 65536:
            os.kill(self._workers[1].pid, signal.SIGKILL)
        return run(self, scenario, size, times, rows)

    monkeypatch.setattr(Team, "run", deadly)
    done = measure_links(quick("all_reduce", "send_recv"))
    assert done.failed == {"all_reduce, gloo 2 processes": "worker 1 of 2 was ended by SIGKILL"}
    assert [(t.kind, t.size) for t in done.timings] == [
        ("all_reduce", 1024),
        ("send_recv", 1024),
        ("send_recv", 65536),
    ]


def test_a_worker_that_hangs_and_one_that_fails_are_named() -> None:
    with team(1, "gloo", 1024, timeout=60) as alone:
        (worker,) = alone._workers
        alone._timeout = 0.2
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"worker 0 of 1 did not answer within 0.2 s \(all_"):
            alone.run(REDUCE, 1024, 1, 1)
        alone._timeout = 60
        os.kill(worker.pid, signal.SIGCONT)
        with pytest.raises(WorkerError, match="worker 0 of 1: ValueError: Default process group"):
            alone.answers("all_reduce")
    assert worker.poll() is not None


class Pretended:
    """A team that says what each call took without making any."""

    def run(self, scenario: Scenario, size: int, times: int, rows: int) -> list[float]:
        return [size * 1e-9] * rows


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "team", lambda *_: contextlib.nullcontext(Pretended()))


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    pretend(monkeypatch)
    kept: list[LinkTiming] = []
    done = measure_links(quick("host copy"), keep=kept.append, progress=interrupt)
    assert done.interrupted
    assert [(t.scenario, t.size) for t in done.timings] == [
        ("uni-direct", 1024),
        ("uni-direct", 65536),
        ("bi-direct", 1024),
    ]
    assert kept == done.timings


def test_a_size_is_done_when_its_mean_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    steady = LinkSettings(kinds=("host copy",), sizes=(1000,), seconds=60)
    assert [t.time.count for t in measure_links(steady).timings] == [10, 10]
    assert all(t.time.median == pytest.approx(1e-6) for t in measure_links(steady).timings)


def test_bad_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least one size"):
        LinkSettings(sizes=())
    with pytest.raises(InputError, match="seconds must be above 0"):
        LinkSettings(seconds=0)
    monkeypatch.setattr(measuring, "team", lambda *_: pytest.fail("something was started"))
    with pytest.raises(InputError, match=r"messages of 1.1 TB need 2.199 TB of memory"):
        measure_links(LinkSettings(kinds=("host copy",), sizes=(2**40,)))

"""Sleeping until instants and calling functions at deadlines: never early, in order, not lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from paracosm.emulation.backend.threads import Completion, Sleeper

LEAD = 20e-3  # seconds: more than a future ever takes to wake a thread
PATIENCE = 20.0


@pytest.fixture
def completion() -> Iterator[Completion]:
    completion = Completion()
    completion.start()
    yield completion
    completion.close()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 50e-6, 300e-6, 5e-3])
def test_a_sleeper_never_returns_early(seconds: float):
    sleeper = Sleeper()
    sleeper.calibrate()
    instant = time.monotonic() + seconds
    assert not sleeper.until(instant)
    assert time.monotonic() >= instant


def test_a_sleeper_says_when_its_sleep_ended_before_its_time():
    asked: list[float] = []
    assert Sleeper().until(time.monotonic() + 5.0, lambda left: bool(asked.append(left)) or True)
    assert 0 < asked[0] < 5.0


def test_a_sleeper_learns_how_late_it_is_woken():
    sleeper = Sleeper()

    def late(seconds: float) -> bool:
        time.sleep(max(seconds, 0) + 200e-6)
        return False

    for _ in range(150):
        sleeper.until(time.monotonic() + 1e-3, late)
    assert sleeper.early > 150e-6


def test_calls_come_in_the_order_of_their_deadlines_and_not_before(completion: Completion):
    called: list[tuple[int, float]] = []
    last = threading.Event()
    now = time.monotonic()
    deadlines = [now + milliseconds * 1e-3 for milliseconds in (60, 20, 100, 20, 80)]

    def call(i: int) -> None:
        called.append((i, time.monotonic()))
        if len(called) == len(deadlines):
            last.set()

    for i, deadline in enumerate(deadlines):
        completion.at(deadline, lambda i=i: call(i))
    assert last.wait(PATIENCE)
    assert [i for i, _ in called] == [1, 3, 0, 4, 2]
    assert all(at > deadlines[i] - LEAD for i, at in called)
    assert len(completion.lateness) == 5
    assert min(completion.lateness) >= 0


def test_an_earlier_deadline_overtakes_one_that_is_slept_for(completion: Completion):
    overtaken = threading.Event()
    completion.at(time.monotonic() + 3600, overtaken.set)
    for _ in range(200):
        done = threading.Event()
        completion.at(time.monotonic() + 100e-6, done.set)
        assert done.wait(PATIENCE)
    assert not overtaken.is_set()


def test_calls_from_many_threads_are_all_made(completion: Completion):
    count = 0
    everything = threading.Event()

    def call() -> None:
        nonlocal count
        count += 1
        if count == 800:
            everything.set()

    def ask(thread: int) -> None:
        for i in range(100):
            completion.at(time.monotonic() + ((i * 37 + thread) % 11) * 1e-4, call)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert everything.wait(PATIENCE)


def test_closing_drops_what_is_due_later():
    completion = Completion()
    completion.start()
    called = threading.Event()
    completion.at(time.monotonic() + 3600, called.set)
    completion.close()
    assert not called.is_set()
    assert not any(thread.name == "paracosm-done" for thread in threading.enumerate())


def test_what_is_asked_of_an_ended_thread_is_done_in_time():
    completion, called = Completion(), list[float]()
    completion.start()
    completion.close()
    deadline = time.monotonic() + 0.02
    completion.at(deadline, lambda: called.append(time.monotonic()))
    assert called[0] >= deadline


def test_a_call_that_fails_is_shown_and_hinders_no_other(
    completion: Completion, capsys: pytest.CaptureFixture[str]
):
    future: torch.futures.Future[int] = torch.futures.Future()
    future.set_result(1)
    called = threading.Event()
    completion.at(time.monotonic(), lambda: future.set_result(2))
    completion.at(time.monotonic(), called.set)
    assert called.wait(PATIENCE)
    assert "completed Future" in capsys.readouterr().err

"""What compiled threads share: atomics, locks, the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from paracosm.compiled import compiled
from paracosm.relaxation.threads.atomics import (
    acquire,
    add,
    add_float,
    compare_and_swap,
    load,
    now,
    release,
    store,
)
from paracosm.relaxation.threads.measure import clock_overhead

THREADS, ROUNDS = 3, 20_000


@compiled
def _count(locks: Any, counts: Any, total: Any, rounds: Any) -> None:
    for _ in range(rounds):
        acquire(locks, 0)
        counts[0] += 1  # no atomic: only the lock keeps it right
        release(locks, 0)
        add(counts, 1, 1)
        add_float(total, 0, 0.5)


@compiled
def _swap(words: Any) -> Any:
    taken = compare_and_swap(words, 0, 0, 7)
    again = compare_and_swap(words, 0, 0, 9)
    before = add(words, 1, 5)
    store(words, 2, load(words, 0) + before)
    return taken, again


@compiled
def _clock() -> int:
    return int(now())


def together(job: Callable[[], None], threads: int) -> None:
    crew = [threading.Thread(target=job) for _ in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


def test_locks_and_atomic_additions_lose_nothing() -> None:
    locks, counts, total = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1)
    _count(locks, counts, total, 0)
    together(lambda: _count(locks, counts, total, ROUNDS), THREADS)
    assert counts.tolist() == [THREADS * ROUNDS, THREADS * ROUNDS]
    assert total[0] == THREADS * ROUNDS / 2
    assert locks[0] == 0


def test_compare_and_swap_sets_only_what_it_expects() -> None:
    words = np.array([0, 3, 0], np.int64)
    assert tuple(_swap(words)) == (True, False)
    assert words.tolist() == [7, 8, 10]


def test_the_clock_is_the_one_of_python() -> None:
    before = time.monotonic_ns()
    between = _clock()
    assert before <= between <= time.monotonic_ns()


def test_the_clock_costs_something_but_not_much() -> None:
    assert 1e-9 < clock_overhead() < 5e-6

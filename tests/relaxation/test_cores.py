"""Processors that share cores: round robin, from one queue."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.relaxation import relax
from paracosm.relaxation.problems import load_problem

PROBLEM = load_problem("laplace2d:4", seed=1)


def test_two_threads_take_turns_on_a_core() -> None:
    """An update needs 6 s, a check 4 s; each has the core for 4 s."""
    found = relax(
        PROBLEM, processors=1, time="copy=1s, compute=4s, update=1s", detect="processor(time=4s)",
        cores=1, time_slice=4.0, tolerance=None, max_time=24.0,
    )  # fmt: skip
    spans = found.spans
    own = spans.processor == 0
    # 0-4 the update: copied at 1; 8-12: computed at 9, done at 10, and the next one is copied at
    # 11; 16-20: computed at 19, done at 20. The check has 4-8, 12-16, 20-24.
    ends = [(0, 1, 9, 10), (10, 11, 19, 20)]
    rows = np.column_stack([spans.begin, spans.copied, spans.computed, spans.end])
    assert rows[own][:2].tolist() == [list(map(float, row)) for row in ends]
    assert spans.end[~own][:3].tolist() == [8.0, 16.0, 24.0]


def in_turns(
    durations: list[list[int]], cores: int, size: int, until: int
) -> list[tuple[int, int]]:
    """Return (end, thread) of all updates: a queue of threads, played second by second."""
    queue, counts = deque(range(len(durations))), [0] * len(durations)
    left = [duration[0] for duration in durations]
    ends, running = [], []
    for second in range(until):
        if second % size == 0:
            queue.extend(running)
            running = [queue.popleft() for _ in range(cores)]
        for who in sorted(running):
            left[who] -= 1
            if left[who] == 0:
                ends.append((second + 1, who))
                counts[who] += 1
                left[who] = durations[who][counts[who] % len(durations[who])]
    return ends


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_turns_are_those_of_a_queue(data: st.DataObject) -> None:
    threads = data.draw(st.integers(2, 6))
    cores, size = data.draw(st.integers(1, threads - 1)), data.draw(st.integers(1, 7))
    lasting = st.lists(st.integers(1, 40), min_size=1, max_size=3)
    durations = [data.draw(lasting) for _ in range(threads)]
    times = [
        f"recorded({', '.join(f'{d}s' for d in duration)}, cycle=true)" for duration in durations
    ]
    found = relax(
        PROBLEM, time=times, cores=cores, time_slice=float(size), tolerance=None, max_time=200.0
    )
    done = found.spans.end <= 200.0
    ends = np.column_stack([found.spans.end, found.spans.processor])[done].tolist()
    assert sorted(ends) == [list(turn) for turn in in_turns(durations, cores, size, 200)]


def test_a_processor_for_each_core_waits_for_none() -> None:
    given = {"processors": 4, "time": "normal(10, 2)", "max_sweeps": 30}
    free, own = (relax(PROBLEM, **given, **more) for more in ({}, {"cores": 4, "time_slice": 1.0}))
    assert own.x.tobytes() == free.x.tobytes()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cores": 2}, "go together"),
        ({"cores": 2, "time_slice": 0.0}, "above 0"),
        ({"cores": 2, "time_slice": 1.0, "synchronous": True}, "asynchronous"),
        ({"cores": 2, "time_slice": 1.0, "latency": 1e-3}, "distributed"),
    ],
)
def test_what_has_no_meaning_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        relax(PROBLEM, **given)


def test_slices_that_the_clock_cannot_tell_apart_share_cores_evenly() -> None:
    run = relax(
        PROBLEM, processors=4, time="constant(1)", cores=1, time_slice=1e-300, tolerance=None,
        max_time=20.5,
    )  # fmt: skip
    # Each update takes four seconds beside three others.
    assert sum(run.updates) == 4 * 5

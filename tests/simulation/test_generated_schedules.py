"""Schedules by hand, what must hold of all, and their file. Seconds unless said."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster import Link, star
from paracosm.errors import InputError
from paracosm.files import sealing
from paracosm.simulation.rules import Rule, asgd, backup, fedbuff, rennala, softsync, ssgd, ssp
from paracosm.simulation.schedule import Schedule, read_schedule
from paracosm.simulation.scheduling import generate_schedule

SECOND = 10**12


def schedule(
    rule: Rule, compute: list[float], updates: int, link: Link | None = None, servers: int = 1
) -> Schedule:
    cluster = star(len(compute), servers, link or Link(sharing="fair"))
    return generate_schedule(cluster, rule, [1.0] * servers, updates, [repeat(c) for c in compute])


def rows(table: np.ndarray) -> list[tuple[float, ...]]:
    """Return the rows with times in seconds."""
    found = []
    for row in table:
        times = {
            name: row[name].item() / SECOND
            for name in ("time", "begin", "end")
            if name in table.dtype.names
        }
        found.append(tuple(times.get(name, row[name].item()) for name in table.dtype.names))
    return found


def test_two_workers_take_turns() -> None:
    """Computing takes 1, a message 1. Pushes from 1 to 2 and 2 to 3, answers 2 to 3 and 3 to 4.

    Worker 0 computes again until 4 and pushes to 5, worker 1 until 5 and pushes to 6.
    """
    got = schedule(asgd(), [1.0, 1.0], 4, Link(bandwidth=1.0, sharing="serial"))
    assert rows(got.updates) == [
        (2, 0, 0, 0, 1, 0),
        (3, 1, 0, 0, 2, 0),
        (5, 0, 1, 0, 3, 1),
        (6, 1, 1, 0, 4, 2),
    ]
    assert got.staleness.tolist() == [0, 1, 1, 1]
    assert rows(got.reads) == [(2, 0, 1, 0, 1), (3, 1, 1, 0, 2), (5, 0, 2, 0, 3), (6, 1, 2, 0, 4)]
    assert rows(got.steps) == [(0, 0, 0, 3, 1), (1, 0, 0, 4, 1), (0, 1, 3, 6, 1), (1, 1, 4, 7, 1)]
    assert got.end == 7 * SECOND
    # Worker 0 computes from 0, 3 and 6; each has two messages either way, of a second each.
    assert got.busy["worker0"] == pytest.approx({"compute": 3, "send": 2, "receive": 2})
    assert got.busy["worker1"] == pytest.approx({"compute": 2, "send": 2, "receive": 2})
    assert got.busy["server0"] == pytest.approx({"compute": 0, "send": 4, "receive": 4})


def test_two_workers_share() -> None:
    """Both push from 1 to 3 and get their answers from 3 to 5, versions 1 and 2."""
    got = schedule(asgd(), [1.0, 1.0], 2, Link(bandwidth=1.0, sharing="fair"))
    assert rows(got.updates) == [(3, 0, 0, 0, 1, 0), (3, 1, 0, 0, 2, 0)]
    assert got.end == 5 * SECOND
    assert got.busy["server0"] == pytest.approx({"compute": 0, "send": 2, "receive": 2})


def test_synchronous_workers_wait_for_the_slowest() -> None:
    got = schedule(ssgd(2), [1.0, 3.0], 2)
    assert rows(got.updates) == [
        (3, 0, 0, 0, 1, 0),
        (3, 1, 0, 0, 1, 0),
        (6, 0, 1, 0, 2, 1),
        (6, 1, 1, 0, 2, 1),
    ]


def test_nobody_is_further_ahead_than_the_slack() -> None:
    """Worker 1 takes 3.5. Slack 0: in step. Slack 1: worker 0's second gradient waits for it."""
    assert [row[0] for row in rows(schedule(ssp(0), [1.0, 3.5], 4).updates)] == [1, 3.5, 4.5, 7]
    ahead = rows(schedule(ssp(1), [1.0, 3.5], 6).updates)
    assert [row[:2] for row in ahead] == [(1, 0), (2, 0), (3.5, 1), (4.5, 0), (7, 1), (8, 0)]


def test_a_worker_is_answered_before_its_gradient_is_applied() -> None:
    """Of two gradients an update: worker 0's at 1 and 2, worker 1's at 2.5 with worker 0's at 3."""
    for rule in (softsync(2, 1), fedbuff(2)):
        got = schedule(rule, [1.0, 2.5], 2)
        assert rows(got.updates) == [
            (2, 0, 0, 0, 1, 0),
            (2, 0, 1, 0, 1, 0),
            (3, 1, 0, 0, 2, 0),
            (3, 0, 2, 0, 2, 1),
        ]
        assert got.staleness.tolist() == [0, 0, 1, 0]


def test_late_gradients_are_dropped() -> None:
    """Two of three workers are waited for, at 2, 4 and 6. The third gradient, at 4.5, is late."""
    got = schedule(backup(3, 1), [1.0, 2.0, 4.5], 3)
    assert [row[:2] for row in rows(got.updates)] == [
        *((2, 0), (2, 1)),
        *((4, 0), (4, 1)),
        *((6, 0), (6, 1)),
    ]
    assert got.dropped == 1
    assert [row for row in rows(got.steps) if row[0] == 2] == [(2, 0, 0, 4.5, 0)]
    assert (4.5, 2, 1, 0, 2) in rows(got.reads)


def test_a_fast_worker_brings_several_of_the_fresh_gradients() -> None:
    """Of three, worker 0 brings two. Late are its own of 3, read at 2, and worker 2's of 4.25."""
    got = schedule(rennala(3), [1.0, 2.6, 4.25], 2)
    assert [row[:2] for row in rows(got.updates)] == [
        *((2.6, 0), (2.6, 0), (2.6, 1)),
        *((5.2, 0), (5.2, 0), (5.2, 1)),
    ]
    assert got.dropped == 2
    assert [row[2:] for row in rows(got.steps) if not row[-1]] == [(2, 3, 0), (0, 4.25, 0)]


def test_a_schedule_ends_before_the_clock_does() -> None:
    with pytest.raises(InputError, match="106 days"):
        schedule(asgd(), [5e6, 5e6], 5)


def test_a_schedule_is_read_as_it_was_written(tmp_path: Path) -> None:
    got = schedule(ssp(1), [1.0, 2.5], 20, Link(bandwidth=4.0, sharing="fair"), servers=2)
    got = replace(got, tensors=("0.weight", "0.bias"))
    got.write(tmp_path / "schedule.parquet")
    again = read_schedule(tmp_path / "schedule.parquet")
    for name in ("reads", "updates", "steps"):
        assert getattr(again, name).tolist() == getattr(got, name).tolist()
    assert (again.end, again.dropped, again.tensors) == (got.end, got.dropped, got.tensors)


RULES = st.one_of(
    st.just(lambda workers: asgd()),
    st.just(ssgd),
    st.integers(0, 3).map(lambda slack: lambda workers: ssp(slack)),
    st.integers(1, 5).map(lambda k: lambda workers: fedbuff(k)),
    st.just(lambda workers: backup(workers, workers // 2)),
    st.integers(1, 5).map(lambda k: lambda workers: rennala(k)),
)


@settings(deadline=None, max_examples=100)
@given(
    rule=RULES,
    workers=st.integers(1, 6),
    servers=st.integers(1, 2),
    updates=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    sharing=st.sampled_from(["serial", "fair"]),
)
def test_reads_and_updates_fit_together(
    rule: object, workers: int, servers: int, updates: int, seed: int, sharing: str
) -> None:
    made: Rule = rule(workers)  # type: ignore[operator]
    servers = 1 if made.drops_late else servers
    rng = np.random.default_rng(seed)
    cluster = star(workers, servers, Link(bandwidth=2.0, latency=0.1, sharing=sharing))  # type: ignore[arg-type]
    durations = [iter(rng.uniform(0.5, 2.0, 3000).tolist()) for _ in range(workers)]
    got = generate_schedule(cluster, made, [1.0] * servers, updates, durations)
    read = {(int(r["worker"]), int(r["step"]), int(r["tensor"])): r for r in got.reads}
    assert len(read) == len(got.reads)
    assert (np.diff(got.updates["time"]) >= 0).all()
    assert (np.diff(got.reads["time"]) >= 0).all()
    for tensor in range(servers):
        own = got.updates[got.updates["tensor"] == tensor]
        assert own["version"].tolist() == np.repeat(np.arange(1, updates + 1), made.pushes).tolist()
        for row in own:
            key = int(row["worker"]), int(row["step"]), tensor
            if row["step"] > 0:
                assert row["read"] == read[key]["version"]
                assert row["time"] > read[key]["time"]
            else:
                assert row["read"] == 0
    for worker in range(workers):
        own = got.steps[got.steps["worker"] == worker]
        assert own["step"].tolist() == list(range(len(own)))
        assert (own["begin"][1:] == own["end"][:-1]).all()


@pytest.mark.parametrize(
    ("value", "why"),
    [(2**62, "are no int32"), (None, "has empty fields"), (-1, "is negative")],
)
def test_a_number_that_does_not_fit_its_column_is_refused(
    value: int | None, why: str, tmp_path: Path
) -> None:
    schedule(asgd(), [1.0, 1.5], 6).write(tmp_path / "whole.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "whole.parquet")
    steps = table["step"].to_pylist()
    steps[table["what"].to_pylist().index("steps")] = value
    place = table.schema.get_field_index("step")
    damaged = table.set_column(place, "step", pyarrow.array(steps, pyarrow.int64()))
    with sealing(tmp_path / "damaged.parquet") as file:
        pyarrow.parquet.write_table(damaged, file)
    with pytest.raises(InputError, match=why):
        read_schedule(tmp_path / "damaged.parquet")


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ({}, "end, dropped or tensors"),
        ({"end": "[1]", "dropped": "0", "tensors": "[]"}, "end, dropped or tensors"),
    ],
)
def test_a_schedule_that_does_not_say_its_end_is_refused(
    described: dict[str, str], why: str, tmp_path: Path
) -> None:
    schedule(asgd(), [1.0, 1.5], 6).write(tmp_path / "whole.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "whole.parquet")
    with sealing(tmp_path / "damaged.parquet") as file:
        pyarrow.parquet.write_table(table.replace_schema_metadata(described), file)
    with pytest.raises(InputError, match=why):
        read_schedule(tmp_path / "damaged.parquet")

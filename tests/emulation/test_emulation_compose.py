"""Iterations put together from measured computing: every expected time is found by hand.

Two ranks on a link of 1 GB/s: an all-reduce of 10 MB takes 10 ms and moves 20 MB.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.emulation.check import check_emulation
from paracosm.emulation.compose import compose
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.records import (
    CPU_FOR_CUDA,
    MEASUREMENT,
    Collective,
    Group,
    Iteration,
    Note,
    Record,
    Wait,
    load_records,
    write_records,
)
from paracosm.emulation.run import run_emulation
from paracosm.emulation.summary import summarise
from paracosm.errors import InputError
from paracosm.report.runs import answer
from paracosm.validation import validated

MS = 1e-3
SIZE = 10_000_000
LINK = {"bandwidth": "8Gbit/s"}


def job(**given: Any) -> EmulateConfig:
    return validated(EmulateConfig, {"script": "train.py", "workers": 2, **given}, "here")


class Script:
    """Records what a script does that computes and asks on a clock of its own."""

    def __init__(self, use: float = 1.0, timeout: float = 1800.0) -> None:
        self.now, self.use = 100.0, use
        self.records: list[Record] = [Group(0, "0", 2, (0, 1), "gloo", timeout)]
        self.asked = self.iterations = 0

    def compute(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, size: int = SIZE, takes: float = 0.0) -> int:
        begin, self.now = self.now, self.now + takes
        times = (begin, begin, begin, self.now)
        which = Collective(0, "0", self.asked, "all_reduce", size, -1, *times, -2)
        self.records.append(which)
        self.asked += 1
        return which.number

    def wait(self, number: int = -1, handling: float = 0.0) -> None:
        begin, self.now = self.now, self.now + handling
        self.records.append(Wait(0, begin, self.now, "0" if number >= 0 else "", number))

    def end(self) -> None:
        self.records.append(Iteration(0, self.iterations, self.now, self.use * self.now, 1))
        self.iterations += 1


def iteration_times(records: list[Record]) -> list[float]:
    ends = [record.end for record in records if isinstance(record, Iteration)]
    return [after - before for before, after in itertools.pairwise(ends)]


def bucketed(script: Script, iterations: int = 3) -> None:
    """20 ms forward, two buckets 15 ms apart, 5 ms more; 2 ms to handle the results."""
    for _ in range(iterations):
        script.compute(20 * MS)
        script.ask()
        script.compute(15 * MS)
        script.ask()
        script.compute(5 * MS)
        script.wait(handling=2 * MS)
        script.end()


def test_a_wait_lasts_until_what_it_waits_for_is_done() -> None:
    script = Script()
    bucketed(script)
    # The first bucket is done at 30 ms, the second at 45; the wait begins at 40. A half of the
    # handling, for the first, passes before the second has come.
    assert iteration_times(compose(job(**LINK), 0, script.records)) == pytest.approx([46 * MS] * 2)


def test_faster_computing_leaves_what_communication_takes() -> None:
    script = Script()
    bucketed(script)
    faster = compose(job(**LINK, what_if=["compute: 50x faster"]), 0, script.records)
    # The buckets are asked for at 0.4 and 0.7 ms, and share the port until 20.1 and 20.4 ms; half
    # of the handling, which is computing, follows on the second.
    assert iteration_times(faster) == pytest.approx([20.42 * MS] * 2)
    # Others that compute half as long wait for this rank; those that compute twice as long make
    # it wait: it has computed 40 ms in all when it waits.
    own = compose(job(**LINK, what_if=["worker 0: compute 2x slower"]), 0, script.records)
    assert iteration_times(own) == pytest.approx([84 * MS] * 2)


def test_without_communication_only_computing_is_left() -> None:
    script = Script()
    bucketed(script)
    composed = compose(job(communication="none"), 0, script.records)
    assert iteration_times(composed) == pytest.approx([42 * MS] * 2)


def test_what_a_call_takes_here_is_no_computing() -> None:
    script = Script()
    for _ in range(3):
        script.compute(20 * MS)
        script.wait(script.ask(takes=7 * MS))
        script.end()
    times = iteration_times(compose(job(**LINK), 0, script.records))
    assert times == pytest.approx([30 * MS] * 2)


def test_a_wait_for_one_leaves_others_under_way() -> None:
    script = Script()
    for _ in range(2):
        first, second = script.ask(), script.ask()
        script.wait(first)
        script.compute(1 * MS)
        script.wait(second)
        script.end()
    # Two comm workers share the link: both are done at 20 ms.
    times = iteration_times(compose(job(**LINK), 0, script.records))
    assert times == pytest.approx([21 * MS])
    # One comm worker takes them one after the other: the first is done at 10 ms.
    composed = compose(job(**LINK, comm_workers=1), 0, script.records)
    spans = [each for each in composed if isinstance(each, Collective)]
    assert spans[1].begun - spans[0].asked == pytest.approx(10 * MS)
    assert {span.worker for span in spans} == {0}


def test_communication_takes_its_share_of_the_core() -> None:
    script = Script()
    for _ in range(2):
        number = script.ask()
        script.compute(20 * MS)
        script.wait(number)
        script.end()
    assert iteration_times(compose(job(**LINK), 0, script.records)) == pytest.approx([20 * MS])
    # 20 MB at 4 GB/s: 5 of the 10 ms. Computing goes on at half its speed meanwhile.
    shared = compose(job(**LINK, core_bandwidth="4GB/s"), 0, script.records)
    assert iteration_times(shared) == pytest.approx([25 * MS])


def test_a_rank_that_sleeps_leaves_its_core_to_communication() -> None:
    script = Script(use=0.0)
    for _ in range(2):
        number = script.ask()
        script.compute(20 * MS)
        script.wait(number)
        script.end()
    composed = compose(job(**LINK, core_bandwidth="4GB/s"), 0, script.records)
    assert iteration_times(composed) == pytest.approx([20 * MS])


def test_no_link_is_faster_than_the_core_that_feeds_it() -> None:
    script = Script()
    for _ in range(2):
        number = script.ask()
        script.compute(20 * MS)
        script.wait(number)
        script.end()
    # 20 MB at 0.5 GB/s: the core is busy for 40 ms, and computes for 20.
    config = job(bandwidth="800Gbit/s", core_bandwidth="500MB/s")
    assert iteration_times(compose(config, 0, script.records)) == pytest.approx([60 * MS])


def test_a_straggler_holds_up_what_it_takes_part_in() -> None:
    script = Script()
    for _ in range(4):
        script.compute(20 * MS)
        script.wait(script.ask())
        script.end()
    config = job(**LINK, what_if="worker 1: compute 1.5x slower")
    assert iteration_times(compose(config, 0, script.records))[1:] == pytest.approx([40 * MS] * 2)


def test_changes_differ_from_the_unchanged_job_by_themselves() -> None:
    script = Script()
    for iteration in range(12):
        script.compute((20 + iteration % 5) * MS)
        script.wait(script.ask())
        script.end()
    before = iteration_times(compose(job(**LINK), 0, script.records))
    after = iteration_times(compose(job(**LINK, what_if="all_reduce: +3 ms"), 0, script.records))
    assert [b - a for a, b in zip(before, after, strict=True)] == pytest.approx([3 * MS] * 11)


def test_what_takes_longer_than_a_group_waits_is_said_once() -> None:
    script = Script(timeout=5 * MS)
    for _ in range(3):
        script.wait(script.ask())
        script.end()
    notes = [each for each in compose(job(**LINK), 0, script.records) if isinstance(each, Note)]
    assert len(notes) == 1
    assert "a real group gives up after" in notes[0].text


@given(
    st.lists(
        st.tuples(st.floats(1e-4, 0.05), st.integers(1, 30), st.floats(1e-4, 0.05)),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([None, "1GB/s", "20GB/s"]),
)
def test_communication_hides_as_far_as_the_core_allows(
    iterations: list[tuple[float, int, float]], core: str | None
) -> None:
    script = Script()
    for before, megabytes, after in iterations:
        script.compute(before)
        number = script.ask(megabytes * 1_000_000)
        script.compute(after)
        script.wait(number)
        script.end()
    times = iteration_times(compose(job(**LINK, core_bandwidth=core), 0, script.records))
    per_megabyte = 2e-3 if core == "1GB/s" else 1e-3  # the core's, which is then the slower one
    taken = {None: 0.0, "1GB/s": 2e-3, "20GB/s": 1e-4}[core]
    for (before, megabytes, after), time in zip(iterations[1:], times, strict=True):
        communication, core_time = megabytes * per_megabyte, megabytes * taken
        beside = communication - core_time  # what can be computed while it is under way
        expected = before + (communication if after <= beside else after + core_time)
        assert time == pytest.approx(expected)


def test_a_rank_without_a_core_makes_noisy_numbers() -> None:
    script = Script()
    bucketed(script, iterations=12)
    quiet = compose(config := job(**LINK), 0, script.records)
    assert summarise(config, quiet, 0, script.records).status == "done"
    busy = [
        record
        if not isinstance(record, Iteration)
        else Iteration(0, record.number, record.end, 0.0, 1, 21 * MS * record.number)
        for record in script.records
    ]
    summary = summarise(config, compose(config, 0, busy), 0, busy)
    assert summary.status == "noisy"
    # 21 ms an iteration, beside 42 ms with one. The first collective came at 20 ms.
    assert summary.noise == ["rank 0 waited for a core 33% of the time"]
    assert summary.wall_time == pytest.approx(12 * 42 * MS - 20 * MS + 11 * 21 * MS)


def test_iterations_that_scatter_make_noisy_numbers() -> None:
    script = Script()
    for iteration in range(12):
        script.compute((20 if iteration % 2 else 40) * MS)
        script.wait(script.ask(8))
        script.end()
    composed = compose(config := job(**LINK), 0, script.records)
    assert summarise(config, composed, 0, script.records).status == "noisy"
    assert summarise(config, composed, 1, script.records).status == "failed"


def test_the_answer_says_what_twice_the_bandwidth_brings(tmp_path: Path) -> None:
    script = Script()
    bucketed(script, iterations=6)
    write_records(script.records, tmp_path / MEASUREMENT)
    summary = run_emulation(job(**LINK, measured=tmp_path)).summary
    assert summary.iteration_time is not None
    assert summary.iteration_time.median == pytest.approx(46 * MS)
    # At 2 GB/s the second bucket is done at 40 ms, when the wait begins: only the handling is left.
    assert summary.twice_bandwidth == pytest.approx(42 * MS)
    said = answer(summary)
    # One rank alone takes 42 ms, as no result is handled later than the others.
    share = ", 91.3 % of 2 times one rank's throughput: "
    assert said.startswith(f"In a world of 2, an iteration takes 46 ms{share}")
    assert said.endswith(", most of it for all-reduce; with twice the bandwidth 42 ms.")
    none = dict.fromkeys(("count", "bytes", "time", "exposed", "hidden"), 0.0)
    outside = none | {"count": 1, "exposed": 9.0, "per_iteration": none}  # before the first one
    more = replace(summary, collectives={**(summary.collectives or {}), "broadcast": outside})
    assert answer(more) == said
    write_records([*script.records, Note(0, False, CPU_FOR_CUDA)], tmp_path / MEASUREMENT)
    said = answer(run_emulation(job(**LINK, measured=tmp_path)).summary)
    on_cpu = " with this CPU's computing"
    assert said.startswith(f"In a world of 2, an iteration takes 46 ms{on_cpu}{share}")
    changed = job(**LINK, measured=tmp_path, what_if=("all_reduce: none",))
    assert f" instead of 46 ms,{on_cpu}, 100 % of 2 " in answer(run_emulation(changed).summary)
    unlinked = answer(run_emulation(job(measured=tmp_path)).summary)
    assert unlinked.endswith(". Assuming links that take no time.")
    free = run_emulation(job(bandwidth="inf", measured=tmp_path)).summary
    assert free.twice_bandwidth is None  # it waits for nothing


def test_one_measurement_serves_every_world_of_a_data_parallel_script(tmp_path: Path) -> None:
    script = Script()
    begin = Collective(0, "0", 0, "all_gather", 16, -1, *[100.0] * 4, -2, "job.py:7")
    script.records.append(begin)
    script.asked = 1
    bucketed(script)
    write_records(script.records, tmp_path / MEASUREMENT)
    of_four = job(**LINK, measured=tmp_path, workers=4)
    check_emulation(of_four)
    result = run_emulation(of_four)
    # A ring of four takes 2 * 3/4 of 10 MB at 1 GB/s: the second bucket is done at 50 ms.
    assert iteration_times(list(result.records)) == pytest.approx([51 * MS] * 2)
    assert next(record.size for record in result.records if isinstance(record, Collective)) == 32
    texts = [note["text"] for note in result.summary.notes]
    assert any("measured in a world of 2 ranks" in text for text in texts)
    late = replace(begin, number=99, asked=script.now, done=script.now)
    write_records([*script.records, late], tmp_path / MEASUREMENT)
    with pytest.raises(InputError, match=r"2 ranks, not 4, and all_gather at job\.py:7 may"):
        check_emulation(of_four)
    check_emulation(job(**LINK, measured=tmp_path))


GROUP = ["g", 0, "0", 2, [0, 1], "gloo", 1800.0]
COLLECTIVE = ["c", 0, "0", 0, "all_reduce", 8, -1, 1.0, 1.0, 1.0, 2.0, -2, "job.py:1"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([GROUP, []], "line 2: no record"),
        ([GROUP, [[], 1]], "line 2: no record"),
        ([GROUP, [*COLLECTIVE, 1]], "line 2: no record"),
        ([GROUP, COLLECTIVE[:9]], "line 2: no record"),
        ([GROUP, [*COLLECTIVE[:5], "8", *COLLECTIVE[6:]]], "'8' cannot stand as size"),
        ([GROUP, [*COLLECTIVE[:10], nan, *COLLECTIVE[11:]]], "nan cannot stand as done"),
        ([GROUP, [*COLLECTIVE[:10], 0.5, *COLLECTIVE[11:]]], "ends before it begins"),
        ([GROUP, ["w", 0, 2.0, 1.0]], "ends before it begins"),
        ([GROUP, [*COLLECTIVE[:4], "reduce_all", *COLLECTIVE[5:]]], "did you mean"),
        ([GROUP, COLLECTIVE, COLLECTIVE], "line 3: number 0 of its kind is there twice"),
        ([COLLECTIVE], 'the unknown group "0"'),
        ([[*GROUP[:4], [0, 2], *GROUP[5:]]], "not among 2"),
    ],
)
def test_damaged_records(tmp_path: Path, lines: list[Any], words: str) -> None:
    path = tmp_path / MEASUREMENT
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(InputError) as raised:
        load_records(path)
    assert words in str(raised.value)

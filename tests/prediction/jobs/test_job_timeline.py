"""Timelines of ranks, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hand_made_jobs import MS, data_parallel, two_stages

from paracosm.errors import InputError
from paracosm.prediction.timeline_ranks import MOST, parse_ranks, shown_ranks
from paracosm.simulation import replay_job
from paracosm.simulation.breakdown import job_timeline
from paracosm.timeline.perfetto import write_trace


def test_waiting_and_the_operation_are_two_spans() -> None:
    schedule = replay_job(data_parallel(10, 3, (1.0, 0.5)))
    spans = list(job_timeline(schedule, (0, 1)).spans)
    assert [(span[0], span[1], span[2]) for span in spans] == [
        ("worker0", "compute", "step"),
        ("worker0", "communication", "wait: all-reduce"),
        ("worker0", "communication", "all-reduce"),
        ("worker1", "compute", "step"),
        ("worker1", "communication", "all-reduce"),
    ]
    waited = spans[1]
    assert (waited[3], waited[4]) == (pytest.approx(10 * MS), pytest.approx(20 * MS))


def test_messages_between_shown_ranks_are_arrows(tmp_path: Path) -> None:
    schedule = replay_job(two_stages(2, forward=1, backward=2, transfer=0.5))
    both = job_timeline(schedule, (0, 1))
    flows = [span[5] for span in both.spans if span[5] >= 0]
    assert sorted(flows) == [0, 0, 1, 1, 2, 2, 3, 3]
    write_trace(both, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["ph"] for event in events if event["ph"] in "sf"].count("f") == 4
    memory = [counter[3] for counter in both.counters if counter[0] == "worker1"]
    assert memory == [2000, 2100, 2200]
    alone = job_timeline(schedule, (1,))
    assert {span[0] for span in alone.spans} == {"worker1"}
    assert all(span[5] == -1 for span in alone.spans)


def test_the_message_of_a_receive_begins_when_it_is_sent() -> None:
    schedule = replay_job(two_stages(1, forward=1, backward=2, transfer=0.5))
    receives = [span for span in job_timeline(schedule, (1,)).spans if span[1] == "receive"]
    assert [
        (receive[2], round(receive[3] / MS, 6), round(receive[4] / MS, 6)) for receive in receives
    ] == [
        ("wait: receive forward", 0, 1),
        ("receive forward", 1, 1.5),
    ]


def test_one_rank_of_each_class_is_shown_and_at_most_so_many() -> None:
    alike = replay_job(data_parallel(1, 1, (1.0,) * 8))
    assert shown_ranks(alike, None) == (0,)
    assert shown_ranks(alike, "all") == tuple(range(8))
    assert shown_ranks(alike, "7,1..3,2") == (7, 1, 2, 3)
    assert len(job_timeline(alike, (7,)).spans) == 2
    different = replay_job(data_parallel(1, 1, tuple(1 + rank / 10 for rank in range(40))))
    shown = shown_ranks(different, None)
    assert len(shown) == len(set(shown)) == MOST
    assert (shown[0], shown[-1]) == (0, 39)


@pytest.mark.parametrize("text", ["", "a", "3..1", "1,,2", "9" * 5000])
def test_ranks_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match=r"write 0,8\.\.15, or all"):
        parse_ranks(text)


def test_a_rank_that_is_not_there() -> None:
    schedule = replay_job(data_parallel(1, 1, (1.0, 1.0)))
    with pytest.raises(InputError, match="there is no rank 2: ranks are 0 to 1"):
        shown_ranks(schedule, "0,2")
    with pytest.raises(InputError, match="there is no rank 99999999999: ranks are 0 to 1"):
        shown_ranks(schedule, "1..99999999999")

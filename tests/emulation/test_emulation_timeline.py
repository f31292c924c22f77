"""The timeline of a made-up job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import made_up_records

from paracosm.emulation.records import Collective, Iteration, Note, Record, Wait
from paracosm.emulation.result import timeline_of
from paracosm.timeline.analysis import busy_time, check


def test_a_rank_computes_waits_and_communicates_on_its_workers() -> None:
    timeline = timeline_of(made_up_records(iterations=2))
    assert {span[:2] for span in timeline.spans} == {
        ("rank0", resource) for resource in ("compute", "wait", "comm 0 0", "comm 0 1")
    }
    # The first record is of the first all-reduce, 20 ms after the first iteration began.
    reduces = [span for span in timeline.spans if span[1] == "comm 0 1"]
    assert reduces[0][2] == "all_reduce 1.049 MB"
    assert reduces[0][3:5] == (pytest.approx(0.022), pytest.approx(0.060))
    waits = [span for span in timeline.spans if span[1] == "wait"]
    assert [span[2] for span in waits[:2]] == [
        "wait for all_reduce 1.049 MB",
        "wait for broadcast 8 B",
    ]


def test_computing_is_named_by_its_iteration_and_cut_where_one_ends() -> None:
    timeline = timeline_of(made_up_records(iterations=2))
    spans = [(span[2], *span[3:5]) for span in timeline.spans if span[1] == "compute"]
    assert [name for name, *_ in spans] == ["iteration 0"] * 3 + ["iteration 1"] * 3
    assert spans[2][1:] == (pytest.approx(0.075), pytest.approx(0.080))
    assert spans[3][1:] == (pytest.approx(0.080), pytest.approx(0.140))


def test_computing_and_waiting_fill_the_time_and_nothing_overlaps() -> None:
    timeline = timeline_of(made_up_records(iterations=5))
    assert check(timeline, ("compute", "wait", "comm 0 0", "comm 0 1")) == []
    busy = busy_time(timeline, until=1e9)
    last = max(span[4] for span in timeline.spans)
    assert busy["rank0", "compute"] + busy["rank0", "wait"] == pytest.approx(last)


def test_an_iteration_that_ends_in_a_wait_cuts_nothing() -> None:
    records: list[Record] = [
        Collective(0, "0", 0, "barrier", 0, -1, 10.0, 10.0, 10.0, 13.0),
        Wait(0, 11.0, 13.0),
        Iteration(0, 0, 12.0, 0.0, 0),
        Iteration(0, 1, 15.0, 0.0, 0),
    ]
    timeline = timeline_of(records)
    computing = [span[2:5] for span in timeline.spans if span[1] == "compute"]
    assert computing == [("iteration 0", 0.0, 1.0), ("iteration 1", 3.0, 5.0)]
    assert [span[2] for span in timeline.spans if span[1] == "comm 0 0"] == ["barrier"]


def test_several_ranks_share_the_clock_and_nothing_makes_an_empty_timeline() -> None:
    timeline = timeline_of(made_up_records(0) + made_up_records(3))
    assert {span[0] for span in timeline.spans} == {"rank0", "rank3"}
    assert not len(timeline_of([]).spans)
    assert not len(timeline_of([Note(-1, True, "lost")]).spans)


@st.composite
def any_records(draw: st.DrawFn) -> list[Record]:
    """Return records as a rank may write them: begun when asked or later, done when begun or so."""
    gaps = st.floats(0.0, 2.0)
    records: list[Record] = []
    for number in range(draw(st.integers(0, 6))):
        asked = draw(st.floats(100.0, 110.0))
        begun = asked + draw(gaps)
        times = (asked, asked + draw(gaps), begun, begun + draw(gaps))
        records.append(Collective(0, "0", number, "all_reduce", 8, -1, *times))
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.floats(100.0, 112.0))
        records.append(Wait(0, begin, begin + draw(gaps)))
    now = 100.0
    for number in range(draw(st.integers(0, 4))):
        now += draw(gaps)
        records.append(Iteration(0, number, now, 0.0, 0))
    return records


@given(any_records())
def test_no_event_comes_before_its_cause(records: list[Record]) -> None:
    timeline = timeline_of(records)
    assert check(timeline, ("compute", "wait")) == []
    assert all(0.0 <= span[3] <= span[4] for span in timeline.spans)
    waits = [span[3:5] for span in timeline.spans if span[1] == "wait"]
    for span in timeline.spans:
        if span[1] == "compute":
            inside = [begin for begin, end in waits if begin < span[4] and end > span[3]]
            assert not inside

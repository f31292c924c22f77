import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.timeline import Timeline, busy_time, check, overlap, utilisation


def test_utilisation_by_hand():
    timeline = Timeline()
    timeline.span("worker0", "compute", "a", 0.0, 2.0)
    timeline.span("worker0", "compute", "b", 3.0, 4.0)
    timeline.span("worker0", "send", "a", 1.5, 3.5)
    timeline.span("server0", "receive", "a", 1.5, 3.5)
    timeline.span("worker0", "wait", "outer", 4.0, 12.0)
    timeline.span("worker0", "wait", "inner", 5.0, 6.0)
    assert utilisation(timeline, 8.0) == {
        ("worker0", "compute"): 3 / 8,
        ("worker0", "send"): 2 / 8,
        ("server0", "receive"): 2 / 8,
        ("worker0", "wait"): 4 / 8,
    }
    assert busy_time(timeline, 1.0)[("worker0", "compute")] == 1.0
    assert busy_time(timeline, 1.0)[("worker0", "send")] == 0.0
    assert overlap(timeline, 8.0) == {"worker0": 1.0, "server0": 0.0}
    assert overlap(timeline, 8.0, "send", ["compute", "wait"])["worker0"] == 1.0


def test_utilisation_of_nothing():
    assert utilisation(Timeline(), 1.0) == {}
    with pytest.raises(InputError, match="until must be above 0, not 0"):
        utilisation(Timeline(), 0.0)


ticks = st.integers(0, 30)
tick_spans = st.lists(
    st.tuples(st.sampled_from(["compute", "send", "receive"]), ticks, ticks), max_size=30
)


@given(tick_spans, st.integers(1, 40))
def test_against_counting_ticks(spans, until):
    timeline = Timeline()
    ticked = {resource: np.zeros(100, bool) for resource in ("compute", "send", "receive")}
    for resource, begin, length in spans:
        timeline.span("n", resource, "x", float(begin), float(begin + length))
        ticked[resource][begin : begin + length] = True
    for (_, resource), busy in busy_time(timeline, until).items():
        assert busy == ticked[resource][:until].sum()
    both = ticked["compute"] & (ticked["send"] | ticked["receive"])
    assert overlap(timeline, until).get("n", 0.0) == both[:until].sum()


def test_a_sound_timeline_passes():
    timeline = Timeline()
    timeline.span("a", "send", "m", 0.0, 1.0, flow=0)
    timeline.span("b", "receive", "m", 0.0, 1.0, flow=0)
    timeline.span("a", "send", "m", 1.0, 1.0, flow=1)
    timeline.span("b", "receive", "m", 1.5, 1.5, flow=1)
    timeline.span("a", "compute", "c", 0.5, 2.0)
    timeline.span("a", "compute", "c", 2.0 - 1e-16, 3.0)
    timeline.span("a", "wait", "w", 0.0, 2.0)
    timeline.span("a", "wait", "w", 1.0, 3.0)
    assert check(timeline) == []


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([("a", "compute", "x", 2.0, 1.0, -1)], "ends before it begins"),
        ([("a", "compute", "x", 2.0, float("nan"), -1)], "not finite"),
        (
            [("a", "send", "x", 0.0, 2.0, -1), ("a", "send", "y", 1.0, 3.0, -1)],
            "a send 'y' [1.0, 3.0] overlaps a send 'x' [0.0, 2.0]",
        ),
        (
            [
                ("a", "compute", "x", 0.0, 9.0, -1),
                ("a", "compute", "y", 1.0, 2.0, -1),
                ("a", "compute", "z", 3.0, 4.0, -1),
            ],
            "'z' [3.0, 4.0] overlaps a compute 'x'",
        ),
        ([("a", "send", "x", 0.0, 2.0, 5)], "message 5 has 1 send and 0 receive spans"),
        (
            [("a", "send", "x", 1.0, 2.0, 5), ("b", "receive", "x", 0.5, 2.0, 5)],
            "message 5 is received before it is sent",
        ),
    ],
)
def test_what_cannot_be_is_reported(spans, words):
    timeline = Timeline()
    for span in spans:
        timeline.append(span)
    assert any(words in problem for problem in check(timeline))

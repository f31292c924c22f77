import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.timeline import Timeline

times = st.floats(allow_nan=False)
names = st.text(max_size=5)
spans = st.tuples(names, names, names, times, times, st.integers(-1, 2**62))
counters = st.tuples(names, names, times, st.floats())


def bits(rows):
    """Return rows with floats as their bytes, so that -0.0 and NaN compare to the bit."""
    return [
        tuple(struct.pack("d", value) if isinstance(value, float) else value for value in row)
        for row in rows
    ]


def test_records_in_order():
    timeline = Timeline()
    timeline.span("worker0", "send", "gradient", 0.5, 0.75, flow=3)
    timeline.span("worker0", "compute", "gradient", 0.0, 0.5)
    timeline.counter("server0", "staleness", 0.75, 2)
    assert list(timeline.spans) == [
        ("worker0", "send", "gradient", 0.5, 0.75, 3),
        ("worker0", "compute", "gradient", 0.0, 0.5, -1),
    ]
    assert list(timeline.counters) == [("server0", "staleness", 0.75, 2)]


@given(st.lists(spans, max_size=20), st.lists(counters, max_size=20))
def test_parquet_round_trip_to_the_bit(tmp_path_factory, spans, counters):
    path = tmp_path_factory.mktemp("timeline") / "timeline.parquet"
    timeline = Timeline()
    for span in spans:
        timeline.append(span)
    for counter in counters:
        timeline.counter(*counter)
    timeline.save(path)
    loaded = Timeline.load(path)
    assert bits(loaded.spans) == bits(spans)
    assert bits(loaded.counters) == bits(counters)


def test_large_timeline_in_several_row_groups(tmp_path):
    timeline = Timeline()
    for step in range(150_000):
        timeline.span(f"worker{step % 7}", "compute", "step", step / 3, (step + 1) / 3)
        timeline.counter("server0", "queue", step / 3, float(step % 5))
    path = tmp_path / "timeline.parquet"
    timeline.save(path)
    loaded = Timeline.load(path)
    assert list(loaded.spans) == list(timeline.spans)
    assert list(loaded.counters) == list(timeline.counters)
    assert path.stat().st_size < 12 * 300_000


def test_counter_keeps_nan(tmp_path):
    timeline = Timeline()
    timeline.counter("server0", "loss", 1.0, math.nan)
    timeline.save(tmp_path / "t.parquet")
    assert math.isnan(Timeline.load(tmp_path / "t.parquet").counters.value[0])


def test_what_is_not_a_timeline_is_refused(tmp_path):
    with pytest.raises(InputError, match="no timeline at"):
        Timeline.load(tmp_path / "nowhere.parquet")
    (tmp_path / "text.parquet").write_text("hello, this is a text")
    with pytest.raises(InputError, match="not a Parquet file"):
        Timeline.load(tmp_path / "text.parquet")

    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"node": ["a"], "name": ["b"]}), tmp_path / "o.parquet")
    with pytest.raises(InputError, match='no column "resource"'):
        Timeline.load(tmp_path / "o.parquet")

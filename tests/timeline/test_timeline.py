from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.timeline import Labels, Timeline

times = st.floats(-1e17, 1e17)
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


@settings(deadline=None)  # the first one imports Arrow
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


@pytest.mark.slow
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
    with pytest.raises(InputError, match="no such file"):
        Timeline.load(tmp_path / "nowhere.parquet")
    (tmp_path / "text.parquet").write_text("hello, this is a text")
    with pytest.raises(InputError, match="no Parquet file, and no timeline"):
        Timeline.load(tmp_path / "text.parquet")

    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"node": ["a"], "name": ["b"]}), tmp_path / "o.parquet")
    with pytest.raises(InputError, match='without a column "resource"'):
        Timeline.load(tmp_path / "o.parquet")


@pytest.mark.parametrize("time", [math.nan, math.inf, -1e300])
@pytest.mark.parametrize("place", ["begin", "end"])
def test_a_time_that_is_no_number_of_seconds_is_refused(
    tmp_path: Path, place: str, time: float
) -> None:
    timeline = Timeline()
    timeline.span("node", "core", "op", **{"begin": 0.0, "end": 1.0, place: time})
    timeline.save(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t.parquet: a damaged timeline: a time is no number"):
        Timeline.load(tmp_path / "t.parquet")


def test_arrays_are_recorded_at_once_between_single_spans() -> None:
    timeline = Timeline()
    timeline.span("rank1", "compute", "first", 0.0, 1.0)
    timeline.extend(
        Labels(np.array([1, 0]), ("rank0", "rank1", "nobody")),
        "compute",
        Labels(np.array([0, 0]), ("op",)),
        np.array([1.0, 2.0]),
        np.array([2.0, 4.0]),
    )
    timeline.append(("rank0", "send", "last", 4.0, 5.0, 7))
    timeline.extend("rank0", "compute", "op", np.empty(0), np.empty(0))
    assert list(timeline.spans) == [
        ("rank1", "compute", "first", 0.0, 1.0, -1),
        ("rank1", "compute", "op", 1.0, 2.0, -1),
        ("rank0", "compute", "op", 2.0, 4.0, -1),
        ("rank0", "send", "last", 4.0, 5.0, 7),
    ]
    assert timeline.spans.node.words == ("rank1", "rank0")
    sends = timeline.spans[timeline.spans.resource.isin("send", "receive")]
    assert (len(sends), sends.name.distinct(), sends.flow.tolist()) == (1, ["last"], [7])


def test_several_spans_of_each_task_go_row_by_row_and_some_are_left_out() -> None:
    timeline = Timeline()
    arrive, begin, end = np.array([0.0, 3.0]), np.array([1.0, 3.0]), np.array([2.0, 5.0])
    timeline.extend(
        "rank0",
        Labels(np.array([[0], [1]]), ("send", "receive")),
        Labels(np.array([0, 1]), ("wait", "work")),
        np.column_stack([arrive, begin]),
        np.column_stack([begin, end]),
        np.array([[-1, 4], [-1, 5]]),
        where=np.column_stack([begin > arrive, end > begin]),
    )
    assert list(timeline.spans) == [
        ("rank0", "send", "wait", 0.0, 1.0, -1),
        ("rank0", "send", "work", 1.0, 2.0, 4),
        ("rank0", "receive", "work", 3.0, 5.0, 5),
    ]


def test_a_table_has_the_columns_of_the_file(tmp_path: Path) -> None:
    from pyarrow import parquet

    timeline = Timeline()
    timeline.span("worker0", "send", "gradient", 0.5, 0.75, flow=3)
    timeline.extend_counters("server0", "queue", np.array([0.5, 0.75]), np.array([1, 2]))
    timeline.save(tmp_path / "timeline.parquet")
    table = timeline.table()
    assert table.to_pylist() == parquet.read_table(tmp_path / "timeline.parquet").to_pylist()
    assert table.to_pylist()[1:] == [
        {
            "node": "server0",
            "resource": None,
            "name": "queue",
            "begin": time,
            "end": None,
            "flow": -1,
            "value": value,
        }
        for time, value in ((0.5, 1.0), (0.75, 2.0))
    ]


def test_a_file_with_plain_strings_is_read(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    timeline = Timeline()
    timeline.span("worker0", "send", "gradient", 0.5, 0.75, flow=3)
    timeline.counter("server0", "queue", 0.5, 1.0)
    table = timeline.table()
    plain = [
        pa.string() if pa.types.is_dictionary(each.type) else each.type for each in table.schema
    ]
    schema = pa.schema(list(zip(table.column_names, plain, strict=True)))
    parquet.write_table(table.cast(schema), tmp_path / "plain.parquet")
    loaded = Timeline.load(tmp_path / "plain.parquet")
    assert list(loaded.spans) == list(timeline.spans)
    assert list(loaded.counters) == list(timeline.counters)

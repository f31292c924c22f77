"""The trace, read by a model of Perfetto's JSON importer.

The model follows src/trace_processor/importers/json and the slice and flow trackers of Perfetto:
events are sorted by time, stably; a complete event first closes the slices of its thread that have
ended, and must then fit into the one below; a flow event binds to the topmost open slice.
"""

import gzip
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.timeline import Timeline, write_trace


def load(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        return json.load(file)["traceEvents"]


def nanoseconds(event, key="ts"):
    return round(event[key] * 1000)


def import_trace(events):
    """Return the slices (node, thread, name, begin, end), and the flows as pairs of them."""
    node, thread = {}, {}
    for event in events:
        if event["name"] == "process_name":
            node[event["pid"]] = event["args"]["name"]
        if event["name"] == "thread_name":
            thread[event["pid"], event["tid"]] = event["args"]["name"]
    slices, open_slices, flows = [], {}, {}
    timed = [event for event in events if event["ph"] in "Xsf"]
    for event in sorted(timed, key=nanoseconds):
        key = (event["pid"], event["tid"])
        stack = open_slices.setdefault(key, [])
        now = nanoseconds(event)
        if event["ph"] == "X":
            end = now + nanoseconds(event, "dur")
            while stack and stack[-1][4] <= now:
                stack.pop()
            assert not stack or end <= stack[-1][4], "slices overlap without nesting"
            stack.append((node[key[0]], thread[key], event["name"], now, end))
            slices.append(stack[-1])
        else:
            flow = (event["cat"], event["name"], event["id"])
            begun, ended = flows.setdefault(flow, ([], []))
            if event["ph"] == "s":
                begun.append(stack[-1])
            else:
                assert event["bp"] == "e"
                assert len(begun) == 1, "a flow ends before it starts"
                ended.append(stack[-1])
    return slices, {flow[2]: ends for flow, ends in flows.items()}


def test_a_message(tmp_path):
    timeline = Timeline()
    timeline.span("worker10", "compute", "gradient", 0.0, 0.02)
    timeline.span("server0", "receive", 'from "worker10"', 0.02, 0.0215, flow=7)
    timeline.span("worker10", "send", "to server0", 0.02, 0.0215, flow=7)
    timeline.span("worker2", "send", "to server0", 0.03, 0.04, flow=8)
    timeline.counter("server0", "updates", 0.0215, 1.0)
    timeline.counter("server0", "loss", 0.03, float("nan"))
    write_trace(timeline, tmp_path / "trace.json")
    events = load(tmp_path / "trace.json")
    slices, flows = import_trace(events)
    assert slices == [
        ("worker10", "compute", "gradient", 0, 20_000_000),
        ("worker10", "send", "to server0", 20_000_000, 21_500_000),
        ("server0", "receive", 'from "worker10"', 20_000_000, 21_500_000),
        ("worker2", "send", "to server0", 30_000_000, 40_000_000),
    ]
    assert flows == {7: ([slices[1]], [slices[2]])}  # message 8 never arrived: no arrow
    assert [event for event in events if event["ph"] == "C"] == [
        {"ph": "C", "name": "updates", "pid": 1, "tid": 0, "ts": 21500.0, "args": {"value": 1.0}}
    ]
    order = sorted(
        (event["args"]["sort_index"], event["pid"])
        for event in events
        if event["name"] == "process_sort_index"
    )
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [names[pid] for _, pid in order] == ["server0", "worker2", "worker10"]


def test_threads_are_in_a_fixed_order(tmp_path):
    timeline = Timeline()
    for resource in ("wait", "disk", "receive", "compute", "send"):
        timeline.span("worker0", resource, "x", 0.0, 1.0)
    write_trace(timeline, tmp_path / "trace.json")
    events = load(tmp_path / "trace.json")
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    index = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    ordered = [names[tid] for tid in sorted(index, key=index.__getitem__)]
    assert ordered == ["compute", "send", "receive", "wait", "disk"]


def test_overlapping_waits_get_a_second_thread(tmp_path):
    timeline = Timeline()
    timeline.span("worker0", "wait", "outer", 0.0, 3.0)
    timeline.span("worker0", "wait", "inner", 1.0, 2.0)
    timeline.span("worker0", "wait", "late", 2.5, 4.0)
    write_trace(timeline, tmp_path / "trace.json.gz")
    slices, _ = import_trace(load(tmp_path / "trace.json.gz"))
    assert [(name, thread) for _, thread, name, _, _ in slices] == [
        ("outer", "wait"),
        ("inner", "wait"),
        ("late", "wait (2)"),
    ]


def test_empty(tmp_path):
    write_trace(Timeline(), tmp_path / "trace.json")
    assert load(tmp_path / "trace.json") == []


times = st.integers(0, 40).map(lambda tick: tick * 0.1)
spans = st.tuples(
    st.sampled_from(["a", "b10", "b9"]),
    st.sampled_from(["compute", "send", "receive", "wait"]),
    st.sampled_from(["x", "y\n", "\u00e9"]),
    times,
    times,
    st.integers(-1, 6),
)


@settings(max_examples=300)
@given(st.lists(spans, max_size=40))
def test_anything_nests_and_pairs_up(tmp_path_factory, spans):
    timeline = Timeline()
    for node, resource, name, begin, length, flow in spans:
        timeline.span(node, resource, name, begin, begin + length, flow)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    write_trace(timeline, path)
    slices, flows = import_trace(load(path))
    expected = sorted(
        (node, resource, name, round(begin * 1e9), round(end * 1e9))
        for node, resource, name, begin, end, _ in timeline.spans
    )
    shown = sorted((node, thread.split(" ")[0], *rest) for node, thread, *rest in slices)
    assert shown == expected
    for flow, (begun, ended) in flows.items():
        assert len(begun) == len(ended) == 1
        assert begun[0][3] <= ended[0][3]
        sends = [s for s in timeline.spans if s[5] == flow and s[1] == "send"]
        receives = [s for s in timeline.spans if s[5] == flow and s[1] == "receive"]
        assert len(sends) == len(receives) == 1
        assert begun[0][:3] == (sends[0][0], begun[0][1], sends[0][2])
        assert ended[0][:3] == (receives[0][0], ended[0][1], receives[0][2])
        assert begun[0][1].startswith("send")
        assert ended[0][1].startswith("receive")

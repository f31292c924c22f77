"""Kineto traces of several versions, real ones, and damaged copies of them."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.timeline.kineto import rows, scan
from paracosm.timeline.kineto.categories import CATEGORIES
from paracosm.timeline.kineto.read import is_kineto, open_kineto, read_kineto
from paracosm.timeline.kineto.trace import Inputs, KinetoTrace, Lane, steps_of

DATA = Path(__file__).parents[2] / "data" / "kineto"
SMALL = DATA / "event_sync_streams.json.gz"

Event = dict[str, Any]


def span(category: str, name: str, begin: Any, duration: Any, **arguments: Any) -> Event:
    """Return a span of thread 3 of process 1; with a stream, of that stream of device 0."""
    lane = {"pid": 0, "tid": arguments["stream"]} if "stream" in arguments else {"pid": 1, "tid": 3}
    event = {"ph": "X", "cat": category, "name": name, **lane, "ts": begin, "dur": duration}
    return {**event, "args": arguments} if arguments else event


def written(folder: Path, events: Any, **header: Any) -> Path:
    """Write a trace as PyTorch does: what counts may stand behind the events."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **header}))
    return path


def categories(trace: KinetoTrace) -> list[str]:
    return [CATEGORIES[code] for code in trace.category]


def same(one: KinetoTrace, other: KinetoTrace) -> bool:
    columns = ("begin", "duration", "name", "category", "lane", "correlation", "record")
    return one.names == other.names and all(
        np.array_equal(getattr(one, column), getattr(other, column)) for column in columns
    )


def test_a_trace_of_today(tmp_path: Path) -> None:
    trace = read_kineto(
        written(
            tmp_path,
            [
                span("kernel", "gemm", 12, 7.25, device=0, stream=7, correlation=5),
                {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
                span("cpu_op", "aten::mm", 1.5, 8, **{"External id": 9, "Record function id": 4}),
                {"ph": "s", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 3, "ts": 2},
                span("cuda_runtime", "cudaLaunchKernel", 2, 3, correlation=5),
                span("python_function", "train.py(3): step", 1, 100),
            ],
            distributedInfo={"rank": 3, "world_size": 8},
            baseTimeNanoseconds=1_700_000_000_000_000_000,
        )
    )
    assert (trace.rank, trace.world_size) == (3, 8)
    assert trace.origin == 1_700_000_000_000_001_500
    assert [trace.text(row) for row in range(3)] == ["aten::mm", "cudaLaunchKernel", "gemm"]
    assert categories(trace) == ["op", "runtime", "kernel"]
    assert trace.begin == pytest.approx([0, 0.5e-6, 10.5e-6], abs=1e-15)
    assert trace.duration == pytest.approx([8e-6, 3e-6, 7.25e-6], abs=1e-15)
    assert [trace.lanes[lane] for lane in trace.lane] == [
        *[Lane("thread", "1", "3")] * 2,
        Lane("stream", "0", "7"),
    ]
    assert trace.correlation.tolist() == [-1, 5, 5]
    assert trace.record.tolist() == [4, -1, -1]


def test_a_trace_of_2021(tmp_path: Path) -> None:
    """A bare list; other categories; threads and streams as text; steps among the ops."""
    path = tmp_path / "old.json"
    old = {"pid": 1, "tid": "3"}
    path.write_text(
        json.dumps(
            [
                {**span("Operator", "ProfilerStep#5", 10, 90), **old},
                {**span("Operator", "aten::add", 20, 10), **old},
                {**span("Runtime", "cudaLaunchKernel", 21, 5, correlation=1), **old},
                {
                    **span("Kernel", "add", 30, 4, correlation=1, device=0, **{"external id": 6}),
                    "pid": 0,
                    "tid": "stream 7",
                },
                {**span("Memcpy", "Memcpy HtoD", 35, 4, device=0, stream=7), "tid": "stream 7"},
            ]
        )
    )
    trace = read_kineto(path)
    assert categories(trace) == ["annotation", "op", "runtime", "kernel", "copy"]
    assert [lane.name for lane in trace.lanes] == ["thread 3", "stream 7"]
    assert (trace.rank, trace.world_size) == (None, None)
    assert trace.missing == (
        "distributedInfo: which rank this is",
        "correlation of 1 spans of the device",
        "cuda_sync: which stream waits for which is inferred",
    )


def test_times_are_kept_to_the_nanosecond_as_floats_do_not(tmp_path: Path) -> None:
    first, second = "1712195495519689.047", "1712195495519689.048"
    assert float(first) == float(second)
    path = tmp_path / "trace.json"
    text = json.dumps(
        {"traceEvents": [span("cpu_op", "a", 1.25, 63.813), span("cpu_op", "b", 2.5, 0)]}
    )
    path.write_text(text.replace("1.25", first).replace("2.5", second))
    trace = read_kineto(path)
    assert trace.origin == 1712195495519689047
    assert trace.begin.tolist() == [0, 1e-9]
    assert trace.duration[0] == pytest.approx(63.813e-6, abs=1e-15)


@pytest.mark.parametrize(
    ("number", "nanoseconds"),
    [("1e3", 1_000_000), ("-0.5", -500), ("7.0009", 7000), ("7.1", 7100), ("-3", -3000)],
)
def test_numbers_are_read_in_every_form(number: str, nanoseconds: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"traceEvents": [span("cpu_op", "a", 4321, 1)]}).replace("4321", number)
    )
    assert read_kineto(path).origin == nanoseconds


def test_a_span_that_did_not_end_is_named(tmp_path: Path) -> None:
    endless = span("cpu_op", "a", 1, 1)
    del endless["dur"]
    trace = read_kineto(written(tmp_path, [endless, span("cpu_op", "b", 2, -1)]))
    assert trace.duration.tolist() == [0, 0]
    assert "dur of 2 spans (0 is taken)" in trace.missing


def test_what_arguments_say_of_a_collective(tmp_path: Path) -> None:
    new = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "dtype": "BFloat16",
        "Group size": 4,
        "Process Group Name": "2",
        "Process Group Ranks": "[0, 2, 4, 6]",
    }
    shapes = {"Input Dims": [[24, 2]], "Input type": ["long int"]}
    trace = read_kineto(
        written(
            tmp_path,
            [
                span("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 1, 1, stream=7, **new),
                span("user_annotation", "nccl:all_to_all", 2, 1, **shapes),
                span("cpu_op", "record_param_comms", 3, 1, **{"Process Group Ranks": "[0, ...]"}),
            ],
        )
    )
    reduce, exchange, silent = (trace.collectives[row] for row in range(3))
    assert (reduce.kind, reduce.size, reduce.group) == ("all_reduce", 2000, "2")
    assert (reduce.group_size, reduce.ranks) == (4, (0, 2, 4, 6))
    assert (exchange.kind, exchange.size) == ("all_to_all", 384)
    assert (silent.kind, silent.size, silent.ranks) == ("", -1, ())


def test_recorded_synchronisation() -> None:
    trace = read_kineto(SMALL)
    seen = list(trace.synchronisations.values())
    assert [each.kind for each in seen].count("event") == 3
    (wait,) = (each for each in seen if each.kind == "stream wait event")
    assert (wait.stream, wait.on, wait.recorded) == ("24", "20", 1385)


def test_real_traces_as_they_were_published() -> None:
    """Counted with jq in the originals."""
    trace = read_kineto(DATA / "event_sync.json.gz")
    assert {name: categories(trace).count(name) for name in CATEGORIES} == {
        "op": 10,
        "annotation": 1,
        "runtime": 12,
        "kernel": 4,
        "copy": 1,
        "memset": 0,
        "sync": 4,
        "other": 0,
    }
    rank = read_kineto(DATA / "dlrm" / "rank3.json.gz")
    assert (rank.rank, rank.world_size, len(rank)) == (3, 8, 1538)
    assert len([name for name in rank.names if name.startswith("nccl")]) == 4


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(size=st.integers(1, 4000))
def test_chunks_may_end_anywhere(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_kineto(DATA / "event_sync.json.gz")
    monkeypatch.setattr(scan, "CHUNK", size)
    assert same(read_kineto(DATA / "event_sync.json.gz"), whole)


def test_bytes_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    path = written(tmp_path, [span("cpu_op", "kernel_?", 1, 1)])
    path.write_bytes(path.read_bytes().replace(b"_?", b"_\xff\xc3"))
    assert read_kineto(path).names == ("kernel_\ufffd\ufffd",)


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    path = written(tmp_path, [span("cpu_op", "kernel_\ud800", 1, 1)])
    assert read_kineto(path).names == ("kernel_?",)


def refused(path: Path) -> str:
    """Return the one line with which a file is refused."""
    with pytest.raises(InputError) as caught:
        read_kineto(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_trace_that_is_cut_off_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    content = gzip.decompress(SMALL.read_bytes()).rstrip()
    path = tmp_path / "trace.json"
    for end in [*range(2, 200), *range(200, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:end])
        message = refused(path)
        assert f"cut off at byte {end:,}" in message or "no Kineto trace" in message, end


def test_a_packed_trace_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    content = SMALL.read_bytes()
    path = tmp_path / "trace.json.gz"
    for end in range(30, len(content), 41):
        path.write_bytes(content[:end])
        assert "cut off after byte" in refused(path), end


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), packed=st.booleans())
def test_damaged_traces_are_read_or_refused_in_a_line(
    data: st.DataObject, packed: bool, tmp_path: Path
) -> None:
    content = bytearray(SMALL.read_bytes() if packed else gzip.decompress(SMALL.read_bytes()))
    for place in data.draw(st.lists(st.integers(2, len(content) - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.json"
    path.write_bytes(bytes(content))
    with suppress(InputError):
        assert len(read_kineto(path)) > 0
        return
    refused(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op" "name": 1}]}', "byte 45: not JSON"),
        ('{"traceEvents": [{"name": "a"}]}', "byte 30: a list that is none of events: one without"),
        ('{"traceEvents": [{"ph": []}]}', "byte 27: a list that is none of events: one without"),
        ('{"traceEvents": [3]}', 'byte 18: a list that is none of events: one without "ph"'),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1}]}', "lacks 'name'"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "name": 5}]}', "are none: 5"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": "x", "dur": 1}]}',
            "no span has a time: ts or dur of 1 span is none",
        ),
        ('{"traceEvents": [] ', "cut off at byte 19"),
        ('{"traceEvents": []}', "the trace has no spans"),
        ('{"traceEvents": []} {', "byte 20: there is more behind the end"),
        ('{"nodes": []}', 'lacks "traceEvents"'),
        (f'{{"traceEvents": [{{"ph": "M"}}, {{"ts": {"9" * 5000}}}]}}', "thousands of digits"),
        (f'{{"schemaVersion": {"9" * 5000}}}', "thousands of digits"),
        ("hello", "byte 0: no JSON: it begins with 'h'"),
        ('\n\n{"traceEvents": [{"ph": "M"} 3]}', "byte 31 (line 3): a list continues with '3'"),
        ('{"nodes": [], "schema": "1"}', "it is an execution trace, which `paracosm graph import`"),
        ('{"error": "no"}', 'lacks "traceEvents" and has "error"'),
        ('{"ph": "X"}\n{"ph": "X"}', "JSON objects one after another (NDJSON)"),
        ("", "the file is empty"),
    ],
)
def test_what_is_no_trace_is_refused_at_the_byte(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert reason in refused(path)


def test_bytes_that_are_not_utf_8_count_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"SQLite" + 100 * b"\xff")
    assert "byte 0: no JSON: it begins with 'S'" in refused(path)


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    assert ": no such file" in refused(tmp_path / "nowhere.json")
    assert "cannot be read: Is a directory" in refused(tmp_path)


def test_traces_are_told_from_other_files(tmp_path: Path) -> None:
    assert is_kineto(SMALL)
    assert is_kineto(DATA / "resnet.json.gz")
    bare = tmp_path / "bare.json"
    bare.write_text('[{"ph": "X"}]')
    assert is_kineto(bare)
    assert not is_kineto(DATA / "README.md")
    assert not is_kineto(DATA.parent / "chakra" / "feeder.json")
    assert not is_kineto(tmp_path / "nowhere.json")


def test_arguments_of_ops_are_kept_if_they_are_asked_for(tmp_path: Path) -> None:
    shapes, types = [[4, 3], [[3], [2, 3]], []], ["float", "TensorList", "Scalar"]
    dims = {"Input Dims": shapes, "Input type": types}
    path = written(
        tmp_path,
        [
            span("cpu_op", "aten::later", 9, 1),
            span("cpu_op", "aten::mm", 1, 8, **{"Sequence number": 7}, **dims),
        ],
    )
    trace = read_kineto(path, inputs=True)
    assert trace.sequence.tolist() == [7, -1]
    assert trace.inputs == {0: Inputs(tuple(shapes), tuple(types))}
    assert read_kineto(path).inputs == {}


def test_spans_on_disk_are_those_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "dlrm" / "rank3.json.gz"
    whole = read_kineto(path)
    monkeypatch.setattr(rows, "CHUNK", 100)
    monkeypatch.setattr(rows, "HELD", 250)
    assert same(read_kineto(path), whole)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(first=st.floats(0, 1), length=st.floats(0, 1), size=st.integers(1, 500))
def test_a_part_has_what_touches_its_time_and_what_belongs_to_it(
    first: float, length: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = DATA / "resnet.json.gz"
    monkeypatch.setattr(rows, "CHUNK", size)
    whole = read_kineto(path)
    last = float(whole.end.max())
    begin, end = first * last, min(first + length, 1) * last
    file = open_kineto(path)
    part = file.part(begin, end)
    assert steps_of(file.marks()) == steps_of(whole)
    edges = [0.0, begin, end, 2 * last]
    expected = np.diff(np.searchsorted(whole.begin, edges))
    assert np.abs(file.counts(edges) - expected).max() <= 1  # to the nanosecond
    touches = (whole.begin <= end) & (whole.end >= begin)
    numbers = whole.correlation[touches & (whole.correlation >= 0)]
    wanted = touches | np.isin(whole.correlation, numbers)
    place = {key: row for row, key in enumerate(keys(part))}
    for row, key in enumerate(keys(whole)):
        if wanted[row]:
            assert key in place
    assert set(place) <= set(keys(whole))


def keys(trace: KinetoTrace) -> list[tuple[float, str, int, int]]:
    """Return what tells the spans of a trace apart."""
    columns = trace.begin.tolist(), trace.lane.tolist(), trace.correlation.tolist()
    return [
        (begin, trace.text(row), lane, correlation)
        for row, (begin, lane, correlation) in enumerate(zip(*columns, strict=True))
    ]


def test_a_disk_without_room_for_a_large_trace_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rows, "CHUNK", 100)
    monkeypatch.setattr(rows, "HELD", 250)
    monkeypatch.setattr(rows.tempfile, "TemporaryFile", full)
    assert refused(DATA / "dlrm" / "rank3.json.gz").endswith(
        ": No space left on device: set TMPDIR to a folder on a larger disk"
    )


@pytest.mark.parametrize("rank", [-1, 0.5, "one", float("inf"), 2**40])
def test_a_rank_that_is_none_is_refused(rank: Any, tmp_path: Path) -> None:
    header = {"distributedInfo": {"rank": rank, "world_size": 2}}
    path = written(tmp_path, [span("kernel", "gemm", 0, 1)], **header)
    assert "distributedInfo: rank is" in refused(path)


def test_blanks_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK", 1_000)
    monkeypatch.setattr(scan, "LONGEST", 10_000)
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 1_000_000))
    assert "more than 10,000 blanks" in refused(path)


def test_categories_of_every_accelerator(tmp_path: Path) -> None:
    on_device = {"stream": 7, "device": 0, "correlation": 1}
    events = [
        span("mtia_runtime", "launch", 1, 1, correlation=1),
        span("mtia_ccp_events", "gemm", 2, 1, **on_device),
        span("privateuse1_runtime", "launch", 3, 1, correlation=1),
        span("privateuse1_driver", "gemm", 4, 1, **on_device),
        span("privateuse1_driver", "MemcpyH2D", 5, 1, **on_device),
        span("xpu_driver", "launch", 6, 1, correlation=1),
        span("collective_comm", "allreduce", 7, 1, **on_device),
        span("concurrent_kernel", "gemm", 8, 1, **on_device),
        span("hpu_op", "launch", 9, 1, correlation=1),
        span("overhead", "Buffer Flush", 10, 1),
        span("new_engine", "gemm", 11, 1, **on_device),
        span("new_engine", "Memset (Device)", 12, 1, **on_device),
        span("new_thing", "something", 13, 1),
        {**span("", "nothing", 14, 1), "cat": None},
    ]
    trace = read_kineto(written(tmp_path, events))
    assert categories(trace) == [
        *("runtime", "kernel", "runtime", "kernel", "copy", "runtime", "kernel", "kernel"),
        *("runtime", "kernel", "memset", "other", "other"),
    ]
    assert trace.notes == (
        "1 span without a category taken for work of the host",
        '2 spans of the category "new_engine" taken for work of the device',
        '1 span of the category "new_thing" taken for work of the host',
    )


def test_begins_and_ends_are_paired_by_thread(tmp_path: Path) -> None:
    """Of a thread the last that began ends first, or the last of the name that the end has."""
    whole = [
        span("cpu_op", "outer", 1, 9.5, **{"Record function id": 4}),
        span("cpu_op", "inner", 2, 3),
        span("kernel", "gemm", 2.5, 7.25, stream=7, device=0, correlation=5),
        span("cpu_op", "last", 20, 1),
    ]
    parts = []
    for event in whole:
        begun = {key: value for key, value in event.items() if key != "dur"}
        ended = {key: event[key] for key in ("pid", "tid", "name")}
        parts.append({**begun, "ph": "B"})
        parts.append({**ended, "ph": "E", "ts": event["ts"] + event["dur"]})
    parts.sort(key=lambda event: event["ts"])
    nameless = [
        {key: value for key, value in event.items() if event["ph"] == "B" or key != "name"}
        for event in parts
    ]
    expected = read_kineto(written(tmp_path, whole))
    for events in (parts, nameless):
        trace = read_kineto(written(tmp_path, events))
        assert [trace.text(row) for row in range(4)] == ["outer", "inner", "gemm", "last"]
        assert np.array_equal(trace.begin, expected.begin)
        assert np.array_equal(trace.duration, expected.duration)
        assert categories(trace) == categories(expected)
        assert (trace.record.tolist(), trace.correlation.tolist()) == (
            expected.record.tolist(),
            expected.correlation.tolist(),
        )
        assert not trace.notes
    lone = [{**parts[0], "name": "lost"}, *parts, {**parts[-1], "tid": 99}]
    trace = read_kineto(written(tmp_path, lone))
    assert sorted(trace.text(row) for row in range(len(trace))) == [
        "gemm",
        "inner",
        "last",
        "outer",
    ]
    assert trace.notes == ("2 events left out that begin or end nothing (ph B, E)",)
    with pytest.raises(InputError, match=r"no span both begins and ends: 1 event \(ph B, E\)"):
        read_kineto(written(tmp_path, [parts[0]]))
    with pytest.raises(InputError, match=r"no spans \(ph X, or B and E\), but 1 of ph i"):
        read_kineto(written(tmp_path, [{"ph": "i", "name": "mark", "ts": 1}]))


@pytest.mark.parametrize(
    ("escape", "said"), [("m", "\\m"), ("x41", "\\x"), ("u12", "\\u12"), (" ", "\\ "), ("U", "\\U")]
)
def test_a_bad_escape_is_named_wherever_it_is(
    escape: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The byte is that of the backslash, however the file is cut into pieces."""
    text = json.dumps({"traceEvents": [span("cpu_op", "a", 1, 1), span("cpu_op", "HERE", 2, 1)]})
    text = "\n" + text.replace("HERE", f"C:\\temp\\{escape}odel.py(3): add")
    path = tmp_path / "trace.json"
    path.write_text(text)
    place = text.index(f"\\{escape}")
    for size in (1 << 22, 1, 7):
        monkeypatch.setattr(scan, "CHUNK", size)
        message = refused(path)
        assert f"byte {place:,} (line 2): not JSON: a text has the escape {said}: a back" in message


def test_a_mark_of_the_byte_order_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, [span("cpu_op", "a", 1, 1)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_kineto(path)) == 1
    assert is_kineto(path)

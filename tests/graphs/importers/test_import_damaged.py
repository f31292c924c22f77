"""Files that are cut off or damaged: a graph or one line that says what is wrong, nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.graphs.check import check
from paracosm.graphs.graph import Graph
from paracosm.graphs.importers.formats import FORMATS, format_of, import_graph

DATA = Path(__file__).parents[2] / "data" / "importers"
CHAKRA = Path(__file__).parents[2] / "data" / "chakra"
FILES = {
    "onnx": DATA / "gpt.onnx",
    "tensorflow-graph": DATA / "convnet_sgd.pb",
    "tensorflow-saved-model": DATA / "saved_model.pb",
    "tensorflow-run-metadata": DATA / "convnet_step.pb",
    "tensorflow-timeline": DATA / "convnet_timeline.json.gz",
    "jaxpr": DATA / "step_jaxpr.json.gz",
    "pytorch": DATA / "all_gather_et.json.gz",
    "chakra": CHAKRA / "cycle.et",
    "chakra as JSON": CHAKRA / "feeder.json",
    "kineto": CHAKRA.parent / "kineto" / "event_sync.json.gz",
}


def plain(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


"""Real files by the name of their format, and what else they are."""

CONTENTS = {name: plain(path) for name, path in FILES.items()}


def imported(path: Path, name: str | None) -> Graph | str:
    """Return the graph, or the one line that refuses the file."""
    try:
        graph = import_graph(path, name and name.partition(" ")[0])
    except InputError as error:
        return describe_error(str(error), path)
    check(graph)
    return graph


def describe_error(text: str, path: Path) -> str:
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_known_by_its_content(name: str) -> None:
    assert format_of(FILES[name]) == name.partition(" ")[0]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    data, path = CONTENTS[name], tmp_path / f"cut{FILES[name].suffixes[0]}"
    refused = 0
    for part in range(1, 40):
        path.write_bytes(data[: len(data) * part // 40])
        refused += isinstance(imported(path, name), str)
    # A GraphDef is a list of nodes: cut between two of them, it is a smaller graph.
    assert refused >= (30 if name == "tensorflow-graph" else 39)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tensorflow-timeline", '"input0"', '"input{}"'),
        ("pytorch", '"record_param_comms"', '"ProfilerStep#{}"'),
    ],
)
def test_a_number_of_thousands_of_digits_gives_a_graph_or_one_line(
    name: str, old: str, new: str, tmp_path: Path
) -> None:
    text, path = CONTENTS[name].decode(), tmp_path / "file.json"
    assert old in text
    path.write_text(text.replace(old, new.format("9" * 5000), 1))
    imported(path, name)


@pytest.mark.parametrize("name", FILES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_bytes_give_a_graph_or_one_line(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray(CONTENTS[name])
    places = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    for place, byte in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = byte
    path = tmp_path / f"damaged{FILES[name].suffixes[0]}"
    path.write_bytes(content)
    imported(path, name)
    imported(path, None)


@pytest.mark.parametrize("name", [name for name in FILES if FILES[name].suffix == ".gz"])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_other_values_in_json_give_a_graph_or_one_line(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    """Bytes seldom change what JSON holds: here a value somewhere in it is another one."""
    content = json.loads(CONTENTS[name])
    at = content
    while True:
        key = data.draw(
            st.sampled_from(sorted(at)) if isinstance(at, dict) else st.integers(0, len(at) - 1)
        )
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at = at[key]
    odd = st.sampled_from([None, -1, 2**70, 1e300, "", "x", [], [[]], {}, True, [1, 2], [None]])
    at[key] = data.draw(odd)
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    imported(path, name)


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert imported(path, name) == f"{path}: no such file"
    for content in (b"", b"{}", b"[]", b"x", b"\x00" * 50, b"\xff" * 50, b"\x1f\x8b\x08cut"):
        path.write_bytes(content)
        assert isinstance(imported(path, name), str)


def test_what_no_importer_reads_is_refused_with_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the kind")
    with pytest.raises(
        InputError, match=r"unrecognised format: give --format \(chakra, pytorch, onnx"
    ):
        import_graph(path)
    with pytest.raises(InputError, match='unknown format "onx": did you mean "onnx"'):
        import_graph(path, "onx")
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(InputError, match="the trace has no spans: nothing was profiled"):
        import_graph(path)


def test_a_format_is_known_by_the_beginning_of_a_file(tmp_path: Path) -> None:
    """Of gigabytes no more is read: what lies behind may be cut off."""
    trace = gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + bytes(range(256)) * 4000)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(trace[: len(trace) // 2])
    assert format_of(path) == "kineto"


@pytest.mark.parametrize("text", ["node {\n  name: 'a'\n}", "# note\nir_version: 8\ngraph {}"])
def test_protobuf_as_text_is_refused_with_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"protobuf as text.*binary form \(SerializeToString\)$"):
        format_of(path)


def test_an_option_without_effect_is_refused() -> None:
    with pytest.raises(InputError, match=r"--train has no effect on a TensorFlow graph; it has --"):
        import_graph(DATA / "convnet_sgd.pb", train=True)
    with pytest.raises(InputError, match=r"--step has no effect on an ONNX model; it has --size"):
        import_graph(DATA / "convnet.onnx", step=0)
    with pytest.raises(InputError, match=r"--kineto has no effect on a jaxpr$"):
        import_graph(DATA / "step_jaxpr.json.gz", times=[1])

"""The file formats that graphs can be imported from: how to recognise and read them."""

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from paracosm.data_files import parse_json
from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.graphs.graph import Graph
from paracosm.timeline.other_files import refuse_other_files

_HEAD = 1 << 16
"""Bytes of a file by which its format is known: a trace may have gigabytes."""

_TEXT = re.compile(
    rb"\s*(#[^\n]*\n\s*)*"
    rb"((node|graph|step_stats|dev_stats|meta_graphs|versions|library|opset_import)\s*:?\s*\{"
    rb"|(ir_version|saved_model_schema_version|producer_name)\s*:)"
)
"""How messages of ONNX and TensorFlow begin as text (.pbtxt)."""


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file.

    `reader` is "module:function" of `paracosm.graphs`, imported when a file is read; it takes the
    path, the `options` that have an effect, and the constant arguments in `always`.
    """

    title: str
    reader: str
    options: tuple[str, ...] = ()
    always: Mapping[str, Any] = field(default_factory=dict)

    def read(self, path: Path, **options: Any) -> Graph:
        module, _, function = self.reader.partition(":")
        graph: Graph = getattr(import_module(f"paracosm.graphs.{module}"), function)(
            path, **self.always, **options
        )
        return graph


def import_graph(path: Path, format: str | None = None, **options: Any) -> Graph:  # noqa: A002
    """Return the graph of a file of one of `FORMATS`.

    Args:
        path: the file, gzipped or not.
        format: one of the formats; None to detect it from the content.
        options: those of the format; None and False mean not given.

    Raises:
        InputError: an unknown format, an option that has no effect on it, and what its reader
            refuses.
    """
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    chosen = format_of(path) if format is None else format
    # A step may have the number 0; all other options are given if they are not empty.
    options_set = {key: value for key, value in options.items() if value or type(value) is int}
    for key in options_set:
        if key not in FORMATS[chosen].options:
            has = ", ".join(map(_flag, FORMATS[chosen].options))
            hint = f"; it has {has}" if has else ""
            raise InputError(f"{path}: {_flag(key)} has no effect on {FORMATS[chosen].title}{hint}")
    return FORMATS[chosen].read(path, **options_set)


def _flag(option: str) -> str:
    flags = {"sizes": "--size", "times": "--kineto"}
    return flags.get(option, f"--{option.replace('_', '-')}")


def format_of(path: Path) -> str:
    """Return the format of a file by its content."""
    refuse_other_files(path)
    head = read_bytes(path, _HEAD).removeprefix(codecs.BOM_UTF8)
    if _TEXT.match(head):
        raise InputError(
            f"{path}: protobuf as text, which is not read: write it in binary form "
            "(SerializeToString)"
        )
    is_json = head.lstrip()[:1] in (b"{", b"[")
    name = (_of_text(head) or _of_keys(path)) if is_json else _of_bytes(head)
    if name is None and _is_lines(head):
        raise InputError(
            f"{path}: JSON objects one after another (NDJSON): write them as one list, "
            "[{...}, {...}]"
        )
    if name is None:
        raise InputError(f"{path}: unrecognised format: give --format ({', '.join(FORMATS)})")
    return name


def _is_lines(head: bytes) -> bool:
    """Whether the first two lines are objects of JSON."""
    lines = head.split(b"\n", 2)[:2]
    try:
        return len(lines) == 2 and all(isinstance(json.loads(line), dict) for line in lines)
    except (ValueError, RecursionError):
        return False


def _of_text(data: bytes) -> str | None:
    head = data.decode("utf-8", "replace")
    if '"paracosm_jaxpr"' in head:
        return "jaxpr"
    if '"traceEvents"' in head:
        kineto = re.search(r'"(schemaVersion|deviceProperties|distributedInfo|cat": "cpu_op)', head)
        return "kineto" if kineto else "tensorflow-timeline"
    if '"workload_graph"' in head or re.search(r'"paracosm_graph"', head):
        return "chakra"
    if re.search(r'"nodes"\s*:', head):
        is_observed = re.search(r'"(ctrl_deps|parent)"\s*:\s*\d', head)
        return "pytorch" if is_observed else "chakra"
    return "chakra" if _is_messages(head.lstrip()) else None


def _is_messages(head: str) -> bool:
    """Whether objects follow one another, as protobuf writes Chakra's messages."""
    try:
        first, end = json.JSONDecoder().raw_decode(head)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "version" in first and head[end:].lstrip()[:1] == "{"


def _of_keys(path: Path) -> str | None:
    """Return the format of JSON by all of its keys: the first one is not specific."""
    try:
        content = parse_json(read_bytes(path), str(path))
    except InputError:
        return None
    keys = content.keys() if isinstance(content, dict) else ()
    for key, name in (("traceEvents", "tensorflow-timeline"), ("workload_graph", "chakra"),
                      ("nodes", "pytorch")):  # fmt: skip
        if key in keys:
            return name
    return None


def _of_bytes(data: bytes) -> str | None:
    first = data[0]
    if first == 0x08:  # field 1, a number: a version
        version, at = _varint(data, 1)
        tag = data[at] if at < len(data) else 0
        is_saved = version == 1 and tag == 0x12 and b"serve" in data[at : at + 4096]
        return "tensorflow-saved-model" if is_saved else "onnx"
    if first == 0x0A:  # field 1, a message
        _, at = _varint(data, 1)
        inner = _field_1(data, at)
        if inner is not None and inner[:1] == b"/":
            return "tensorflow-step-stats"
        if inner is not None and inner[:1] == b"\x0a":
            deeper = _field_1(inner, 0)
            if deeper is not None and deeper[:1] == b"/":
                return "tensorflow-run-metadata"
        return "tensorflow-graph"
    size, at = _varint(data, 0)
    # A length, and a message that begins with a text: the version of a Chakra trace.
    whole = 0 < size <= len(data) - at or len(data) == _HEAD
    return "chakra" if whole and data[at : at + 1] in (b"\x0a", b"\x12") else None


def _field_1(data: bytes, at: int) -> bytes | None:
    if data[at : at + 1] != b"\x0a":
        return None
    _, at = _varint(data, at + 1)
    return data[at : at + 32]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            break
        shift += 7
    return value, at


FORMATS: Mapping[str, Format] = {
    "chakra": Format("a Chakra trace", "chakra.convert:read_chakra", ("drop_missing", "data_only")),
    "pytorch": Format(
        "an execution trace of PyTorch",
        "importers.pytorch.read:read_execution_trace",
        ("step", "times"),
    ),
    "onnx": Format(
        "an ONNX model", "importers.onnx.read:read_onnx", ("sizes", "train", "optimizer")
    ),
    "tensorflow-graph": Format(
        "a TensorFlow graph", "importers.tensorflow.graph_def:read_graph_def", ("sizes", "fetch")
    ),
    "tensorflow-saved-model": Format(
        "a SavedModel",
        "importers.tensorflow.graph_def:read_graph_def",
        ("sizes", "fetch"),
        {"saved_model": True},
    ),
    "tensorflow-run-metadata": Format(
        "a RunMetadata", "importers.tensorflow.step_ops:read_run_metadata"
    ),
    "tensorflow-step-stats": Format(
        "a StepStats",
        "importers.tensorflow.step_ops:read_run_metadata",
        always={"step_stats": True},
    ),
    "tensorflow-timeline": Format(
        "a timeline of TensorFlow", "importers.tensorflow.step_ops:read_timeline"
    ),
    "jaxpr": Format("a jaxpr", "importers.jaxpr:read_jaxpr"),
    "kineto": Format(
        "a trace of PyTorch's profiler",
        "importers.kineto:read_kineto_graph",
        ("step", "communication"),
    ),
}
"""The formats by name."""

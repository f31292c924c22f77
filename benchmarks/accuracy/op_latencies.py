"""Whole models from measured latencies of their ops, beside what the models were measured at.

The files are those of NeuSight (Lee, Phanishayee, Mahajan, ASPLOS 2025), a pair for each model in a
folder of one GPU. A CSV has the nodes of a torch.fx graph in the order of execution, with the
milliseconds of each node's forward pass, backward pass, and accumulation of gradients, timed one
at a time between two events on an idle GPU. The JSON of the same name has the milliseconds of the
whole model's forward pass and of its backward pass with accumulation, and how often the layer in
the graph is repeated (`num_layer`; 0 where the graph is the whole model).

On an idle GPU the first event is over at once; then the host runs the node, the kernel (if it
launches one) runs, and the second event follows. Nodes that make no tensor (`size`) launch nothing:
what is measured around them is the *floor*, the cost of the two events, and part of every interval
in the file. It is taken off. What is left is a host time where a node launches nothing, and a
device time where it does.

A device that is timed op by op rests in between; in an iteration it does not, and its clocks are
others. How much slower it is then is read from the other models that were measured on it as wholes.
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op
from paracosm.simulation.replay import Schedule, replay


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the forward pass, and of the backward pass with accumulation."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        return self.forward + self.backward


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model on a GPU: seconds as measured, as predicted, and by adding up all latencies."""

    device: str  # the folder's name, which is the GPU's
    model: str  # the file's name, "gpt2_large-train-1024-4"
    layers: int  # how often the layer was repeated; 0 where the graph is the whole model
    measured: Times
    predicted: Times
    timed: Times  # predicted at the clocks at which the ops were timed
    serial: Times
    reading: Reading
    slowdown: float  # of the device in an iteration, from other models; 1 where there are none

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured; negative where it is too short."""
        return self.predicted.both / self.measured.both - 1

    @property
    def timed_error(self) -> float:
        return self.timed.both / self.measured.both - 1

    @property
    def serial_error(self) -> float:
        return self.serial.both / self.measured.both - 1


@dataclass(frozen=True)
class Folder:
    """Comparisons, one for each model and GPU, sorted; and why a file was not used, by its path."""

    comparisons: tuple[Comparison, ...]
    left_out: Mapping[str, str]


def read_folder(path: Path) -> Folder:
    """Predict every model in a folder of one GPU, or in the folders of several GPUs below it."""
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")
    found: list[tuple[Comparison, Graph]] = []
    left_out: dict[str, str] = {}
    for folder in [path, *sorted(each for each in path.iterdir() if each.is_dir())]:
        tables = {file.stem: file for file in folder.glob("*.csv")}
        wholes = {file.stem: file for file in folder.glob("*.json")}
        for name in sorted(tables.keys() | wholes.keys()):
            file = tables.get(name) or wholes[name]
            try:
                if name not in tables:
                    raise InputError("no op latencies: there is no CSV file of this name")
                if name not in wholes:
                    raise InputError(
                        "no latency of the whole model: there is no JSON file of this name"
                    )
                found.append(_compare(tables[name], wholes[name]))
            except InputError as error:
                reason = str(error).replace(f"{folder}/", "").removeprefix(file.name)
                left_out[str(file.relative_to(path))] = reason.lstrip(":, ")
    if not found:
        first = next((f"{file}: {reason}" for file, reason in left_out.items()), None)
        more = f": {first}" if first else ", and no folder below it has"
        raise InputError(f"{path}: no op latencies (a CSV and a JSON file of one name){more}")
    comparisons = [comparison for comparison, _ in found]
    return Folder(tuple(_at_its_clocks(*each, comparisons) for each in found), left_out)


def _compare(table: Path, whole: Path) -> tuple[Comparison, Graph]:
    """Return what the clocks of the timings say, and the graph of the iteration."""
    rows, (layers, measured) = read_table(table), read_whole(whole)
    model = repeated(rows, layers, str(table))
    reading = reading_of(rows)
    graph = graph_of(model, reading)
    timed, _ = replayed(graph, reading)
    comparison = Comparison(
        device=table.resolve().parent.name,
        model=table.stem,
        layers=layers,
        measured=measured,
        predicted=timed,
        timed=timed,
        serial=serial(model),
        reading=reading,
        slowdown=1.0,
    )
    return comparison, graph


def _at_its_clocks(one: Comparison, graph: Graph, all_of_them: Sequence[Comparison]) -> Comparison:
    """Return the comparison with what other models say of the device's clocks in an iteration.

    The same model with another batch, or in training in place of inference, is no other model.
    """
    ratios = [
        other.measured.both / other.timed.both
        for other in all_of_them
        if other.device == one.device and _architecture(other.model) != _architecture(one.model)
    ]
    if not ratios:
        return one
    slowdown = statistics.median(ratios)
    predicted, _ = replayed(graph, one.reading, slowdown)
    return replace(one, predicted=predicted, slowdown=slowdown)


def _architecture(model: str) -> str:
    """Return "gpt2_large" of "gpt2_large-train-1024-4"."""
    return re.split(r"-(?:train|inf)-", model)[0]


# The files.

COLUMNS = ("op", "target", "Name", "meta", "dtype", "fw_latency", "bw_latency", "acc_latency")


@dataclass(frozen=True, slots=True)
class Row:
    """A node of the graph; times are seconds between its events, 0 where there are none."""

    name: str
    kind: str  # what the node is, "call_module", "call_method", "placeholder", ...
    function: str  # what it calls: the method's or function's own name; a module's path
    module: str  # path of the innermost module it belongs to; empty for none
    makes_tensor: bool
    forward: float
    backward: float
    accumulate: float
    inputs: tuple[str, ...] = ()  # names of the nodes whose results it takes
    layer: str = ""  # the class of a module, "Linear"; empty for other nodes
    shapes: tuple[tuple[int, ...], ...] = ()  # of its inputs' tensors
    shape: tuple[int, ...] = ()  # of its result


def read_table(path: Path) -> list[Row]:
    usual = csv.field_size_limit(1 << 30)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: lacks the column {', '.join(missing)}")
            rows = [_row(entry, f"{path}, line {reader.line_num}") for entry in reader]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None
    finally:
        csv.field_size_limit(usual)
    if not rows or rows[-1].kind != "output":
        raise InputError(f"{path}: is cut off: its last row is not the graph's output")
    return rows


def read_whole(path: Path) -> tuple[int, Times]:
    """Return how many layers a model has (0: all in the graph), and what the whole of it took."""
    content = read_json(path)
    values = []
    for name in ("num_layer", "fw_latency", "bwall_latency", "e2e_latency"):
        if name not in content:
            raise InputError(f"{path}: lacks {name}")
        values.append(_number(content[name], f"{path}: {name}"))
    layers, forward, _, both = values
    if not both > 0:
        raise InputError(f"{path}: e2e_latency: 0 is nothing to compare with")
    return int(layers), Times(forward / 1e3, both / 1e3 - forward / 1e3)


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping that a JSON file holds.

    Raises:
        InputError: it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no mapping of names to values")
    return content


def _row(entry: dict[str, str | None], where: str) -> Row:
    if any(entry[column] is None for column in COLUMNS):
        raise InputError(f"{where}: is cut off")
    text = {column: entry[column] or "" for column in COLUMNS}
    # The stack of modules that torch.fx notes: "('h.0.attn', <class 'torch.nn...Linear'>)".
    paths = re.findall(r"\('([^']*)', <class", text["meta"])
    classes = re.findall(r"<class '(?:\w+\.)*(\w+)'>", text["meta"])
    module = paths[-1] if paths else ""
    if not module and text["op"] in ("call_module", "get_attr"):
        module = text["target"]
    # "<function softmax at 0x1554>", "<built-in method matmul>"; a method is its own name already.
    function = re.match(r"<(?:built-in )?(?:function|method) (\S+?)>?(?: |$)", text["target"])
    inputs = re.findall(r"\w+", entry.get("_input_nodes") or "")  # "{addmm: None, view_1: None}"
    return Row(
        name=text["Name"],
        kind=text["op"],
        function=function[1] if function else text["target"],
        module=module,
        makes_tensor=text["dtype"] != "",
        forward=_number(text["fw_latency"], f"{where}, fw_latency") / 1e3,
        backward=_number(text["bw_latency"], f"{where}, bw_latency") / 1e3,
        accumulate=_number(text["acc_latency"], f"{where}, acc_latency") / 1e3,
        inputs=tuple(name for name in inputs if name != "None"),
        layer=classes[-1] if text["op"] == "call_module" and classes else "",
        shapes=_shapes(entry.get("input_shapes") or ""),
        shape=next(iter(_shapes(f"[{entry.get('output_shape') or ''}]")), ()),
    )


def _number(value: object, where: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # TypeError is caught
    except (TypeError, ValueError):
        raise InputError(f"{where}: {value!r} is no number") from None
    if not math.isfinite(number) or number < 0:
        raise InputError(f"{where}: {value} is not 0 or more")
    return number


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    inner = re.findall(r"[\[(]([\d, ]*)[\])]", text[1:-1])
    return tuple(tuple(map(int, re.findall(r"\d+", each))) for each in inner)


# What the intervals say.

VIEWS = frozenset(
    {
        *("view", "permute", "transpose", "expand", "unsqueeze", "squeeze", "detach", "t"),
        *("getitem", "narrow", "select", "unbind", "expand_as", "view_as"),
    }
)
"""Functions that never launch a kernel."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read the intervals of one file, in seconds."""

    floor: float  # of an interval around nothing
    # Of the longest interval around a node that launches nothing: others up to it (a dropout that
    # drops nothing, the backward pass of a sum) do not either.
    longest_view: float
    launch: float  # of the host for a kernel: the shortest interval around one, less the floor

    def on_host(self, row: Row, interval: float) -> bool:
        return _launches_nothing(row) or interval <= self.longest_view

    def time(self, interval: float) -> float:
        return max(interval - self.floor, 0.0)


def reading_of(rows: Sequence[Row]) -> Reading:
    """There is no floor where every node makes a tensor."""
    timed = [row for row in rows if row.forward > 0]
    empty = [row.forward for row in timed if not row.makes_tensor]
    floor = statistics.median(empty) if empty else 0.0
    views = [row.forward for row in timed if row.makes_tensor and row.function in VIEWS]
    longest = max([floor, *views]) if empty else 0.0
    kernels = [row.forward for row in timed if not _launches_nothing(row) and row.forward > longest]
    launch = max(min(kernels) - floor, 0.0) if kernels and empty else 0.0
    return Reading(floor, longest, launch)


def _launches_nothing(row: Row) -> bool:
    return not row.makes_tensor or row.function in VIEWS


# The iteration.


def repeated(rows: Sequence[Row], layers: int, where: str) -> list[Row]:
    """Return what comes before the layer, the layer `layers` times, and what comes after it.

    The layer is all from the first to the last row of modules whose path has a number in it,
    "transformer.h.0.attn"; its copies are numbered, "transformer.h.1.attn". With 0 layers the graph
    is the whole model and stays as it is.
    """
    if layers == 0:
        return list(rows)
    found = {index: layer for index, row in enumerate(rows) if (layer := layer_of(row.module))}
    if not found:
        raise InputError(f"{where}: no layer to repeat: no module's path has a number in it")
    if len(distinct := sorted(set(found.values()))) > 1:
        raise InputError(
            f"{where}: {layers} layers of which kind? it has {', '.join(distinct[:5])}"
        )
    first, last = min(found), max(found) + 1
    (original,) = distinct
    stem = original.rstrip("0123456789")
    copies = (
        replace(row, module=row.module.replace(original, f"{stem}{number}", 1))
        for number in range(layers)
        for row in rows[first:last]
    )
    return [*rows[:first], *copies, *rows[last:]]


def layer_of(module: str) -> str:
    """Return "transformer.h.0" of "transformer.h.0.attn.c_attn"; empty if it has no number."""
    parts = module.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def graph_of(rows: Sequence[Row], reading: Reading) -> Graph:
    """Return the graph of one iteration, with a duration at every node.

    The forward pass in the order of the rows, then the host waits for the device, then the backward
    pass from the last row to the first, each followed by what it accumulates. The device's stream
    is in order, so that no other dependencies are needed.
    """
    nodes: list[Node] = []
    for row, phase, interval in _intervals(rows):
        if phase == "backward" and (not nodes or nodes[-1].phase == "forward"):
            on_device = [node.id for node in nodes if node.resource == "compute"]
            waits = Op("synchronize"), "", "forward", "host", tuple(on_device[-1:])
            nodes.append(Node(len(nodes), *waits, duration=0.0))
        nodes.append(
            Node(
                id=len(nodes),
                op=Op(row.function if row.kind != "call_module" else "module"),
                name=row.module,
                phase=phase,
                resource="host" if reading.on_host(row, interval) else "compute",
                duration=reading.time(interval),
            )
        )
    return build_graph(nodes, where="op latencies")


def replayed(graph: Graph, reading: Reading, slowdown: float = 1.0) -> tuple[Times, Schedule]:
    """The host runs ahead of the device, which takes `slowdown` times as long as timed."""
    on_device = graph.resource == RESOURCES.index("compute")
    durations = np.where(on_device, slowdown * graph.duration, graph.duration)
    schedule = replay(graph, durations, asynchronous=True, launch=reading.launch)
    forward = graph.phase == PHASES.index("forward")
    ends = np.maximum(schedule.end, schedule.issued)
    first = float(ends[forward].max(initial=0.0))
    return Times(first, schedule.makespan - first), schedule


def serial(rows: Sequence[Row]) -> Times:
    """The naive replay: the sum of all intervals as they are."""
    return Times(
        sum(row.forward for row in rows),
        sum(row.backward + row.accumulate for row in rows),
    )


def _intervals(rows: Sequence[Row]) -> Iterator[tuple[Row, str, float]]:
    for row in rows:
        if row.forward > 0:
            yield row, "forward", row.forward
    for row in reversed(rows):
        for interval in (row.backward, row.accumulate):
            if interval > 0:
                yield row, "backward", interval

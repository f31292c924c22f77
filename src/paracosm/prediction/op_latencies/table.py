"""Tables of measured op latencies, one row for each node of a traced graph, and what the whole
model took: the form in which NeuSight (Lee, Phanishayee, Mahajan, ASPLOS 2025) publishes them.

A CSV file has the nodes of a torch.fx graph in the order of execution, with the milliseconds of
each node's forward pass, backward pass, and accumulation of gradients. They were timed one at a
time, between two events on an idle GPU. The JSON file of the same name says how often the layer
in the graph is repeated (`num_layer`; 0 where the graph is the whole model), and the milliseconds
of the whole model's forward pass and of its backward pass with accumulation.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from paracosm.errors import InputError
from paracosm.prediction.json_file import read_json

__all__ = ["Row", "Whole", "read_table", "read_whole"]

COLUMNS = ("op", "target", "Name", "meta", "dtype", "fw_latency", "bw_latency", "acc_latency")


@dataclass(frozen=True, slots=True)
class Row:
    """A node of the graph.

    Attributes:
        name: of the node, "transformer_h_0_ln_1".
        kind: what the node is, "call_module", "call_method", "placeholder", ...
        function: what it calls: the method's or function's own name; a module's place.
        module: place of the innermost module it belongs to; empty for none.
        makes_tensor: whether its result is a tensor.
        forward, backward, accumulate: seconds between the events around it; 0 where there is none.
        inputs: names of the nodes whose results it takes.
        layer: the class of a module, "Linear"; empty for other nodes.
        shapes: of its inputs' tensors.
        shape: of its result.
    """

    name: str
    kind: str
    function: str
    module: str
    makes_tensor: bool
    forward: float
    backward: float
    accumulate: float
    inputs: tuple[str, ...] = ()
    layer: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """What the whole model took, in seconds, and how many layers it has (0: all in the graph)."""

    layers: int
    forward: float
    backward: float
    both: float


def read_table(path: Path) -> list[Row]:
    """Read the nodes of a CSV file.

    Raises:
        InputError: it cannot be read, lacks columns, is cut off, or has what is no number.
    """
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


def read_whole(path: Path) -> Whole:
    """Read what the whole model took from a JSON file.

    Raises:
        InputError: it cannot be read, lacks a name, or has what is no number.
    """
    content = read_json(path)
    values = {}
    for name in ("num_layer", "fw_latency", "bwall_latency", "e2e_latency"):
        if name not in content:
            raise InputError(f"{path}: lacks {name}")
        values[name] = _number(content[name], f"{path}: {name}")
    return Whole(
        layers=int(values["num_layer"]),
        forward=values["fw_latency"] / 1e3,
        backward=values["bwall_latency"] / 1e3,
        both=values["e2e_latency"] / 1e3,
    )


def _row(entry: dict[str, str | None], where: str) -> Row:
    if any(entry[column] is None for column in COLUMNS):
        raise InputError(f"{where}: is cut off")
    text = {column: entry[column] or "" for column in COLUMNS}
    module = _module(text["meta"])
    if not module and text["op"] in ("call_module", "get_attr"):
        module = text["target"]
    return Row(
        name=text["Name"],
        kind=text["op"],
        function=_function(text["target"]),
        module=module,
        makes_tensor=text["dtype"] != "",
        forward=_number(text["fw_latency"], f"{where}, fw_latency") / 1e3,
        backward=_number(text["bw_latency"], f"{where}, bw_latency") / 1e3,
        accumulate=_number(text["acc_latency"], f"{where}, acc_latency") / 1e3,
        inputs=_names(entry.get("_input_nodes") or ""),
        layer=_class(text["meta"]) if text["op"] == "call_module" else "",
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


def _module(meta: str) -> str:
    """Return the last place in the stack of modules that torch.fx notes."""
    places = re.findall(r"\('([^']*)', <class", meta)
    return places[-1] if places else ""


def _class(meta: str) -> str:
    """Return "Linear" of a torch.nn.modules.linear.Linear, the last in the stack of modules."""
    classes = re.findall(r"<class '(?:\w+\.)*(\w+)'>", meta)
    return classes[-1] if classes else ""


def _names(nodes: str) -> tuple[str, ...]:
    """Return the names in "{addmm: None, view_1: None}"."""
    return tuple(name for name in re.findall(r"\w+", nodes) if name != "None")


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes in "[[4, 1024], [1]]" or "[(4, 1024)]"."""
    inner = re.findall(r"[\[(]([\d, ]*)[\])]", text[1:-1])
    return tuple(tuple(map(int, re.findall(r"\d+", each))) for each in inner)


def _function(target: str) -> str:
    """Return "softmax" of "<function softmax at 0x1554>", "matmul" of "<built-in method matmul>".

    A method is its own name already, a module its place.
    """
    found = re.match(r"<(?:built-in )?(?:function|method) (\S+?)>?(?: |$)", target)
    return found[1] if found else target

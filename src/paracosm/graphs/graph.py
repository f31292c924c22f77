"""The unified dataflow graph: one row for every node, in arrays; its ops and their arguments.

Rows are in the order of their ids, in which one thread issues the ops and an in-order stream runs
them. The position of a node in its file does not matter.

Arguments of an op are JSON with the positional ones first, then the named ones, keys sorted and no
blanks, so that equal calls have equal texts:

    {"args":[{"tensor":[64,3,32,32],"dtype":"float32"},{"tensor":[64,3,7,7],"dtype":"float32"},...]}

A tensor that is not contiguous has its "stride", one on another device than the graph's "on". A
list is a list, None is null, a dtype {"dtype":"int64"}, a memory format
{"memory_format":"channels_last"}, a layout {"layout":"strided"}, an infinite or undefined number
{"float":"-inf"}. Devices and generators are null: the environment has the device.
"""

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.units import whole

PHASES = ("forward", "backward", "optimizer", "other")
RESOURCES = ("compute", "host", "memory", "communication")
"""What a node keeps busy: the device's stream, the host alone (a view), copies, the network."""


@dataclass(frozen=True, eq=False)
class Storages:
    """Memory that nodes allocate: one entry for every storage, in the order of allocation.

    Attributes:
        size: bytes.
        first: row of the node that allocates it; -1 for what was there before (then it is not
            counted again in `Graph.resident`).
        last: row of the last node that uses it; the number of nodes where it outlives them all.
    """

    size: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True, eq=False)
class Graph:
    """A dataflow graph of n nodes, of one replica of a job.

    Attributes:
        ops: the distinct ops.
        names: the distinct names of places in the model ("layer1.0.conv1"); "" for none.
        groups: the distinct groups of ranks that communicate.
        id: n ids, ascending.
        op, name: n indices into `ops` and `names`.
        phase, resource: n indices into `PHASES` and `RESOURCES`.
        group: n indices into `groups`; -1 for nodes that do not communicate.
        duration: n seconds; NaN where it is not known.
        offsets, dependencies: CSR: rows `dependencies[offsets[i]:offsets[i + 1]]`, ascending, must
            end before row i begins.
        storages: what is allocated and freed on the way.
        resident: bytes that are held throughout, by what they are ("parameters", "gradients",
            "optimizer", "buffers", "inputs").
        provenance: where the graph comes from: model, batch, dtype, every option of the capture,
            versions. Plain JSON.
    """

    ops: "tuple[Op, ...]"
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    id: Ints
    op: Codes
    name: Codes
    phase: Codes
    resource: Codes
    group: Codes
    duration: Floats
    offsets: Ints
    dependencies: Ints
    storages: Storages
    resident: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.id)

    @property
    def flops(self) -> Ints:
        return np.array([op.flops for op in self.ops], dtype=np.int64)[self.op]

    @property
    def bytes_read(self) -> Ints:
        return np.array([op.bytes_read for op in self.ops], dtype=np.int64)[self.op]

    @property
    def bytes_written(self) -> Ints:
        return np.array([op.bytes_written for op in self.ops], dtype=np.int64)[self.op]

    @property
    def is_timed(self) -> bool:
        """Whether the durations of all nodes that a device computes or copies are known."""
        is_own = (self.resource == RESOURCES.index("compute")) | (
            self.resource == RESOURCES.index("memory")
        )
        return bool(is_own.any() and not np.isnan(self.duration[is_own]).any())

    @property
    def examples(self) -> int | None:
        """The size of the batch; None if the provenance lacks it."""
        count = whole(self.provenance.get("examples", self.provenance.get("batch")))
        return count if count is not None and count > 0 else None

    def predecessors(self, row: int) -> Ints:
        """Return the rows that must end before `row` begins."""
        return self.dependencies[self.offsets[row] : self.offsets[row + 1]]

    def count(self) -> Ints:
        return np.bincount(self.op, minlength=len(self.ops)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor among the arguments of an op: everything but its values.

    Attributes:
        shape: sizes.
        dtype: the name without its package, "float32".
        stride: in elements; None where it is contiguous.
        on: the type of its device, where it is not the graph's ("cpu", beside a GPU).
        entries: rows that a sparse (COO) tensor holds, by their position in its first dimension,
            a position perhaps several times; None of a dense tensor.
    """

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None
    on: str | None = None
    entries: int | None = None


BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
"""Bytes of an element, by the name of its type."""


@dataclass(frozen=True, slots=True)
class Op:
    """One distinct op of a graph; many nodes may be occurrences of it.

    Two ops are the same if name and arguments are: their costs follow from these.

    Attributes:
        name: the op as its framework names it, "aten.convolution.default".
        arguments: in the form described above; "" if they were not recorded.
        flops: floating-point operations (a multiply-add is two); 0 if none are counted.
        bytes_read, bytes_written: of inputs and outputs; a view moves none.
    """

    name: str
    arguments: str = ""
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def encode_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the text of arguments in which `TensorArgument` stands for every tensor.

    Numbers are rounded to six digits, so that rounding errors do not distinguish ops.
    """
    content: dict[str, Any] = {"args": [_encode(value) for value in args]}
    if kwargs:
        content["kwargs"] = {name: _encode(value) for name, value in kwargs.items()}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def decode_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what `encode_arguments` was given; dtypes and the like stay mappings of one name.

    Raises:
        InputError: the text is not of that form.
    """
    args, kwargs = _decoded(text)
    return list(args), dict(kwargs)


@lru_cache(maxsize=4096)  # the same ops are in every layer, and in every division of a model
def _decoded(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        content = parse_json(text, "arguments")
        args = [_decode(value) for value in content["args"]]
        kwargs = {name: _decode(value) for name, value in content.get("kwargs", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"not the arguments of an op: {text[:200]}") from None
    return args, kwargs


def shapes_of(text: str) -> list[str]:
    """Return the shapes of an op's tensors, "64x3x32x32"; none where no arguments are known."""
    try:
        args, kwargs = decode_arguments(text)
    except InputError:
        return []
    return [shape for value in (*args, *kwargs.values()) for shape in _shapes(value)]


def _shapes(value: Any) -> list[str]:
    if isinstance(value, TensorArgument):
        return ["x".join(map(str, value.shape)) or "scalar"]
    return [shape for item in value for shape in _shapes(item)] if isinstance(value, list) else []


def _encode(value: Any) -> Any:
    if isinstance(value, TensorArgument):
        tensor: dict[str, Any] = {"tensor": list(value.shape), "dtype": value.dtype}
        if value.stride is not None:
            tensor["stride"] = list(value.stride)
        if value.on is not None:
            tensor["on"] = value.on
        if value.entries is not None:
            tensor["entries"] = value.entries
        return tensor
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        stride = value.get("stride")
        return TensorArgument(
            shape=tuple(value["tensor"]),
            dtype=value["dtype"],
            stride=None if stride is None else tuple(stride),
            on=value.get("on"),
            entries=value.get("entries"),
        )
    return float(value["float"]) if "float" in value else value


Entry = TypeVar("Entry", bound=Hashable)


def numbered(entries: Sequence[Entry], codes: Codes) -> tuple[tuple[Entry, ...], Codes]:
    """Return distinct entries in order of occurrence, and codes; negative codes stay."""
    used, first = np.unique(codes, return_index=True)
    met: dict[Entry, int] = {}
    fresh = np.full(len(entries) + 1, -1, dtype=np.int32)
    for code in used[np.argsort(first)].tolist():
        if code >= 0:
            fresh[code] = met.setdefault(entries[code], len(met))
    return tuple(met), np.where(codes < 0, codes, fresh[codes])


HOST = RESOURCES.index("host")
COMPUTE = RESOURCES.index("compute")

WAITS = frozenset(
    {
        "aten._local_scalar_dense",
        "aten._unique2",
        "aten.equal",
        "aten.is_nonzero",
        "aten.item",
        "aten.masked_select",
        "aten.nonzero",
        "aten.unique_consecutive",
        "aten.unique_dim",
        "synchronize",
    }
)
"""Ops whose result the host looks at, if only for its size, so that an asynchronous device has to
have it first."""


def waiting_nodes(graph: Graph, asynchronous: bool) -> Bools:
    """Return which host nodes need values; views do not, synchronous computing does."""
    reads = np.array([_without_overload(op.name) in WAITS for op in graph.ops], dtype=np.bool_)
    waits = reads[graph.op] if len(graph.ops) else np.zeros(0, dtype=np.bool_)
    computes = (graph.resource == COMPUTE) & (not asynchronous)
    return np.asarray(waits | computes, dtype=np.bool_)


def host_nodes(graph: Graph, asynchronous: bool) -> Bools:
    """Return for every node whether the host executes it.

    On a synchronous device (a CPU) these are the compute nodes as well; copies and communication
    have lanes of their own everywhere.
    """
    its_own = waiting_nodes(graph, asynchronous) | (graph.resource == HOST)
    return np.asarray(its_own, dtype=np.bool_)


def _without_overload(name: str) -> str:
    """Return "aten.item" of "aten.item.default"."""
    return name.rpartition(".")[0] if name.count(".") > 1 else name

"""PyTorch execution traces: their calls, and which of these are ops that a device executes.

    1.0.1          {"name", "id", "rf_id", "parent", "inputs": [...], "input_shapes": [...], ...}
    1.0.2-chakra.0.0.4 and later
                   {"id", "name", "ctrl_deps", "inputs": {"values", "shapes", "types"}, "attrs"}

Traces that `chakra_trace_link` has joined with the profiler's have more: a call may have its time
on the host in microseconds ("inclusive_dur"), and kernels ("cat") are nested in the calls that
launched them.

A tensor is [tensor id, storage id, offset, elements, bytes of an element, device].

PyTorch's ops call each other: linear calls addmm, which calls kernels of its own. Nodes are the
outermost ops with a kernel of their own, those that a TorchDispatchMode sees; ops that only call
others (CompositeImplicitAutograd) are replaced by these.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paracosm.arrays import Codes
from paracosm.data_files import parse_json
from paracosm.errors import InputError, unknown
from paracosm.graphs.chakra.trace import Tensors
from paracosm.graphs.check import cycle_message, node_label
from paracosm.timeline.kineto.device import OpSpan

COLLECTIVE = "record_param_comms"

_STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
_MODULE = "nn.Module: "

COMPOSITE = frozenset(
    (
        *("_batch_norm_impl_index", "absolute", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
        *("adaptive_avg_pool3d", "arctan2", "argsort", "atleast_1d", "atleast_2d", "batch_norm"),
        *("bilinear", "broadcast_to", "cartesian_prod", "cdist", "chunk", "clip", "clip_"),
        *("concat", "concatenate", "conj", "contiguous", "conv1d", "conv2d", "conv3d"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "cpu"),
        *("cross_entropy_loss", "cuda", "diff", "divide", "divide_", "dropout", "dropout_"),
        *("dstack", "einsum", "embedding_bag", "expand_as", "feature_dropout", "flatten"),
        *("flatten_dense_tensors", "gather_backward", "ger", "greater", "greater_equal"),
        *("group_norm", "gru", "gru_cell", "hsplit", "hstack", "instance_norm", "is_nonzero"),
        *("isclose", "item", "kl_div", "l1_loss", "layer_norm", "less", "less_equal"),
        *("linalg_norm", "linear", "log_softmax", "lstm", "lstm_cell", "matmul", "matrix_exp"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "meshgrid", "moveaxis", "movedim"),
        *("multiply", "multiply_", "narrow", "negative", "nll_loss", "nll_loss2d", "nll_loss_nd"),
        *("not_equal", "nuclear_norm", "numpy_T", "one_hot", "outer", "pad", "pairwise_distance"),
        *("pin_memory", "ravel", "relu6", "reshape", "reshape_as", "resolve_conj", "resolve_neg"),
        *("result_type", "rms_norm", "rnn_tanh", "scaled_dot_product_attention", "selu"),
        *("softmax", "square", "square_", "subtract", "sum_to_size", "swapaxes", "swapdims"),
        *("tensor_split", "tensordot", "to", "true_divide", "type_as", "unflatten"),
        *("unflatten_dense_tensors", "view_as", "vsplit", "vstack", "where_scalar"),
    )
)
"""Ops of ATen without a kernel of their own (as PyTorch's dispatcher lists them)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """An op that becomes a node: its phase, and its enclosing modules, if they were recorded.

    It may pass a gradient to its parameter (`accumulates`).
    """

    call: ObservedCall
    phase: str
    place: str
    accumulates: bool


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a call inherits from those that enclose it."""

    phase: str = "forward"
    place: str = ""
    accumulates: bool = False
    inside: bool = False  # of a unit


def steps_of(trace: ObservedTrace) -> dict[int, int]:
    """Return the node with which each step begins, by the number of the step."""
    found: dict[int, int] = {}
    for number, begin in _marks(trace):
        found.setdefault(number, begin)
    return found


def _marks(trace: ObservedTrace) -> Iterator[tuple[int, int]]:
    for call in trace.calls.values():
        if step := _STEP.match(call.name):
            yield int(step[1]), call.id


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """The ops of one step in the order in which they began."""

    units: list[Unit]
    number: int | None  # None where no step is marked, and these are all ops
    ops_of: Mapping[int, int]  # by number of each step, how many ops it has


def observed_step(trace: ObservedTrace, step: int | None, where: str) -> ObservedStep:
    """Return the step of a number, or the last one that has ops.

    A profiler that is stopped after its last `step()` leaves the mark of one more step, in which
    nothing ran.
    """
    steps = steps_of(trace)
    if step is not None and step not in steps:
        if not steps:
            raise InputError(f"{where}: no step is marked (ProfilerStep#): leave --step out")
        raise InputError(f"{where}: {unknown('step', str(step), [str(each) for each in steps])}")
    scopes = _Scopes(trace.calls, where)
    units = [
        Unit(call, scope.phase, scope.place, scope.accumulates)
        for call in trace.calls.values()
        for scope in [scopes.of(call.id)]
        if _counts(call) and not scopes.of(call.parent).inside
    ]
    if not units:
        raise InputError(f"{where}: an execution trace without ops: no node has an op_schema")
    if not steps:
        return ObservedStep(_with_module_paths(units), None, {})
    begins = sorted(begin for _, begin in _marks(trace))
    ids = [unit.call.id for unit in units]
    edges = {begin: next((b for b in begins if b > begin), 2**63) for begin in begins}
    rows = {
        number: (bisect_left(ids, begin), bisect_left(ids, edges[begin]))
        for number, begin in steps.items()
    }
    with_ops = [number for number, (first, end) in rows.items() if end > first]
    if step is not None and step not in with_ops:
        has = ", ".join(map(str, sorted(with_ops))) or "none"
        raise InputError(f"{where}: step {step} has no ops; steps that have: {has}")
    chosen = max(with_ops, default=None) if step is None else step
    if chosen is None:
        raise InputError(
            f"{where}: no op is in one of its {len(steps)} steps (ProfilerStep#): they are "
            f"{len(units):,} ops before the first one"
        )
    first, end = rows[chosen]
    ops_of = {number: last - begin for number, (begin, last) in sorted(rows.items())}
    return ObservedStep(_with_module_paths(units[first:end]), chosen, ops_of)


class _Scopes:
    def __init__(self, calls: Mapping[int, ObservedCall], where: str) -> None:
        self._calls, self._where = calls, where
        self._known: dict[int, _Scope] = {}

    def of(self, wanted: int) -> _Scope:
        path: list[int] = []
        met: set[int] = set()
        at = wanted
        while at not in self._known and at in self._calls:
            if at in met:
                cycle = path[path.index(at) :]
                labels = [node_label(each, self._calls[each].name) for each in cycle]
                raise InputError(f"{self._where}: {cycle_message(labels)}")
            path.append(at)
            met.add(at)
            # The outermost call is its own parent, or has one that is not there.
            if (parent := self._calls[at].parent) == at:
                break
            at = parent
        scope = self._known.get(at, _Scope())
        for each in reversed(path):
            scope = self._known[each] = _within(scope, self._calls[each])
        return scope


def _within(scope: _Scope, call: ObservedCall) -> _Scope:
    phase, place, name = scope.phase, scope.place, call.name
    if name.startswith("autograd::engine::evaluate_function") or name == "## backward ##":
        phase = "backward"
    elif name.startswith("Optimizer.") or name == "## optimizer ##":
        phase = "optimizer"
    elif name.startswith(_MODULE):
        part = name.removeprefix(_MODULE)
        place = f"{place}.{part}" if place else part
    accumulates = scope.accumulates or name.endswith("torch::autograd::AccumulateGrad")
    return _Scope(phase, place, accumulates, scope.inside or _counts(call))


def _counts(call: ObservedCall) -> bool:
    if call.name == COLLECTIVE:
        return bool(call.read or call.made)
    namespace, _, name = call.name.partition("::")
    return bool(call.schema) and namespace != "c10d" and name not in COMPOSITE


def _with_module_paths(units: list[Unit]) -> list[Unit]:
    places = {
        unit.call.sequence: unit.place
        for unit in units
        if unit.phase == "forward" and unit.call.sequence >= 0 and unit.place
    }
    if not places:
        return units
    return [
        Unit(unit.call, unit.phase, places.get(unit.call.sequence, unit.place), unit.accumulates)
        if unit.phase == "backward"
        else unit
        for unit in units
    ]


_MUTATED = re.compile(r"\((?:\w+ *)?!|\(\w+!")
_ALIVE = -1


@dataclass
class _Life:
    size: int
    maker: int  # row of the unit; -1 for what was there before
    last: int
    accumulated: bool = False  # a gradient's: what backward passes add to
    in_forward: bool = False
    updated: bool = False  # by the optimizer

    @property
    def kind(self) -> str:
        """What it is if it was there before the step.

        The optimizer changes parameters and its own state, and may scale or clear gradients; the
        forward pass takes only parameters.
        """
        if self.accumulated:
            return "gradients"
        if not self.updated:
            return "inputs"
        return "parameters" if self.in_forward else "optimizer"


@dataclass
class _Storage:
    life: _Life
    writer: int = -1
    readers: list[int] = field(default_factory=list)


def is_view(unit: Unit) -> bool:
    """Whether an op returns only its inputs, and changes nothing."""
    if _MUTATED.search(unit.call.schema) or not unit.call.made or unit.call.name == COLLECTIVE:
        return False
    given = {use.storage for use in unit.call.read}
    return all(use.storage in given for use in unit.call.made)


def book(
    units: Sequence[Unit],
) -> tuple[list[tuple[int, ...]], list[tuple[tuple[int, int], ...]], dict[str, int]]:
    """Return dependencies and memory of units, which are in the order of issue.

    For each unit ids of those that it waits for, and (bytes, id of the last user or -1) of what it
    allocates; and the bytes from before, by kind.

    An op waits for the last writer of all that it touches, and for the readers since of what it
    writes. A storage is identified by its address; if an op returns an address that is not among
    its inputs, it was allocated anew, and the previous storage was freed after its last user.
    """
    held: dict[int, _Storage] = {}
    lives: list[_Life] = []
    waits = []
    for row, unit in enumerate(units):
        before: set[int] = set()
        for use in unit.call.read:
            if use.storage not in held:
                held[use.storage] = _Storage(_Life(use.size, -1, row))
                lives.append(held[use.storage].life)
            storage = held[use.storage]
            storage.life.size = max(storage.life.size, use.size)
            storage.life.last = row
            storage.life.accumulated |= unit.accumulates
            storage.life.in_forward |= unit.phase == "forward"
            before.add(storage.writer)
        written = [] if is_view(unit) else _storages_written(unit)
        given = {use.storage for use in unit.call.read}
        for number, size in written:
            if number not in given:
                held[number] = _Storage(_Life(size, row, row), row, [])
                lives.append(held[number].life)
                continue
            storage = held[number]
            before.update(storage.readers)
            storage.writer, storage.readers = row, []
            storage.life.updated |= unit.phase == "optimizer"
        changed = {number for number, _ in written}
        for number in given - changed:
            held[number].readers.append(row)
        waits.append(tuple(units[each].call.id for each in sorted(before - {-1, row})))
    resident = {"parameters": 0, "gradients": 0, "optimizer": 0, "inputs": 0}
    allocated: list[list[tuple[int, int]]] = [[] for _ in units]
    for life in lives:
        if life.maker < 0:
            resident[life.kind] += life.size
        elif life.size:
            last = _ALIVE if life.accumulated else units[life.last].call.id
            allocated[life.maker].append((life.size, last))
    if not resident["parameters"]:  # no forward pass shows which they are
        resident["parameters"], resident["optimizer"] = resident["optimizer"], 0
    return waits, [tuple(each) for each in allocated], resident


def _storages_written(unit: Unit) -> list[tuple[int, int]]:
    """Return storages and bytes of outputs, and of arguments marked "(a!)" in the schema."""
    written: dict[int, int] = {}
    for use in (*unit.call.made, *_mutated(unit.call)):
        written[use.storage] = max(use.size, written.get(use.storage, 0))
    return list(written.items())


def _mutated(call: ObservedCall) -> Iterable[TensorUse]:
    """Return the tensors that an op changes in place: of a list of them (`_foreach_add_`), all."""
    if not _MUTATED.search(call.schema):
        return ()
    marked = [_MUTATED.search(argument) is not None for argument in _arguments(call.schema)]
    if len(marked) != len(call.inputs.values):
        return call.read[:1]
    return _uses(
        [value for value, is_out in zip(call.inputs.values, marked, strict=True) if is_out]
    )


def _arguments(schema: str) -> list[str]:
    """Return the arguments in a schema: of "add_(Tensor(a!) self, *, Scalar alpha=1)" two."""
    found, depth = [""], 0
    for letter in schema.partition("(")[2]:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [text for text in map(str.strip, found) if text not in ("", "*")]


@dataclass(frozen=True, slots=True)
class TensorUse:
    """A tensor among the arguments of a call: its storage, and the bytes up to its end there."""

    storage: int
    size: int


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call as recorded by the observer; ids ascend in the order in which calls begin.

    `parent` is the enclosing call, `record` the profiler's id of it or -1, `sequence` the number
    that a forward op and its gradient share or -1; `read` and `made` are the tensors in `inputs`
    and `outputs`.
    """

    id: int
    name: str
    parent: int
    record: int
    sequence: int
    schema: str
    inputs: Tensors
    outputs: Tensors
    read: tuple[TensorUse, ...]
    made: tuple[TensorUse, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedTrace:
    """A trace: the version of its schema, and its calls by id, ascending.

    `linked` has the times of calls, where Chakra's `chakra_trace_link` has put the profiler's in.
    """

    schema: str
    calls: Mapping[int, ObservedCall]
    linked: Mapping[int, OpSpan]


def parse_trace(data: bytes, where: str) -> ObservedTrace:
    found = parse_json(data, where)
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), list):
        raise InputError(f'{where}: no execution trace of PyTorch: it lacks "nodes"')
    calls: dict[int, ObservedCall] = {}
    device: list[ObservedCall] = []
    for position, node in enumerate(found["nodes"]):
        call = _call(node, position, where)
        if isinstance(call.attributes.get("cat"), str):
            device.append(call)
            continue
        if call.id in calls:
            raise InputError(f"{where}: two nodes have the id {call.id}: {calls[call.id].name}, "
                             f"{call.name}")  # fmt: skip
        calls[call.id] = call
    linked = _linked(calls, device, where)
    return ObservedTrace(str(found.get("schema", "")), dict(sorted(calls.items())), linked)


def _linked(
    calls: Mapping[int, ObservedCall], device: Sequence[ObservedCall], where: str
) -> dict[int, OpSpan]:
    """Return the times of calls: of all that they launched, else their own on the host."""

    def seconds(call: ObservedCall) -> float:
        found = call.attributes.get("inclusive_dur")
        if not isinstance(found, int | float) or not 0 <= found < math.inf:
            raise InputError(f'{where}: node {call.id}: "inclusive_dur" is {found!r:.40}, no time')
        return found / 1e6

    launched: dict[int, float] = {}
    for kernel in device:
        at, met = kernel.parent, {kernel.id}
        while at in calls and at not in met:
            met.add(at)
            launched[at] = launched.get(at, 0.0) + seconds(kernel)
            at = calls[at].parent
    return {
        call.id: OpSpan(
            record=call.record,
            thread=_integer(call.attributes.get("tid")),
            name=call.name,
            seconds=launched[call.id] if call.id in launched else seconds(call),
            on_device=call.id in launched,
        )
        for call in calls.values()
        if call.id in launched or "inclusive_dur" in call.attributes
    }


def _call(node: Any, position: int, where: str) -> ObservedCall:
    if not isinstance(node, dict):
        raise InputError(f"{where}: node {position} of the file must be a mapping")
    attributes = _attributes(node)
    nested = isinstance(node.get("inputs"), dict)
    parent = node.get("ctrl_deps") if "ctrl_deps" in node else node.get("parent")
    for key, value in (("id", node.get("id")), ("ctrl_deps or parent", parent)):
        if type(value) is not int or not 0 <= value < 2**63:
            raise InputError(f'{where}: node {position} of the file lacks "{key}": {value!r:.40}')
    if not isinstance(node.get("name"), str):
        raise InputError(f'{where}: node {node["id"]} lacks "name"')
    inputs, outputs = (_tensors(node, what, nested) for what in ("input", "output"))
    return ObservedCall(
        id=node["id"],
        name=node["name"],
        parent=parent if type(parent) is int else 0,
        record=_integer(attributes.get("rf_id")),
        sequence=_integer(attributes.get("seq_id")),
        schema=str(attributes.get("op_schema", "")),
        inputs=inputs,
        outputs=outputs,
        read=tuple(_uses(inputs.values)),
        made=tuple(_uses(outputs.values)),
        attributes=attributes,
    )


def _attributes(node: dict[str, Any]) -> dict[str, Any]:
    """Return the content of "attrs", or in older schemas of the node itself."""
    found = {key: value for key, value in node.items() if key not in ("inputs", "outputs", "attrs")}
    listed = node.get("attrs")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            found[each["name"]] = each.get("value")
    return found


def _tensors(node: dict[str, Any], what: str, nested: bool) -> Tensors:
    if nested:
        part = node.get(f"{what}s")
        part = part if isinstance(part, dict) else {}
        found = [part.get(key) for key in ("shapes", "types", "values")]
    else:
        found = [node.get(f"{what}_shapes"), node.get(f"{what}_types"), node.get(f"{what}s")]
    return Tensors(*(value if isinstance(value, list) else [] for value in found))


def _integer(value: Any) -> int:
    return value if type(value) is int else -1


def _uses(value: Any, depth: int = 0) -> Iterator[TensorUse]:
    if not isinstance(value, list) or depth > 8:
        return
    whole = len(value) >= 6 and all(type(each) is int for each in value[:5])
    if whole and isinstance(value[5], str):
        size = (max(value[2], 0) + value[3]) * value[4]  # of its storage, as far as it reaches
        if value[1] > 0 and 0 <= size < 2**50:
            yield TensorUse(value[1], size)
        return
    for each in value:
        yield from _uses(each, depth + 1)


_ANCHOR = 2000
"""Calls of a thread by which its place in the profiler's trace is found."""

_ALIKE = 0.8
"""Share of the names that must be the same there."""


def joined(
    calls: Mapping[int, ObservedCall], times: Sequence[OpSpan], where: str
) -> dict[int, OpSpan]:
    """Return the times of calls by their ids, as far as they can be matched.

    Both traces count record functions: the execution trace's "rf_id" is the profiler's "Record
    function id", since PyTorch 2.2. Traces without it are aligned: the calls of each thread are
    placed so that as many names as possible agree in order.
    """
    wanted = sorted((c for c in calls.values() if c.record > 0), key=lambda c: c.record)
    by_record = {time.record: time for time in times if time.record > 0}
    if by_record:
        found = {
            call.id: by_record[call.record]
            for call in wanted
            if call.record in by_record and by_record[call.record].name == call.name
        }
    else:
        found = _aligned(calls.values(), times)
    if not found:
        raise InputError(
            f"{where}: the profiler's trace has none of its ops: it is of another run, or of "
            "another rank"
        )
    return found


def _aligned(calls: Iterable[ObservedCall], times: Sequence[OpSpan]) -> dict[int, OpSpan]:
    codes: dict[str, int] = {}
    threads: dict[object, list[ObservedCall]] = {}
    for call in calls:
        if call.record > 0:
            threads.setdefault(call.attributes.get("tid"), []).append(call)
    lanes: dict[int, list[OpSpan]] = {}
    for time in times:
        lanes.setdefault(time.thread, []).append(time)

    def coded(names: Iterable[str]) -> Codes:
        return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int32)

    seen = {lane: coded(time.name for time in ops) for lane, ops in lanes.items()}
    found: dict[int, OpSpan] = {}
    for thread in threads.values():
        wanted = coded(call.name for call in thread)
        share, lane, offset = _found_in(wanted, seen)
        if share < _ALIKE:
            continue
        for call, time in zip(thread, lanes[lane][offset:], strict=False):
            if call.name == time.name:
                found[call.id] = time
    return found


def _found_in(wanted: Codes, seen: Mapping[int, Codes]) -> tuple[float, int, int]:
    anchor = wanted[:_ANCHOR]
    best = (0.0, 0, 0)
    for lane, names in seen.items():
        if len(names) < len(anchor):
            continue
        windows = np.lib.stride_tricks.sliding_window_view(names, len(anchor))
        same = np.array([np.count_nonzero(window == anchor) for window in windows])
        place = int(same.argmax())
        best = max(best, (float(same[place]) / len(anchor), lane, place), key=lambda each: each[0])
    return best

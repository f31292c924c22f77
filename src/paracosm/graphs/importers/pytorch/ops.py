"""Which of the calls within calls are ops that a device carries out, and where they belong.

PyTorch's ops call each other: linear calls addmm, which calls kernels of its own. What counts is
the outermost op with a kernel of its own, the one that a TorchDispatchMode sees; ops that only call
others (CompositeImplicitAutograd) are looked into.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paracosm.errors import InputError, unknown
from paracosm.graphs.check import cycle_message, node_label
from paracosm.graphs.importers.pytorch.trace import ObservedCall, ObservedTrace

COLLECTIVE = "record_param_comms"

_STEP = re.compile(r"ProfilerStep#(\d+)$")
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
    """An op that counts: its phase, and the modules that it stands in, where they were recorded.

    It may hand a gradient to its parameter (`accumulates`).

    """

    call: ObservedCall
    phase: str
    place: str
    accumulates: bool


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a call inherits from those that it stands in."""

    phase: str = "forward"
    place: str = ""
    accumulates: bool = False
    inside: bool = False  # of a unit


def steps_of(trace: ObservedTrace) -> dict[int, int]:
    found = {}
    for call in trace.calls.values():
        if step := _STEP.match(call.name):
            found[int(step[1])] = call.id
    return found


def units_of(trace: ObservedTrace, step: int | None, where: str) -> tuple[list[Unit], int | None]:
    """Return the ops of one step in the order in which they began, and the number of the step."""
    steps = steps_of(trace)
    if step is not None and step not in steps:
        if not steps:
            raise InputError(f"{where}: no step is marked (ProfilerStep#): leave --step out")
        raise InputError(f"{where}: {unknown('step', str(step), [str(each) for each in steps])}")
    chosen = step if step is not None else max(steps, default=None)
    begin = 0 if chosen is None else steps[chosen]
    end = min((first for first in steps.values() if first > begin), default=2**63)
    scopes = _Scopes(trace.calls, where)
    units = []
    for call in trace.calls.values():
        scope = scopes.of(call.id)
        if begin <= call.id < end and _counts(call) and not scopes.of(call.parent).inside:
            units.append(Unit(call, scope.phase, scope.place, scope.accumulates))
    if not units:
        raise InputError(f"{where}: an execution trace without ops: no node has an op_schema")
    return _with_module_paths(units), chosen


class _Scopes:
    """What each call inherits, found once."""

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
    """Return units with the place of the forward op where theirs is its gradient."""
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
class Booked:
    """What follows from the storages.

    For each unit ids of those that must end before, and (bytes, id of the last user or -1) of what
    it allocates; `resident` are the bytes that were there before.

    """

    waits: list[tuple[int, ...]]
    allocates: list[tuple[tuple[int, int], ...]]
    resident: dict[str, int]


@dataclass
class _Life:
    size: int
    maker: int  # row of the unit; -1 for what was there before
    last: int
    kept: bool = False
    updated: bool = False


@dataclass
class _Storage:
    life: _Life
    writer: int = -1
    readers: list[int] = field(default_factory=list)


def is_view(unit: Unit) -> bool:
    """Whether an op puts out only what it was given, and changes nothing."""
    if _MUTATED.search(unit.call.schema) or not unit.call.made or unit.call.name == COLLECTIVE:
        return False
    given = {use.storage for use in unit.call.read}
    return all(use.storage in given for use in unit.call.made)


def book(units: Sequence[Unit]) -> Booked:
    """Return dependencies and memory of units, which stand in the order of issue.

    An op waits for the last writer of all that it touches, and for the readers since of what it
    writes. A storage is known by its address; where an op puts out what it was not given, the
    address has been handed out anew, and what lay there before was freed after its last user.
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
            storage.life.kept |= unit.accumulates
            before.add(storage.writer)
        written = [] if is_view(unit) else _written(unit)
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
    return Booked(waits, _allocations(units, lives), _resident(lives))


def _written(unit: Unit) -> list[tuple[int, int]]:
    """Return storages and bytes of what an op writes: its outputs, and arguments marked "(a!)".

    Which argument it is, the schema says by position; an op that returns what it changes (most do)
    names it among its outputs as well.
    """
    written = {use.storage: use.size for use in unit.call.made}
    if not written and _MUTATED.search(unit.call.schema):
        written = {use.storage: use.size for use in unit.call.read[:1]}
    return list(written.items())


def _allocations(
    units: Sequence[Unit], lives: Sequence[_Life]
) -> list[tuple[tuple[int, int], ...]]:
    allocated: list[list[tuple[int, int]]] = [[] for _ in units]
    for life in lives:
        if life.maker >= 0 and life.size:
            last = _ALIVE if life.kept else units[life.last].call.id
            allocated[life.maker].append((life.size, last))
    return [tuple(each) for each in allocated]


def _resident(lives: Sequence[_Life]) -> dict[str, int]:
    there = [life for life in lives if life.maker < 0]
    return {
        "parameters": sum(life.size for life in there if life.updated),
        "inputs": sum(life.size for life in there if not life.updated),
    }

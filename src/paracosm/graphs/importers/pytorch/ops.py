"""Which calls of a PyTorch execution trace are ops that a device executes, and what they hold.

PyTorch's ops call each other: linear calls addmm, which calls kernels of its own. Nodes are the
outermost ops with a kernel of their own, those that a TorchDispatchMode sees; ops that only call
others (CompositeImplicitAutograd) are replaced by these.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paracosm.errors import InputError, unknown
from paracosm.graphs.check import cycle_message, node_label
from paracosm.graphs.importers.pytorch.trace import (
    ObservedCall,
    ObservedTrace,
    TensorUse,
    uses_in,
)

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
    steps: dict[int, int] = {}
    for number, begin in _marks(trace):
        steps.setdefault(number, begin)
    return steps


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
        raise InputError(f"{where}: {unknown('step', str(step), [str(step) for step in steps])}")
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
                labels = [node_label(call, self._calls[call].name) for call in cycle]
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
    storages = {use.storage for use in unit.call.read}
    return all(use.storage in storages for use in unit.call.made)


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
        waits.append(tuple(units[unit].call.id for unit in sorted(before - {-1, row})))
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
    return waits, [tuple(sizes) for sizes in allocated], resident


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
    return uses_in(
        [value for value, is_out in zip(call.inputs.values, marked, strict=True) if is_out]
    )


def _arguments(schema: str) -> list[str]:
    """Return the arguments in a schema: of "add_(Tensor(a!) self, *, Scalar alpha=1)" two."""
    arguments, depth = [""], 0
    for letter in schema.partition("(")[2]:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and not depth:
            arguments.append("")
        else:
            arguments[-1] += letter
    return [text for text in map(str.strip, arguments) if text not in ("", "*")]

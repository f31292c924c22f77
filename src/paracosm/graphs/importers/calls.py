"""A graph from calls that pass values to each other by name, as in files of models."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.check import in_issue_order, node_label
from paracosm.graphs.graph import BYTES, PHASES, Graph, Op, TensorArgument, encode_arguments

Tensors = Mapping[str, TensorArgument]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op.

    Attributes:
        op: its name.
        name: its place in the model.
        inputs, outputs: names of values; "" for one that is left out. What no call puts out was
            there before.
        attributes: the other arguments, plain JSON.
        flops: floating-point operations.
        moved: bytes read and written; None for all of inputs and outputs.
        phase, resource: as in `Node`. A call on the host moves nothing, and its outputs are the
            first input in another form.
        waits: positions of other calls that must end before, beside those that make the inputs.
        group: ranks that communicate.
        duration: seconds; NaN where it is not known.
    """

    op: str
    name: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    flops: int = 0
    moved: tuple[int, int] | None = None
    phase: str = "forward"
    resource: str = "compute"
    waits: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    duration: float = math.nan


def graph_of_calls(
    calls: Sequence[Call],
    tensors: Tensors,
    *,
    where: str,
    resident: Mapping[str, int],
    provenance: Mapping[str, Any],
    kept: Collection[str] = (),
) -> Graph:
    """Return the graph of `calls`, with those that must wait moved back.

    Files of models have no order of phases; here the forward pass comes first, then the backward
    pass, then the optimizer. What waits for a later phase is part of it.

    A value is allocated by the call that makes it, and freed after the last one that uses it or a
    view of it; those in `kept` outlive the graph.
    """
    makers = _makers(calls, where)
    waits = [
        sorted({makers[value] for value in call.inputs if value in makers} | {*call.waits})
        for call in calls
    ]
    order = in_issue_order(
        waits, range(len(calls)), lambda i: node_label(i, calls[i].op, calls[i].name), where
    )
    phases = _phases(calls, waits, order)
    order.sort(key=lambda position: phases[position])
    row_of = {position: row for row, position in enumerate(order)}
    storages = _storages([calls[position] for position in order], tensors, kept)
    nodes = [
        Node(
            id=row,
            op=_op(calls[position], tensors),
            name=calls[position].name,
            phase="other" if calls[position].phase == "other" else PHASES[phases[position]],
            resource=calls[position].resource,
            dependencies=tuple(row_of[before] for before in waits[position]),
            group=calls[position].group,
            duration=calls[position].duration,
            allocates=tuple(storages[row]),
        )
        for row, position in enumerate(order)
    ]
    return build_graph(nodes, resident, provenance, where)


def _phases(
    calls: Sequence[Call], waits: Sequence[Sequence[int]], order: Sequence[int]
) -> list[int]:
    """Return indices into `PHASES`, none below that of a call that is waited for."""
    phases = [0] * len(calls)
    for position in order:
        phase = calls[position].phase
        phase_number = 0 if phase == "other" else PHASES.index(phase)
        phases[position] = max([phase_number, *(phases[before] for before in waits[position])])
    return phases


def _makers(calls: Sequence[Call], where: str) -> dict[str, int]:
    makers: dict[str, int] = {}
    for position, call in enumerate(calls):
        for value in call.outputs:
            if value in makers:
                other = calls[makers[value]]
                raise InputError(
                    f"{where}: {node_label(makers[value], other.op, other.name)} and "
                    f"{node_label(position, call.op, call.name)} both put out {value[:80]}"
                )
            if value:
                makers[value] = position
    return makers


def _op(call: Call, tensors: Tensors) -> Op:
    arguments = encode_arguments([tensors.get(value) for value in call.inputs], call.attributes)
    if call.moved is not None:
        read, written = call.moved
    elif call.resource == "host":
        read = written = 0
    else:
        read = sum(bytes_of(tensors.get(value)) for value in dict.fromkeys(call.inputs))
        written = sum(bytes_of(tensors.get(value)) for value in call.outputs)
    return Op(call.op, arguments, call.flops, read, written)


def _storages(
    calls: Sequence[Call], tensors: Tensors, kept: Collection[str]
) -> list[list[tuple[int, int]]]:
    origin: dict[str, str] = {}
    last: dict[str, int] = {}
    allocated: list[list[str]] = []
    for row, call in enumerate(calls):
        for value in call.inputs:
            last[origin.get(value, value)] = row
        made = []
        for value in call.outputs:
            if call.resource == "host":
                base = call.inputs[0] if call.inputs else value
                origin[value] = origin.get(base, base)
            elif bytes_of(tensors.get(value)):
                last[value] = row
                made.append(value)
        allocated.append(made)
    for value in kept:
        last[origin.get(value, value)] = -1
    return [[(bytes_of(tensors.get(value)), last[value]) for value in made] for made in allocated]


def check_sizes(sizes: Iterable[str], known: Collection[str], where: str) -> None:
    """Check that the names of given sizes are among those that a model leaves open."""
    for name in sizes:
        if not known:
            raise InputError(f"{where}: --size {name} has no effect: the model leaves no size open")
        if name not in known:
            raise InputError(f"{where}: --size: {unknown('size', name, known)}")


def shapes_of(tensors: Iterable[TensorArgument | None]) -> list[tuple[int, ...] | None]:
    return [None if tensor is None else tensor.shape for tensor in tensors]


def elements_of(tensor: TensorArgument | None) -> int:
    return 0 if tensor is None else math.prod(tensor.shape)


def bytes_of(tensor: TensorArgument | None) -> int:
    """Return the bytes of a tensor; 0 if it, or the size of its type, is unknown."""
    return 0 if tensor is None else math.prod(tensor.shape) * BYTES.get(tensor.dtype, 0)

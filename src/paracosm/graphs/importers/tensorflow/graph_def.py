"""TensorFlow graphs (GraphDef, SavedModel) as graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.check import node_label
from paracosm.graphs.contents import contents
from paracosm.graphs.graph import Graph
from paracosm.graphs.importers.calls import Call, graph_of_calls
from paracosm.graphs.importers.tensorflow.meaning import (
    flops_of,
    is_update,
    phase_by_name,
    place_of,
    puts_out_nothing,
    resource_of,
)
from paracosm.graphs.importers.tensorflow.nodes import TfNode, needed_by, read_nodes
from paracosm.graphs.importers.tensorflow.shapes import Known, infer_shapes
from paracosm.graphs.importers.tensors import bytes_of, check_sizes
from paracosm.graphs.op import TensorArgument
from paracosm.graphs.ordering import in_issue_order

__all__ = ["read_graph_def"]

_VARIABLES = frozenset(("Variable", "VariableV2", "VarHandleOp"))


def read_graph_def(
    path: Path,
    *,
    sizes: Mapping[str, int] | None = None,
    fetch: Sequence[str] = (),
    saved_model: bool = False,
) -> Graph:
    """Read a GraphDef or a SavedModel (saved_model.pb) in protobuf's binary form.

    Shapes are those of `_output_shapes`, else inferred. Functions are written out where they are
    called. The body of a while loop counts once.

    Args:
        path: the file, gzipped or not.
        sizes: {"batch": 8} where placeholders leave the first size open.
        fetch: names of nodes; only what they need is read. All nodes where it is empty.
        saved_model: whether it is a SavedModel; of that, the first signature is read.

    Raises:
        InputError: damaged, no graph, names twice, inputs that are not there, a cycle, a size
            that is not open.
    """
    where = str(path)
    nodes = read_nodes(contents(path), where, saved_model)
    if fetch:
        nodes = needed_by(nodes, fetch, where)
    nodes, loops = _in_order(nodes, where)
    known = infer_shapes(nodes, sizes or {})
    check_sizes(sizes or (), ("batch",) if known.first_open else (), where)
    variables = _variables(nodes, known)
    phases = _phases(nodes)
    position = {node.name: row for row, node in enumerate(nodes)}
    calls = [_call(node, known, variables, phases[node.name], position) for node in nodes]
    gradients = _gradients(nodes)
    provenance = _provenance(path, nodes, calls, known)
    return graph_of_calls(
        calls,
        known.tensors,
        where=where,
        resident=_resident(nodes, known, variables),
        provenance=provenance | {"loops_counted_once": loops, "saved_model": saved_model},
        kept=gradients,
    )


def _in_order(nodes: Sequence[TfNode], where: str) -> tuple[list[TfNode], int]:
    """Return nodes in an order that runs, and how many loops were cut where they close."""
    row = {}
    for number, node in enumerate(nodes):
        if node.name in row:
            raise InputError(f"{where}: two nodes have the name {node.name}")
        row[node.name] = number
    waits: list[list[int]] = []
    kept: list[TfNode] = []
    loops = 0
    for number, node in enumerate(nodes):
        names = [value.rpartition(":")[0] for value in node.inputs] + [*node.control]
        for name in names:
            if name not in row:
                raise InputError(
                    f"{where}: {node_label(number, node.op, node.name)} waits for {name}, which "
                    "is not there: the file is cut off, or a part of a graph"
                )
        if node.op in ("Merge", "RefMerge"):
            closing = {name for name in names if nodes[row[name]].op.endswith("NextIteration")}
            loops += bool(closing)
            inputs = [v for v in node.inputs if v.rpartition(":")[0] not in closing]
            node, names = (
                replace(node, inputs=tuple(inputs)),
                [n for n in names if n not in closing],
            )
        kept.append(node)
        waits.append(sorted({row[name] for name in names}))
    order = in_issue_order(
        waits, range(len(kept)), lambda i: node_label(i, kept[i].op, kept[i].name), where
    )
    return [kept[number] for number in order], loops


def _variables(nodes: Sequence[TfNode], known: Known) -> dict[str, TensorArgument]:
    """Return the variables' tensors by every value that stands for one: handles and reads."""
    found: dict[str, TensorArgument] = {}
    for node in nodes:
        value = f"{node.name}:0"
        if node.op in _VARIABLES and value in known.tensors:
            found[value] = known.tensors[value]
        elif node.op in ("Identity", "ReadVariableOp", "Enter") and node.inputs:
            if node.inputs[0] in found:
                found[value] = found[node.inputs[0]]
                known.tensors.setdefault(value, found[value])
            elif node.inputs[0] in known.tensors:
                known.tensors.setdefault(value, known.tensors[node.inputs[0]])
    return found


def _call(
    node: TfNode,
    known: Known,
    variables: Mapping[str, TensorArgument],
    phase: str,
    position: Mapping[str, int],
) -> Call:
    resource = resource_of(node.op)
    outputs: list[str] = []
    while (value := f"{node.name}:{len(outputs)}") in known.tensors:
        outputs.append(value)
    inputs = [known.tensors.get(value) for value in node.inputs]
    waits = {position[name] for name in node.control}
    # Outputs whose shapes nobody knows are waited for by the name of the node.
    waits |= {position[value.rpartition(":")[0]] for value in node.inputs}
    written = (
        [bytes_of(variables.get(value)) for value in node.inputs] if is_update(node.op) else []
    )
    return Call(
        op=f"tensorflow.{node.op}",
        name=place_of(node.name),
        inputs=node.inputs,
        outputs=tuple(outputs),
        attributes=_plain(node),
        flops=flops_of(node.op, inputs, [known.tensors[value] for value in outputs]),
        moved=(sum(map(bytes_of, inputs)), sum(written)) if is_update(node.op) else None,
        phase=phase,
        resource=resource,
        waits=tuple(sorted(waits)),
    )


def _plain(node: TfNode) -> dict[str, Any]:
    """Return the attributes that decide how an op computes."""
    plain: dict[str, Any] = {}
    for name, value in sorted(node.attributes.items()):
        if name.startswith("_") or value is None or name in ("shared_name", "container"):
            continue
        if value["list"] is not None and value["list"]["i"]:
            plain[name] = value["list"]["i"]
        elif value["s"]:
            plain[name] = value["s"].decode(errors="replace")
        elif value["b"]:
            plain[name] = True
    return plain


def _phases(nodes: Sequence[TfNode]) -> dict[str, str]:
    """Return the phase of each node: what a gradient needs is not the optimizer's."""
    phases = {node.name: phase_by_name(node.name, node.op) for node in nodes}
    needed = {name for name, phase in phases.items() if phase == "backward"}
    for node in reversed(nodes):
        if node.name in needed:
            needed |= {value.rpartition(":")[0] for value in node.inputs}
    for node in nodes:
        if node.name in needed and phases[node.name] == "optimizer" and not is_update(node.op):
            phases[node.name] = "forward"
    return phases


def _gradients(nodes: Sequence[TfNode]) -> set[str]:
    """Return the values by which variables are updated: they outlive the step."""
    backward = {node.name for node in nodes if phase_by_name(node.name, node.op) == "backward"}
    return {
        value
        for node in nodes
        if is_update(node.op)
        for value in node.inputs
        if value.rpartition(":")[0] in backward
    }


def _resident(
    nodes: Sequence[TfNode], known: Known, variables: Mapping[str, TensorArgument]
) -> dict[str, int]:
    """Return what is held: variables (those made beside another are the optimizer's), inputs."""
    held = {"parameters": 0, "optimizer": 0, "inputs": 0}
    names = {node.name for node in nodes if node.op in _VARIABLES}
    for node in nodes:
        size = bytes_of(known.tensors.get(f"{node.name}:0"))
        if node.op in _VARIABLES:
            beside = node.name.rpartition("/")[0] in names or node.name.startswith("beta")
            held["optimizer" if beside else "parameters"] += size
        elif node.op == "Placeholder":
            held["inputs"] += size
    return held


def _provenance(
    path: Path, nodes: Sequence[TfNode], calls: Sequence[Call], known: Known
) -> dict[str, Any]:
    open_ = [
        call
        for call in calls
        if call.resource == "compute"
        and not call.outputs
        and not puts_out_nothing(call.op.removeprefix("tensorflow."))
    ]
    found: dict[str, Any] = {
        "importer": "tensorflow-graph",
        "source": "TensorFlow graph",
        "file": path.name,
        "without_shape": len(open_),
        "unknown_sizes": ["batch"] if known.free else [],
        "placeholders_without_shape": known.free[:20],
    }
    for node in nodes:
        tensor = known.tensors.get(f"{node.name}:0")
        if node.op == "Placeholder" and tensor is not None and tensor.shape:
            found["examples"] = tensor.shape[0]
            break
    return found

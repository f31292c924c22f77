"""A jaxpr that `jaxpr_export` dumped, as a graph. XLA fuses ops that are separate here: durations
estimated op by op are an upper bound for element-wise ones."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.graphs.flops import elementwise_flops, product_flops
from paracosm.graphs.graph import Graph, TensorArgument
from paracosm.graphs.importers.calls import Call, bytes_of, graph_of_calls, shapes_of
from paracosm.graphs.importers.shape_rules import shape_of

VERSION = 1
"""Of the dump."""

_VIEWS = frozenset(
    ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "stop_gradient", "pvary", "broadcast")
)
_MOVES = frozenset(
    (
        *("transpose", "concatenate", "slice", "dynamic_slice", "dynamic_update_slice", "gather"),
        *("pad", "convert_element_type", "rev", "select_n", "copy", "iota", "copy_p", "split"),
        *("scatter", "bitcast_convert_type", "random_bits", "random_seed", "random_wrap"),
    )
)
_COMMUNICATION = re.compile(
    r"^(psum|all_gather|all_to_all|ppermute|pmax|pmin|reduce_scatter|psum2)"
)
_WRAPPERS = re.compile(r"\b(transpose|jvp|vmap|remat|checkpoint|rematted_computation)\(|\)")


def read_jaxpr(path: Path) -> Graph:
    """Read the dump of a function's jaxpr, split into passes; JAX is not needed."""
    where = str(path)
    content = _content(path, where)
    tensors = _tensors(content["tensors"], where)
    phases = _phases(content["equations"], where)
    calls = [
        _call(equation, position, phase, tensors, where)
        for position, (equation, phase) in enumerate(zip(content["equations"], phases, strict=True))
    ]
    if not calls:
        raise InputError(f"{where}: a jaxpr without equations")
    inputs, outputs, parameters = (
        _numbers(content[key], len(tensors), key, where)
        for key in ("inputs", "outputs", "parameters")
    )
    held = sum(bytes_of(tensors.get(value)) for value in parameters)
    provenance: dict[str, Any] = {
        "importer": "jaxpr",
        "source": "jaxpr",
        "file": path.name,
        "jax": str(content.get("jax")),
        "loops_counted_once": content["counted_once"] or 0,
    }
    if content["examples"] is not None:
        provenance["examples"] = content["examples"]
    return graph_of_calls(
        calls,
        tensors,
        where=where,
        resident={
            "parameters": held,
            "inputs": sum(bytes_of(tensors.get(value)) for value in inputs) - held,
        },
        provenance=provenance,
        kept={*outputs, *_gradients(calls)},
    )


def _content(path: Path, where: str) -> dict[str, Any]:
    data = read_bytes(path)
    content = parse_json(data, where)
    if not isinstance(content, dict) or "paracosm_jaxpr" not in content:
        raise InputError(f'{where}: no jaxpr of jaxpr_export: it lacks "paracosm_jaxpr"')
    version = content["paracosm_jaxpr"]
    if type(version) is not int or not 1 <= version <= VERSION:
        raise InputError(
            f"{where}: a jaxpr of format {version!s:.9}; this version reads up to {VERSION}: "
            "upgrade paracosm"
        )
    for key in ("tensors", "equations", "inputs", "outputs", "parameters"):
        if not isinstance(content.get(key), list):
            raise InputError(f'{where}: "{key}" is missing, or no list')
    for key, least in (("counted_once", 0), ("examples", 1)):
        value = content.setdefault(key, None)
        if value is not None and not (type(value) is int and least <= value < 2**63):
            raise InputError(f'{where}: "{key}" must be a whole number from {least}')
    return content


def _tensors(found: list[Any], where: str) -> dict[str, TensorArgument]:
    tensors = {}
    for number, each in enumerate(found):
        shape = shape_of(each[1]) if _is_tensor(each) else None
        if shape is None:
            raise InputError(f'{where}: "tensors" has no type and shape at {number}: {each!r:.60}')
        tensors[str(number)] = TensorArgument(shape, each[0])
    return tensors


def _is_tensor(each: Any) -> bool:
    pair = isinstance(each, list) and len(each) == 2
    return pair and isinstance(each[0], str) and isinstance(each[1], list)


def _numbers(found: Any, count: int, what: str, where: str) -> tuple[str, ...]:
    if not isinstance(found, list):
        raise InputError(f"{where}: {what}: must be a list of values")
    for each in found:
        if each is not None and (type(each) is not int or not 0 <= each < count):
            raise InputError(f"{where}: {what}: there is no value {each!r:.40}, only {count}")
    return tuple("" if each is None else str(each) for each in found)


def _phases(equations: list[Any], where: str) -> list[str]:
    phases = []
    after = False
    for position, equation in enumerate(equations):
        if not isinstance(equation, dict):
            raise InputError(f"{where}: equation {position} must be a mapping")
        stack = str(equation.get("stack", ""))
        if "transpose(" in stack:
            after = True
            phases.append("backward")
        else:
            phases.append("optimizer" if after and "jvp(" not in stack else "forward")
    return phases


def _call(
    equation: dict[str, Any],
    position: int,
    phase: str,
    tensors: dict[str, TensorArgument],
    where: str,
) -> Call:
    label = f"equation {position}"
    name = equation.get("primitive")
    if not isinstance(name, str):
        raise InputError(f'{where}: {label} lacks "primitive"')
    inputs, outputs = (
        _numbers(equation.get(key), len(tensors), f"{label} ({name}), {key}", where)
        for key in ("inputs", "outputs")
    )
    params = equation.get("params")
    params = params if isinstance(params, dict) else {}
    resource = "host" if name in _VIEWS else "compute"
    resource = "communication" if _COMMUNICATION.match(name) else resource
    try:
        flops = _flops(
            name, params, [tensors.get(v) for v in inputs], [tensors[v] for v in outputs]
        )
    except (LookupError, TypeError, ValueError):
        raise InputError(f"{where}: {label} ({name}): its params do not fit its inputs") from None
    return Call(
        op=f"jax.{name}",
        name=_module_path(str(equation.get("stack", ""))),
        inputs=inputs,
        outputs=outputs,
        attributes={key: value for key, value in sorted(params.items()) if value is not None},
        flops=flops,
        phase=phase,
        resource=resource,
    )


def _module_path(stack: str) -> str:
    """Return "layer1.attention" of "jit(step)/transpose(jvp(layer1))/attention"."""
    plain = _WRAPPERS.sub("", re.sub(r"\bp?jit\([^()]*\)", "", stack))
    return ".".join(part for part in plain.split("/") if part)


def _flops(
    name: str,
    params: dict[str, Any],
    inputs: Sequence[TensorArgument | None],
    outputs: Sequence[TensorArgument],
) -> int:
    if name in _VIEWS or name in _MOVES or _COMMUNICATION.match(name):
        return 0
    if name == "dot_general" and inputs[0] is not None:
        (contracted, _), _ = params["dimension_numbers"]
        inner = math.prod(inputs[0].shape[i] for i in contracted)
        return int(product_flops(outputs[0].shape, inner))
    if name == "conv_general_dilated" and inputs[1] is not None:
        weight = inputs[1].shape
        out_channels = weight[params["dimension_numbers"][1][0]]
        return product_flops(outputs[0].shape, math.prod(weight) // max(out_channels, 1))
    return elementwise_flops(shapes_of((*inputs, *outputs)))


def _gradients(calls: Sequence[Call]) -> set[str]:
    made = {value for call in calls if call.phase == "backward" for value in call.outputs}
    return {v for call in calls if call.phase == "optimizer" for v in call.inputs if v in made}

"""Dump what JAX would compute as JSON, for `paracosm graph import`; needs JAX and nothing else.

Copy this file next to your program, or take it from where Paracosm is installed:

    from jaxpr_export import export
    export("step.json", step, params, batch)

Nested calls are expanded, and so is every pass of a scan. A while loop has its body once, a cond
the branch with the most equations. Nothing is computed.
"""

import json
from pathlib import Path
from typing import Any

_LARGEST = 2_000_000  # equations


def export(
    path: str | Path,
    function: Any,
    *arguments: Any,
    parameters: int = 0,
    examples: int | None = None,
) -> None:
    """Write the jaxpr of `function(*arguments)` to a file.

    Args:
        path: the file to write.
        function: a training step, jitted or not.
        arguments: arrays, or trees of them; jax.ShapeDtypeStruct will do.
        parameters: which of the arguments holds the parameters.
        examples: how many examples one call trains on.

    Raises:
        ValueError: the scans have more than two million equations when written out.
    """
    import jax  # type: ignore[import-not-found, unused-ignore]

    closed = jax.make_jaxpr(function)(*arguments)
    leaves = [len(jax.tree_util.tree_leaves(argument)) for argument in arguments]
    kinds = [i for i, count in enumerate(leaves) for _ in range(count)]
    dump = _Dump()
    inputs = [dump.value(invar.aval) for invar in closed.jaxpr.invars]
    known = dict(zip(closed.jaxpr.invars, inputs, strict=True))
    for constvar in closed.jaxpr.constvars:
        known[constvar] = dump.value(constvar.aval)
    outputs = dump.body(closed.jaxpr, known, "")
    content = {
        "paracosm_jaxpr": 1,
        "jax": jax.__version__,
        "examples": examples,
        "inputs": inputs,
        "parameters": [v for v, kind in zip(inputs, kinds, strict=False) if kind == parameters],
        "outputs": outputs,
        "counted_once": dump.counted_once,
        "tensors": dump.tensors,
        "equations": dump.equations,
    }
    Path(path).write_text(json.dumps(content, separators=(",", ":")) + "\n")


class _Dump:
    """The file under construction: values by number, equations in their order."""

    def __init__(self) -> None:
        self.tensors: list[list[Any]] = []
        self.equations: list[dict[str, Any]] = []
        self.counted_once = 0

    def value(self, aval: Any, shape: Any = None) -> int:
        """Return the number of a new value."""
        sizes = getattr(aval, "shape", ()) if shape is None else shape
        self.tensors.append([str(getattr(aval, "dtype", "unknown")), [int(n) for n in sizes]])
        return len(self.tensors) - 1

    def equation(
        self, primitive: str, inputs: Any, outputs: Any, params: Any = None, stack: str = ""
    ) -> None:
        if len(self.equations) >= _LARGEST:
            raise ValueError(f"more than {_LARGEST} equations: export fewer layers or steps")
        self.equations.append(
            {
                "primitive": primitive,
                "inputs": inputs,
                "outputs": outputs,
                "params": {key: _plain(value) for key, value in (params or {}).items()},
                "stack": stack,
            }
        )

    def body(self, jaxpr: Any, known: dict[Any, int], stack: str) -> list[Any]:
        """Write the equations of a jaxpr; return its output values."""

        def number(atom: Any) -> int | None:
            return None if hasattr(atom, "val") else known[atom]

        for equation in jaxpr.eqns:
            where = "/".join(part for part in (stack, str(equation.source_info.name_stack)) if part)
            inputs = [number(atom) for atom in equation.invars]
            name, params = equation.primitive.name, equation.params
            if name == "scan":
                made = self.scan(params, inputs, where)
            elif name == "while":
                self.counted_once += 1
                carried = inputs[params["cond_nconsts"] :]
                made = self.inner(params["body_jaxpr"], carried, where)
            elif name == "cond":
                branch = max(params["branches"], key=lambda each: len(each.jaxpr.eqns))
                made = self.inner(branch, inputs[1:], where)
            elif (called := _called(params)) is not None and "pallas" not in name:
                made = self.inner(called, inputs, where)
            else:
                made = [self.value(outvar.aval) for outvar in equation.outvars]
                self.equation(name, inputs, made, params, where)
            known.update(zip(equation.outvars, made, strict=True))
        return [number(atom) for atom in jaxpr.outvars]

    def inner(self, called: Any, inputs: list[Any], stack: str) -> list[Any]:
        """Write the equations of a jaxpr that is called."""
        jaxpr = getattr(called, "jaxpr", called)
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        for constvar in jaxpr.constvars:
            known[constvar] = self.value(constvar.aval)
        return self.body(jaxpr, known, stack)

    def scan(self, params: Any, inputs: list[Any], stack: str) -> list[Any]:
        """Write every pass of a scan: a slice of its inputs, then its body."""
        jaxpr, length = params["jaxpr"], params["length"]
        consts, carries = params["num_consts"], params["num_carry"]
        fixed, carry, over = (
            inputs[:consts],
            inputs[consts : consts + carries],
            inputs[consts + carries :],
        )
        slices = jaxpr.jaxpr.invars[consts + carries :]
        stacked: list[list[Any]] = [[] for _ in jaxpr.jaxpr.outvars[carries:]]
        for _ in range(length):
            parts = []
            for whole, one in zip(over, slices, strict=True):
                parts.append(self.value(one.aval))
                self.equation("dynamic_slice", [whole], [parts[-1]], stack=stack)
            made = self.inner(jaxpr, [*fixed, *carry, *parts], stack)
            carry = made[:carries]
            for column, value in zip(stacked, made[carries:], strict=True):
                column.append(value)
        whole_values = []
        for column, one in zip(stacked, jaxpr.jaxpr.outvars[carries:], strict=True):
            whole_values.append(self.value(one.aval, (length, *one.aval.shape)))
            self.equation("concatenate", column, [whole_values[-1]], stack=stack)
        return [*carry, *whole_values]


def _called(params: Any) -> Any:
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if hasattr(getattr(params.get(key), "jaxpr", params.get(key)), "eqns"):
            return params[key]
    return None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if hasattr(value, "name") and hasattr(value, "itemsize"):
        return str(value)
    return None

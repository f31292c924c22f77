"""Ops that are neither PyTorch's nor a composition of its ops: custom ops and Triton's kernels.

A custom op that is written in Python is run, and what it asks of PyTorch is recorded. One that is
given a duration is recorded as one op; its fake kernel says what it returns. Nothing can be said of
others, so they are refused by their names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten

from paracosm.emulation.device.op_costs import CUSTOM, OpCost, cost_of, with_cost
from paracosm.emulation.device.recording import OP
from paracosm.emulation.device.state import Device
from paracosm.emulation.rank.on_import import on_import
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments

_LAZY = frozenset({"ao", "fsdp", "streams", "quantized_decomposed", "triton", "prim"})
"""Namespaces of PyTorch itself that it registers when they are first used."""


class OwnOps:
    """Ops of the script's own, and how long they take."""

    def __init__(
        self,
        device: Device,
        costs: Sequence[OpCost],
        refuse: Callable[[str], Exception],
    ) -> None:
        self._device, self._costs, self._refuse = device, costs, refuse
        names = torch._C._dispatch_get_all_op_names()
        self._of_pytorch = {name.partition("::")[0] for name in names} | _LAZY
        on_import("triton.runtime.jit", lambda module: self._replace_run(module.JITFunction))
        on_import("triton.runtime.autotuner", lambda module: self._replace_run(module.Autotuner))

    def has(self, func: Any) -> bool:
        if func.namespace in self._of_pytorch:
            return False
        definition = OPDEFS.get(func._schema.name)
        return definition is None or not definition._init_fn.__module__.startswith("torch.")

    def call(self, func: Any, args: Any, kwargs: dict[str, Any], tracer: Any) -> Any:
        """Do what a custom op does; `tracer` is the mode by which ops are recorded."""
        name = func._schema.name
        body = _body(name)
        if cost_of(name, self._costs) is None:
            if body is None:
                raise self._refuse(f"the custom op {with_cost(name)}")
            try:
                with tracer:
                    return body(*args, **kwargs)
            except NotImplementedError:
                raise  # it is said already
            except Exception as error:
                reason = str(error).partition("\n")[0].rstrip(".")
                raise self._refuse(
                    f"the custom op {with_cost(name)}, which cannot be recorded ({reason}),"
                ) from error
        try:
            with self._device.fake:
                result = func(*args, **kwargs)
        except Exception as error:
            raise self._refuse(
                f"the custom op {name}, which has no fake kernel that says what it returns "
                f'(torch.library.register_fake("{name}")),'
            ) from error
        flat = tree_flatten((args, kwargs))[0]
        inputs = [value for value in flat if isinstance(value, FakeTensor)]
        outputs = [value for value in tree_flatten(result)[0] if isinstance(value, FakeTensor)]
        for output in outputs:
            self._device.memory.see(output, "activations")
        written = [
            each
            for argument, value in zip(func._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for each in tree_flatten(value)[0]
            if isinstance(each, FakeTensor)
        ]
        self._record(name, inputs, [*written, *outputs])
        self._device.values.forget(written)
        return result

    def launch(self, name: str, args: Sequence[Any]) -> None:
        """Record a kernel of Triton, which may write to any of its arguments."""
        name = f"triton::{name}"
        if cost_of(name, self._costs) is None:
            raise self._refuse(f"the Triton kernel {with_cost(name)}")
        tensors = [argument for argument in args if isinstance(argument, FakeTensor)]
        self._record(name, tensors, tensors)
        self._device.values.forget(tensors)

    def _record(self, name: str, inputs: Sequence[Any], written: Sequence[Any]) -> None:
        device = self._device
        arguments = [
            TensorArgument(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for tensor in inputs
        ]
        read, wrote = (
            sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            for tensors in (inputs, written)
        )
        op = Op(CUSTOM + name, encode_arguments(arguments, {}), 0, read, wrote)
        code = device.writer.op_code(op)
        device.writer.add(OP, device.streams.current, code=code, phase=device.phase)
        if device.graph is not None:
            device.graph.add(op, "compute", device.phase, inputs, written)

    def _replace_run(self, kernels: Any) -> None:
        """Let a class of Triton's kernels record what it is asked to run."""

        def run(kernel: Any, *args: Any, **options: Any) -> None:
            while not isinstance(getattr(kernel, "__name__", None), str):
                kernel = kernel.fn  # that of an autotuner
            self.launch(kernel.__name__, [*args, *options.values()])

        kernels.run = run

    def launch_wrapped(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Record a kernel of Triton that `torch.library.wrap_triton` has made an op of."""
        table = importlib.import_module("torch._higher_order_ops.triton_kernel_wrap")
        options: dict[str, Any] = dict(kwargs)
        kernel: Any = table.kernel_side_table.get_kernel(options["kernel_idx"])
        while not isinstance(getattr(kernel, "__name__", None), str):
            kernel = kernel.fn
        self.launch(kernel.__name__, tree_flatten(options.get("kwargs", {}))[0])


def _body(name: str) -> Callable[..., Any] | None:
    """Return the Python function of a custom op that makes use of PyTorch's ops."""
    definition = OPDEFS.get(name)
    if definition is None:
        return None
    functions: Any = definition._backend_fns
    body: Callable[..., Any] | None = functions.get("cuda", functions.get(None))
    return body

"""Which module of the script's model is under way: its fully qualified name.

In the forward pass, that is the innermost module that was called. What the backward pass does
belongs to the module whose forward pass made the node of autograd that is under way, which is told
by the numbers that autograd gives its nodes.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "module"})
"""Names that torch.compile, checkpointing and data parallelism put into those of modules."""

_MARKS = 200_000  # of calls of modules, that are remembered for their backward passes

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
_current_node: Callable[[], Any] = torch._C._current_autograd_node
_backward_task: Callable[[], int] = torch._C._current_graph_task_id


class Modules:
    """Follows the calls of modules."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}  # with their codes
        self.batch = 0  # the first dimension of what the model is given, once that is known
        self._calls: list[int] = []  # codes of the modules that are under way
        self._codes: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        self._of_parameters: dict[int, int] = {}
        self._blocks: set[int] = set()
        self._first: list[int] = []  # of each mark, the first number of autograd's nodes
        self._marks: list[int] = []

    def install(
        self,
        on_model: Callable[[Sequence[Tensor]], None],
        on_block: Callable[[Sequence[Any], int], None],
    ) -> None:
        """Follow calls from now on.

        Args:
            on_model: told the parameters and buffers of a model that is called for the first time.
            on_block: told what a block, one of several that are numbered, is given and returns,
                and its code.
        """

        def enter(module: nn.Module, inputs: Any) -> None:
            code = self._code(module, on_model)
            self._calls.append(code)
            self._mark(code)
            if code in self._blocks and _backward_task() == -1:
                on_block(tree_leaves(inputs), code)

        def leave(module: nn.Module, inputs: Any, *rest: Any) -> None:
            # The rest is keyword arguments and outputs; after an exception, None alone.
            code, outputs = self._calls.pop(), rest[-1]
            if not self.batch and not self._calls:
                self.batch = _first_dimension((inputs, rest[0]))
            self._mark(self._calls[-1] if self._calls else -1)
            if code in self._blocks and _backward_task() == -1:
                on_block(tree_leaves(outputs), code)

        register_module_forward_pre_hook(enter)
        register_module_forward_hook(leave, with_kwargs=True, always_call=True)

    @property
    def under_way(self) -> bool:
        """Whether a forward pass is: in a backward pass, one that is computed again."""
        return bool(self._calls)

    @property
    def current(self) -> int:
        """The code of the module that what happens now belongs to, -1 if none."""
        if self._calls:
            return self._calls[-1]
        node = _current_node()
        if node is None:
            return -1
        place = bisect_right(self._first, node._sequence_nr()) - 1
        return self._marks[place] if place >= 0 else -1

    def of_parameter(self, parameter: Any) -> int:
        """Return the code of the module that has a parameter, -1 if none is known."""
        return self._of_parameters.get(id(parameter), -1)

    def _code(self, module: nn.Module, on_model: Callable[[Sequence[Tensor]], None]) -> int:
        known = self._codes.get(id(module))
        if known is None or known[0]() is not module:
            self._name(module, on_model)
            known = self._codes[id(module)]
        return known[1]

    def _name(self, model: nn.Module, on_model: Callable[[Sequence[Tensor]], None]) -> None:
        tensors: list[Tensor] = []
        for name, module in model.named_modules():
            code = self._numbered(name, module, model)
            self._codes[id(module)] = weakref.ref(module), code
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._of_parameters.setdefault(id(parameter), code)
                    tensors.append(parameter)
            tensors += [buffer for buffer in module._buffers.values() if buffer is not None]
        on_model(tensors)

    def _numbered(self, name: str, module: nn.Module, model: nn.Module) -> int:
        parts = [part for part in name.split(".") if part and part not in _WRAPPERS]
        plain = ".".join(parts) or _unwrapped(model)
        code = self.names.setdefault(plain, len(self.names))
        numbered = [place for place, part in enumerate(parts) if part.isdigit()]
        if numbered and numbered[0] == len(parts) - 1:
            self._blocks.add(code)
        return code

    def _mark(self, code: int) -> None:
        if _backward_task() != -1:
            return
        number = _sequence_number()
        if self._first and self._first[-1] >= number:
            self._marks[-1] = code
            return
        self._first.append(number)
        self._marks.append(code)
        if len(self._first) > 2 * _MARKS:
            del self._first[:_MARKS], self._marks[:_MARKS]


def _unwrapped(model: nn.Module) -> str:
    """Return the name of a model's class, not that of what wraps it."""
    inner = next((module for name, module in model.named_children() if name in _WRAPPERS), None)
    return type(model).__name__ if inner is None else _unwrapped(inner)


def _first_dimension(inputs: Any) -> int:
    tensors = (leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))
    return next((int(tensor.shape[0]) for tensor in tensors if tensor.dim()), 0)

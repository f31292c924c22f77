"""Where in the model an op belongs: the module whose forward pass issued it, or its gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

__all__ = ["Places", "owners_of"]

_peek: Any = torch._C._autograd._get_sequence_nr
_current_node: Any = torch._C._current_autograd_node


class Places:
    """Follows the modules of a model by their names.

    Autograd numbers its nodes as forward ops are issued, and runs a node's backward ops while that
    node is the current one: the number leads from a gradient back to its module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._owners = owners_of(model)
        self._inside: list[str] = []
        self._of_node: dict[int, str] = {}
        self._numbered = _peek()

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Listen to the modules as long as this lasts."""
        before = register_module_forward_pre_hook(self._entered)
        after = register_module_forward_hook(self._left, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def forward(self) -> str:
        """Return the innermost module that runs, and note it for the nodes numbered since."""
        name = self._inside[-1] if self._inside else ""
        number = _peek()
        for node in range(self._numbered, number):
            self._of_node[node] = name
        self._numbered = number
        return name

    def backward(self) -> str:
        """Return the module whose gradient is being computed; "" where autograd does not say."""
        node = _current_node()
        if node is None:
            return ""
        parameter = getattr(node, "variable", None)  # of a node that accumulates its gradient
        if parameter is not None:
            return self._owners.get(parameter, "")
        return self._of_node.get(node._sequence_nr(), "")

    def _entered(self, module: nn.Module, inputs: Any) -> None:
        self._inside.append(self._names.get(module, self._inside[-1] if self._inside else ""))

    def _left(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._inside:
            self._inside.pop()


def owners_of(model: nn.Module) -> dict[Tensor, str]:
    """Return each parameter with the name of the first module that has it."""
    owners: dict[Tensor, str] = {}
    for name, part in model.named_modules():
        for parameter in part.parameters(recurse=False):
            owners.setdefault(parameter, name)
    return owners

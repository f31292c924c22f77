"""Optimizers by name: those of PyTorch, with the options of their classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression, read_literal

if TYPE_CHECKING:
    import torch

_NAMES = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop")
_CLASSES = {name.lower(): name for name in _NAMES}

OPTIMIZERS = (*_CLASSES, "none")
"""All names; "none" makes gradients that nobody uses, where a step is captured or profiled."""

_ELSEWHERE = {
    "lr": "the learning rate is given by lr",
    "foreach": "foreach has an effect only on captured steps",
}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer by name, with the options of the PyTorch class besides the learning rate."""

    name: str
    options: Mapping[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name

    @property
    def is_plain(self) -> bool:
        """Whether this is gradient descent alone, which takes no optimizer of PyTorch."""
        return self.name == "sgd" and not self.options

    def make(
        self, parameters: Iterable[torch.Tensor], lr: float, foreach: bool | None = None
    ) -> torch.optim.Optimizer:
        """Return PyTorch's optimizer; InputError for an option or a value that it does not take."""
        import torch

        kind = getattr(torch.optim, _CLASSES[self.name])
        known = [name for name in inspect.signature(kind).parameters if name != "params"]
        for name in self.options:
            if name not in known:
                valid = [name for name in known if name not in _ELSEWHERE]
                raise unknown(f"option of {self.name}", name, valid)
        try:
            made: torch.optim.Optimizer
            made = kind(parameters, lr=lr, foreach=foreach, **self.options)
        except Exception as error:  # whatever PyTorch raises of options that it cannot use
            raise self._unusable(error) from None
        return made

    def try_out(self, lr: float) -> None:
        """Make one step on a small vector; InputError as of `make`."""
        if self.is_plain:
            return  # no option to refuse, and PyTorch takes seconds to import a first optimizer

        import torch

        variable = torch.ones(2, requires_grad=True)
        variable.grad = torch.ones(2)
        made = self.make([variable], lr)
        try:
            made.step()
        except Exception as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> InputError:
        reason = " ".join(str(error).split())
        return InputError(f"optimizer {self}: PyTorch cannot use it so: {reason}")


def parse_optimizer(text: str) -> Optimizer | None:
    """Read `sgd`, `sgd(momentum=0.9, nesterov=True)`, `adam(betas=(0.9, 0.99))`, ...

    `none` is None. InputError names the optimizer that is not known, or what is not understood.
    """
    name, positional, options = parse_expression(text, "optimizer")
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    if positional:
        raise InputError(f"optimizer {name}: name its options, as in {name}(weight_decay=1e-4)")
    for option, where in _ELSEWHERE.items():
        if option in options:
            raise InputError(f"optimizer {name}: {where}, not in here")
    if name == "none":
        if options:
            raise InputError("optimizer none has no options")
        return None
    return Optimizer(name, {key: read_literal(value) for key, value in options.items()})

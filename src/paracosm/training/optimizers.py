"""The rule by which a direction changes parameters: plain SGD, or any optimizer of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression, read_literal
from paracosm.training.store import Rule

__all__ = ["Optimizer", "parse_optimizer"]

_CLASSES = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "nadam": "NAdam",
    "radam": "RAdam",
    "adamax": "Adamax",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
    "rmsprop": "RMSprop",
}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer by name, with the options of the PyTorch class besides the learning rate."""

    name: str
    options: Mapping[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name

    def rule(self, lr: float) -> Rule:
        """Return a rule with a state of its own (momentum, second moments)."""
        if self.name == "sgd" and not self.options:
            return lambda parameters, direction, step: parameters.sub(direction, alpha=lr * step)
        return _torch_rule(self, lr)

    def try_out(self, lr: float) -> None:
        """Make one step on a small vector.

        Raises:
            InputError: the optimizer does not take one of the options, or not that value.
        """
        import torch

        known = [*inspect.signature(getattr(torch.optim, _CLASSES[self.name])).parameters]
        options = [name for name in known if name not in ("params", "lr")]
        for name in self.options:
            if name not in options:
                raise unknown(f"option of {self.name}", name, options)
        try:
            self.rule(lr)(torch.ones(2), torch.ones(2), 1.0)
        except Exception as error:  # whatever PyTorch raises of options that it cannot use
            reason = " ".join(str(error).split())
            raise InputError(f"optimizer {self}: PyTorch cannot use it so: {reason}") from None


def parse_optimizer(text: str) -> Optimizer:
    """Read `sgd`, `sgd(momentum=0.9, nesterov=True)`, `adam(betas=(0.9, 0.99))`, ...

    Raises:
        InputError: naming the optimizer that is not known, or what is not understood.
    """
    name, positional, options = parse_expression(text, "optimizer")
    if name not in _CLASSES:
        raise unknown("optimizer", name, _CLASSES)
    if positional:
        raise InputError(f"optimizer {name}: name its options, as in {name}(weight_decay=1e-4)")
    if "lr" in options:
        raise InputError(f"optimizer {name}: the learning rate is given by lr, not in here")
    return Optimizer(name, {key: read_literal(value) for key, value in options.items()})


def _torch_rule(optimizer: Optimizer, lr: float) -> Rule:
    import torch

    variable = torch.empty(0, requires_grad=True)
    stepper: torch.optim.Optimizer | None = None

    def rule(parameters: Any, direction: Any, step: float) -> Any:
        nonlocal stepper
        # The optimizer works in place, while others still read the parameters: it gets a copy.
        variable.data = parameters.clone()
        variable.grad = direction
        if stepper is None:  # made here, since some allocate their state at once
            kind = getattr(torch.optim, _CLASSES[optimizer.name])
            stepper = kind([variable], lr=lr, **optimizer.options)
        stepper.param_groups[0]["lr"] = lr * step
        stepper.step()
        return variable.data

    return rule

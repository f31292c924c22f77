"""How an optimizer changes parameters: rules of one vector, and of several at once.

The optimizers of PyTorch change each element by itself, so that the rules of several vectors that
have made equally many steps are one rule of the matrix whose rows they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paracosm.models.optimizers import Optimizer
from paracosm.training.numerics.store import Rule

if TYPE_CHECKING:
    import torch

SGD = Optimizer("sgd", {})


def update_rule(optimizer: Optimizer, lr: float) -> Rule:
    """Return the rule by which an optimizer changes parameters, with a state of its own."""
    if optimizer.is_plain:
        return lambda parameters, direction, step: parameters.sub(direction, alpha=lr * step)
    return Stepping(optimizer, lr)


def outer_rule(optimizer: Optimizer, lr: float) -> Rule:
    """Return the rule by which an optimizer steps against a mean pseudo-gradient."""
    if optimizer.is_plain:
        # With a step of 1 this is the mean of parameters, rounded as one would by hand.
        return lambda parameters, direction, step: parameters - lr * step * direction
    return Stepping(optimizer, lr)


class Stepping:
    """The rule of an optimizer of PyTorch, whose state it has."""

    def __init__(self, optimizer: Optimizer, lr: float) -> None:
        self.steps = 0  # made so far
        self._optimizer = optimizer
        self._lr = lr
        self._variable: torch.Tensor | None = None
        self._stepper: torch.optim.Optimizer | None = None

    def __call__(self, parameters: Any, direction: Any, step: float) -> Any:
        stepper, variable = self._prepared(parameters)
        variable.grad = direction
        stepper.param_groups[0]["lr"] = self._lr * step
        stepper.step()
        self.steps += 1
        return variable.data

    def _prepared(self, parameters: Any) -> tuple[torch.optim.Optimizer, torch.Tensor]:
        import torch

        # The optimizer works in place, while others still read the parameters.
        if self._variable is None or self._stepper is None:
            # Made here, since some allocate their state at once.
            self._variable = parameters.clone().requires_grad_()
            self._stepper = self._optimizer.make([self._variable], self._lr)
        else:
            self._variable.data = parameters.clone()
        assert isinstance(self._variable, torch.Tensor)
        return self._stepper, self._variable

    @classmethod
    def together(cls, rules: Sequence[Stepping], rows: Any) -> Stepping:
        """Return the rule of the matrix `rows` whose states are those of the rules.

        All have made the same number of steps; `part` gives them their states back.
        """
        first = rules[0]
        joined = cls(first._optimizer, first._lr)
        joined.steps = first.steps
        if first.steps:
            stepper, variable = joined._prepared(rows)
            states = [rule.state for rule in rules]
            stepper.state[variable] = {
                name: _stacked([state[name] for state in states]) for name in states[0]
            }
        return joined

    def part(self, rules: Sequence[Stepping]) -> None:
        """Give each rule the state of its row."""
        if self._stepper is None or self._variable is None:
            return
        state, rows = self.state, self._variable.data.unbind()
        for index, (rule, row) in enumerate(zip(rules, rows, strict=True)):
            stepper, variable = rule._prepared(row)
            stepper.state[variable] = {
                name: value[index].clone() if _has_rows(value) else _copied(value)
                for name, value in state.items()
            }
            rule.steps = self.steps

    @property
    def state(self) -> dict[str, Any]:
        """What PyTorch's optimizer keeps, by name; after a first step."""
        assert self._stepper is not None
        assert self._variable is not None
        state: dict[str, Any] = self._stepper.state[self._variable]
        return state


def _has_rows(value: Any) -> bool:
    """Whether a state has an entry for each parameter, and not one for all."""
    return hasattr(value, "ndim") and value.ndim > 0


def _stacked(values: list[Any]) -> Any:
    import torch

    return torch.stack(values) if _has_rows(values[0]) else _copied(values[0])


def _copied(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else value

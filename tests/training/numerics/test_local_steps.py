"""Local steps: those of a plain loop, one by one to the bit, and together but for rounding."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from paracosm.models import load_data
from paracosm.models.build import build_model
from paracosm.models.optimizers import Optimizer, parse_optimizer
from paracosm.training.numerics.gradients import Mode, make_gradients
from paracosm.training.numerics.local_steps import LocalStepSource, WaitingSteps
from paracosm.training.numerics.parameters import ParameterLayout
from paracosm.training.numerics.rules import update_rule
from paracosm.training.numerics.store import Recipe, Rule

DIGITS = load_data("digits")
LR, BATCH = 0.05, 6
OPTIMIZERS = ("sgd", "sgd(momentum=0.9, nesterov=True)", "adamw", "nadam", "adagrad", "rmsprop")


def optimizer(text: str) -> Optimizer:
    parsed = parse_optimizer(text)
    assert parsed is not None
    return parsed


class Case:
    """A source of local steps, and what asks for them."""

    def __init__(self, mode: Mode, model: str = "mlp(hidden=9)") -> None:
        built = build_model(model, DIGITS, 0)
        self.module = built.module
        self.layout = ParameterLayout.of(self.module)
        gradients = make_gradients(built, self.layout, DIGITS, mode, 16, batch=BATCH)
        self.source = LocalStepSource(
            gradients.policy, self.layout, Recipe(lr=LR), gradients.buffers
        )
        self.initial = self.layout.flatten(self.module)
        self.rng = np.random.default_rng(3)

    def ask(
        self,
        count: int,
        rule: Rule,
        start: torch.Tensor | None = None,
        keep_state: bool = False,
        mu: float = 0.0,
        shift: torch.Tensor | None = None,
    ) -> WaitingSteps:
        batches = self.rng.integers(0, len(DIGITS.train_x), (count, BATCH))
        start = self.initial if start is None else start
        return self.source.request(start, batches, rule, (), keep_state, mu, shift)


def plainly(
    case: Case,
    batches: np.ndarray,
    text: str,
    start: torch.Tensor,
    mu: float = 0.0,
    shift: torch.Tensor | None = None,
) -> tuple[float, torch.Tensor]:
    """Return the mean loss and the parameters after PyTorch's own loop."""
    module = copy.deepcopy(case.module)
    for name, values in case.layout.unflatten(start).items():
        module.get_parameter(name).data = values.clone()
    stepper = optimizer(text).make(module.parameters(), LR)
    losses = []
    for batch in batches:
        stepper.zero_grad()
        loss = cross_entropy(module(DIGITS.train_x[batch]), DIGITS.train_y[batch])
        loss.backward()
        now = case.layout.flatten(module)
        extra = case.layout.unflatten(mu * (now - start) + (0 if shift is None else shift))
        for name, parameter in module.named_parameters():
            parameter.grad = parameter.grad + extra[name]
        stepper.step()
        losses.append(loss.item())
    return sum(losses) / len(losses), case.layout.flatten(module)


@pytest.mark.parametrize("text", OPTIMIZERS)
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_one_by_one_they_are_gradients_and_steps_to_the_bit(text: str, mode: Mode) -> None:
    case = Case(mode)
    asked = case.ask(5, update_rule(optimizer(text), LR))
    built = build_model("mlp(hidden=9)", DIGITS, 0)
    source = make_gradients(built, case.layout, DIGITS, "off", 1, batch=BATCH)
    rule, now, losses = update_rule(optimizer(text), LR), case.initial, []
    for batch in asked.batches:
        gradient = source.request(now, batch).result()
        now = rule(now, gradient.gradient, 1.0)
        losses.append(gradient.loss)
    assert torch.equal(asked.result().parameters, now)
    assert asked.result().loss == sum(losses) / 5
    assert asked.result().lr == 5 * LR


@settings(max_examples=25, deadline=None)
@given(
    text=st.sampled_from(OPTIMIZERS),
    mode=st.sampled_from(["auto", "vmap"]),
    counts=st.lists(st.integers(1, 5), min_size=2, max_size=6),
    mu=st.sampled_from([0.0, 0.7]),
    has_shift=st.booleans(),
    looked_at=st.integers(0, 5),
)
def test_together_they_are_those_of_a_plain_loop_but_for_rounding(
    text: str, mode: Mode, counts: list[int], mu: float, has_shift: bool, looked_at: int
) -> None:
    case = Case(mode)
    generator = torch.Generator().manual_seed(1)
    starts = [
        case.initial + 0.02 * torch.randn(case.initial.shape, generator=generator) for _ in counts
    ]
    shifts = [
        0.1 * torch.randn(case.initial.shape, generator=generator) if has_shift else None
        for _ in counts
    ]
    asked = [
        case.ask(count, update_rule(optimizer(text), LR), start, mu=mu, shift=shift)
        for count, start, shift in zip(counts, starts, shifts, strict=True)
    ]
    asked[looked_at % len(asked)].result()
    for request, start, shift in zip(asked, starts, shifts, strict=True):
        assert not request.missing
        loss, parameters = plainly(case, request.batches, text, start, mu, shift)
        assert request.result().loss == pytest.approx(loss, rel=1e-4)
        assert near(request.result().parameters, parameters, start)


def near(found: torch.Tensor, expected: torch.Tensor, start: torch.Tensor) -> bool:
    """Whether two ends are near one another, against how far they are from the begin.

    Where a gradient is next to zero, an optimizer that divides by its size makes much of rounding.
    """
    return bool((found - expected).norm() < 2e-4 * (expected - start).norm())


@pytest.mark.parametrize("text", ["sgd(momentum=0.9)", "adamw"])
@pytest.mark.parametrize("together", [False, True])
def test_a_state_that_is_kept_goes_on_where_it_was_left(text: str, together: bool) -> None:
    case = Case("vmap" if together else "off")
    rules = [update_rule(optimizer(text), LR) for _ in range(3)]
    now = [case.initial] * 3
    batches: list[list[np.ndarray]] = [[], [], []]
    for count in (2, 3, 1):
        asked = [
            case.ask(count, rule, start, keep_state=True)
            for rule, start in zip(rules, now, strict=True)
        ]
        now = [request.result().parameters for request in asked]
        for drawn, request in zip(batches, asked, strict=True):
            drawn.extend(request.batches)
    for drawn, end in zip(batches, now, strict=True):
        _, expected = plainly(case, np.array(drawn), text, case.initial)
        assert near(end, expected, case.initial)


def states(rules: Sequence[Rule], case: Case) -> list[torch.Tensor]:
    """Return what a further step of each rule makes of nothing: its state."""
    zero = torch.zeros_like(case.initial)
    return [rule(zero, zero, 1.0) for rule in rules]


@pytest.mark.parametrize("mode", ["off", "vmap"])
def test_what_is_discarded_changes_the_state_that_is_kept_all_the_same(mode: Mode) -> None:
    """The client has made its steps, though nobody took them: so whatever is computed when."""
    case, other = Case(mode), Case(mode)
    for each in (case, other):
        each.rng = np.random.default_rng(5)
    rules = [update_rule(optimizer("sgd(momentum=0.9)"), LR) for _ in range(2)]
    dropped = case.ask(2, rules[0], keep_state=True)
    dropped.discard()
    case.ask(2, rules[0], keep_state=True).result()
    other.ask(2, rules[1], keep_state=True).result()
    other.ask(2, rules[1], keep_state=True).result()
    first, second = states(rules, case)
    assert first.norm() > 0
    assert torch.equal(first, second)


def test_what_is_discarded_is_not_computed() -> None:
    case = Case("vmap")
    dropped, kept = (case.ask(2, update_rule(optimizer("adam"), LR)) for _ in range(2))
    dropped.discard()
    kept.result()
    assert dropped.missing == 2
    with pytest.raises(RuntimeError, match="steps 0 were discarded"):
        dropped.result()


def test_steps_can_be_made_one_at_a_time() -> None:
    case, other = Case("off"), Case("off")
    asked = case.ask(3, update_rule(optimizer("adam"), LR))
    left = []
    for _ in range(3):
        asked.advance()
        left.append(asked.missing)
    assert left == [2, 1, 0]
    whole = other.ask(3, update_rule(optimizer("adam"), LR)).result()
    assert torch.equal(asked.result().parameters, whole.parameters)
    assert asked.result().loss == whole.loss


@pytest.mark.parametrize("name", ["paper-cnn", "resnet20"])
def test_models_that_are_no_chain_are_stepped_one_by_one(name: str) -> None:
    case = Case("auto", name)
    first, second = (case.ask(2, update_rule(optimizer("sgd"), LR)) for _ in range(2))
    first.result()
    assert second.missing == 2
    loss, parameters = plainly(case, first.batches, "sgd", case.initial)
    assert first.result().loss == pytest.approx(loss, rel=1e-5)
    assert near(first.result().parameters, parameters, case.initial)

"""The stability of delayed iterations, and curvature, against independent calculations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paracosm.models.registry import Model
from paracosm.planning.stability import delay_bound, largest_curvature
from paracosm.training.numerics.parameters import ParameterLayout


def growth(step: float, delay: int) -> float:
    """Return the spectral radius of x_{k+1} = x_k - step x_{k - delay}."""
    companion = np.diag(np.ones(delay), -1)
    companion[0, 0] = 1.0
    companion[0, delay] -= step
    return float(np.abs(np.linalg.eigvals(companion)).max())


@given(st.integers(0, 40))
def test_the_bound_separates_what_decays_from_what_grows(delay: int) -> None:
    bound = delay_bound(delay)
    assert growth(0.99 * bound, delay) < 1
    assert growth(1.01 * bound, delay) > 1


class Scaled(nn.Module):
    """The loss sum_i c_i x_i^2 / 2 has the Hessian diag(c)."""

    def __init__(self, scales: list[float]) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.ones(len(scales)))
        self.scales = torch.tensor(scales)

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.scales * self.x * self.x).sum() / 2


def test_the_curvature_of_a_quadratic_is_its_largest_coefficient() -> None:
    module = Scaled([0.5, 3.0, 1.0])
    model = Model(module, lambda outputs, targets: outputs)
    layout = ParameterLayout.of(module)
    found = largest_curvature(model, layout, layout.flatten(module), *torch.ones(2, 9, 1), 0)
    assert found == pytest.approx(3.0, rel=1e-4)


def test_the_curvature_of_a_network_is_the_largest_eigenvalue_of_its_hessian() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    x, y = torch.randn(40, 4), torch.randint(2, (40,))
    layout = ParameterLayout.of(module)
    flat = layout.flatten(module)

    def loss(vector: Tensor) -> Tensor:
        outputs = torch.func.functional_call(module, layout.unflatten(vector), (x,))
        return cross_entropy(outputs, y)

    hessian = torch.autograd.functional.hessian(loss, flat)
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    found = largest_curvature(Model(module, cross_entropy), layout, flat, x, y, 3)
    assert found <= largest * (1 + 1e-4)
    assert found == pytest.approx(largest, rel=0.05)

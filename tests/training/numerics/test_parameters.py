"""The flat parameter vector and its partition over servers, against hand-made cases."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paracosm.errors import InputError
from paracosm.training.numerics.parameters import ParameterLayout, partition


def two_layers() -> nn.Sequential:
    """Tensors of 12, 3, 6 and 2 elements."""
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def test_largest_first_onto_the_lightest() -> None:
    # 60 -> 0 (60, 0); 40 -> 1 (60, 40); 30 -> 1 (60, 70); 20 -> 0 (80, 70); 10 -> 1 (80, 80).
    assert partition([10, 60, 30, 40, 20], 2) == [[1, 4], [0, 2, 3]]


def test_ties_go_to_the_lower_index() -> None:
    assert partition([5, 5, 5], 2) == [[0, 2], [1]]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.data())
def test_partition_is_balanced_as_graham_bounds_it(sizes: list[int], data: st.DataObject) -> None:
    servers = data.draw(st.integers(1, len(sizes)))
    parts = partition(sizes, servers)
    assert sorted(index for part in parts for index in part) == list(range(len(sizes)))
    assert all(parts)
    # The heaviest server was the lightest before it got its last tensor.
    loads = [sum(sizes[index] for index in part) for part in parts]
    assert max(loads) <= sum(sizes) / servers + max(sizes)


def test_each_servers_tensors_are_contiguous() -> None:
    module = two_layers()
    layout = ParameterLayout.of(module, servers=2)
    # By size: 12 -> 0; 6 -> 1; 3 -> 1; 2 -> 1.
    assert layout.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert layout.slices == (slice(0, 12), slice(12, 23))
    assert layout.bytes_per_server == (48, 44)
    assert layout.size == 23
    flat = layout.flatten(module)
    assert torch.equal(flat[12:15], module[0].bias)
    assert torch.equal(flat[layout.slices[0]].view(3, 4), module[0].weight)


def test_unflatten_returns_views_in_the_flat_vector() -> None:
    module = two_layers()
    layout = ParameterLayout.of(module, servers=3)
    flat = layout.flatten(module)
    tensors = layout.unflatten(flat)
    for name, parameter in module.named_parameters():
        assert torch.equal(tensors[name], parameter)
    flat.zero_()
    assert all(not tensor.any() for tensor in tensors.values())


def test_unflatten_works_under_vmap() -> None:
    layout = ParameterLayout.of(two_layers())
    stacked = torch.arange(46.0).view(2, 23)
    weights = torch.vmap(lambda flat: layout.unflatten(flat)["2.weight"])(stacked)
    assert torch.equal(weights[1], stacked[1, 15:21].view(2, 3))


def test_flatten_is_a_copy() -> None:
    module = two_layers()
    layout = ParameterLayout.of(module)
    flat = layout.flatten(module)
    before = flat.clone()
    nn.init.zeros_(module[0].weight)
    assert torch.equal(flat, before)


def test_frozen_tensors_are_no_parameters() -> None:
    module = two_layers()
    module[0].requires_grad_(False)
    assert ParameterLayout.of(module).names == ("2.weight", "2.bias")


@pytest.mark.parametrize(
    ("module", "servers", "message"),
    [
        (two_layers(), 5, "5 servers for a model of 4 tensors: at most 4"),
        (two_layers(), 0, "0 servers: at least one"),
        (nn.ReLU(), 1, "no parameters to train"),
        (two_layers().double(), 1, r'"0.weight" is torch.float64, not float32'),
        (two_layers().to("meta"), 1, r'"0.weight" is on the meta device: make it dense'),
    ],
)
def test_bad_layouts_are_refused(module: nn.Module, servers: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ParameterLayout.of(module, servers)

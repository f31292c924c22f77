"""Recorded arguments become calls that run, with the shapes, dtypes and strides that they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paracosm.errors import InputError
from paracosm.graphs import Op, TensorArgument
from paracosm.graphs.op import encode_arguments
from paracosm.profiling.instantiate import instantiate

T = TensorArgument
FLOATS = "float32"


def op(name: str, *args: Any, **kwargs: Any) -> Op:
    return Op(name, encode_arguments(args, kwargs))


def test_a_tensor_has_its_recorded_shape_dtype_and_stride() -> None:
    wanted = op("aten.add.Tensor", T((2, 3, 4), "float64", (12, 1, 3)), T((4,), "float64"))
    first, second = instantiate(wanted).args
    assert (first.shape, first.stride(), first.dtype) == ((2, 3, 4), (12, 1, 3), torch.float64)
    assert (second.shape, second.is_contiguous()) == ((4,), True)


def test_an_expanded_tensor_holds_only_its_storage() -> None:
    (tensor,) = instantiate(op("aten.clone.default", T((1000, 1000), FLOATS, (0, 0)))).args
    assert tensor.stride() == (0, 0)
    assert tensor.untyped_storage().nbytes() == 4


def test_lists_constants_and_names_are_handed_on() -> None:
    call = instantiate(
        op(
            "aten.sum.dim_IntList",
            T((4, 5), "float32"),
            [1],
            True,
            dtype={"dtype": "float64"},
        )
    )
    assert call.args[1:] == ([1], True)
    assert call.kwargs == {"dtype": torch.float64}
    call()


def test_positions_lie_within_what_they_point_into() -> None:
    weight, indices = instantiate(
        op("aten.embedding.default", T((7, 3), FLOATS), T((500,), "int64"))
    ).args
    assert set(indices.tolist()) == set(range(len(weight)))


def test_positions_below_a_number_lie_below_it() -> None:
    call = instantiate(
        op(
            "aten.embedding_dense_backward.default",
            *(T((500, 3), FLOATS), T((500,), "int64"), 9, -1, False),
        )
    )
    assert 0 <= int(call.args[1].min()) <= int(call.args[1].max()) < 9
    call()


def test_a_pooling_layer_s_positions_lie_within_an_image() -> None:
    call = instantiate(
        op(
            "aten.max_pool2d_with_indices_backward.default",
            *(T((2, 3, 4, 4), FLOATS), T((2, 3, 8, 8), FLOATS)),
            *([2, 2], [2, 2], [0, 0], [1, 1], False),
            T((2, 3, 4, 4), "int64"),
        )
    )
    assert int(call.args[-1].max()) < 64
    call()


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "bool", "int32", "complex64"]
)
def test_every_dtype_can_be_made(dtype: str) -> None:
    (tensor,) = instantiate(op("aten.clone.default", T((3, 2), dtype))).args
    assert str(tensor.dtype) == f"torch.{dtype}"


def test_the_same_seed_gives_the_same_values() -> None:
    wanted = op("aten.clone.default", T((100,), FLOATS))
    one, same, other = (instantiate(wanted, seed=seed).args[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Op("aten.convolutio.default", '{"args":[]}'), "has no such op"),
        (Op("elsewhere.add.Tensor", '{"args":[]}'), "has no such op"),
        (Op("aten.add", '{"args":[]}'), "not an op of PyTorch"),
        (Op("aten.add.Tensor"), "its arguments were not recorded"),
        (Op("aten.add.Tensor", '{"args":[{"tensor":[2],"dtype":"float33"}]}'), "float33"),
        (Op("aten.add.Tensor", "{"), "not the arguments of an op"),
    ],
)
def test_what_cannot_be_made_is_said(wrong: Op, message: str) -> None:
    with pytest.raises(InputError, match=message):
        instantiate(wrong)

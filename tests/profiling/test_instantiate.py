"""Recorded arguments become calls that run, with the shapes, dtypes and strides that they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling.torch_ops import FORWARD, instantiate, memory_of, operator_of

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


LONG = T((500,), "int64")


@pytest.mark.parametrize(
    ("name", "args", "at", "bound"),
    [
        ("index_select.default", [T((100, 3), FLOATS), 1, LONG], 2, 3),
        ("index_select.default", [T((3, 100), FLOATS), -1, LONG], 2, 100),
        ("gather.default", [T((500, 7), FLOATS), 1, T((500, 4), "int64")], 2, 7),
        ("scatter_.value", [T((500, 7), FLOATS), 1, T((500, 4), "int64"), 1.0], 2, 7),
        ("scatter_add.default", [T((5,), FLOATS), 0, LONG, T((500,), FLOATS)], 2, 5),
        ("index_add_.default", [T((4, 6), FLOATS), 1, LONG, T((4, 500), FLOATS)], 2, 6),
        ("take.default", [T((4, 6), FLOATS), LONG], 1, 24),
        ("nll_loss_forward.default", [T((500, 9), FLOATS), LONG, None, 1, -100], 1, 9),
        ("nll_loss_forward.default", [T((9,), FLOATS), T((), "int64"), None, 1, -100], 1, 9),
    ],
)
def test_positions_reach_over_the_dimension_that_they_are_in(
    name: str, args: list[Any], at: int, bound: int
) -> None:
    call = instantiate(op(f"aten.{name}", *args))
    values = call.args[at]
    assert 0 <= int(values.min()) <= int(values.max()) < bound
    assert values.numel() < 100 or int(values.max()) == bound - 1
    call()


@pytest.mark.parametrize("name", ["index.Tensor", "_unsafe_index.Tensor"])
def test_every_dimension_bounds_its_own_positions(name: str) -> None:
    """As in x[:, i, j]; a mask stands for as many dimensions as it has."""
    call = instantiate(op(f"aten.{name}", T((100, 3, 50), FLOATS), [None, LONG, LONG]))
    _, first, second = call.args[1]
    assert (int(first.max()), int(second.max())) == (2, 49)
    call()
    masked = instantiate(op("aten.index.Tensor", T((4, 5, 9), FLOATS), [T((4, 5), "bool"), None]))
    masked()


def test_small_integers_point_as_far_as_they_reach() -> None:
    args = T((10**6,), FLOATS), T((50,), "int32")
    assert int(instantiate(op("aten.take.default", *args)).args[1].max()) < 10**6
    narrow = op("aten.embedding.default", T((1000, 2), FLOATS), T((50,), "int8"))
    assert int(instantiate(narrow).args[1].min()) >= 0


@pytest.mark.parametrize("name", ["unsqueeze_.default", "squeeze_.dim"])
def test_an_op_that_changes_the_shape_of_its_argument_can_be_repeated(name: str) -> None:
    call = instantiate(op(f"aten.{name}", T((3, 1, 2), FLOATS), 1))
    for _ in range(100):  # no tensor has more than 64 dimensions
        call()
    assert call.args[0].shape == (3, 1, 2)


def test_nothing_is_written_to_what_a_view_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view of a table of gigabytes is made at once."""
    monkeypatch.delattr(torch, "rand")
    table = T((10, 20), FLOATS)
    instantiate(op("aten.t.default", table))()
    instantiate(op("aten._unsafe_view.default", table, [200]))()
    with pytest.raises(InputError, match="rand"):
        instantiate(op("aten.clone.default", table))


def test_the_memory_of_arguments_is_that_of_their_storages() -> None:
    strided = T((2, 3), "float64", (100, 1))
    wanted = op("aten.cat.default", [T((4, 5), FLOATS), strided, T((0, 9), FLOATS)], 0)
    assert memory_of(wanted) == 4 * 20 + 8 * 103
    assert memory_of(op("aten.clone.default", T((1000, 1000), FLOATS, (0, 0)))) == 4


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


def lstm_backward() -> Op:
    """The backward pass of an LSTM of one layer, 3 steps of 2 sequences of 4, with 5 states."""
    weights = [T((20, 4), FLOATS), T((20, 5), FLOATS), T((20,), FLOATS), T((20,), FLOATS)]
    state, output = T((1, 2, 5), FLOATS), T((3, 2, 5), FLOATS)
    given = [T((3, 2, 4), FLOATS), *weights, state, state, output, state, state, output]
    facts = [None, None, False, 2, 5, 1, True, True, False, [], False]
    return op("aten.mkldnn_rnn_layer_backward.default", *given, *facts, T((0,), "uint8"))


def test_a_backward_op_reads_what_its_forward_op_left_behind() -> None:
    """Its workspace is none of ours, and its output is that of its inputs and weights."""
    call, names = instantiate(lstm_backward()), operator_of(lstm_backward())._schema.arguments
    named = {name.name: value for name, value in zip(names, call.args, strict=True)}
    assert named["workspace"].numel() > 0
    layer = torch.nn.LSTM(4, 5)
    with torch.no_grad():
        for number, kind in enumerate(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), start=1):
            getattr(layer, f"{kind}_l0").copy_(named[f"weight{number}"])
        expected, _ = layer(named["input"], (named["hx_"], named["cx_tmp"]))
    torch.testing.assert_close(named["output"], expected)
    call()


@pytest.mark.parametrize("name", FORWARD)
def test_every_forward_op_finds_its_arguments_in_its_backward_op(name: str) -> None:
    before = FORWARD[name]
    backward = getattr(torch.ops.aten, name.removeprefix("aten.")).default._schema
    forward = getattr(torch.ops.aten, before.name).default._schema
    known = {argument.name for argument in backward.arguments}
    asked = {before.renamed.get(argument.name, argument.name) for argument in forward.arguments}
    assert asked - {None} <= known
    assert set(before.returns) - {None} <= known
    assert len(before.returns) == len(forward.returns)


def test_a_sparse_tensor_has_as_many_rows_as_recorded() -> None:
    wanted = op("aten.add_.Tensor", T((50, 3), FLOATS), T((50, 3), FLOATS, entries=7))
    call = instantiate(wanted)
    assert call.args[1]._nnz() == 7
    assert 0 <= call.args[1]._indices().min() <= call.args[1]._indices().max() < 50
    assert memory_of(wanted) == 4 * 150 + 7 * (8 + 4 * 3)
    call()


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


def test_bags_of_an_embedding_are_about_equally_large() -> None:
    """All indices would otherwise be one row's, and all bags but one empty."""
    indices, offsets = T((12,), "int64"), T((3,), "int64")
    forward = instantiate(op("aten._embedding_bag.default", T((100, 4), FLOATS), indices, offsets))
    assert forward.args[2].tolist() == [0, 4, 8]
    rest = (T((3,), "int64"), T((0,), "int64"), 100, False, 0, False, None)
    gradient = T((3, 4), FLOATS)
    name = "aten._embedding_bag_backward.default"
    backward = instantiate(op(name, gradient, indices, offsets, indices, *rest))
    assert backward.args[3].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert len(set(backward.args[1].tolist())) > 6
    assert backward.result().shape == (100, 4)

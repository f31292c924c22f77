"""Families of ops against what eager PyTorch really calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from designs import counted
from families import FAMILIES, families_named
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from paracosm.errors import InputError
from paracosm.graphs.capture.calls import encode_call
from paracosm.profiling.torch_ops import instantiate

pytestmark = pytest.mark.slow

Program = Callable[..., Any]


class Recorder(TorchDispatchMode):
    """Notes name and arguments of every op."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[tuple[str, str]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten":
            self.calls.add((str(func), encode_call(func, args, kwargs, "cpu")))
        return func(*args, **kwargs)


def leaf(*shape: int) -> Tensor:
    return torch.empty(*shape, requires_grad=True)


def backward(out: Tensor) -> None:
    out.backward(torch.empty_like(out, memory_format=torch.contiguous_format))


def convolution(
    batch: int,
    inputs: int,
    outputs: int,
    size: int,
    kernel: int,
    stride: int,
    depthwise: int,
    bias: int,
) -> None:
    groups = inputs if depthwise == 2 else 1
    made = inputs if depthwise == 2 else outputs
    layer = torch.nn.Conv2d(inputs, made, kernel, stride, kernel // 2, 1, groups, bias == 2)
    backward(layer(leaf(batch, inputs, size, size)))


def addmm(rows: int, inner: int, columns: int, transposed: int) -> None:
    assert transposed == 2
    torch.nn.Linear(inner, columns)(leaf(rows, inner))


def mm(rows: int, inner: int, columns: int, transposed: int) -> None:
    first = leaf(inner, rows).t() if transposed == 2 else leaf(rows, inner)
    torch.mm(first, leaf(columns, inner).t() if transposed == 3 else leaf(inner, columns))


def bmm(batch: int, rows: int, inner: int, columns: int, transposed: int) -> None:
    """The first product is plain, the gradient of its second factor has the first transposed."""
    if transposed == 1:
        torch.bmm(leaf(batch, rows, inner), leaf(batch, inner, columns))
    elif transposed == 2:
        backward(torch.bmm(leaf(batch, inner, rows), leaf(batch, rows, columns)))
    else:
        backward(torch.bmm(leaf(batch, rows, columns), leaf(batch, columns, inner)))


def batch_norm(batch: int, channels: int, size: int) -> None:
    backward(torch.nn.BatchNorm2d(channels)(leaf(batch, channels, size, size)))


def layer_norm(batch: int, tokens: int, width: int) -> None:
    backward(torch.nn.LayerNorm(width)(leaf(batch, tokens, width)))


def on_activations(function: Callable[..., Tensor], tensors: int = 1) -> Program:
    def program(batch: int, channels: int, size: int, dims: int, **more: int) -> None:
        shape = (batch, channels, size, size) if dims == 4 else (batch, size * size, channels)
        backward(function(*[leaf(*shape) for _ in range(tensors)], **more))

    return program


def pool(batch: int, channels: int, size: int, kernel: int, stride: int) -> None:
    padding = kernel // 2 if kernel % 2 else 0
    backward(functional.max_pool2d(leaf(batch, channels, size, size), kernel, stride, padding))


def attention(batch: int, heads: int, tokens: int, head: int, causal: int) -> None:
    parts = leaf(batch, tokens, 3 * heads * head).split(heads * head, dim=2)
    split = [part.view(batch, tokens, heads, head).transpose(1, 2) for part in parts]
    out = functional.scaled_dot_product_attention(*split, is_causal=causal == 2)
    backward(out.transpose(1, 2).reshape(batch, tokens, heads * head))


def cross_entropy(examples: int, classes: int) -> None:
    targets = torch.zeros(examples, dtype=torch.int64)
    functional.cross_entropy(leaf(examples, classes), targets).backward()


def softmax(batch: int, heads: int, tokens: int) -> None:
    backward(functional.softmax(leaf(batch, heads, tokens, tokens), -1))


def embedding(batch: int, tokens: int, vocabulary: int, width: int) -> None:
    layer = torch.nn.Embedding(vocabulary, width)
    backward(layer(torch.zeros(batch, tokens, dtype=torch.int64)))


def optimizer(made: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Program:
    def program(outputs: int, inputs: int, kernel: int, dims: int = 4, tensors: int = 1) -> None:
        shape = (outputs, inputs, kernel, kernel)[:dims]
        parameters: list[Tensor] = [torch.nn.Parameter(leaf(*shape)) for _ in range(tensors)]
        steps = made(parameters)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.empty(shape)
            steps.step()

    return program


def sgd(foreach: bool) -> Program:
    return optimizer(
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=foreach)
    )


def adam(foreach: bool) -> Program:
    return optimizer(lambda parameters: torch.optim.Adam(parameters, foreach=foreach))


PROGRAMS: dict[str, Program] = {
    "convolution": convolution,
    "convolution_backward": convolution,
    "addmm": addmm,
    "mm": mm,
    "bmm": bmm,
    "native_batch_norm": batch_norm,
    "native_batch_norm_backward": batch_norm,
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm,
    "relu": on_activations(functional.relu),
    "relu_": on_activations(lambda x: functional.relu(x.clone(), inplace=True)),
    "threshold_backward": on_activations(functional.relu),
    "gelu": on_activations(functional.gelu),
    "gelu_backward": on_activations(functional.gelu),
    "silu": on_activations(functional.silu),
    "silu_backward": on_activations(functional.silu),
    "sigmoid": on_activations(torch.sigmoid),
    "sigmoid_backward": on_activations(torch.sigmoid),
    "tanh": on_activations(torch.tanh),
    "tanh_backward": on_activations(torch.tanh),
    "add": on_activations(torch.add, tensors=2),
    "mul": on_activations(torch.mul, tensors=2),
    "div": on_activations(torch.div, tensors=2),
    "max_pool2d_with_indices": pool,
    "max_pool2d_with_indices_backward": pool,
    "_adaptive_avg_pool2d": lambda batch, channels, size: functional.adaptive_avg_pool2d(
        leaf(batch, channels, size, size), 7
    ),
    "mean": lambda batch, channels, size: functional.adaptive_avg_pool2d(
        leaf(batch, channels, size, size), 1
    ),
    "sum": lambda rows, columns: backward(torch.nn.Linear(3, columns)(leaf(rows, 3))),
    "_softmax": softmax,
    "_softmax_backward_data": softmax,
    "_log_softmax": cross_entropy,
    "_log_softmax_backward_data": cross_entropy,
    "nll_loss_forward": cross_entropy,
    "nll_loss_backward": cross_entropy,
    "embedding": embedding,
    "embedding_dense_backward": embedding,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention,
    "add_": sgd(foreach=False),
    "mul_": sgd(foreach=False),
    "lerp_": adam(foreach=False),
    "addcmul_": adam(foreach=False),
    "sqrt": adam(foreach=False),
    "_foreach_add_": sgd(foreach=True),
    "_foreach_mul_": sgd(foreach=True),
    "_foreach_addcmul_": adam(foreach=True),
    "_foreach_sqrt": adam(foreach=True),
    "copy_": on_activations(lambda x: torch.empty_like(x).copy_(x)),
    "clone": on_activations(torch.clone),
    "cat": on_activations(lambda *x, parts: torch.cat(x, 1), tensors=2),
}

# Its value changes from step to step.
WITHOUT_PROGRAM = {"addcdiv_"}


def calls_of(program: Program, point: dict[str, int]) -> set[tuple[str, str]]:
    with FakeTensorMode(allow_non_fake_inputs=True), Recorder() as recorder:
        program(**point)
    return recorder.calls


def points() -> Iterator[Any]:
    """The base point of each family, and every switch of it the other way."""
    for name in PROGRAMS:
        base = {argument.name: argument.base for argument in FAMILIES[name].arguments}
        yield pytest.param(name, base, id=name)
        for switch, other in (("depthwise", 2), ("bias", 2), ("causal", 1), ("transposed", 3)):
            if switch in base and name != "addmm":
                yield pytest.param(name, base | {switch: other}, id=f"{name}-{switch}")
        if base.get("transposed") == 1:
            yield pytest.param(name, base | {"transposed": 2}, id=f"{name}-first")
        if base.get("dims") == 4:
            for dims in (3,) if "channels" in base else (1, 2):
                yield pytest.param(name, base | {"dims": dims}, id=f"{name}-{dims}")


def test_every_family_is_held_against_eager() -> None:
    assert set(FAMILIES) == set(PROGRAMS) | WITHOUT_PROGRAM
    assert len(FAMILIES) >= 28


@pytest.mark.parametrize(("name", "point"), list(points()))
def test_a_family_writes_the_call_that_eager_makes(name: str, point: dict[str, int]) -> None:
    op = FAMILIES[name].at(point)
    assert (op.name, op.arguments) in calls_of(PROGRAMS[name], point)


def test_a_convolution_is_counted_by_hand() -> None:
    """2 x 8 x 16 x 16 outputs of 4 x 3 x 3 multiply-adds each, 4 bytes a number."""
    family = FAMILIES["convolution"]
    point = {"batch": 2, "inputs": 4, "outputs": 8, "size": 16, "kernel": 3, "stride": 1}
    op = counted(family.at(point | {"depthwise": 1, "bias": 2}))
    assert op.flops == 2 * (2 * 8 * 16 * 16) * (4 * 3 * 3)
    assert op.bytes_read == 4 * (2 * 4 * 16 * 16 + 8 * 4 * 3 * 3 + 8)
    assert op.bytes_written == 4 * 2 * 8 * 16 * 16


def test_another_dtype_reaches_every_floating_point_tensor_and_nothing_else() -> None:
    family = FAMILIES["nll_loss_forward"]
    op = family.at({"examples": 4, "classes": 10}, "bfloat16")
    assert op.arguments.count("bfloat16") == 1
    assert "int64" in op.arguments
    assert (
        "float32"
        not in FAMILIES["_softmax_backward_data"]
        .at({"batch": 1, "heads": 2, "tokens": 8}, "bfloat16")
        .arguments
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_runs_for_real_at_its_smallest_point(name: str) -> None:
    family = FAMILIES[name]
    smallest = {argument.name: argument.bounds[0] for argument in family.arguments}
    instantiate(family.at(smallest))()


def test_an_argument_can_be_held() -> None:
    (family,) = families_named(["convolution"])
    held = family.fixed({"batch": 3, "none of its own": 1})
    assert held.argument("batch").bounds == (3, 3)
    assert held.argument("batch").typical == (3,)
    assert held.argument("inputs") == family.argument("inputs")
    with pytest.raises(InputError, match="batch must be 1 or more, not 0"):
        family.fixed({"batch": 0})


def test_names_are_found_or_answered_with_the_nearest() -> None:
    assert [family.name for family in families_named(["addmm", "relu", "addmm"])] == [
        "addmm",
        "relu",
    ]
    assert len(families_named(["relu", "all"])) == len(FAMILIES)
    with pytest.raises(InputError, match='unknown op "convolutoin": did you mean "convolution"'):
        families_named(["convolutoin"])
    with pytest.raises(InputError, match="name at least one op"):
        families_named([])
    with pytest.raises(InputError, match='argument of addmm "row": did you mean "rows"'):
        FAMILIES["addmm"].argument("row")

"""The families of ops in designs: their arguments, calls, and ranges in models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments

Point = Mapping[str, int]
"""A value for every argument of a family."""

Call = tuple[list[Any], dict[str, Any]]
"""Positional and named arguments of an op, with `TensorArgument` for tensors."""

FLOAT = "float32"  # placeholder of the design's dtype in the tables of families


@dataclass(frozen=True, slots=True)
class Argument:
    """One number that determines an op's arguments."""

    name: str  # "channels"
    typical: tuple[int, ...]  # values that models have, repeated where they are frequent
    base: int  # where it stays while other arguments vary
    # low, high: the range; that of `typical` unless given
    low: int = 0
    high: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low or min(self.typical), self.high or max(self.typical)

    def __post_init__(self) -> None:
        low, high = self.bounds
        assert all(low <= value <= high for value in (*self.typical, self.base)), self


@dataclass(frozen=True, slots=True)
class Family:
    """One op, and how a point determines its arguments."""

    op: str  # as a graph names it, "aten.convolution.default"
    arguments: tuple[Argument, ...]  # what a point has values for
    # Takes the values by name, returns what eager PyTorch calls the op with
    call: Callable[..., Call]
    # Takes them too, says whether a model has them together; None where all go well with each other
    plausible: Callable[..., bool] | None = None

    @property
    def name(self) -> str:
        """What it is called on the command line, "convolution"."""
        return self.op.split(".")[1]

    def at(self, point: Point, dtype: str = FLOAT) -> Op:
        """Return the op at a point, without its flops and bytes."""
        args, kwargs = self.call(**point)
        return Op(self.op, encode_arguments(_as(dtype, args), _as(dtype, kwargs)))

    def fixed(self, values: Mapping[str, int]) -> "Family":
        for name, value in values.items():
            if value < 1:
                raise InputError(f"{name} must be 1 or more, not {value}")
        held = tuple(
            Argument(argument.name, (values[argument.name],), values[argument.name])
            if argument.name in values
            else argument
            for argument in self.arguments
        )
        return replace(self, arguments=held)

    def argument(self, name: str) -> Argument:
        for each in self.arguments:
            if each.name == name:
                return each
        raise unknown(
            f"argument of {self.name}", name, [argument.name for argument in self.arguments]
        )


def tensor(*shape: int, dtype: str = FLOAT, stride: Sequence[int] | None = None) -> TensorArgument:
    return TensorArgument(shape, dtype, None if stride is None else tuple(stride))


def _as(dtype: str, value: Any) -> Any:
    if isinstance(value, TensorArgument):
        return replace(value, dtype=dtype) if value.dtype == FLOAT else value
    if isinstance(value, list):
        return [_as(dtype, each) for each in value]
    if isinstance(value, dict):
        return {key: _as(dtype, each) for key, each in value.items()}
    return dtype if value == FLOAT else value


def families_named(names: Sequence[str]) -> list[Family]:
    """Return the families with these names; "all" is every one."""
    if not names:
        raise InputError(f"name at least one op, such as {next(iter(FAMILIES))}, or all")
    for name in names:
        if name != "all" and name not in FAMILIES:
            raise unknown("op", name, ["all", *FAMILIES])
    wanted = list(FAMILIES) if "all" in names else list(dict.fromkeys(names))
    return [FAMILIES[name] for name in wanted]


# Values that arguments typically have in VGG, ResNet, GPT, Llama and the like.

_CHANNELS = (
    *(16, 24, 32, 32, 64, 64, 64, 96, 128, 128, 128, 160, 192, 256, 256, 256),
    *(320, 384, 512, 512, 512, 768, 1024, 1024, 2048),
)
_WIDTHS = (64, 128, 256, 384, 512, 512, 640, 768, 768, 768, 1024, 1024, 1536, 2048, 3072, 4096)
_SIZES = (
    *(1, 1, 2, 2, 4, 4, 7, 7, 8, 8, 14, 14, 16, 16, 28, 28, 32, 32, 56, 56),
    *(64, 112, 128, 224),
)
_FEATURES = (10, 64, 100, 128, 256, 512, 512, 768, 1000, 1024, 1024, 2048, 2048, 3072, 4096)
_VOCABULARIES = (100, 1000, 8192, 10_000, 30_522, 32_000, 50_257, 50_304)


def _batch(base: int = 16) -> Argument:
    return Argument("batch", (1, 2, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128), base)


def _channels(name: str = "channels", base: int = 64, extra: tuple[int, ...] = ()) -> Argument:
    return Argument(name, _CHANNELS + extra, base, low=1)


def _features(name: str, base: int) -> Argument:
    return Argument(name, _FEATURES, base, low=1, high=8192)


_SIZE = Argument("size", _SIZES, 28)  # height, and width, of an image or a feature map

_TOKENS = Argument("tokens", (32, 64, 128, 128, 196, 256, 256, 512, 512, 1024), 128, low=1)
_WIDTH = Argument("width", _WIDTHS, 512, low=1)
_HEADS = Argument("heads", (1, 4, 6, 8, 12, 12, 16, 32), 8)

_IMAGES = (_batch(), _channels(), _SIZE)
_SEQUENCES = (_batch(), _TOKENS, _WIDTH)

_ACTIVATIONS = (
    _batch(),
    _channels(extra=(2304, 3072, 4096)),
    _SIZE,
    Argument("dims", (3, 4, 4), 4),
)
"""`dims` 4: [batch, channels, size, size]; 3: [batch, tokens, channels] with as many tokens as
there are pixels."""


def _activation(batch: int, channels: int, size: int, dims: int) -> TensorArgument:
    if dims == 4:
        return tensor(batch, channels, size, size)
    return tensor(batch, size * size, channels)


def _is_plausible_map(channels: int, size: int) -> bool:
    """Whether models have so many channels on so many pixels: 64 on 56 x 56, 512 on 7 x 7."""
    if channels == 3:
        return size >= 28
    return 256 <= channels * size <= 16_384


# Two-dimensional convolutions.

_CONVOLUTION = (
    _batch(base=4),
    _channels("inputs", extra=(3, 3)),
    _channels("outputs"),
    _SIZE,
    Argument("kernel", (1, 1, 1, 3, 3, 3, 3, 5, 7), 3, high=16),
    Argument("stride", (1, 1, 1, 1, 2), 1, high=4),
    Argument("depthwise", (1, 1, 1, 1, 1, 1, 1, 2), 1),
    Argument("bias", (1, 2), 1),
)
"""`depthwise` 2: as many groups as inputs. `bias` 2: there is one. Padding is half the kernel."""


def _shapes(
    batch: int, inputs: int, outputs: int, size: int, kernel: int, stride: int, depthwise: int
) -> tuple[Any, Any, Any, list[Any]]:
    """Return input, weight and output, and the remaining arguments of a call."""
    groups = inputs if depthwise == 2 else 1
    made = inputs if depthwise == 2 else outputs
    padding = kernel // 2
    after = (size + 2 * padding - kernel) // stride + 1
    return (
        tensor(batch, inputs, size, size),
        tensor(made, inputs // groups, kernel, kernel),
        tensor(batch, made, after, after),
        [[stride, stride], [padding, padding], [1, 1], False, [0, 0], groups],
    )


def _convolution(bias: int, **point: int) -> Call:
    x, weight, _, rest = _shapes(**point)
    return [x, weight, tensor(weight.shape[0]) if bias == 2 else None, *rest], {}


def _convolution_backward(bias: int, **point: int) -> Call:
    x, weight, out, rest = _shapes(**point)
    sizes = [weight.shape[0]] if bias == 2 else [0]
    return [out, x, weight, sizes, *rest, [True, True, bias == 2]], {}


def _plausible_convolution(
    inputs: int, outputs: int, size: int, kernel: int, stride: int, depthwise: int, **_: int
) -> bool:
    """Whether models have such a layer: similar widths, and large kernels only near the input."""
    if inputs == 3:
        return _is_plausible_map(inputs, size) and outputs <= 128 and depthwise == 1
    after = -(-size // stride)
    widened = max(inputs, outputs) <= 8 * min(inputs, outputs)
    window = kernel <= 3 or size >= 14
    return (
        widened and window and _is_plausible_map(inputs, size) and _is_plausible_map(outputs, after)
    )


# Products of matrices, with the transposed ones that linear layers and their gradients have.

_ROWS = Argument("rows", (16, 32, 64, 64, 128, 256, 512, 1024, 2048, 4096, 8192), 512, low=1)
_SIDES = (_ROWS, _features("inner", 512), _features("columns", 512))
_BATCHED = (
    Argument("batch", (8, 16, 32, 64, 96, 96, 128, 192, 192, 256), 96, low=1),
    Argument("rows", (32, 64, 128, 128, 256, 512, 1024), 128, low=1),
    Argument("inner", (32, 64, 64, 64, 80, 128, 128, 256, 512), 64, low=1),
    Argument("columns", (32, 64, 128, 128, 256, 512, 1024), 128, low=1),
)

_SECOND = Argument("transposed", (1, 2, 2, 2), 2)
"""2: the second matrix is a transposed weight, as of a linear layer."""

_EITHER = Argument("transposed", (1, 2, 3), 1)
"""2: the first matrix is transposed, as for the gradient of a weight; 3: the second."""


def _matrix(rows: int, columns: int, transposed: bool, batch: int = 0) -> TensorArgument:
    """Return a matrix, or a batch; the transpose of a row or a column is contiguous too."""
    shape = (batch, rows, columns) if batch else (rows, columns)
    if not transposed or rows == 1 or columns == 1:
        return tensor(*shape)
    return tensor(*shape, stride=(rows * columns, 1, rows)[-len(shape) :])


def _addmm(rows: int, inner: int, columns: int, transposed: int) -> Call:
    second = _matrix(inner, columns, transposed == 2)
    return [tensor(columns), tensor(rows, inner), second], {}


def _mm(rows: int, inner: int, columns: int, transposed: int, batch: int = 0) -> Call:
    first = _matrix(rows, inner, transposed == 2, batch)
    return [first, _matrix(inner, columns, transposed == 3, batch)], {}


# Normalisation, in training.


def _batch_norm(batch: int, channels: int, size: int) -> Call:
    one = tensor(channels)
    return [tensor(batch, channels, size, size), one, one, one, one, True, 0.1, 1e-5], {}


def _batch_norm_backward(batch: int, channels: int, size: int) -> Call:
    x, one = tensor(batch, channels, size, size), tensor(channels)
    return [x, x, one, one, one, one, one, True, 1e-5, [True, True, True]], {}


def _plausible_batch_norm(batch: int, channels: int, size: int) -> bool:
    return _is_plausible_map(channels, size) and batch * size > 1  # a variance needs two values


def _layer_norm(batch: int, tokens: int, width: int) -> Call:
    one = tensor(width)
    return [tensor(batch, tokens, width), [width], one, one, 1e-5], {}


def _layer_norm_backward(batch: int, tokens: int, width: int) -> Call:
    x, moment, one = tensor(batch, tokens, width), tensor(batch, tokens, 1), tensor(width)
    return [x, x, [width], moment, moment, one, one, [True, True, True]], {}


# One element at a time, on activations; and what only moves data.


def _elementwise(tensors: int, *rest: float) -> Callable[..., Call]:
    """Return the call with this number of tensors of one shape, followed by `rest`."""
    return lambda **point: ([*[_activation(**point)] * tensors, *rest], {})


def _cat(parts: int, **point: int) -> Call:
    return [[_activation(**point)] * parts, 1], {}


# Pooling, means and sums.

_WINDOWS = (
    *_IMAGES,
    Argument("kernel", (2, 2, 2, 3, 3), 2, high=8),
    Argument("stride", (1, 2, 2, 2, 2), 2, high=4),
)
_MEANS = (_batch(), _channels(base=512), Argument("size", (2, 4, 4, 7, 7, 7, 8, 14), 7))
_SUMMED = (
    Argument("rows", (16, 64, 128, 512, 1024, 2048, 4096, 8192), 1024, low=1),
    _features("columns", 512),
)


def _windows(batch: int, channels: int, size: int, kernel: int, stride: int) -> Any:
    """Return input and output shapes and the padding; images smaller than a window are padded."""
    padding = kernel // 2 if kernel % 2 or size < kernel else 0
    after = (size + 2 * padding - kernel) // stride + 1
    x, out = (batch, channels, size, size), (batch, channels, after, after)
    return x, out, [[kernel, kernel], [stride, stride], [padding, padding]]


def _max_pool(**point: int) -> Call:
    x, _, window = _windows(**point)
    if window[-1] == [0, 0]:  # the default, which a call does not say
        window.pop()
    return [tensor(*x), *window], {}


def _max_pool_backward(**point: int) -> Call:
    x, out, window = _windows(**point)
    indices = tensor(*out, dtype="int64")
    return [tensor(*out), tensor(*x), *window, [1, 1], False, indices], {}


def _average_pool(batch: int, channels: int, size: int) -> Call:
    return [tensor(batch, channels, size, size), [7, 7]], {}


def _mean(batch: int, channels: int, size: int) -> Call:
    return [tensor(batch, channels, size, size), [-1, -2], True], {}


def _sum(rows: int, columns: int) -> Call:
    return [tensor(rows, columns), [0], True], {}


# Softmax over attention weights; log-softmax and negative log-likelihood: cross-entropy.

_WEIGHTS = (_batch(base=8), _HEADS, _TOKENS)
_SCORES = (
    Argument("examples", (8, 16, 32, 64, 64, 128, 256, 1024, 2048, 4096), 256, low=1),
    Argument(
        "classes", (10, 10, 100, 1000, 1000, 8192, 30_522, 32_000, 50_257, 50_304), 1000, low=2
    ),
)


def _softmax(batch: int, heads: int, tokens: int) -> Call:
    return [tensor(batch, heads, tokens, tokens), -1, False], {}


def _softmax_backward(batch: int, heads: int, tokens: int) -> Call:
    x = tensor(batch, heads, tokens, tokens)
    return [x, x, -1, {"dtype": FLOAT}], {}


def _log_softmax(examples: int, classes: int) -> Call:
    return [tensor(examples, classes), 1, False], {}


def _log_softmax_backward(examples: int, classes: int) -> Call:
    x = tensor(examples, classes)
    return [x, x, 1, {"dtype": FLOAT}], {}


def _nll(examples: int, classes: int) -> Call:
    return [tensor(examples, classes), tensor(examples, dtype="int64"), None, 1, -100], {}


def _nll_backward(examples: int, classes: int) -> Call:
    args, _ = _nll(examples, classes)
    return [tensor(), *args, tensor()], {}


# Rows looked up by token, and their gradient.

_EMBEDDING = (_batch(), _TOKENS, Argument("vocabulary", _VOCABULARIES, 8192), _WIDTH)


def _embedding(batch: int, tokens: int, vocabulary: int, width: int) -> Call:
    return [tensor(vocabulary, width), tensor(batch, tokens, dtype="int64")], {}


def _embedding_backward(batch: int, tokens: int, vocabulary: int, width: int) -> Call:
    indices = tensor(batch, tokens, dtype="int64")
    return [tensor(batch, tokens, width), indices, vocabulary, -1, False], {}


# Scaled dot-product attention, as the CPU fuses it.

_ATTENTION = (
    _batch(base=8),
    _HEADS,
    _TOKENS,
    Argument("head", (32, 64, 64, 64, 80, 128, 128), 64, low=8),
    Argument("causal", (1, 2, 2), 2),
)
"""`head`: features of one head. `causal` 2: a token sees those before it only."""


def _split(batch: int, heads: int, tokens: int, head: int, parts: int) -> TensorArgument:
    """Return one of `parts` equal parts of a projection [batch, tokens, parts x heads x head]."""
    row = parts * heads * head
    return _strided((batch, heads, tokens, head), (tokens * row, head, row, 1))


def _strided(shape: tuple[int, ...], stride: tuple[int, ...]) -> TensorArgument:
    expected = 1
    for n, step in zip(reversed(shape), reversed(stride), strict=True):
        if n != 1 and step != expected:
            return tensor(*shape, stride=stride)
        expected *= n
    return tensor(*shape)


def _attention(batch: int, heads: int, tokens: int, head: int, causal: int) -> Call:
    part = _split(batch, heads, tokens, head, parts=3)
    # No dropout and no mask are defaults, which a call does not say.
    return [part, part, part, *([0.0, True] if causal == 2 else [])], {}


def _attention_backward(batch: int, heads: int, tokens: int, head: int, causal: int) -> Call:
    part = _split(batch, heads, tokens, head, parts=3)
    out = _split(batch, heads, tokens, head, parts=1)
    logsumexp = _strided((batch, heads, tokens), (tokens * heads, 1, heads))
    return [out, part, part, part, out, logsumexp, 0.0, causal == 2], {"attn_mask": None}


# What optimizers do to parameters, one tensor at a time or a list of them at once.

_KERNEL = Argument("kernel", (1, 1, 3, 3, 3, 5, 7), 3, high=16)
_PARAMETER = (
    _features("outputs", 256),
    _channels("inputs", base=256, extra=(3072, 4096)),
    _KERNEL,
    Argument("dims", (1, 1, 2, 2, 4, 4), 4),
)
"""`dims` 4: the weight of a convolution; 2: of a linear layer; 1: a bias."""
_PARAMETER_LISTS = (
    _features("outputs", 64),
    _channels("inputs", base=64),
    _KERNEL,
    Argument("tensors", (2, 4, 8, 16, 32, 64), 8, low=1),
)


def _parameter(outputs: int, inputs: int, kernel: int, dims: int) -> TensorArgument:
    return tensor(*(outputs, inputs, kernel, kernel)[:dims])


def _of_parameters(tensors: int, *rest: float, **named: float) -> Callable[..., Call]:
    return lambda **point: ([*[_parameter(**point)] * tensors, *rest], dict(named))


def _of_lists(lists: int, *rest: float, **named: float) -> Callable[..., Call]:
    def call(tensors: int, **point: int) -> Call:
        parameters = [_parameter(**point, dims=4)] * tensors
        return [*[parameters] * lists, *rest], dict(named)

    return call


_FLASH = "_scaled_dot_product_flash_attention_for_cpu"

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("aten.convolution.default", _CONVOLUTION, _convolution, _plausible_convolution),
        Family(
            "aten.convolution_backward.default",
            _CONVOLUTION,
            _convolution_backward,
            _plausible_convolution,
        ),
        Family("aten.addmm.default", (*_SIDES, _SECOND), _addmm),
        Family("aten.mm.default", (*_SIDES, _EITHER), _mm),
        Family("aten.bmm.default", (*_BATCHED, _EITHER), _mm),
        Family("aten.native_batch_norm.default", _IMAGES, _batch_norm, _plausible_batch_norm),
        Family(
            "aten.native_batch_norm_backward.default",
            _IMAGES,
            _batch_norm_backward,
            _plausible_batch_norm,
        ),
        Family("aten.native_layer_norm.default", _SEQUENCES, _layer_norm),
        Family("aten.native_layer_norm_backward.default", _SEQUENCES, _layer_norm_backward),
        Family("aten.relu.default", _ACTIVATIONS, _elementwise(1)),
        Family("aten.relu_.default", _ACTIVATIONS, _elementwise(1)),
        Family("aten.threshold_backward.default", _ACTIVATIONS, _elementwise(2, 0)),
        Family("aten.gelu.default", _ACTIVATIONS, _elementwise(1)),
        Family("aten.gelu_backward.default", _ACTIVATIONS, _elementwise(2)),
        Family("aten.silu.default", _ACTIVATIONS, _elementwise(1)),
        Family("aten.silu_backward.default", _ACTIVATIONS, _elementwise(2)),
        Family("aten.sigmoid.default", _ACTIVATIONS, _elementwise(1)),
        Family("aten.sigmoid_backward.default", _ACTIVATIONS, _elementwise(2)),
        Family("aten.tanh.default", _ACTIVATIONS, _elementwise(1)),
        Family("aten.tanh_backward.default", _ACTIVATIONS, _elementwise(2)),
        Family("aten.add.Tensor", _ACTIVATIONS, _elementwise(2)),
        Family("aten.mul.Tensor", _ACTIVATIONS, _elementwise(2)),
        Family("aten.div.Tensor", _ACTIVATIONS, _elementwise(2)),
        Family("aten.max_pool2d_with_indices.default", _WINDOWS, _max_pool),
        Family("aten.max_pool2d_with_indices_backward.default", _WINDOWS, _max_pool_backward),
        Family("aten._adaptive_avg_pool2d.default", _IMAGES, _average_pool),
        Family("aten.mean.dim", _MEANS, _mean),
        Family("aten.sum.dim_IntList", _SUMMED, _sum),
        Family("aten._softmax.default", _WEIGHTS, _softmax),
        Family("aten._softmax_backward_data.default", _WEIGHTS, _softmax_backward),
        Family("aten._log_softmax.default", _SCORES, _log_softmax),
        Family("aten._log_softmax_backward_data.default", _SCORES, _log_softmax_backward),
        Family("aten.nll_loss_forward.default", _SCORES, _nll),
        Family("aten.nll_loss_backward.default", _SCORES, _nll_backward),
        Family("aten.embedding.default", _EMBEDDING, _embedding),
        Family("aten.embedding_dense_backward.default", _EMBEDDING, _embedding_backward),
        Family(f"aten.{_FLASH}.default", _ATTENTION, _attention),
        Family(f"aten.{_FLASH}_backward.default", _ATTENTION, _attention_backward),
        Family("aten.add_.Tensor", _PARAMETER, _of_parameters(2, alpha=-0.1)),
        Family("aten.mul_.Tensor", _PARAMETER, _of_parameters(1, 0.9)),
        Family("aten.lerp_.Scalar", _PARAMETER, _of_parameters(2, 0.1)),
        Family("aten.addcmul_.default", _PARAMETER, _of_parameters(3, value=0.001)),
        Family("aten.addcdiv_.default", _PARAMETER, _of_parameters(3, value=-0.1)),
        Family("aten.sqrt.default", _PARAMETER, _of_parameters(1)),
        Family("aten._foreach_add_.List", _PARAMETER_LISTS, _of_lists(2, alpha=-0.1)),
        Family("aten._foreach_mul_.Scalar", _PARAMETER_LISTS, _of_lists(1, 0.9)),
        Family("aten._foreach_addcmul_.Scalar", _PARAMETER_LISTS, _of_lists(3, 0.001)),
        Family("aten._foreach_sqrt.default", _PARAMETER_LISTS, _of_lists(1)),
        Family("aten.copy_.default", _ACTIVATIONS, _elementwise(2)),
        Family("aten.clone.default", _ACTIVATIONS, _elementwise(1)),
        Family(
            "aten.cat.default", (*_ACTIVATIONS, Argument("parts", (2, 2, 3, 4), 2, high=8)), _cat
        ),
    )
}

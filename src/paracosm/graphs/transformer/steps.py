"""What the parts of a layer have in common: norms, linear maps, their collectives and casts."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from paracosm.graphs.graph import Op
from paracosm.graphs.transformer.adapters import ADAPTED, adapter, adapter_backward
from paracosm.graphs.transformer.ops import (
    HALF,
    Kept,
    Step,
    all_gather,
    all_reduce,
    grouped_product,
    product,
    reduce_scatter,
    streaming,
)
from paracosm.graphs.transformer.share import Share


def gather(share: Share, place: str, *, again: bool = False) -> Iterator[Step]:
    """Yield the gather of a sequence-parallel input; `again` for gradients of weights.

    A product that follows overlaps it with `async_tp`, unless it multiplies numbers scaled by rows,
    for which PyTorch has no such kernel (github.com/pytorch/pytorch/issues/149990).
    """
    if share.split.tensor > 1 and share.split.sequence:
        size = share.stream // (2 if share.split.float8 in ("tensorwise", "delayed") else 1)
        overlaps = again or (share.split.overlap and share.split.float8 != "rowwise")
        yield Step(place, all_gather(size, share.split.tensor), overlaps=overlaps)


def total(share: Share) -> Op:
    """Return the sum of the residual stream over the ranks that share layers."""
    if share.split.sequence:
        return reduce_scatter(share.stream, share.split.tensor)
    return all_reduce(share.stream)


def reduced(share: Share, place: str) -> Iterator[Step]:
    if share.split.tensor > 1:
        yield Step(place, total(share))


def cast(
    share: Share,
    place: str,
    size: int,
    *,
    rows: bool = True,
    columns: bool = False,
    after_norm: bool = False,
) -> Iterator[Step]:
    """Yield what writes a tensor of `size` bytes in float8, by rows, by columns, or both.

    Products take their second operand by columns: the gradient of weights takes both operands so.
    Scaled by the largest of the tensor, it is read to find that, and read again to be written, once
    for each layout. Scaled by that of each row, the tensor is first copied with rows and columns
    exchanged where columns are needed (torchao, testing/training/roofline_utils.py,
    `get_tensor_memory_traffic_ovhd_s`). Transformer Engine reads it once and writes both layouts;
    scaled by earlier steps, the norm before writes them itself ("LayerNormLinear"), so that they
    are written in place of the tensor. One layout is enough where weights are frozen.
    """
    scaling, layouts = share.split.float8, rows + columns
    if scaling == "delayed" and after_norm:
        return
    read = size
    if share.casts_once:
        layouts = 1 if share.model.adapter else 2
    elif scaling == "tensorwise" or columns:
        read = 2 * size
    copied = size if scaling == "rowwise" and columns else 0
    yield Step(place, streaming("float8.cast", read, copied + layouts * size // HALF))


def cast_weights(share: Share, place: str, count: int, *, backward: bool = False) -> Iterator[Step]:
    """Yield what writes so many weights in float8 in each pass, with torchao.

    Those scaled by rows are cast where they are used, in the backward pass by columns. Those scaled
    by the largest of the tensor have been gathered in float8, and are copied by columns.
    Transformer Engine casts once an update, not counted here. Frozen weights have one layout, not
    to be held in two: they are copied by columns as well (MLPerf's runs of Llama 2 70B,
    `disable_parameter_transpose_cache`).
    """
    scaling, is_frozen = share.split.float8, bool(share.model.adapter)
    if scaling == "rowwise":
        yield from cast(share, place, HALF * count, rows=not backward, columns=backward)
    elif backward and (scaling == "tensorwise" or (scaling == "delayed" and is_frozen)):
        yield Step(place, streaming("float8.transpose", count, count))


def linear(share: Share, place: str, whole: int) -> Iterator[Step]:
    """Yield a map from the shares of what is `whole` on all ranks, and the sum of its outputs."""
    inner = -(-whole // share.split.tensor)
    if share.split.float8:
        yield from cast(share, place, HALF * share.tokens * inner)
        yield from cast_weights(share, place, share.model.width * inner)
    op = product(share.tokens, share.model.width, inner, float8=share.split.float8)
    yield from summed(share, place, [Step(place, op)])
    if place in ADAPTED:
        yield from adapter(share, place, share.model.width, inner)


def summed(
    share: Share, place: str, steps: Iterable[Step], *, backward: bool = False
) -> Iterator[Step]:
    """Yield steps and the sum of their output, concurrent with the last except gradients of
    weights: piece by piece, as products are done (Wang et al., "Overlap Communication with
    Dependent Computation via Decomposition", 2023). Transformer Engine's goes beside the gradients
    of weights backward, and beside nothing where those are frozen (transformer_engine/pytorch/
    module/layernorm_linear.py, `ub_bulk_wgrad`)."""
    ordered = list(steps)
    sums = list(reduced(share, place))
    is_frozen = bool(share.model.adapter) and share.model.recipe == "transformer-engine"
    if sums and share.split.overlap and not (backward and is_frozen):
        last = max(n for n, step in enumerate(ordered) if not step.of_weights)
        ordered.insert(last, replace(sums.pop(), overlaps=True))
    yield from ordered
    yield from sums


def linear_backward(
    share: Share,
    place: str,
    tokens: int,
    outputs: int,
    inputs: int,
    *,
    groups: int = 0,
    first: bool = False,
    needed_by: str = "",
) -> Iterator[Step]:
    """Yield the gradients of a linear map's input, weights and bias; of `groups` of them at once.

    That of the input is `needed_by` the steps at a place, by default the map's own.

    In float8, tokens of the output's gradient are cast for both products, and those of the input,
    held by the `first` of several maps, for the second, if the forward pass has not kept them so.
    """
    model, size = share.model, share.gradient
    float8 = share.split.float8
    if place == "mlp.router" or (groups and not share.casts_once):
        float8 = ""
    weights = max(groups, 1) * outputs * inputs
    if float8:
        yield from cast(share, place, HALF * tokens * outputs, columns=not model.adapter)
        if not groups:
            yield from cast_weights(share, place, weights, backward=True)
    kept = ((HALF * tokens * inputs, needed_by or place),)
    if groups:
        yield Step(place, grouped_product(tokens, inputs, outputs, groups, float8=float8), kept)
    else:
        yield Step(place, product(tokens, inputs, outputs, float8=float8), kept)
    if not first and model.recipe != "megatron" and not groups:
        stream = HALF * tokens * inputs
        yield Step(place, streaming("aten.add.Tensor", 2 * stream, stream))
    if model.adapter:
        if place in ADAPTED:
            yield from adapter_backward(share, place, outputs, inputs)
        return

    def of_weights(op: Op, gradient: int = 0, during: int = 0) -> Step:
        return Step(place, op, during=during, gradient=gradient, of_weights=True)

    if float8 and first and not share.casts_once:
        for step in cast(share, place, HALF * tokens * inputs, rows=False, columns=True):
            yield of_weights(step.op)
    biases = max(groups, 1) * outputs if model.bias and place != "mlp.router" else 0
    gradient = size * (weights + biases)
    written = gradient if share.in_half_precision else 0  # autograd keeps what the product wrote
    if groups:
        op = grouped_product(inputs, outputs, tokens, groups, float8=float8, of_weights=True)
        yield of_weights(op, written)
    else:
        yield of_weights(product(outputs, inputs, tokens, float8=float8), written)
    if biases:
        bias = HALF * tokens * outputs
        yield of_weights(streaming("aten.sum.dim_IntList", bias, HALF * outputs))
    if written:
        return
    read = HALF * weights if size > HALF else 2 * HALF * weights
    name = "aten._to_copy.default" if size > HALF else "aten.add_.Tensor"
    add = streaming(name, read, size * weights)
    yield of_weights(add, gradient, during=HALF * weights)


def for_weights(share: Share, size: int, place: str) -> Kept:
    """Return what is kept for the gradient of a map's weights alone: nothing of frozen ones."""
    return () if share.model.adapter else ((size, place),)


def activation(share: Share, size: int, *, backward: bool = False) -> Op:
    suffix = "_backward" if backward else ""
    if not share.model.gated:
        return streaming(f"aten.gelu{suffix}.default", (1 + backward) * size, size)
    eager = share.model.recipe == "eager"  # SiLU, then the product with the gate
    there, back = ((3, 2), (6, 3)) if eager else ((2, 1), (3, 2))
    read, written = back if backward else there
    return streaming(f"{share.model.recipe}.silu_mul{suffix}", read * size, written * size)


def norm(share: Share, streams: int = 1) -> Op:
    """Return the norm of the residual stream, or of the sum of two `streams`, which is kept."""
    size = share.local
    if not share.model.rms:
        name = "aten.native_layer_norm.default"
    elif share.model.recipe == "eager":  # cast, square, mean, product, cast, product with weights
        return streaming("eager.rms_norm", 9 * size, 7 * size)
    else:
        name = "compiled.rms_norm"
    return streaming(name, streams * size, streams * size)


def norm_backward(share: Share, place: str, *, with_stream: bool = False) -> Iterator[Step]:
    """Yield the gradient of a norm, and its sum with that of the residual stream."""
    size, model = share.local, share.model
    gradient = 0 if model.adapter else share.gradient * model.norm_parameters
    fused = with_stream and model.is_fused
    read = (3 if fused else 2) * size
    if not model.rms:
        op = streaming("aten.native_layer_norm_backward.default", read, size)
    elif model.recipe == "eager":
        op = streaming("eager.rms_norm_backward", 24 * size, 12 * size)
    else:
        op = streaming("compiled.rms_norm_backward", read, size)
    yield Step(place, op, gradient=gradient)
    if with_stream and not fused:
        yield Step(place, streaming("aten.add.Tensor", 2 * size, size))

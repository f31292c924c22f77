"""What the nodes of NeuSight's tables compute and move, from their shapes: no latency is looked at.

Every node becomes ops of PyTorch with flops and bytes, in single precision as they ran. A node's
backward pass is one op whose bytes are those of all kernels that PyTorch's formula for it launches
(`tools/autograd/derivatives.yaml`, `aten/src/ATen/native/cuda/`), in passes over the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from op_latencies import VIEWS, Row

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import Graph, Op, TensorArgument, encode_arguments

__all__ = ["graph_of_shapes", "passes_of"]

FLOAT = 4  # bytes

# Kernels behind a backward pass, as passes over the result of the forward pass. A tensor of masks
# has a byte a number, a quarter of a pass.
BACKWARD = {
    "tanh": 3.0,  # gradient and result in, gradient out
    "gelu": 3.0,
    "gelunew": 3.0,
    "relu": 3.0,
    "activation": 3.0,
    "pow": 7.0,  # the power, times the exponent, times the gradient
    "truediv": 2.0,
    "sub": 2.0,
    "mul": 2.0,  # with a number; with a tensor, the same for each: 6
    "where": 2.25,
    "masked_fill": 4.25,  # a copy, then filled in place
    # The result equal and less than the other, halves, chosen, filled: `maximum` in the formulas.
    "max": 10.0,
    "softmax": 6.0,  # the product of gradient and result, then its sum and difference by rows
    "dropout": 6.25,  # the mask as numbers, scaled, times the gradient
    "layernorm": 5.0,  # of the input (3), then of weights and biases (2)
    "contiguous": 0.0,
    "reshape": 0.0,
    "add": 0.0,  # the gradient is handed on
}
COPIES = {"contiguous", "reshape", "to", "clone"}


Works = tuple[Op | None, Op | None, Op | None]


def works_of(row: Row, vocabulary: int) -> Works:
    """Return the ops of a node's forward pass, backward pass and accumulation of gradients.

    None where none runs. `vocabulary` is the number of tokens: no shape of a look-up has it.
    """
    if (dims := product_of(row)) is not None:
        return _product(row, *dims)
    if not row.makes_tensor or row.function in VIEWS or not row.shape:
        return None, None, None
    name = (row.layer or row.function).lower()
    size = FLOAT * math.prod(row.shape)
    inputs = sum(FLOAT * math.prod(shape) for shape in row.shapes if shape != (1,))
    if name == "embedding":
        return _embedding(row, size, vocabulary)
    if name == "dropout":
        forward = _streaming("aten.native_dropout.default", size, size + size // FLOAT)
    elif name in ("layernorm", "softmax"):
        aten = "native_layer_norm" if name == "layernorm" else "_softmax"
        forward = _streaming(f"aten.{aten}.default", size, size)
    elif name in COPIES:
        forward = _streaming("aten.copy_.default", size, size)
    elif name == "masked_fill":
        forward = _streaming("aten.masked_fill.Scalar", 2 * size + size // FLOAT, 2 * size)
    else:
        forward = _streaming(f"aten.{name}.default", inputs, size)
    passes = BACKWARD.get(name, BACKWARD["activation"] if "act" in row.module else 0.0)
    if name == "mul" and sum(math.prod(s) > 1 for s in row.shapes) > 1:
        passes = 6.0
    backward = f"{forward.name.removesuffix('.default')}_backward.default"
    return forward, _streaming(backward, int(passes * size), 0) if passes else None, None


def product_of(row: Row) -> tuple[int, int, int, int] | None:
    """Return how many products of which rows, columns and inner size a node computes."""
    if row.layer == "Linear":
        *outer, inner = row.shapes[0]
        return 1, math.prod(outer), row.shape[-1], inner
    if row.function == "addmm":
        _, (rows, inner), (_, columns) = row.shapes[:3]
        return 1, rows, columns, inner
    if row.function in ("matmul", "bmm"):
        first, second = row.shapes[:2]
        return math.prod(first[:-2]), first[-2], second[-1], first[-1]
    return None


def _product(row: Row, count: int, rows: int, columns: int, inner: int) -> Works:
    forward = _matrix_product(count, rows, columns, inner)
    # Two more products of as many operations; they read and write the same three matrices.
    backward = replace(
        forward,
        flops=2 * forward.flops,
        bytes_read=2 * forward.bytes_read,
        bytes_written=2 * forward.bytes_written,
    )
    weights = FLOAT * inner * columns
    weighted = row.layer == "Linear" or row.function == "addmm"
    update = _streaming("aten.add_.Tensor", 2 * weights, weights) if weighted else None
    return forward, backward, update


def _matrix_product(count: int, rows: int, columns: int, inner: int) -> Op:
    batch = (count,) if count > 1 else ()
    tensors = [
        TensorArgument((*batch, rows, inner), "float32"),
        TensorArgument((*batch, inner, columns), "float32"),
    ]
    return Op(
        "aten.bmm.default" if count > 1 else "aten.mm.default",
        encode_arguments(tensors, {}),
        flops=2 * count * rows * columns * inner,
        bytes_read=FLOAT * count * inner * (rows + columns),
        bytes_written=FLOAT * count * rows * columns,
    )


def _embedding(row: Row, size: int, vocabulary: int) -> Works:
    # The gradient of all rows of the table is filled with zeros, then those that occur are added.
    of_tokens = any(part in row.module for part in ("wte", "word", "tokens"))
    rows = vocabulary if of_tokens else row.shape[-2]
    table = FLOAT * rows * row.shape[-1]
    forward = _streaming("aten.embedding.default", size, size)
    backward = _streaming("aten.embedding_dense_backward.default", 2 * size, size + table)
    return forward, backward, _streaming("aten.add_.Tensor", 2 * table, table)


def _streaming(name: str, read: int, written: int) -> Op:
    return Op(name, bytes_read=read, bytes_written=written)


def passes_of(rows: Sequence[Row]) -> list[tuple[Row, str, Op, float]]:
    """Return what runs in the order of execution: node, phase, op, the interval around it."""
    vocabulary = max((row.shape[-1] for row in rows if row.layer == "Linear"), default=0)
    works = [(row, works_of(row, vocabulary)) for row in rows]
    forward = [(row, "forward", op, row.forward) for row, (op, _, _) in works]
    backward = [
        (row, "backward", op, interval)
        for row, (_, op, update) in reversed(works)
        for op, interval in ((op, row.backward), (update, row.accumulate))
    ]
    return [
        (row, phase, op, interval)
        for row, phase, op, interval in (*forward, *backward)
        if op is not None and interval > 0
    ]


def graph_of_shapes(rows: Sequence[Row]) -> Graph:
    """Return the graph of one iteration, without durations."""
    nodes = [
        Node(number, op, row.module, phase)
        for number, (row, phase, op, _) in enumerate(passes_of(rows))
    ]
    return build_graph(nodes, where="op latencies")

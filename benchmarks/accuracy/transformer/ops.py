"""Ops of a transformer with their work: flops, and bytes that go in and out of memory.

Numbers have two bytes (half precision), masks of dropout one.
"""

from __future__ import annotations

from paracosm.graphs.graph import Op, TensorArgument, encode_arguments

__all__ = ["HALF", "all_gather", "all_reduce", "product", "streaming"]

HALF = 2
"""Bytes of a number in half precision."""


def product(rows: int, columns: int, inner: int, batch: int = 1) -> Op:
    """Return a matrix product, or `batch` of them: [rows, inner] times [inner, columns]."""
    shapes = (rows, inner), (inner, columns)
    if batch > 1:
        shapes = (batch, *shapes[0]), (batch, *shapes[1])  # type: ignore[assignment]
    tensors = [TensorArgument(shape, "float16") for shape in shapes]
    return Op(
        "aten.bmm.default" if batch > 1 else "aten.mm.default",
        encode_arguments(tensors, {}),
        flops=2 * batch * rows * columns * inner,
        bytes_read=HALF * batch * inner * (rows + columns),
        bytes_written=HALF * batch * rows * columns,
    )


def streaming(name: str, read: int, written: int) -> Op:
    """Return an op that passes over its tensors once; `read` and `written` are bytes."""
    return Op(name, bytes_read=read, bytes_written=written)


def all_reduce(size: int) -> Op:
    """Return the sum of a vector of `size` bytes over the ranks that share a layer."""
    return Op("_c10d_functional.all_reduce.default", bytes_read=size, bytes_written=size)


def all_gather(size: int, ranks: int) -> Op:
    """Return the exchange after which each of `ranks` has all of a vector of `size` bytes."""
    name = "_c10d_functional.all_gather_into_tensor.default"
    return Op(name, bytes_read=size // ranks, bytes_written=size)

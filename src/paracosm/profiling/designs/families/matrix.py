"""Products of matrices, with the transposed ones that linear layers and their gradients have."""

from __future__ import annotations

from paracosm.graphs.op import TensorArgument
from paracosm.profiling.designs.families.typical import features
from paracosm.profiling.designs.family import Argument, Call, Family, tensor

__all__ = ["MATRIX"]

_ROWS = Argument("rows", (16, 32, 64, 64, 128, 256, 512, 1024, 2048, 4096, 8192), 512, low=1)
_SIDES = (_ROWS, features("inner", 512), features("columns", 512))


def _matrix(rows: int, columns: int, transposed: bool) -> TensorArgument:
    return tensor(rows, columns, stride=_stride(rows, columns) if transposed else None)


def _stride(rows: int, columns: int) -> tuple[int, int] | None:
    """Return the stride of the transpose of a contiguous matrix, unless that is contiguous too."""
    return None if rows == 1 or columns == 1 else (1, rows)


def _addmm(rows: int, inner: int, columns: int, transposed: int) -> Call:
    product = [tensor(rows, inner), _matrix(inner, columns, transposed == 2)]
    return [tensor(columns), *product], {}


def _mm(rows: int, inner: int, columns: int, transposed: int) -> Call:
    first = _matrix(rows, inner, transposed == 2)
    return [first, _matrix(inner, columns, transposed == 3)], {}


def _bmm(batch: int, rows: int, inner: int, columns: int, transposed: int) -> Call:
    return [
        _batched(batch, rows, inner, transposed == 2),
        _batched(batch, inner, columns, transposed == 3),
    ], {}


def _batched(batch: int, rows: int, columns: int, transposed: bool) -> TensorArgument:
    plain = _stride(rows, columns) is None or not transposed
    stride = None if plain else (rows * columns, 1, rows)
    return tensor(batch, rows, columns, stride=stride)


_SECOND = Argument("transposed", (1, 2, 2, 2), 2)
"""2: the second matrix is a transposed weight, as of a linear layer."""

_EITHER = Argument("transposed", (1, 2, 3), 1)
"""2: the first matrix is transposed, as for the gradient of a weight; 3: the second."""

MATRIX = (
    Family("aten.addmm.default", (*_SIDES, _SECOND), _addmm),
    Family("aten.mm.default", (*_SIDES, _EITHER), _mm),
    Family(
        "aten.bmm.default",
        (
            Argument("batch", (8, 16, 32, 64, 96, 96, 128, 192, 192, 256), 96, low=1),
            Argument("rows", (32, 64, 128, 128, 256, 512, 1024), 128, low=1),
            Argument("inner", (32, 64, 64, 64, 80, 128, 128, 256, 512), 64, low=1),
            Argument("columns", (32, 64, 128, 128, 256, 512, 1024), 128, low=1),
            _EITHER,
        ),
        _bmm,
    ),
)

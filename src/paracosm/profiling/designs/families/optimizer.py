"""What optimizers do to parameters, one tensor at a time or a list of them at once."""

from __future__ import annotations

from collections.abc import Callable

from paracosm.graphs.op import TensorArgument
from paracosm.profiling.designs.families.typical import channels, features
from paracosm.profiling.designs.family import Argument, Call, Family, tensor

__all__ = ["OPTIMIZER"]

_DIMS = Argument("dims", (1, 1, 2, 2, 4, 4), 4)
_ARGUMENTS = (
    features("outputs", 256),
    channels("inputs", base=256, extra=(3072, 4096)),
    Argument("kernel", (1, 1, 3, 3, 3, 5, 7), 3, high=16),
    _DIMS,
)
"""`dims` 4: the weight of a convolution; 2: of a linear layer; 1: a bias."""
_LISTS = (
    features("outputs", 64),
    channels("inputs", base=64),
    Argument("kernel", (1, 1, 3, 3, 3, 5, 7), 3, high=16),
    Argument("tensors", (2, 4, 8, 16, 32, 64), 8, low=1),
)


def _weight(outputs: int, inputs: int, kernel: int, dims: int) -> TensorArgument:
    return tensor(*(outputs, inputs, kernel, kernel)[:dims])


def _of(tensors: int, *rest: float, **named: float) -> Callable[..., Call]:
    """Return the call with so many tensors like one parameter."""
    return lambda **point: ([*[_weight(**point)] * tensors, *rest], dict(named))


def _listed(lists: int, *rest: float, **named: float) -> Callable[..., Call]:
    """Return the call with so many lists of parameters."""

    def call(outputs: int, inputs: int, kernel: int, tensors: int) -> Call:
        parameters = [_weight(outputs, inputs, kernel, 4)] * tensors
        return [*[parameters] * lists, *rest], dict(named)

    return call


OPTIMIZER = (
    *(
        Family(f"aten.{op}", _ARGUMENTS, call)
        for op, call in (
            ("add_.Tensor", _of(2, alpha=-0.1)),
            ("mul_.Tensor", _of(1, 0.9)),
            ("lerp_.Scalar", _of(2, 0.1)),
            ("addcmul_.default", _of(3, value=0.001)),
            ("addcdiv_.default", _of(3, value=-0.1)),
            ("sqrt.default", _of(1)),
        )
    ),
    *(
        Family(f"aten.{op}", _LISTS, call)
        for op, call in (
            ("_foreach_add_.List", _listed(2, alpha=-0.1)),
            ("_foreach_mul_.Scalar", _listed(1, 0.9)),
            ("_foreach_addcmul_.Scalar", _listed(3, 0.001)),
            ("_foreach_sqrt.default", _listed(1)),
        )
    ),
)

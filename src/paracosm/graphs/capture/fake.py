"""Fake tensors, which have shapes and no values; and models that want values when they are made.

Initial values are of no use to a graph, so `trunc_normal_`, which draws until all values are within
its bounds, draws nothing. A model whose constructor reads values that its structure may depend on
(`torch.linspace(0, rate, depth).tolist()`) is made on real tensors, which then are replaced.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)

from paracosm.models.registry import Workload


@contextlib.contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Let PyTorch make fake tensors only, of real ones as well, in this context."""
    known: dict[Any, Any] = fake_impls.op_implementations_dict
    added = {op: of for op, of in _IMPLEMENTED.items() if op not in known}
    known.update(added)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            yield mode
    finally:
        for op in added:
            del known[op]


def make_fake(mode: FakeTensorMode, make: Callable[[], Workload]) -> Workload:
    """Return a workload of fake tensors; on real ones if its model wants to know values.

    Raises:
        Exception: whatever `make` raises, for fake tensors or else for real ones.
    """
    try:
        with _without_truncation():
            return make()
    except Exception as error:
        if not _wants_values(error):
            raise
    with unset_fake_temporarily(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = make()
    return _replaced(mode, made)


_WANTS_VALUES = (
    *(DataDependentOutputException, DynamicOutputShapeException),
    *(UnsupportedFakeTensorException, UnsupportedOperatorException),
)


def _wants_values(error: BaseException | None) -> bool:
    """Whether an error, or one that it is from, is that a tensor has no values."""
    while error is not None:
        if isinstance(error, _WANTS_VALUES) or "tensor subclass" in str(error):  # of .numpy()
            return True
        error = error.__cause__ or error.__context__
    return False


def _replaced(mode: FakeTensorMode, workload: Workload) -> Workload:
    """Replace the tensors of a workload by fake ones; those of a module stay shared and trained."""
    fakes: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in fakes:
            fakes[id(tensor)] = mode.from_tensor(tensor, static_shapes=True)
        return fakes[id(tensor)]

    for part in workload.module.modules():
        for held in (part._parameters, part._buffers, vars(part)):
            for name, value in list(held.items()):
                if isinstance(value, Tensor):
                    # A plain assignment: layers such as LSTM keep lists of their parameters too.
                    setattr(part, name, fake(value))
    inputs = tuple(fake(value) if isinstance(value, Tensor) else value for value in workload.inputs)
    return Workload(workload.module, inputs, workload.loss, workload.examples)


@contextlib.contextmanager
def _without_truncation() -> Iterator[None]:
    """Keep `nn.init.trunc_normal_`, whoever has imported it, from asking for values."""
    draw = getattr(nn.init, "_no_grad_trunc_normal_", None)
    if draw is None:
        yield
        return

    def drawn(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return tensor if isinstance(tensor, FakeTensor) else draw(tensor, *args, **kwargs)

    nn.init._no_grad_trunc_normal_ = drawn
    try:
        yield
    finally:
        nn.init._no_grad_trunc_normal_ = draw


def _grouped_product(
    mode: FakeTensorMode,
    function: Any,
    matrices: Tensor,
    others: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return an empty result of `aten._grouped_mm`, which PyTorch has for bfloat16 only.

    Groups are rows of the first, columns of the second, or their common dimension, where that has
    two dimensions; each ends where `offs` says.
    """
    rows, columns = matrices.shape[-2], others.shape[-1]
    two = matrices.dim() == 2, others.dim() == 2
    groups: tuple[int, ...] = ()
    if two == (True, True):
        assert offs is not None
        groups = (len(offs),)
    elif two == (False, False):
        groups = (len(matrices),)
    with mode:
        shape = (*groups, rows, columns)
        return torch.empty(shape, dtype=out_dtype or matrices.dtype, device=matrices.device)


def _implemented() -> Mapping[Any, Callable[..., Tensor]]:
    packet = getattr(torch.ops.aten, "_grouped_mm", None)
    return {} if packet is None else {packet.default: _grouped_product}


_IMPLEMENTED = _implemented()
"""What fake tensors do where PyTorch does not know."""

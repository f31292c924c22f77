"""What real process groups refuse: an emulated one refuses it with much the same words.

gloo's part is measured: `tests/emulation/backend/refusal_cases.py` runs all of it on real processes
(PyTorch 2.13). NCCL's follows ProcessGroupNCCL.cpp of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

_OF_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_OF_GLOO = frozenset(
    {
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8),
        *(torch.int8, torch.int32, torch.int64, torch.complex64, torch.complex128),
    }
)
_OF_NCCL = _OF_GLOO | {torch.float8_e4m3fn, torch.float8_e5m2}
_NAMES = {torch.bool: "Bool", torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short"}
_NAMES |= {torch.int32: "Int", torch.int64: "Long"}
_LEAVES = ("allreduce_coalesced", "allgather", "gather", "reduce_scatter", "alltoall")


def library_of(asked: str, device: str) -> str:
    """Return "gloo", "nccl" or another backend for tensors of a type of device.

    `asked` is what the script asked for, as "gloo" or "cpu:gloo,cuda:nccl".
    """
    asked = asked.lower()
    if ":" in asked:
        asked = dict(pair.split(":", 1) for pair in asked.split(",")).get(device, "")
    if asked in ("", "undefined"):
        asked = "gloo" if device == "cpu" else "nccl"
    return asked


def check(
    library: str,
    call: str,  # as the method of a process group is called: "allgather", "alltoall_base"
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    op: Any = None,  # of a reduction
) -> None:
    """Raise what a library raises for tensors and a reduce operation that it does not take."""
    kind = getattr(op, "op", op)
    if library == "gloo":
        if call == "allreduce_coalesced" and not inputs:
            raise NotImplementedError("There were no tensor arguments to this function")
        _check_layouts(call, outputs, inputs)
        _check_types(call, [*outputs, *inputs])
        if kind is not None:
            _check_gloo_operation(call, kind, inputs)
    elif library == "nccl":
        _check_nccl(kind, [*outputs, *inputs])


def _check_layouts(call: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    for tensor in (*outputs, *inputs):
        if tensor.layout != torch.strided:
            raise NotImplementedError(
                f"Could not run 'c10d::{call}' with arguments from the 'SparseCPU' backend."
            )
    if torch.is_grad_enabled():
        _check_gradients(call, outputs, inputs)
    if call == "alltoall_base" and not all(tensor.is_contiguous() for tensor in inputs):
        raise ValueError("Tensors must be contiguous")
    if call in ("send", "recv") and not all(x.is_contiguous() for x in (*inputs, *outputs)):
        raise RuntimeError("input tensor has to be contiguous")


def _check_gradients(call: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    if call in _LEAVES and any(output.requires_grad and output.is_leaf for output in outputs):
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    if call == "allgather_single":
        if any(output.requires_grad for output in outputs):
            raise RuntimeError("Output 0 of Split is a view and is being modified inplace.")
        if any(tensor.requires_grad for tensor in inputs):
            raise RuntimeError(
                "A view was created in no_grad mode and is being modified inplace with grad mode "
                "enabled."
            )


def _check_types(call: str, tensors: Sequence[Tensor]) -> None:
    if call in ("send", "recv"):
        return  # bytes
    known = {x for x in _OF_GLOO if not x.is_complex} if call == "gather" else _OF_GLOO
    if any(tensor.dtype not in known for tensor in tensors):
        raise RuntimeError("Invalid scalar type")


def _check_gloo_operation(call: str, kind: Any, tensors: Sequence[Tensor]) -> None:
    name = str(kind).rpartition(".")[2]
    is_sum = kind in (ReduceOp.SUM, ReduceOp.AVG)
    if kind == ReduceOp.PREMUL_SUM:
        raise RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo")
    for dtype in {tensor.dtype for tensor in tensors}:
        if dtype.is_complex and not is_sum:
            called = "reduce" if call == "reduce" else "all_reduce"
            raise RuntimeError(f"{called} does not support {name} on complex tensors")
        if kind in _OF_BITS and dtype.is_floating_point:
            raise RuntimeError(f"Cannot use ReduceOp.{name} with non-integral dtype")
        if kind == ReduceOp.AVG and not (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(
                f"result type Float can't be cast to the desired output type {_NAMES[dtype]}"
            )


def _check_nccl(kind: Any, tensors: Sequence[Tensor]) -> None:
    name = str(kind).rpartition(".")[2]
    for tensor in tensors:
        dtype = tensor.dtype
        if tensor.layout != torch.strided:
            raise ValueError("Tensors must be CUDA and dense")
        if dtype not in _OF_NCCL:
            said = _NAMES.get(dtype, str(dtype).removeprefix("torch."))
            raise TypeError(
                f"Input tensor data type is not supported for NCCL process group: {said}"
            )
        if kind is None:
            continue
        if kind in _OF_BITS:
            raise ValueError(f"Cannot use ReduceOp.{name} with NCCL")
        if kind == ReduceOp.AVG and dtype == torch.bool:
            raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
        if dtype.is_complex and kind not in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM):
            raise ValueError(f"reduce does not support {name} on complex tensors")
        if kind == ReduceOp.PREMUL_SUM and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError("PreMulSum Data type must be half, float, bfloat16 or double")


def check_parts(
    library: str, call: str, lists: Sequence[Sequence[Tensor]], likes: Sequence[Tensor], ranks: int
) -> None:
    """Raise what gloo raises for lists with a tensor for each rank that are not all like one."""
    if library != "gloo":
        return
    for i, (parts, like) in enumerate(zip(lists, likes, strict=True)):
        if len(parts) != ranks:
            raise RuntimeError(f"ProcessGroupGloo::{call}: {_LENGTH[call](i, len(parts), ranks)}")
        for j, part in enumerate(parts):
            if part.shape != like.shape:
                raise RuntimeError(
                    f"ProcessGroupGloo::{call}: invalid tensor size at index {j} (expected "
                    f"{_shown(like)}, got {_shown(part)})"
                )
            if part.dtype != like.dtype:
                raise RuntimeError(f"ProcessGroupGloo::{call}: invalid tensor type at index {j}")


def _incorrect(which: str) -> Any:
    return lambda i, length, ranks: (
        f"Incorrect {which} list size {length}. {which.capitalize()} list size should be {ranks}, "
        "same as size of the process group."
    )


_LENGTH = {
    "allgather": lambda i, length, ranks: (
        f"invalid output tensor list at index {i} (expected length {ranks}, got {length})"
    ),
    "alltoall": lambda i, length, ranks: (
        f"{('input', 'output')[i]} tensor list size {length} does not match world size {ranks}"
    ),
    "gather": _incorrect("output"),
    "scatter": _incorrect("input"),
}


def check_exchange(
    library: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], ranks: int
) -> None:
    """Raise what gloo raises for the lists of an all-to-all whose tensors are not all alike."""
    if library != "gloo":
        return
    likes = [(inputs or outputs)[0], (outputs or inputs)[0]]
    check_parts(library, "alltoall", [inputs, outputs], likes, ranks)
    if inputs[0].shape != outputs[0].shape:
        raise RuntimeError(
            "ProcessGroupGloo::alltoall: input and output tensors must have the same size"
        )


def check_scattered_rows(
    library: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], ranks: int
) -> None:
    """Raise what gloo raises for inputs that have not `ranks` times the rows of their outputs."""
    for output, source in zip(outputs, inputs, strict=True) if library == "gloo" else ():
        if output.dtype != source.dtype:
            names = " vs. ".join(str(x.dtype).removeprefix("torch.") for x in (output, source))
            raise RuntimeError(
                f"Check failed: outputTensors[i].dtype() == inputTensors[i].dtype() ({names})."
            )
        rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in (output, source)]
        if rows[0] * ranks != rows[1]:
            raise RuntimeError(
                "Check failed: outputShape[0] * worldSize == inputShape[0] "
                f"({rows[0] * ranks} vs. {rows[1]})."
            )


def check_splits(library: str, tensor: Tensor, splits: Sequence[int], ranks: int) -> None:
    """Raise what real groups raise for splits of the rows of an all-to-all."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if splits and len(splits) != ranks:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if splits and sum(splits) != rows:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    if not splits and rows % ranks:
        raise RuntimeError(
            f"Tensor's dim 0 does not divide equally across group size: {rows} rows, {ranks} ranks"
        )


def _shown(tensor: Tensor) -> str:
    return "(" + ", ".join(map(str, tensor.shape)) + ")"

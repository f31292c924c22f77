"""The words of Kineto's versions, and what they mean here."""

from __future__ import annotations

import re

__all__ = [
    "CATEGORY_OF",
    "SYNCHRONISATIONS",
    "bytes_of",
    "collective_of",
    "is_annotation",
    "is_backward",
]

CATEGORY_OF = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "hip_runtime": "runtime",
    "xpu_runtime": "runtime",
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_sync": "sync",
}
"""Category in the file, in small letters: up to 2021 "Operator", "Kernel", since then "cpu_op"."""

SYNCHRONISATIONS = {
    "stream sync": "stream",
    "stream synchronize": "stream",
    "context sync": "context",
    "context synchronize": "context",
    "event sync": "event",
    "event synchronize": "event",
    "stream wait event": "stream wait event",
}

# Kernels of NCCL and RCCL, and what torch.distributed calls its collectives.
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "sendrecv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "receive",
    "barrier": "barrier",
}
_VARIANT = re.compile("base|coalesced|into|single$|tensor$")
_LONGEST_FIRST = sorted(_COLLECTIVES, key=len, reverse=True)

_DTYPES = {
    **dict.fromkeys(("double", "int64", "long", "longint", "float64", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "int32", "float32"), 4),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "c10::half"), 2),
    **dict.fromkeys(("char", "byte", "bool", "int8", "uint8", "unsignedchar", "signedchar"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), 1),
    "c10::bfloat16": 2,
    "c10::complex<float>": 8,
}

_ANNOTATION = re.compile(r"ProfilerStep[#*]|enumerate\(DataLoader\)|Optimizer\.|\[param\||nccl:")

_BACKWARD = re.compile(r"autograd::engine|torch::autograd::|\w+Backward\d*$")


def collective_of(name: str) -> str:
    """Return the kind of a collective by the name of its kernel or call; "" for any other name."""
    small = re.sub(r"[^a-z]", "", name.lower())
    if not small.startswith(("nccl", "rccl", "msccl")):
        return _COLLECTIVES.get(_VARIANT.sub("", small), "")
    return next((_COLLECTIVES[word] for word in _LONGEST_FIRST if word in small), "")


def bytes_of(dtype: str) -> int:
    """Return the bytes of one element ("Float", "c10::BFloat16", "long int"); -1 if unknown."""
    return _DTYPES.get(dtype.lower().replace(" ", ""), -1)


def is_annotation(name: str) -> bool:
    """Whether a span that a file calls an op is a range around ops (in files up to 2021)."""
    return _ANNOTATION.match(name) is not None


def is_backward(name: str) -> bool:
    """Whether an op is one of autograd's, of a backward pass."""
    return _BACKWARD.match(name) is not None

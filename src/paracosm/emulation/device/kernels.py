"""The kernels that PyTorch runs on a GPU where a CPU build has none: of attention, above all.

A CPU build has no choice for CUDA and would take attention apart. Its order is that of
`sdp_utils.cpp`: flash attention where it can, then the memory-efficient kernel, then plain math;
`torch.nn.attention.sdpa_kernel` and the flags of `torch.backends.cuda` are honoured.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from paracosm.emulation.device.config import has_short_floats

_aten: Any = torch.ops.aten
_has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
_WIDEST = 256  # of a head, in flash attention
_SHORT = (torch.float16, torch.bfloat16)


_registered: list[Any] = []  # libraries of kernels, which end with their last reference


def have_kernels_of_gpus() -> None:
    """Let ops that are one kernel on a GPU stay whole, which a CPU build takes apart for CUDA."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]

    def never(*arguments: Any, **options: Any) -> Any:
        raise NotImplementedError("nothing is computed on a device that is not there")

    for name in _KERNELS:
        if hasattr(torch.ops.aten, name) and not _has_kernel(f"aten::{name}", "CUDA"):
            library.impl(name, never, "CUDA")
    _registered.append(library)


_KERNELS = ("_fused_rms_norm", "_fused_rms_norm_backward", "silu_backward", "mish_backward")


def choose_attention_as_gpus(capability: tuple[int, int]) -> None:
    plain: Any = functional.scaled_dot_product_attention
    has_flash = has_short_floats(capability)

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.device.type != "cuda" or query.dim() != 4:
            return plain(  # type: ignore[no-any-return]
                *(query, key, value, attn_mask, dropout_p, is_causal),
                scale=scale,
                enable_gqa=enable_gqa,
            )
        query, key, value = _cast(query, key, value)
        flags: Any = torch.backends.cuda
        needs_gradient = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in (query, key, value)
        )
        fits = query.dtype in _SHORT and query.shape[-1] <= _WIDEST
        if has_flash and fits and attn_mask is None and flags.flash_sdp_enabled():
            result = _aten._scaled_dot_product_flash_attention(
                *(query, key, value, dropout_p, is_causal, False), scale=scale
            )
            return result[0]  # type: ignore[no-any-return]
        if flags.mem_efficient_sdp_enabled():
            key, value = _repeated(query, key), _repeated(query, value)
            if attn_mask is not None and attn_mask.dtype == torch.bool:
                bias = torch.zeros_like(attn_mask, dtype=query.dtype)
                attn_mask = bias.masked_fill_(attn_mask.logical_not(), float("-inf"))
            if attn_mask is not None:
                attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
            result = _aten._scaled_dot_product_efficient_attention(
                *(query, key, value, attn_mask, needs_gradient, dropout_p, is_causal), scale=scale
            )
            return result[0]  # type: ignore[no-any-return]
        key, value = _repeated(query, key), _repeated(query, value)
        result = _aten._scaled_dot_product_attention_math(
            *(query, key, value, attn_mask, dropout_p, is_causal), scale=scale
        )
        return result[0]  # type: ignore[no-any-return]

    functional.scaled_dot_product_attention = attention
    torch._C._nn.scaled_dot_product_attention = attention


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast as autocast does, which is not asked below this."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    dtype = torch.get_autocast_dtype("cuda")
    return tuple(
        tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor
        for tensor in tensors
    )


def _repeated(query: Tensor, tensor: Tensor) -> Tensor:
    """Repeat the heads of keys or values, where fewer than those of the queries are given."""
    heads = tensor.shape[-3]
    if heads == query.shape[-3]:
        return tensor
    return tensor.repeat_interleave(query.shape[-3] // heads, -3)

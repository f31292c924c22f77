"""SyncBatchNorm where the CPU takes the place of a GPU.

PyTorch has its five kernels for GPUs alone (aten/src/ATen/native/cuda/Normalization.cuh); its
collectives and the rest are PyTorch's own. Channels are the second dimension of inputs of any
number of dimensions; statistics are of single precision at least.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel

_LIBRARY: list[Any] = []  # its kernels go with it


def synchronise_on_cpu() -> None:
    """Make SyncBatchNorm of this process work with tensors of the CPU."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, "CPU")
    _LIBRARY.append(library)
    forward = SyncBatchNorm.forward
    # It names the devices that it works on.
    names = tuple(
        "cpu" if co_const == "cuda" else co_const for co_const in forward.__code__.co_consts
    )
    forward.__code__ = forward.__code__.replace(co_consts=names)
    parallel: Any = DistributedDataParallel
    parallel._passing_sync_batchnorm_handle = lambda module, inner: None  # it refuses the CPU


def stats(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the mean of each channel, and one over its standard deviation."""
    variance, mean = torch.var_mean(_precise(values), _others(values), correction=0)
    return mean, torch.rsqrt(variance + eps)


def gathered_stats(
    values: Tensor,
    means: Tensor,  # a row for each rank
    inverse_deviations: Tensor,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,  # of values in a channel, by rank
) -> tuple[Tensor, Tensor]:
    """Return mean and inverse deviation of all ranks' values; move the running ones there."""
    weights = counts.to(means.dtype)[:, None] / counts.sum()
    mean = (weights * means).sum(0)
    variances = inverse_deviations.pow(-2) - eps
    variance = (weights * (variances + (means - mean).square())).sum(0)
    count = float(counts.sum())
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_variance is not None:
        unbiased = variance * (count / max(count - 1, 1))
        running_variance.lerp_(unbiased.to(running_variance.dtype), momentum)
    return mean, torch.rsqrt(variance + eps)


def normalised(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    inverse_deviation: Tensor,
    eps: float,
) -> Tensor:
    scale = inverse_deviation if weight is None else inverse_deviation * weight
    result = (_precise(values) - _along(mean, values)) * _along(scale, values)
    return (result if bias is None else result + _along(bias, values)).to(values.dtype)


def gradient_sums(
    gradient: Tensor,
    values: Tensor,
    mean: Tensor,
    inverse_deviation: Tensor,
    weight: Tensor | None,
    of_values: bool,
    of_weight: bool,
    of_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sums over each channel of the gradient and of its product with values less mean.

    The gradients of weight and bias follow.
    """
    slope, others = _precise(gradient), _others(values)
    total = slope.sum(others)
    product = (slope * (_precise(values) - _along(mean, values))).sum(others)
    dtype = mean.dtype if weight is None else weight.dtype
    return total, product, (product * inverse_deviation).to(dtype), total.to(dtype)


def input_gradient(
    gradient: Tensor,
    values: Tensor,
    mean: Tensor,
    inverse_deviation: Tensor,
    weight: Tensor | None,
    total: Tensor,  # the two sums of `gradient_sums`, over all ranks
    product: Tensor,
    counts: Tensor,
) -> Tensor:
    count = counts.sum()
    scale = inverse_deviation if weight is None else inverse_deviation * weight
    slope = _along(inverse_deviation.square() * product / count, values)
    apart = _precise(values) - _along(mean, values)
    result = _precise(gradient) - _along(total / count, values) - apart * slope
    return (result * _along(scale, values)).to(values.dtype)


KERNELS = {
    "batch_norm_stats": stats,
    "batch_norm_gather_stats_with_counts": gathered_stats,
    "batch_norm_elemt": normalised,
    "batch_norm_backward_reduce": gradient_sums,
    "batch_norm_backward_elemt": input_gradient,
}


def _precise(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.half, torch.bfloat16) else values


def _others(values: Tensor) -> list[int]:
    return [0, *range(2, values.dim())]


def _along(of_channels: Tensor, values: Tensor) -> Tensor:
    """Return a tensor with one number for each channel so that it fits inputs."""
    return of_channels.view(1, -1, *[1] * (values.dim() - 2))

"""Batch normalisation of images, layer normalisation of tokens, both in training."""

from __future__ import annotations

from paracosm.profiling.designs.families.typical import (
    batch,
    channels,
    goes_with,
    size,
    tokens,
    width,
)
from paracosm.profiling.designs.family import Call, Family, tensor

__all__ = ["NORMALISATION"]

_IMAGES = (batch(), channels(), size())
_TOKENS = (batch(), tokens(), width())


def _batch_norm(batch: int, channels: int, size: int) -> Call:
    one = tensor(channels)
    return [tensor(batch, channels, size, size), one, one, one, one, True, 0.1, 1e-5], {}


def _batch_norm_backward(batch: int, channels: int, size: int) -> Call:
    x, one = tensor(batch, channels, size, size), tensor(channels)
    return [x, x, one, one, one, one, one, True, 1e-5, [True, True, True]], {}


def _plausible(batch: int, channels: int, size: int) -> bool:
    return goes_with(channels, size) and batch * size > 1  # a variance needs two values


def _layer_norm(batch: int, tokens: int, width: int) -> Call:
    one = tensor(width)
    return [tensor(batch, tokens, width), [width], one, one, 1e-5], {}


def _layer_norm_backward(batch: int, tokens: int, width: int) -> Call:
    x, moment, one = tensor(batch, tokens, width), tensor(batch, tokens, 1), tensor(width)
    return [x, x, [width], moment, moment, one, one, [True, True, True]], {}


NORMALISATION = (
    Family("aten.native_batch_norm.default", _IMAGES, _batch_norm, _plausible),
    Family("aten.native_batch_norm_backward.default", _IMAGES, _batch_norm_backward, _plausible),
    Family("aten.native_layer_norm.default", _TOKENS, _layer_norm),
    Family("aten.native_layer_norm_backward.default", _TOKENS, _layer_norm_backward),
)

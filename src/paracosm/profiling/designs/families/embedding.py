"""Rows looked up by token, and their gradient."""

from __future__ import annotations

from paracosm.profiling.designs.families.typical import batch, tokens, vocabulary, width
from paracosm.profiling.designs.family import Call, Family, tensor

__all__ = ["EMBEDDING"]

_ARGUMENTS = (batch(), tokens(), vocabulary(), width())


def _embedding(batch: int, tokens: int, vocabulary: int, width: int) -> Call:
    return [tensor(vocabulary, width), tensor(batch, tokens, dtype="int64")], {}


def _backward(batch: int, tokens: int, vocabulary: int, width: int) -> Call:
    indices = tensor(batch, tokens, dtype="int64")
    return [tensor(batch, tokens, width), indices, vocabulary, -1, False], {}


EMBEDDING = (
    Family("aten.embedding.default", _ARGUMENTS, _embedding),
    Family("aten.embedding_dense_backward.default", _ARGUMENTS, _backward),
)

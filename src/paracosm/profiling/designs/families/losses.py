"""Softmax over attention weights; log-softmax and negative log-likelihood: cross-entropy."""

from __future__ import annotations

from paracosm.profiling.designs.families.typical import batch, tokens
from paracosm.profiling.designs.family import FLOAT, Argument, Call, Family, tensor

__all__ = ["LOSSES"]

_WEIGHTS = (batch(base=8), Argument("heads", (1, 4, 6, 8, 12, 12, 16, 32), 8), tokens())
_EXAMPLES = Argument("examples", (8, 16, 32, 64, 64, 128, 256, 1024, 2048, 4096), 256, low=1)
_CLASSES = Argument(
    "classes", (10, 10, 100, 1000, 1000, 8192, 30_522, 32_000, 50_257, 50_304), 1000, low=2
)
_SCORES = (_EXAMPLES, _CLASSES)


def _softmax(batch: int, heads: int, tokens: int) -> Call:
    return [tensor(batch, heads, tokens, tokens), -1, False], {}


def _softmax_backward(batch: int, heads: int, tokens: int) -> Call:
    x = tensor(batch, heads, tokens, tokens)
    return [x, x, -1, {"dtype": FLOAT}], {}


def _log_softmax(examples: int, classes: int) -> Call:
    return [tensor(examples, classes), 1, False], {}


def _log_softmax_backward(examples: int, classes: int) -> Call:
    x = tensor(examples, classes)
    return [x, x, 1, {"dtype": FLOAT}], {}


def _nll(examples: int, classes: int) -> Call:
    return [tensor(examples, classes), tensor(examples, dtype="int64"), None, 1, -100], {}


def _nll_backward(examples: int, classes: int) -> Call:
    args, _ = _nll(examples, classes)
    return [tensor(), *args, tensor()], {}


LOSSES = (
    Family("aten._softmax.default", _WEIGHTS, _softmax),
    Family("aten._softmax_backward_data.default", _WEIGHTS, _softmax_backward),
    Family("aten._log_softmax.default", _SCORES, _log_softmax),
    Family("aten._log_softmax_backward_data.default", _SCORES, _log_softmax_backward),
    Family("aten.nll_loss_forward.default", _SCORES, _nll),
    Family("aten.nll_loss_backward.default", _SCORES, _nll_backward),
)

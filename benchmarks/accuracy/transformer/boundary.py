"""Between two stages of a pipeline whose ranks share each layer.

All t ranks of a stage have the same activation. Each sends one part of it to its peer in the next
stage, where the parts are gathered again: over the network goes a t-th, and the rest within the
machine (Narayanan et al., 2021, section 4.1, "scatter/gather optimization"). Gradients go back the
same way.

    h.9   ... add | hand_on   a part goes over    take_over | norm ...   h.10
"""

from __future__ import annotations

from collections.abc import Iterator

from transformer.architecture import Transformer
from transformer.layer import Step
from transformer.ops import HALF, all_gather, streaming

__all__ = ["hand_back", "hand_on", "take_back", "take_over"]

SPLIT = streaming("megatron.split_tensor_into_1d_equal_chunks", 0, 0)  # a view


def hand_on(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the end of a stage, forward."""
    yield Step("hand_on", SPLIT, ((_stream(model, micro_batch) // tensor, "hand_on"),))


def take_over(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the begin of a stage, forward."""
    stream = _stream(model, micro_batch)
    yield Step("take_over", all_gather(stream, tensor), ((stream, "attention.norm"),))


def hand_back(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the begin of a stage, backward: the last that its ranks do."""
    yield Step("take_over", SPLIT)


def take_back(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the end of a stage, backward: the first that its ranks do."""
    yield Step("hand_on", all_gather(_stream(model, micro_batch), tensor))


def _stream(model: Transformer, micro_batch: int) -> int:
    return HALF * micro_batch * model.sequence * model.width

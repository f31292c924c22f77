"""In which order a rank of a pipeline works on its micro-batches.

Four ranks, eight micro-batches: forward passes 0 to 7 of one unit of time, backward passes a to h
of two. GPipe (Huang et al. 2019) keeps the activations of all micro-batches:

    rank 0 |01234567.........aabbccddeeffgghh|
    rank 3 |...01234567aabbccddeeffgghh......|

1F1B (PipeDream-Flush: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM", 2021, figure 4) has the same bubble, and keeps those of no more than
`stages` - `stage` of them:

    rank 0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|
    rank 3 |...0aa1bb2cc3dd4ee5ff6gg7hh......|

Interleaved (figure 4, below, of the same) gives each rank several chunks of the model, v stages of
1/v of the length: as many micro-batches as there are stages go through one chunk, then through the
next one. The bubble is 1/v of the above, for v times the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pass", "order_of"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward or backward pass of one chunk of a rank.

    Attributes:
        backward: which of the two.
        microbatch: its number.
        chunk: of the rank.
    """

    backward: bool
    microbatch: int
    chunk: int = 0


def order_of(
    schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1
) -> list[Pass]:
    """Return the passes of one rank of a pipeline, in order.

    Args:
        schedule: one of `SCHEDULES`.
        stage: of the rank.
        stages: ranks of the pipeline.
        microbatches: forward and backward passes of each chunk.
        chunks: of each rank.
    """
    if schedule == "interleaved":
        return _interleaved(stage, stages, microbatches, chunks)
    forward = [Pass(False, number) for number in range(microbatches)]
    backward = [Pass(True, number) for number in range(microbatches)]
    warm_up = microbatches if schedule == "gpipe" else min(stages - stage - 1, microbatches)
    return _one_by_one(forward, backward, warm_up)


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> list[Pass]:
    """Return Megatron's order: `stages` micro-batches through one chunk, then the next chunk."""
    forward, backward = [], []
    for number in range(microbatches * chunks):
        turn, within = divmod(number, stages * chunks)
        chunk, microbatch = within // stages, turn * stages + within % stages
        forward.append(Pass(False, microbatch, chunk))
        backward.append(Pass(True, microbatch, chunks - 1 - chunk))
    warm_up = (stages - stage - 1) * 2 + (chunks - 1) * stages
    return _one_by_one(forward, backward, min(warm_up, len(forward)))


def _one_by_one(forward: list[Pass], backward: list[Pass], warm_up: int) -> list[Pass]:
    """Return `warm_up` forward passes, then one forward and one backward, then what is left."""
    order = forward[:warm_up]
    for ahead, back in zip(forward[warm_up:], backward, strict=False):
        order += [ahead, back]
    return order + backward[len(forward) - warm_up :]

"""The order in which DeepSpeed's pipeline engine works: one forward and one backward pass in turn,
and messages that keep both ends busy (its `TrainSchedule`, runtime/pipe/schedule.py).

Half-steps are counted from 0. In half-step t, stage s does the forward pass of micro-batch
(t - s) / 2 where that is a whole number, otherwise the backward pass of micro-batch
(t + s + 1) / 2 - S, of S stages:

    stage 0   F0    F1    F2 B0 F3 B1
    stage 1      F0    F1 B0 F2 B1
    stage 2         F0 B0 F1 B1 F2 B2
"""

from __future__ import annotations

from collections.abc import Iterator

from paracosm.errors import InputError

__all__ = ["lockstep"]


def lockstep(stage: int, stages: int, microbatches: int) -> Iterator[tuple[str, int]]:
    """Yield what a stage does, in order, each with its micro-batch.

    "forward", "backward"; "activation in" and "gradient out" with the stage before, "activation
    out" and "gradient in" with the one after. Two neighbours name their messages in one order.

    Raises:
        InputError: a stage that is not there, or no micro-batch.
    """
    if not (0 <= stage < stages and microbatches >= 1):
        raise InputError(f"pipeline: stage {stage} of {stages} with {microbatches} micro-batches")
    before, after = stage > 0, stage < stages - 1
    last = -1  # micro-batch of the half-step before
    for half_step in range(2 * (microbatches + stages - 1)):
        forward = (half_step - stage) % 2 == 0
        if forward:
            own = (half_step - stage) // 2
            messages = (("gradient out", last, before), ("activation in", own, before))
        else:
            own = (half_step + stage + 1) // 2 - stages
            messages = (("gradient in", own, after), ("activation out", last, after))
        for name, microbatch, neighbour in messages:
            if neighbour and 0 <= microbatch < microbatches:
                yield name, microbatch
        if 0 <= own < microbatches:
            yield ("forward" if forward else "backward"), own
        last = own

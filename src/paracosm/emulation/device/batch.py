"""What an iteration of a script works on: tokens or images, counted by a rule.

Tokens are the integers that the first embedding of an iteration looks up in its forward passes: of
the embeddings before the first product, attention or convolution, that with most of them, so that
positions and types of segments do not count. Where a convolution comes before any of them, images
are the first dimension of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from paracosm.emulation.device.recording import OP, Recording, iterations_of
from paracosm.graphs.graph import PHASES, Op, TensorArgument, decode_arguments
from paracosm.profiling.datasheets import COUNTED, class_of
from paracosm.results import ScriptBatch

_CONVOLUTION = "convolution"


def batch_of(recordings: Sequence[Recording], world: int) -> ScriptBatch | None:
    """Return what all ranks work on in an iteration; None where no rule finds it.

    Each recording stands for as many ranks as any other, and ranks of tensor parallelism, which
    look up the same tokens, count once.
    """
    counted = [_of_rank(recording) for recording in recordings]
    known = [each for each in counted if each is not None]
    if not known:
        return None
    unit, rule, _ = known[0]
    of_ranks = sum(count for _, _, count in known)
    sharing = max(recording.sharing for recording in recordings)
    count = of_ranks * world / len(recordings) / sharing
    ranks = "a rank" if len(recordings) == 1 else f"{len(recordings):,} ranks"
    origin = f"counted: {of_ranks:,} {unit} in an iteration of {ranks}, which {rule}"
    if sharing > 1:
        origin += f"; {sharing:,} ranks of tensor parallelism share them"
    return ScriptBatch(count=count, unit=unit, origin=origin)


def _of_rank(recording: Recording) -> tuple[str, str, int] | None:
    """Return the unit, the rule by which it is counted, and how many an iteration has."""
    iteration = iterations_of(recording)[-1]
    is_forward = (iteration.kind == OP) & (iteration.phase == PHASES.index("forward"))
    codes = iteration.code[is_forward].tolist()
    first = list[Op]()
    for code in codes:
        op = recording.ops[code]
        if class_of(op.name) == _CONVOLUTION and not first:
            shape = _weight_of(op)
            unit = "images" if len(shape) == 4 else "examples"
            rule = f"the first convolution ({_text(shape)}) takes"
            return unit, rule, _count(recording, codes, shape, _examples_of)
        if class_of(op.name) in COUNTED:
            break
        if _tokens_of(op):
            first.append(op)
    if not first:
        return None
    shape = max(
        dict.fromkeys(map(_weight_of, first)),
        key=lambda shape: _count(recording, codes, shape, _tokens_of),
    )
    rule = f"the first embedding ({_text(shape)}) looks up"
    return "tokens", rule, _count(recording, codes, shape, _tokens_of)


def _count(
    recording: Recording,
    codes: Sequence[int],
    shape: tuple[int, ...],
    count_of: Callable[[Op], int],
) -> int:
    distinct, times = np.unique(codes, return_counts=True)
    return sum(
        count_of(recording.ops[code]) * number
        for code, number in zip(distinct.tolist(), times.tolist(), strict=True)
        if count_of(recording.ops[code]) and _weight_of(recording.ops[code]) == shape
    )


def _tokens_of(op: Op) -> int:
    """Return how many integers an embedding looks up; 0 of another op."""
    if op.name != "aten.embedding.default":
        return 0
    tensors = _tensors_of(op)
    return prod(tensors[1].shape) if len(tensors) > 1 and "int" in tensors[1].dtype else 0


def _examples_of(op: Op) -> int:
    if class_of(op.name) != _CONVOLUTION:
        return 0
    tensors = _tensors_of(op)
    return tensors[0].shape[0] if len(tensors) > 1 else 0


def _weight_of(op: Op) -> tuple[int, ...]:
    tensors = _tensors_of(op)
    return tensors[0 if _tokens_of(op) else 1].shape if len(tensors) > 1 else ()


def _tensors_of(op: Op) -> list[TensorArgument]:
    values = decode_arguments(op.arguments)[0] if op.arguments else []
    return [each for each in values if isinstance(each, TensorArgument)]


def _text(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)

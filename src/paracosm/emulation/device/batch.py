"""What an iteration of a script works on: tokens or images, counted by a rule.

Tokens are the integers that the first embedding of an iteration looks up in its forward passes: of
the embeddings before the first product, attention or convolution, that with most of them, so that
positions and types of segments do not count. Where a convolution comes before any of them, images
are the first dimension of its inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from paracosm.emulation.device.recording import OP, Recording, iterations_of
from paracosm.graphs.graph import PHASES, Op, TensorArgument, decode_arguments
from paracosm.profiling.datasheets import COUNTED, class_of
from paracosm.results import ScriptBatch

_CONVOLUTION = "convolution"  # a class of ops
_EMBEDDING = "aten.embedding.default"


@dataclass(frozen=True)
class OpsBatch:
    """What forward passes of a rank work on."""

    unit: str  # "tokens", "images" or "examples"
    count: int
    examples: int  # the first dimension of these: sequences of tokens
    rule: str  # by which it is counted, in words


def batch_of(recordings: Sequence[Recording], world: int) -> ScriptBatch | None:
    """Return what all ranks work on in an iteration; None where no rule finds it.

    Each recording stands for as many ranks as any other, and ranks of tensor parallelism, which
    look up the same tokens, count once.
    """
    counted = [batch_of_ops(_forward_ops(recording)) for recording in recordings]
    known = [batch for batch in counted if batch is not None]
    if not known:
        return None
    unit = known[0].unit
    of_ranks = sum(batch.count for batch in known)
    sharing = max(recording.sharing for recording in recordings)
    count = of_ranks * world / len(recordings) / sharing
    ranks = "a rank" if len(recordings) == 1 else f"{len(recordings):,} ranks"
    origin = f"counted: {of_ranks:,} {unit} in an iteration of {ranks}, which {known[0].rule}"
    if sharing > 1:
        origin += f"; {sharing:,} ranks of tensor parallelism share them"
    return ScriptBatch(count=count, unit=unit, origin=origin)


def _forward_ops(recording: Recording) -> list[Op]:
    iteration = iterations_of(recording)[-1]
    is_forward = (iteration.kind == OP) & (iteration.phase == PHASES.index("forward"))
    return [recording.ops[code] for code in iteration.code[is_forward].tolist()]


def batch_of_ops(ops: Sequence[Op]) -> OpsBatch | None:
    """Return what the ops of forward passes, in their order, work on; None where nothing says."""
    first = list[Op]()
    for op in ops:
        if class_of(op.name) == _CONVOLUTION and not first:
            shape = _weight_of(op)
            unit = "images" if len(shape) == 4 else "examples"
            rule = f"the first convolution ({_text(shape)}) takes"
            return OpsBatch(unit, *_count(ops, shape, _examples_of), rule)
        if class_of(op.name) in COUNTED:
            break
        if _tokens_of(op):
            first.append(op)
    if not first:
        return None
    shapes = dict.fromkeys(map(_weight_of, first))
    shape = max(shapes, key=lambda shape: _count(ops, shape, _tokens_of))
    rule = f"the first embedding ({_text(shape)}) looks up"
    return OpsBatch("tokens", *_count(ops, shape, _tokens_of), rule)


def _count(
    ops: Sequence[Op], shape: tuple[int, ...], count_of: Callable[[Op], int]
) -> tuple[int, int]:
    """Return how many items ops with a weight of this shape take, and how many examples."""
    count = examples = 0
    for op, times in Counter(ops).items():
        if (number := count_of(op)) and _weight_of(op) == shape:
            count += number * times
            examples += _items(op).shape[0] * times
    return count, examples


def _tokens_of(op: Op) -> int:
    """Return how many integers an embedding looks up; 0 of another op."""
    if op.name != _EMBEDDING:
        return 0
    tensors = _tensors_of(op)
    return prod(tensors[1].shape) if len(tensors) > 1 and "int" in tensors[1].dtype else 0


def _examples_of(op: Op) -> int:
    is_convolution = class_of(op.name) == _CONVOLUTION and len(_tensors_of(op)) > 1
    return _items(op).shape[0] if is_convolution else 0


def _items(op: Op) -> TensorArgument:
    """Return what an embedding looks up, or a convolution takes."""
    return _tensors_of(op)[op.name == _EMBEDDING]


def _weight_of(op: Op) -> tuple[int, ...]:
    return _tensors_of(op)[op.name != _EMBEDDING].shape


def _tensors_of(op: Op) -> list[TensorArgument]:
    values = decode_arguments(op.arguments)[0] if op.arguments else []
    return [value for value in values if isinstance(value, TensorArgument)]


def _text(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)

"""Which gradients a step makes: of which size, and when each is whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs.kineto.pieces import WorkerStep
from paracosm.profiling.jobs.kineto.refusals import ACCUMULATE
from paracosm.profiling.jobs.kineto.takers import Takers
from paracosm.timeline.kineto import KinetoTrace
from paracosm.timeline.kineto.trace import bytes_of, is_backward

__all__ = ["Gradient", "gradients_of", "shapes_in"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient of a step; times are the host's, in seconds from the trace's origin.

    Attributes:
        shape: None where the trace does not tell.
        dtype: "float", "c10::Half", ...; "" where the trace does not tell.
        size: bytes; -1 where the trace does not tell.
        ready: when it was whole, and nothing changed it any more.
        needed: when the first op that takes the parameter began.
        taken_by: name of that op.
        taker: row of it; -1 where it was not found.
        how: that op was found, as `Takers.of` has it; if it was not, the parameter is needed from
            the step's begin on.
    """

    shape: tuple[int, ...] | None
    dtype: str
    size: int
    ready: float
    needed: float
    taken_by: str
    taker: int
    how: str


def gradients_of(
    trace: KinetoTrace, step: WorkerStep, threads: Sequence[int]
) -> tuple[Gradient, ...]:
    """Return the gradients of a step in the order in which they were whole.

    Several backward passes over one batch's pieces make the same gradients: each is whole after the
    last pass, and its parameter is needed by the first.

    Raises:
        InputError: several backward passes make different ones, or the optimizer runs before the
            last.
    """
    rows = _rows_of(trace, step, threads)
    accumulated = [row for row in rows.tolist() if trace.text(row) == ACCUMULATE]
    if not accumulated:
        return ()
    takers = Takers(trace, rows)
    found = [_gradient(trace, row, takers) for row in accumulated]
    found = _of_parameters(trace, step, rows, found)
    first = _merged(_passes(trace, rows, found), trace, step)
    return _as_pushed(trace, step, rows, first)


def shapes_in(value: Any) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of tensors in an argument: of itself, or of a list of them."""
    if not isinstance(value, list | tuple):
        return
    if value and all(type(size) is int for size in value):
        yield tuple(value)
    for each in value:
        yield from shapes_in(each)


def _rows_of(trace: KinetoTrace, step: WorkerStep, threads: Sequence[int]) -> Ints:
    ops = trace.of("op")
    within = (trace.begin[ops] >= step.called) & (trace.begin[ops] < step.returned)
    return np.asarray(ops[within & np.isin(trace.lane[ops], threads)], np.int64)


def _gradient(trace: KinetoTrace, row: int, takers: Takers) -> Gradient:
    """Return the gradient that the `AccumulateGrad` in a row hands over."""
    shape, dtype, size = _what(trace, row)
    taker, how = takers.of(row)
    return Gradient(
        shape,
        dtype,
        size,
        ready=float(trace.end[row]),
        needed=float(trace.begin[taker]) if taker >= 0 else -math.inf,
        taken_by=trace.text(taker) if taker >= 0 else "",
        taker=taker,
        how=how,
    )


def _what(trace: KinetoTrace, row: int) -> tuple[tuple[int, ...] | None, str, int]:
    """Return shape, type and bytes of the gradient that an `AccumulateGrad` has for argument."""
    inputs = trace.inputs.get(row)
    if inputs is None or not inputs.shapes or not inputs.types or not inputs.types[0]:
        return None, "", -1
    shape = inputs.shapes[0]
    if not isinstance(shape, list) or any(type(size) is not int for size in shape):
        return None, "", -1
    each = bytes_of(inputs.types[0])
    size = math.prod(shape) * each if each > 0 else -1
    return tuple(shape), inputs.types[0], size


def _of_parameters(
    trace: KinetoTrace, step: WorkerStep, rows: Ints, found: Sequence[Gradient]
) -> list[Gradient]:
    """Return gradients without those of activations at which a recomputation begins.

    Reentrant checkpoints make leaves of them; the optimizer has nothing of their shapes.
    """
    updated = {
        shape
        for piece in step.pieces
        if piece.optimizer
        for row in rows[(trace.begin[rows] >= piece.called) & (trace.begin[rows] < piece.returned)]
        if int(row) in trace.inputs
        for shape in shapes_in(trace.inputs[int(row)].shapes)
    }
    return [
        each
        for each in found
        if each.how == "sequence number" or not (updated and each.shape) or each.shape in updated
    ]


def _passes(trace: KinetoTrace, rows: Ints, found: Sequence[Gradient]) -> list[list[Gradient]]:
    """Return gradients by backward pass: between two, the loop calls ops that have gradients."""
    reached = -math.inf
    calls = []
    for row in rows.tolist():
        if trace.begin[row] < reached:
            continue
        reached = float(trace.end[row])
        if trace.sequence[row] >= 0 and not is_backward(trace.text(row)):
            calls.append(float(trace.begin[row]))
    passes: dict[int, list[Gradient]] = {}
    for gradient in found:
        passes.setdefault(int(np.searchsorted(calls, gradient.ready)), []).append(gradient)
    return list(passes.values())


def _merged(
    passes: Sequence[Sequence[Gradient]], trace: KinetoTrace, step: WorkerStep
) -> list[Gradient]:
    """Return the gradients of passes that make the same ones: whole in the last."""
    first, last = passes[0], passes[-1]
    shapes = [gradient.shape for gradient in first]
    for each in passes[1:]:
        if [gradient.shape for gradient in each] != shapes:
            raise InputError(
                f"{trace.path}: step {step.number} has {len(passes)} backward passes, of "
                f"{len(first)} and {len(each)} gradients that are not the same: a profile needs "
                "steps of one loss"
            )
    return [replace(begun, ready=ended.ready) for begun, ended in zip(first, last, strict=True)]


def _as_pushed(
    trace: KinetoTrace, step: WorkerStep, rows: Ints, found: Sequence[Gradient]
) -> tuple[Gradient, ...]:
    """Return gradients that are ready when the program has changed them for the last time.

    It changes them in place, to clip or unscale them, between the backward pass and the optimizer.
    """
    optimizer = min((piece.called for piece in step.pieces if piece.optimizer), default=None)
    if optimizer is None:
        return tuple(found)
    whole = max(gradient.ready for gradient in found)
    if optimizer < whole:
        raise InputError(
            f"{trace.path}: step {step.number}: the optimizer runs before the last gradient is "
            "there: call profiler.step() at the end of the loop's body, once for each backward pass"
        )
    changed: dict[tuple[int, ...], float] = {}
    for row in rows[(trace.begin[rows] >= whole) & (trace.begin[rows] < optimizer)].tolist():
        if trace.text(row).endswith("_") and row in trace.inputs:
            for shape in shapes_in(trace.inputs[row].shapes):
                changed[shape] = float(trace.end[row])
    return tuple(
        replace(each, ready=changed.get(each.shape, each.ready)) if each.shape else each
        for each in found
    )

"""Durations of the ops of a graph on hardware of the catalogue, without timings.

Attention and matrix products on tensor cores take the time of the kernels of a software stack
(`cluster.hardware.kernels`). Each other op is of a class (`cluster.hardware.OP_CLASSES`), and its
class has an efficiency. A measurement on the hardware, of one whole iteration or the ops of one
model, corrects the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from paracosm.cluster.hardware.catalogue import Hardware
from paracosm.cluster.hardware.efficiency import Efficiencies, OpTime, load_efficiencies, op_time
from paracosm.cluster.hardware.kernels import (
    attention_seconds,
    kernel_spread,
    load_kernels,
    product_seconds,
    sustained,
)
from paracosm.cluster.hardware.stacks import Stack, find_stack, products_of
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, TensorArgument, decode_arguments
from paracosm.profiling.durations import environments_in, fits

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate

HALF = 2
"""Bytes of a number in half precision."""

KNOWN = {
    "timed": "kernel",
    "measured": "efficiency",
    "other devices": "pooled",
    "assumed": "datasheet",
}
"""Sources of durations, by how a kernel or an efficiency is known."""

PATTERNS = (
    ("elementwise", re.compile(r"^fsdp\.")),  # copies into and out of what is gathered
    ("attention", re.compile(r"attention|flash", re.IGNORECASE)),
    ("convolution", re.compile(r"conv(?!ert)")),
    ("batched product", re.compile(r"bmm|baddbmm")),
    (
        "product",
        re.compile(r"\b(mm|addmm|_?(?:scaled|grouped)_mm|linear|matmul|_addmm_activation)\b|gemm"),
    ),
    ("embedding", re.compile(r"embedding|index|gather|scatter|one_hot")),
    ("optimizer", re.compile(r"adam|sgd|_foreach|lerp|addcdiv|addcmul", re.IGNORECASE)),
    (
        "reduction",
        re.compile(
            r"norm|softmax|cross_entropy|nll_loss|\b(sum|mean|var|std|amax|max|argmax|logsumexp)\b"
        ),
    ),
)
"""Classes by parts of an op's name, the first that fits; else it is element-wise."""

COUNTED = ("product", "batched product", "convolution", "attention")
"""Classes whose flops count; of the others only what they move does."""


@dataclass(frozen=True)
class Correction:
    """A factor on all durations of a device, from a measurement on it.

    An iteration that is corrected by one of the same classes of ops, in the same proportions, is
    right whatever the error of each class: what is left of it is the difference of the shares.
    """

    factor: float = 1.0
    origin: str = ""  # the measurement in words; empty without one
    shares: Mapping[str, float] = field(default_factory=dict)  # of the time measured, by class


NONE = Correction()


def class_of(name: str, phase: str = "forward") -> str:
    """Return the class of an op by its name ("aten.mm.default") and the phase that it runs in."""
    op_class = next((kind for kind, pattern in PATTERNS if pattern.search(name)), "elementwise")
    updates = phase == "optimizer" and op_class not in COUNTED
    return "optimizer" if updates else op_class


def default_stack() -> Stack:
    """Return the stack of ops that PyTorch runs as they come: of a captured module or a script."""
    return find_stack("pytorch-eager")


def dtype_of(op: Op, device_dtypes: Sequence[str]) -> str:
    """Return the type of number that an op multiplies, by its first tensor of floats.

    A convolution of float32 runs on tensor cores as tfloat32 where a device has it, as PyTorch has
    it by default (`torch.backends.cudnn.allow_tf32`); products of matrices do not.
    """
    values = decode_arguments(op.arguments)[0] if op.arguments else []
    tensors = [value for value in _flat(values) if isinstance(value, TensorArgument)]
    names = [tensor.dtype for tensor in tensors if "float" in tensor.dtype]
    dtype = (names or ["float32"])[0].partition("_")[0]
    if dtype == "float32" and class_of(op.name) == "convolution" and "tfloat32" in device_dtypes:
        return "tfloat32"
    return dtype


def _flat(values: Sequence[object]) -> list[object]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def durations_on(
    graph: Graph,
    hardware: Hardware,
    *,
    stack: Stack | None = None,
    correction: Correction = NONE,
    efficiencies: Efficiencies | None = None,
) -> list[Estimate | None]:
    """Return the duration of each of a graph's ops on a device; None for what is not computed.

    Without a stack it is the one of PyTorch's own ops.

    Raises:
        InputError: the device has no peak for the numbers of an op, or the stack no kernel.
    """
    from paracosm.profiling.estimators.roofline import estimate_around

    table = load_efficiencies() if efficiencies is None else efficiencies
    stack = default_stack() if stack is None else stack
    measured = stack.ops_on(hardware.name)
    times: dict[int, tuple[str, OpTime]] = {}
    peaks = tuple(hardware.device.peak_tflops)
    is_of_sizes = graph.provenance.get("source") == "published sizes"
    communicates = graph.resource == RESOURCES.index("communication")
    phases = dict(zip(graph.op[~communicates].tolist(), graph.phase[~communicates], strict=True))
    of_host = set(graph.op.tolist()) - set(
        graph.op[graph.resource != RESOURCES.index("host")].tolist()
    )
    for code, phase in phases.items():
        op = graph.ops[code]
        moved = op.bytes_read + op.bytes_written
        if code in of_host or not (op.flops or moved):
            continue
        kind = class_of(op.name, PHASES[phase])
        dtype = dtype_of(op, peaks)
        if is_of_sizes and dtype == "float16" and dtype not in peaks:
            dtype = "bfloat16"  # such a graph calls all numbers of two bytes float16
        flops = op.flops if kind in COUNTED else 0
        time = _launched(op, hardware)
        if (
            time is None
            and dtype not in ("float32", "tfloat32")
            and not _by_iterations(stack, hardware, table)
        ):
            time = _kernel_time(op, kind, dtype, hardware, stack)
        if time is None:
            time = op_time(hardware.name, hardware.device, table, kind, dtype, flops, moved)
        if (timed := measured.get(kind)) is not None:
            time = OpTime(time.seconds * timed.time, timed.spread, "measured")
        times[code] = kind, time
    shares = _shares(graph, {code: (kind, time.seconds) for code, (kind, time) in times.items()})
    estimates: list[Estimate | None] = [None] * len(graph.ops)
    for code, (kind, time) in times.items():
        left = min(abs(1 - correction.shares.get(kind, 0.0) / shares[kind]), 1.0)
        estimates[code] = estimate_around(
            math.log(time.seconds * correction.factor), time.spread * left, KNOWN[time.known], kind
        )
    return estimates


def _launched(op: Op, hardware: Hardware) -> OpTime | None:
    """Return the time of many small kernels that are one op; None for other ops."""
    named = decode_arguments(op.arguments)[1] if "kernels" in op.arguments else {}
    if not isinstance(named.get("kernels"), int):
        return None
    fixed = load_kernels().products["bfloat16"].fixed
    moving = (op.bytes_read + op.bytes_written) / hardware.device.memory_bandwidth
    return OpTime(named["kernels"] * fixed + moving, math.log(2), "assumed")


def _by_iterations(stack: Stack, hardware: Hardware, table: Efficiencies) -> bool:
    return stack.whole_iterations and "attention" in table.devices.get(hardware.name, {})


def _kernel_time(op: Op, kind: str, dtype: str, hardware: Hardware, stack: Stack) -> OpTime | None:
    """Return the time of the kernel that a stack runs for an op; None where none was timed.

    Raises:
        InputError: the device has no peak for the numbers of the op, or the stack no kernel there.
    """
    if kind not in ("attention", "product", "batched product"):
        return None
    device = hardware.name, hardware.device
    hardware.device.peak(dtype)  # refuses numbers that it does not multiply
    clock = sustained(hardware.device)
    arguments, named = decode_arguments(op.arguments) if op.arguments else ([], {})
    shapes = [
        argument.shape for argument in _flat(arguments) if isinstance(argument, TensorArgument)
    ]
    if kind == "attention":
        sizes = _attention_sizes(op, shapes)
        if sizes is None:
            return None
        kernel = stack.attention_on(hardware.device)
        (batch, heads, queries, width), keys, of_values = sizes
        backward = "backward" in op.name
        columns = 3 * width + 2 * of_values if backward else width + of_values
        whole = 2.0 * batch * heads * queries * keys * columns
        if width != of_values and hardware.device.generation in stack.unfused:
            return _unfused(hardware, (batch * heads, queries, keys, width, of_values), backward)
        seconds = attention_seconds(
            kernel,
            device,
            (queries, keys, width),
            op.flops,
            causal=op.flops < 0.75 * whole,
            backward=backward,
            clock=clock,
        )
        return OpTime(seconds, *kernel_spread(kernel, device))
    scaling, grouped = str(named.get("scaling") or stack.float8), "grouped" in op.name
    kernel_of: Literal["", "rows", "weights"] = ""
    if grouped and stack.grouped:
        kernel_of = "weights" if all(len(shape) == 2 for shape in shapes[:2]) else "rows"
    rates = products_of(dtype, scaling, hardware.device, kernel_of)
    sizes_of_product = (
        _grouped_sizes(shapes, named.get("groups")) if grouped else _product_sizes(op, shapes)
    )
    if rates is None or sizes_of_product is None:
        return None
    seconds = product_seconds(
        rates,
        device,
        sizes_of_product,
        read=op.bytes_read,
        written=op.bytes_written,
        clock=clock,
    )
    return OpTime(seconds, *kernel_spread(rates, device))


def _unfused(hardware: Hardware, sizes: tuple[int, int, int, int, int], backward: bool) -> OpTime:
    """Return the time of attention as batched products of all queries with all keys, and a softmax
    of half-precision scores that is one pass over them (Transformer Engine,
    `UnfusedDotProductAttention`)."""
    heads, queries, keys, width, of_values = sizes
    device, scores = (hardware.name, hardware.device), HALF * heads * queries * keys
    kernel, clock = load_kernels().products["bfloat16"], sustained(hardware.device)

    def times(rows: int, columns: int, inner: int) -> float:
        read = HALF * heads * inner * (rows + columns)
        written = HALF * heads * rows * columns
        by = (heads, rows, columns, inner)
        return product_seconds(kernel, device, by, read=read, written=written, clock=clock)

    softmax = op_time(
        *(hardware.name, hardware.device, load_efficiencies(), "reduction", "bfloat16", 0),
        (3 if backward else 2) * scores,
    )
    seconds = softmax.seconds + times(queries, keys, width if not backward else of_values)
    if backward:
        seconds += times(keys, of_values, queries) + times(queries, width, keys)
        seconds += times(keys, width, queries)
    else:
        seconds += times(queries, of_values, keys)
    return OpTime(seconds, max(softmax.spread, kernel_spread(kernel, device)[0]), softmax.known)


def _attention_sizes(
    op: Op, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, int, int, int], int, int] | None:
    """Return the shape of the queries, how many keys there are, and the width of values."""
    heads = [shape for shape in shapes if len(shape) == 4]
    if "backward" in op.name and len(heads) > 3:
        heads = heads[1:]  # after the output's gradient
    if len(heads) < 2 or not op.flops:
        return None
    batch, count, queries, width = heads[0]
    return (batch, count, queries, width), heads[1][2], heads[2][3] if len(heads) > 2 else width


def _grouped_sizes(
    shapes: Sequence[tuple[int, ...]], groups: object
) -> tuple[int, int, int, int] | None:
    """Return how many groups there are, the rows and columns of each, and the inner size.

    Groups divide the rows, or, where both are matrices, what is summed over.
    """
    if len(shapes) < 2 or any(0 in shape or len(shape) < 2 for shape in shapes[:2]):
        return None
    first, second = shapes[:2]
    rows, inner, columns = first[-2], first[-1], second[-1]
    if len(first) == 3:
        return first[0], rows, -(-columns // first[0]) if len(second) == 2 else columns, inner
    if len(second) == 3:
        return second[0], -(-rows // second[0]), columns, inner
    count = groups if isinstance(groups, int) else 1
    return count, rows, columns, -(-inner // count)


def _product_sizes(op: Op, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int] | None:
    """Return how many products there are at once, their rows, columns and inner size."""
    if "addmm" in op.name or "baddbmm" in op.name:
        shapes = shapes[1:]  # after what is added
    shape = next((shape for shape in shapes if len(shape) > 1), None)
    if shape is None or not op.flops or 0 in shape:
        return None
    *leading, rows, inner = shape
    batch = math.prod(leading) if "bmm" in op.name else 1
    rows = rows if "bmm" in op.name else rows * math.prod(leading)
    return batch, rows, max(round(op.flops / (2 * batch * rows * inner)), 1), inner


def _shares(graph: Graph, times: Mapping[int, tuple[str, float]]) -> dict[str, float]:
    """Return the share of the time of all nodes by class, from (class, seconds) of their ops."""
    counts = graph.count()
    shares: dict[str, float] = {}
    for code, (kind, seconds) in times.items():
        shares[kind] = shares.get(kind, 0.0) + float(counts[code] * seconds)
    total = sum(shares.values())
    return {kind: seconds / total for kind, seconds in shares.items() if total}


def common_error(
    hardware: Hardware,
    correction: Correction,
    table: Efficiencies,
    stack: Stack | None = None,
    kernels: float = 0.0,
) -> float:
    """Return the relative error that all ops of a device share: its clocks, above all.

    Args:
        hardware: the device.
        correction: by a measurement on it, which leaves an error of its own.
        table: with what whole models err by in common, all of whose ops are by their classes.
        stack: with what its kernels err by in common that were timed on the device; beside these
            its other ops err by no less.
        kernels: the share of the time that these take; see `share_of_kernels`.
    """
    if correction.origin:
        return table.common_corrected
    by_classes = table.common if table.has(hardware.name) else table.common_unmeasured
    if not kernels or stack is None or stack.common is None:
        return by_classes
    error = stack.common
    return kernels * error + (1 - kernels) * max(error, by_classes)


def share_of_kernels(graph: Graph, durations: Sequence[Estimate | None]) -> float:
    """Return the share of the time of all nodes that is of kernels timed on the device."""
    times = {
        code: (duration.source, duration.duration)
        for code, duration in enumerate(durations)
        if duration is not None
    }
    return _shares(graph, times).get(KNOWN["timed"], 0.0)


def holds_hardware(path: Path, name: str) -> bool:
    """Whether a profile database has timings of hardware whose description has a name's parts."""
    return any(fits(environment, name) for environment, _ in environments_in(path))


def corrected_by(
    seconds: float,
    predicted: float,
    origin: str,
    graph: Graph,
    durations: Sequence[Estimate | None],
) -> Correction:
    """Return the correction by an iteration of a graph that was measured to take `seconds`."""
    if not (seconds > 0 and math.isfinite(seconds)):
        raise InputError(f"measured: {origin}: a time above 0 is needed")
    known = enumerate(durations)
    times = {
        code: (estimate.method, estimate.duration)
        for code, estimate in known
        if estimate is not None
    }
    return Correction(seconds / predicted, origin, _shares(graph, times))


def corrected_by_ops(
    durations: Sequence[Estimate | None], timed: Sequence[Estimate | None], graph: Graph, where: str
) -> tuple[Correction, list[Estimate | None]]:
    """Return the correction by timings of some of a graph's ops, and durations with both.

    Timed ops take what they were timed at; the others are scaled by what timed ones took in all
    over what was predicted of them.
    """
    counts = np.bincount(graph.op, minlength=len(graph.ops)).tolist()
    both = [
        (count, timing.duration, guess.duration)
        for count, timing, guess in zip(counts, timed, durations, strict=True)
        if timing is not None and guess is not None
    ]
    if not both:
        raise InputError(f"{where}: has no timing of an op of this model")
    factor = sum(n * time for n, time, _ in both) / sum(n * guess for n, _, guess in both)
    scaled = [
        timing
        if timing is not None
        else None
        if guess is None
        else replace(
            guess,
            duration=guess.duration * factor,
            low=guess.low * factor,
            high=guess.high * factor,
        )
        for timing, guess in zip(timed, durations, strict=True)
    ]
    return Correction(factor, f"{len(both)} ops timed in {where}"), scaled

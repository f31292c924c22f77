"""A step of a PyTorch Kineto trace as a graph, with the durations that were traced.

A node is a kernel, copy or memset, in the order of the launches; its op is the innermost one that
was open on the host at the launch ("aten.addmm"). It depends on what its stream ran before, and on
what its stream waited for. A trace without a device has its outermost ops as nodes.

What the host does between launches is not a node: `paracosm replay` plays it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import Graph, Op
from paracosm.timeline.kineto.categories import CATEGORIES
from paracosm.timeline.kineto.communication import named_kernels
from paracosm.timeline.kineto.device import Calls, device_spans, waits_between_streams
from paracosm.timeline.kineto.faults import check_device, whole_steps
from paracosm.timeline.kineto.host_communication import communication_among_ops
from paracosm.timeline.kineto.read import read_kineto
from paracosm.timeline.kineto.trace import (
    KinetoTrace,
    Step,
    Steps,
    Window,
    steps_of,
    steps_of_training,
    window_of,
)

_KERNEL = CATEGORIES.index("kernel")


def read_kineto_graph(
    path: Path, step: int | None = None, communication: Sequence[str] = ()
) -> Graph:
    """Read a step, without one the median of those that are whole.

    Args:
        path: of the trace.
        step: its number, as the profiler marked it.
        communication: which kernels communicate, as `named_kernels` reads it.
    """
    trace = read_kineto(path, named=named_kernels(communication))
    check_device(trace)
    whole, faults = whole_steps(trace)
    chosen = _median(whole) if step is None else step
    window = window_of(trace, None if chosen is None else [chosen])
    during = steps_of_training(trace)
    make = _device_nodes if len(device_spans(trace, window)) else _host_nodes
    nodes = _forward_then_backward(make(trace, window, during))
    if not nodes:
        where = "in it" if chosen is None else f"in step {chosen}"
        raise InputError(f"{path}: nothing ran {where}")
    provenance = {
        "format": "kineto",
        "trace": str(path),
        "step": chosen,
        "steps": [step.number for step in steps_of(trace)],
        "rank": trace.rank,
        "ranks": trace.world_size,
        "missing": list(trace.missing),
        "steps_left_out": {str(number): fault for number, fault in sorted(faults.items())},
        "notes": [*trace.notes, *communication_among_ops(trace)],
    }
    return build_graph(nodes, provenance=provenance, where=str(path))


def _median(whole: Sequence[Step]) -> int | None:
    steps = sorted(whole, key=lambda step: step.duration)
    return steps[len(steps) // 2].number if steps else None


def _device_nodes(trace: KinetoTrace, window: Window, during: Steps) -> list[Node]:
    spans = device_spans(trace, window)
    waits = waits_between_streams(trace, spans)
    calls = Calls(trace, spans)
    open_op = _innermost(trace, spans.call)
    # Spans that were launched before the step are not part of it, unless no call is known at all.
    chosen = np.flatnonzero(spans.call >= 0) if (spans.call >= 0).any() else np.arange(len(spans))
    order = chosen[np.lexsort((spans.begin[chosen], spans.launched[chosen]))]
    ids = {int(number): at for at, number in enumerate(order.tolist())}
    before: dict[int, int] = {}
    nodes = []
    for number in order.tolist():
        row, call, stream = (int(at[number]) for at in (spans.row, spans.call, spans.stream))
        needed = {ids[other] for other in waits.get(number, ()) if other in ids}
        if stream in before:
            needed.add(before[stream])
        before[stream] = ids[number]
        kernel = trace.category[row] == _KERNEL
        met = calls.of(row, call) if kernel else ()
        op = open_op.get(call, "")
        sent = sum(max(0, collective.size) for collective in met)
        nodes.append(
            Node(
                id=ids[number],
                op=Op(_op_name(op or trace.text(row)), bytes_read=sent),
                phase=_phase(during.of(int(spans.thread[number]), float(spans.launched[number]))),
                resource="memory" if not kernel else "communication" if met else "compute",
                dependencies=tuple(
                    dependency for dependency in sorted(needed) if dependency < ids[number]
                ),
                group=met[0].ranks if met else (),
                duration=float(spans.end[number] - spans.begin[number]),
            )
        )
    return nodes


def _host_nodes(trace: KinetoTrace, window: Window, during: Steps) -> list[Node]:
    """Return a node for each outermost op of the host, each after the one before on its thread."""
    rows = trace.of("op")
    rows = rows[(trace.begin[rows] >= window.begin) & (trace.begin[rows] < window.end)]
    reached: dict[int, float] = {}
    before: dict[int, int] = {}
    nodes: list[Node] = []
    for row in rows.tolist():
        lane, begin = int(trace.lane[row]), float(trace.begin[row])
        if begin < reached.get(lane, -np.inf):
            continue
        reached[lane] = float(trace.end[row])
        nodes.append(
            Node(
                id=len(nodes),
                op=Op(_op_name(trace.text(row))),
                phase=_phase(during.of(lane, begin)),
                dependencies=(before[lane],) if lane in before else (),
                duration=float(trace.duration[row]),
            )
        )
        before[lane] = nodes[-1].id
    return nodes


def _forward_then_backward(nodes: list[Node]) -> list[Node]:
    """Return the nodes without forward ones after the last backward one."""
    last = max((node.id for node in nodes if node.phase == "backward"), default=len(nodes))
    return [
        node._replace(phase="other") if node.phase == "forward" and node.id > last else node
        for node in nodes
    ]


def _innermost(trace: KinetoTrace, calls: Ints) -> dict[int, str]:
    """Return, for rows of calls, the name of the innermost op that was open on their threads."""
    wanted = set(calls.tolist()) - {-1}
    is_op = trace.category == CATEGORIES.index("op")
    opened: dict[int, list[int]] = {}
    names = {}
    ends = trace.end
    for row in np.flatnonzero(is_op | np.isin(np.arange(len(trace)), list(wanted))).tolist():
        stack = opened.setdefault(int(trace.lane[row]), [])
        while stack and ends[stack[-1]] <= trace.begin[row]:
            stack.pop()
        if row in wanted:
            names[row] = trace.text(stack[-1]) if stack else ""
        else:
            stack.append(row)
    return names


def _op_name(name: str) -> str:
    """Return "aten.addmm" of "aten::addmm"; of a kernel, its name without its arguments."""
    return name.replace("::", ".") if name.count("::") == 1 else name.partition("(")[0][:120]


def _phase(step: str) -> str:
    return step if step in ("forward", "backward", "optimizer") else "other"

"""The step of one of several ranks that a table of op latencies describes, as a graph.

The device's stream is in order: forward, then the rows backward, with sums over tensor-parallel
ranks that it waits for. The host does not wait between the passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.prediction.op_latencies.latencies import Reading
from paracosm.prediction.op_latencies.layers import layer_of
from paracosm.prediction.op_latencies.splitting import Splitting
from paracosm.prediction.op_latencies.table import Row
from paracosm.prediction.op_latencies.weights import SINGLE

__all__ = ["rank_graph"]


def rank_graph(
    rows: Sequence[Row],
    gradients: Mapping[str, int],
    reading: Reading,
    splitting: Splitting,
    tensor: int,
    where: str,
) -> Graph:
    """Return the graph of one rank's step, with a duration at every node.

    Args:
        rows: of the whole model, each layer in it.
        gradients: bytes of gradients, by the name of the row that completes them.
        reading: how to read the rows' intervals.
        splitting: what tensor-parallel ranks share and sum.
        tensor: how many of them there are.
        where: the file, for messages.
    """
    tasks = list(_tasks(rows, reading, splitting))
    backward = {
        (task.row.name, task.place): number
        for number, task in enumerate(tasks)
        if task.phase == "backward"
    }
    nodes: list[Node] = []
    device: tuple[int, ...] = ()  # the node that the next one on the device waits for
    for number, task in enumerate(tasks):
        name = task.row.name
        shared = tensor if name in splitting.shared else 1
        held: list[tuple[int, int]] = []
        if task.phase == "forward" and task.resource == "compute" and task.row.makes_tensor:
            result = SINGLE * prod(task.row.shape) // (1 if name in splitting.summed else shared)
            held.append((result, backward.get((name, task.place), number)))
        elif task.last and (size := gradients.get(name, 0)):
            held.append((size // shared, -1))
        sums = task.resource == "communication"
        function = task.row.function if task.row.kind != "call_module" else "module"
        nodes.append(
            Node(
                id=number,
                op=Op("all_reduce", bytes_read=task.size, bytes_written=task.size)
                if sums
                else Op(function),
                name=task.place,
                phase=task.phase,
                resource=task.resource,
                dependencies=() if task.resource == "host" else device,
                group=tuple(range(tensor)) if sums else (),
                duration=task.duration,
                allocates=tuple(held),
            )
        )
        if task.resource != "host":
            device = (number,)
    return build_graph(nodes, provenance={"tensor_ranks": tensor}, where=where)


@dataclass(frozen=True, slots=True)
class _Task:
    """A node to be: its place, the row it comes from, and what it does."""

    row: Row
    place: str
    phase: str
    resource: str
    duration: float = 0.0
    size: int = 0
    last: bool = False


def _tasks(rows: Sequence[Row], reading: Reading, splitting: Splitting) -> Iterator[_Task]:
    """Yield what runs, in order: the forward pass, then the rows backward."""
    places = _places(rows)
    for row, place in zip(rows, places, strict=True):
        if row.forward > 0:
            yield _interval(row, place, "forward", row.forward, reading)
        if row.name in splitting.summed:
            yield _sum(row, place, "forward", row.shape)
    for row, place in zip(reversed(rows), reversed(places), strict=True):
        times = [time for time in (row.backward, row.accumulate) if time > 0]
        for number, time in enumerate(times, start=1):
            task = _interval(row, place, "backward", time, reading)
            yield replace(task, last=number == len(times))
        if row.name in splitting.gradient_summed:
            yield _sum(row, place, "backward", _input_shape(row))


def _interval(row: Row, place: str, phase: str, time: float, reading: Reading) -> _Task:
    resource = "host" if reading.on_host(row, time) else "compute"
    return _Task(row, place, phase, resource, reading.time(time))


def _sum(row: Row, place: str, phase: str, shape: tuple[int, ...]) -> _Task:
    return _Task(row, place, phase, "communication", size=SINGLE * prod(shape))


def _input_shape(row: Row) -> tuple[int, ...]:
    """Return the shape of a linear map's input: addmm takes the bias first."""
    return row.shapes[1] if row.function == "addmm" else row.shapes[0]


def _places(rows: Sequence[Row]) -> list[str]:
    """Return each row's place: rows between those of a layer belong to it, all others to what comes
    before or after the layers."""
    numbered = [index for index, row in enumerate(rows) if layer_of(row.module)]
    places: list[str] = []
    current = "before"
    for index, row in enumerate(rows):
        if layer := layer_of(row.module):
            current = layer
        elif numbered and index > numbered[-1]:
            current = "after"
        places.append(current)
    return places

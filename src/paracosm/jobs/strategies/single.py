"""One device and one micro-batch: the graph as it is.

    host     | launch a | launch b | view | launch c |
    compute             |    a     |  b              | c |

The host runs ahead of an asynchronous device; a synchronous one has no lane "host".
"""

from __future__ import annotations

from paracosm.graphs.graph import PHASES
from paracosm.jobs import Program
from paracosm.jobs.blocks import ProgramOfBlocks
from paracosm.jobs.strategies.replica import Replica
from paracosm.jobs.strategies.rows import RowWriter
from paracosm.jobs.strategies.stage import Books
from paracosm.jobs.strategies.work import work_of

__all__ = ["single_program"]


def single_program(replica: Replica, books: Books) -> Program:
    """Return the program of a rank that runs the graph on its own.

    Its makespan is that of `paracosm.simulation.replay`, whose rules it follows. Nodes that
    communicate take the durations they have.
    """
    graph = replica.graph
    writer = books.writer()
    rows = RowWriter(work_of(replica), writer, _no_collective, {}, {})
    for row in range(len(graph)):
        rows.node(row, PHASES[graph.phase[row]])
    storages = graph.storages
    columns = (storages.size.tolist(), storages.first.tolist(), storages.last.tolist())
    for size, first, last in zip(*columns, strict=True):
        taken = rows.taken(max(first, 0)) if len(graph) else 0
        writer.hold(size, taken)
        if last < len(graph):
            writer.release(size, max(taken, rows.given(last)))
    program = ProgramOfBlocks()
    program.place(writer.block(), 0)
    return program.program(sum(graph.resident.values()))


def _no_collective(collective: str, size: int) -> float:
    raise AssertionError("one rank has no collectives")

"""Jobs of a few ops, written down by hand, and what the simulation made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.simulation.simulate import Simulated
from paracosm.simulation.system import Workload


@dataclass(frozen=True)
class Op:
    """One op: bytes of a transfer (and the delay after them), or seconds of computing.

    What comes after nothing is handed on at its release, seconds after the step's begin; those of
    a workload ascend.
    """

    resource: int
    size: float = 0.0
    seconds: float = 0.0
    after: Sequence[int] = ()
    server: int = 0
    release: float = 0.0


def down(size: float, after: Sequence[int] = (), *, server: int = 0, delay: float = 0.0) -> Op:
    return Op(DOWNLINK, size, delay, after, server)


def up(size: float, after: Sequence[int] = (), *, server: int = 0, delay: float = 0.0) -> Op:
    return Op(UPLINK, size, delay, after, server)


def compute(seconds: float, after: Sequence[int] = ()) -> Op:
    return Op(WORKER, 0.0, seconds, after)


def update(seconds: float, after: Sequence[int] = (), *, server: int = 0) -> Op:
    return Op(SERVER, 0.0, seconds, after, server)


def workload_of(*ops: Op, gap: float = 0.0) -> Workload:
    """Return the workload of one step, whose roots and dependents are handed on as written."""
    dependents = [
        [other for other, op in enumerate(ops) if own in op.after] for own in range(len(ops))
    ]
    return Workload(
        resource=np.array([op.resource for op in ops], np.int8),
        server=np.array([op.server for op in ops], np.int64),
        size=np.array([op.size for op in ops], float),
        seconds=np.array([[op.seconds for op in ops]], float),
        waits=np.array([len(op.after) for op in ops], np.int64),
        first_dependent=np.cumsum([0, *(len(row) for row in dependents)], dtype=np.int64),
        dependents=np.array([row for rows in dependents for row in rows], np.int64),
        roots=np.array([[own for own, op in enumerate(ops) if not op.after]], np.int64),
        release=np.array([[op.release for op in ops if not op.after]], float),
        gap=np.array([gap]),
    )


def once(workers: int = 1, steps: int = 1) -> np.ndarray:
    """Return draws of the only step."""
    return np.zeros((workers, steps), np.int64)


Row = tuple[int, int, int, float, float]


def rows(simulated: Simulated) -> list[Row]:
    """Return worker, op, turn, begin and end of each chunk, in order."""
    chunks = simulated.chunks
    return [
        (int(x["worker"]), int(x["op"]), int(x["turn"]), float(x["begin"]), float(x["end"]))
        for x in chunks
    ]


def times(simulated: Simulated, worker: int) -> list[tuple[int, float, float]]:
    """Return op, begin and end of each chunk of a worker, in order."""
    return [(op, begin, end) for own, op, _, begin, end in rows(simulated) if own == worker]

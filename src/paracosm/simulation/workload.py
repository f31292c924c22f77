"""Steps that simulated workers draw from: bytes to move, seconds to compute, who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["DOWNLINK", "SERVER", "UPLINK", "WORKER", "Workload"]

DOWNLINK, WORKER, UPLINK, SERVER = range(4)
"""What an op keeps busy: the way from a server, the worker itself, the way to a server, a server's
core."""

Codes = npt.NDArray[np.int8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """Steps of one worker without what its link did to them.

    Attributes:
        resource: by op, `DOWNLINK`, `WORKER`, `UPLINK` or `SERVER`.
        server: by op, which parameter server; 0 on the worker.
        size: by op, bytes that the link carries; 0 of computations.
        seconds: of computing, (steps, ops); of transfers: from the last byte until those who wait
            may begin, which keeps nothing busy.
        waits: by op, how many ops it waits for.
        first_dependent: `dependents[first_dependent[i]:first_dependent[i + 1]]` wait for op i.
        dependents: indices of ops; of one op in the order in which they are handed on.
        roots: ops that wait for none, by step in the order in which they are handed on,
            (steps, number of roots).
        release: seconds from the step's begin at which each of `roots` is handed on, ascending.
        gap: seconds from the end of a step's last op to the begin of the worker's next, (steps,).
    """

    resource: Codes
    server: Ints
    size: Floats
    seconds: Floats
    waits: Ints
    first_dependent: Ints
    dependents: Ints
    roots: Ints
    release: Floats
    gap: Floats

    @property
    def ops(self) -> int:
        """How many ops a step has."""
        return len(self.resource)

    @property
    def steps(self) -> int:
        """How many steps there are to draw from."""
        return len(self.seconds)

    @property
    def servers(self) -> int:
        """How many parameter servers there are."""
        return int(self.server.max(initial=0)) + 1

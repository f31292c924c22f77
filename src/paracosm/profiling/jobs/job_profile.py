"""What one worker and its parameter servers did, op by op, over a number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DOWNLINK", "RESOURCES", "SERVER", "UPLINK", "WORKER", "JobProfile"]

Codes = npt.NDArray[np.int8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RESOURCES = ("downlink", "worker", "uplink", "server")
"""What an op keeps busy (Li et al. 2020, section 2): `downlink` carries parameters from a server to
the worker, `uplink` gradients from the worker to a server; worker and server compute."""

DOWNLINK, WORKER, UPLINK, SERVER = range(4)


@dataclass(frozen=True)
class JobProfile:
    """Profiled steps of a job of one worker, all of the same ops.

    Attributes:
        names: of the ops, each once.
        kinds: type of each op ("MatMul", "RecvTensor").
        resource: by op, an index into `RESOURCES`.
        server: by op, the parameter server that computes, sends or receives; 0 on the worker.
        size: by op, bytes that are transferred; 0 of computations.
        first_dependency: op i waits for `dependencies[first_dependency[i]:first_dependency[i+1]]`.
        dependencies: indices of ops.
        begin: seconds from the step's begin, (steps, ops); of a transfer: when it was asked for;
            NaN of transfers that were not traced in a step.
        end: seconds from the step's begin, (steps, ops); of a transfer: when the receiver had its
            data, parsed; NaN where `begin` is.
        step_begin: seconds from the first step's begin, (steps,).
        step_end: seconds from the first step's begin, (steps,): when the worker was told that all
            is done.
        batch: examples of a step, if known.
        bandwidth: bytes/s of payload of the link that it was profiled on, if known.
        dropped: how many steps were left out, by reason.
        provenance: where it comes from ("source", "framework", "hardware", ...), as JSON has it.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    resource: Codes
    server: Ints
    size: Ints
    first_dependency: Ints
    dependencies: Ints
    begin: Floats
    end: Floats
    step_begin: Floats
    step_end: Floats
    batch: int | None = None
    bandwidth: float | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ops(self) -> int:
        """How many ops a step has."""
        return len(self.names)

    @property
    def steps(self) -> int:
        """How many steps were profiled."""
        return len(self.step_begin)

    @property
    def servers(self) -> int:
        """How many parameter servers there are."""
        return int(self.server.max(initial=0)) + 1

    def waits_for(self, op: int) -> Ints:
        """Return the ops that an op waits for."""
        return self.dependencies[self.first_dependency[op] : self.first_dependency[op + 1]]

    def of_steps(self, kept: npt.NDArray[np.bool_]) -> JobProfile:
        """Return the profile of some of its steps, (steps,); `dropped` stays as it is."""
        return replace(
            self,
            begin=self.begin[kept],
            end=self.end[kept],
            step_begin=self.step_begin[kept],
            step_end=self.step_end[kept],
        )

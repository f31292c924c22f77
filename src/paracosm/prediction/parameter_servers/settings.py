"""The cluster and the habits that a job with parameter servers is imagined with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paracosm.prediction.parameter_servers.background import Background
from paracosm.prediction.parameter_servers.target import Ports

__all__ = ["Settings", "Start"]

Start = Literal["steady", "together", "staggered"]


@dataclass(frozen=True)
class Settings:
    """What is imagined of a job, for any number of its workers.

    Attributes:
        ports: of all servers and of as many workers as are ever asked for.
        alpha: seconds a byte of parsing what was received.
        beta: seconds of parsing anything received.
        window: bytes of a stream's first turn; infinite without flow control.
        order: name of the order of transfers, or the names of transfers in order.
        cores: of each server, shared by the updates of all workers; 0: one for each worker.
        background: traffic of others in the ports of servers.
        uneven: standard deviation of ln(share) of flows that compete for a port; 0: equal shares.
        backup: synchronous: workers that a step does not wait for; None: asynchronous.
        start: what is predicted beside the steady state.
        stagger: seconds between the begins of workers that start staggered; None: a step of one
            worker spread over all.
        measure: seconds of a measurement; None: as long as 50 steps take, but 10 of each worker.
        steps: simulated steps of each worker; None: as many as take a second or so.
        repeats: simulated measurements after a start.
    """

    ports: Ports
    alpha: float = 0.0
    beta: float = 0.0
    window: float = float("inf")
    order: str | Sequence[str] = "scheduled"
    cores: int = 0
    background: Background | None = None
    uneven: float = 0.0
    backup: int | None = None
    start: Start = "steady"
    stagger: float | None = None
    measure: float | None = None
    steps: int | None = None
    repeats: int = 20

"""Virtual time for coroutines: workers that send, receive and compute on a simulated cluster.

The model is the one of Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness
Effect", section 3.
"""

from paracosm.engine.events import Cancelled, Timer
from paracosm.engine.processes import (
    DeadlockError,
    Future,
    FutureCancelledError,
    Interrupt,
    Process,
    State,
    Walker,
)
from paracosm.engine.simulator import Recording, Simulator, Worker
from paracosm.engine.synchronisation import Barrier, Queue, Resource
from paracosm.engine.transfers import Port, Ports, Transfer

__all__ = [
    "Barrier",
    "Cancelled",
    "DeadlockError",
    "Future",
    "FutureCancelledError",
    "Interrupt",
    "Port",
    "Ports",
    "Process",
    "Queue",
    "Recording",
    "Resource",
    "Simulator",
    "State",
    "Timer",
    "Transfer",
    "Walker",
    "Worker",
]

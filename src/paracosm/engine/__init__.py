"""Virtual time for coroutines: workers that send, receive and compute on a simulated cluster.

The model is the one of Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness
Effect", section 3.
"""

from paracosm.engine.simulator import Recording, Simulator, Worker
from paracosm.engine.transfers import Port, Ports, Transfer
from paracosm.engine.walkers import (
    Barrier,
    Cancelled,
    DeadlockError,
    Future,
    FutureCancelledError,
    Interrupt,
    Queue,
    Resource,
    State,
    Timer,
    Walker,
)

__all__ = [
    "Barrier",
    "Cancelled",
    "DeadlockError",
    "Future",
    "FutureCancelledError",
    "Interrupt",
    "Port",
    "Ports",
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

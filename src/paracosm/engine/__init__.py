"""Virtual time for coroutines: workers that send, receive and compute on an imagined cluster.

The model is the one of Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness
Effect", section 3.
"""

from paracosm.engine.errors import Cancelled, DeadlockError, FutureCancelledError, Interrupt
from paracosm.engine.future import Future
from paracosm.engine.meeting import Barrier, Queue, Resource
from paracosm.engine.messages import Port, Ports, Transfer
from paracosm.engine.recording import Recording
from paracosm.engine.scheduler import Timer
from paracosm.engine.simulator import Simulator
from paracosm.engine.walker import State, Walker
from paracosm.engine.worker import Worker

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

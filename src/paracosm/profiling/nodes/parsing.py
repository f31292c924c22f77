"""How long it takes from the last byte received to a tensor: alpha * size + beta.

Li et al. 2020, section 3.2.1 and figure 10. Bytes go through a pair of sockets, so that they are
where a receiver finds them; what is timed begins when the last of them was read.
"""

import contextlib
import gc
import importlib
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.errors import InputError, require, unknown
from paracosm.profiling.links.measure import fit_line

PARSERS = ("numpy", "torch")
"""numpy: a copy out of the receive buffer into a new array. torch: `frombuffer` and `clone` on one
thread, which is what a tensor costs that was sent as bytes."""

PARSING_SIZES = tuple(4**power for power in range(5, 13))  # 1 KiB to 16 MiB
_LEAST = 5  # transfers of a size
_MOST = 200
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Parsing:
    alpha: float  # seconds a byte
    beta: float  # seconds
    error: float  # mean of the relative errors of the line at the sizes
    worst: float  # the largest of them
    seconds: dict[int, float]  # by size in bytes, the median that was measured


def measure_parsing(
    parser: str,
    sizes: Sequence[int] = PARSING_SIZES,
    seconds: float = 0.5,
    progress: Callable[[int], None] = lambda done: None,
) -> Parsing:
    """Return what it costs here to make a tensor of bytes that were received, of sizes in bytes."""
    parse = _parser(parser)
    wrong = [size for size in sizes if size < 4 or size % 4]
    if wrong:
        raise InputError(f"a tensor of float32 has a multiple of 4 bytes, not {wrong[0]}")
    medians = {}
    with _without_interference(parser):
        for done, size in enumerate(sorted(set(sizes))):
            medians[size] = statistics.median(_received(parse, size, seconds))
            progress(done + 1)
    return fit_parsing(medians)


def fit_parsing(seconds: dict[int, float]) -> Parsing:
    """Return the line through seconds by size with the least relative errors (soft L1)."""
    line = fit_line(list(seconds), list(seconds.values()))
    return Parsing(1 / line.bandwidth, line.latency, line.error, line.worst, dict(seconds))


def _parser(name: str) -> Callable[[bytearray], object]:
    if name == "numpy":
        return lambda received: np.frombuffer(received, dtype=np.float32).copy()
    if name == "torch":
        torch = require("torch", "torch", "parsing received bytes with PyTorch")
        return lambda received: torch.frombuffer(received, dtype=torch.float32).clone()
    raise unknown("parser", name, PARSERS)


@contextlib.contextmanager
def _without_interference(parser: str) -> Iterator[None]:
    """Collect no garbage meanwhile, and let PyTorch copy on one thread."""
    with contextlib.ExitStack() as after:
        if gc.isenabled():
            after.callback(gc.enable)
        gc.disable()
        if parser == "torch":
            torch = importlib.import_module("torch")
            after.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        yield


def _received(parse: Callable[[bytearray], object], size: int, seconds: float) -> list[float]:
    """Receive messages of one size and return how long each was parsed; the first is not one."""
    sending, receiving = socket.socketpair()
    with sending, receiving:
        for end in (sending, receiving):
            end.settimeout(_TIMEOUT)
        go = threading.Semaphore(0)
        message, stop = bytes(size), threading.Event()

        def send() -> None:
            while go.acquire() and not stop.is_set():
                sending.sendall(message)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        took: list[float] = []
        until = time.monotonic() + seconds
        buffer = bytearray(size)
        while len(took) <= _LEAST or (time.monotonic() < until and len(took) <= _MOST):
            go.release()
            at, view = 0, memoryview(buffer)
            while at < size:
                at += receiving.recv_into(view[at:])
            view.release()
            begun = time.perf_counter()
            parse(buffer)
            took.append(time.perf_counter() - begun)
        stop.set()
        go.release()
        sender.join()
    return took[1:]

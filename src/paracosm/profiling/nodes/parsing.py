"""How long it takes from the last byte received to a tensor: alpha * size + beta.

Li et al. 2020, section 3.2.1 and figure 10. Bytes go through a pair of sockets, so that they are
where a receiver finds them; what is timed begins when the last of them was read.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import re
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from paracosm.errors import InputError, MissingExtraError, require, unknown
from paracosm.graphs.importers.wire import Schema, decode
from paracosm.profiling.links.measure import fit_line
from paracosm.profiling.nodes.proxy import Proxy, Stream, StreamWatch
from paracosm.profiling.processes import Processes, free_ports

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
    with _undisturbed(parser):
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
        torch = require("torch", "torch", "measuring what PyTorch makes of received bytes")
        return lambda received: torch.frombuffer(received, dtype=torch.float32).clone()
    raise unknown("parser", name, PARSERS)


@contextlib.contextmanager
def _undisturbed(parser: str) -> Iterator[None]:
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
        for each in (sending, receiving):
            each.settimeout(_TIMEOUT)
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


_WARM = 3  # fetches that are not counted
_TOGETHER = 10  # times that all variables are fetched at once
_GRPC = 5  # bytes before a message: whether it is compressed, and its length
_REQUEST: Schema = {"RecvTensorRequest": {1: ("step", "int"), 2: ("key", "string")}}
_NUMBER = re.compile(r"fetched(\d+)\b")


@dataclass(frozen=True, slots=True)
class Transfers:
    parsing: Parsing  # alpha and beta, from tensors that were fetched one at a time
    # (seconds since the first, bytes) that the receiver announced for streams, in time
    windows: tuple[tuple[float, int], ...]
    streams: tuple[Stream, ...]  # of tensors that were fetched all at once
    version: str  # of TensorFlow

    @property
    def window(self) -> int:
        """Bytes that a stream may send at first, as announced last."""
        return self.windows[-1][1]


def measure_transfers(
    repeats: int = 20, timeout: float = 60.0, progress: Callable[[int], None] = lambda done: None
) -> Transfers:
    """Return what a TensorFlow worker here makes of transfers from a server here.

    As Li et al. 2020 (section 3.2.1) did with tcpdump: the overhead of a transfer is the time from
    its last byte, as a proxy hands it on, to the end of its RecvTensor, as TensorFlow's step stats
    say. The start of TensorFlow and each fetch may take `timeout` seconds.
    """
    here = _version()
    server, worker = free_ports(2)
    with (
        Proxy(("127.0.0.1", server), StreamWatch) as proxy,
        Processes("paracosm.profiling.nodes.tensorflow_process", timeout) as processes,
    ):
        for number, (role, port) in enumerate((("ps", server), ("worker", proxy.address[1]))):
            setup = {
                "role": role,
                "server": f"127.0.0.1:{port}",
                "worker": f"127.0.0.1:{worker}",
                "sizes": PARSING_SIZES,
            }
            processes.start(f"TensorFlow's {role}", setup)
            processes.answers("to start", [number])
        alone = []
        for turn in range((_WARM + repeats) * len(PARSING_SIZES)):
            alone.append(_fetch(processes, [turn % len(PARSING_SIZES)]))
            progress(turn + 1)
        before = sum(len(each.ended) for each in proxy.watches)
        for _ in range(_TOGETHER):
            _fetch(processes, range(len(PARSING_SIZES)))
    if proxy.failures:
        raise InputError(f"the proxy between worker and server: {proxy.failures[0]}")
    streams = [stream for each in proxy.watches for stream in each.ended]
    overheads = overheads_of(streams[:before], alone[_WARM * len(PARSING_SIZES) :])
    seconds = {PARSING_SIZES[at]: statistics.median(each) for at, each in overheads.items()}
    windows = sorted(each for watch in proxy.watches for each in watch.windows)
    if not windows:
        raise InputError("TensorFlow's worker announced no flow-control window")
    return Transfers(
        parsing=fit_parsing({size: took for size, took in seconds.items() if took > 0}),
        windows=tuple((when - windows[0][0], size) for when, size in windows),
        streams=tuple(each for each in streams[before:] if tensor_of(each) is not None),
        version=here,
    )


def overheads_of(
    streams: Sequence[Stream], ended: Sequence[Mapping[str, float]]
) -> dict[int, list[float]]:
    """Return seconds from the last byte of each transfer to its end, by number of the variable.

    The stream of a transfer is the one of that tensor whose last byte went by at the time (Unix
    seconds) nearest to its end: fetches of one tensor are far apart.
    """
    last: dict[str, list[float]] = {}
    for stream in streams:
        if (tensor := tensor_of(stream)) is not None:
            last.setdefault(tensor, []).append(stream.last)
    found: dict[int, list[float]] = {}
    for fetched in ended:
        for tensor, end in fetched.items():
            if tensor not in last:
                raise InputError(f"TensorFlow received {tensor}, and no stream of it went by")
            number = _NUMBER.search(tensor)
            if number is not None:
                off = min((end - each for each in last[tensor]), key=abs)
                found.setdefault(int(number[1]), []).append(off)
    return found


def tensor_of(stream: Stream) -> str | None:
    """Return which tensor a stream was asked for; None if it was something else."""
    try:
        request = decode(stream.request[_GRPC:], "RecvTensorRequest", _REQUEST, "request")
    except InputError:
        return None
    parts = str(request["key"]).split(";")  # source, incarnation, destination, edge, frame
    return parts[3] if len(parts) == 5 and parts[3].startswith("edge_") else None


def _fetch(processes: Processes, which: Sequence[int]) -> dict[str, float]:
    processes.order({1: {"fetch": list(which)}})
    (answer,) = processes.answers("to fetch variables", [1])
    ended: dict[str, float] = answer["ended"]
    return ended


def _version() -> str:
    """TensorFlow's, without importing it: this process does not need it."""
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    raise MissingExtraError(
        'measuring transfers needs tensorflow: pip install "paracosm[tensorflow]"'
    )

"""Parsing overhead and flow-control windows of TensorFlow's gRPC, from a proxy on loopback.

As Li et al. 2020 (section 3.2.1) did with tcpdump: the overhead of a transfer is the time from its
last byte, as the proxy hands it on, to the end of its RecvTensor, as TensorFlow's step stats say.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paracosm.errors import InputError, MissingExtraError
from paracosm.graphs.importers.wire import Schema, decode
from paracosm.profiling.free_ports import free_ports
from paracosm.profiling.nodes.parsing import Parsing, fit_parsing
from paracosm.profiling.nodes.proxy import Proxy
from paracosm.profiling.nodes.streams import Stream, StreamWatch
from paracosm.profiling.processes import Processes

__all__ = ["SIZES", "Transfers", "measure_transfers", "overheads_of", "tensor_of"]

SIZES = tuple(4**power for power in range(5, 13))
"""Bytes of the variables: 1 KiB to 16 MiB."""

_WARM = 3  # fetches that are not counted
_TOGETHER = 10  # times that all variables are fetched at once
_GRPC = 5  # bytes before a message: whether it is compressed, and its length
_REQUEST: Schema = {"RecvTensorRequest": {1: ("step", "int"), 2: ("key", "string")}}
_NUMBER = re.compile(r"fetched(\d+)\b")


@dataclass(frozen=True, slots=True)
class Transfers:
    """What was seen of TensorFlow's transfers.

    Attributes:
        parsing: alpha and beta, from tensors that were fetched one at a time.
        windows: (seconds since the first, bytes) that the receiver announced for streams, in time.
        streams: of tensors that were fetched all at once.
        version: of TensorFlow.
    """

    parsing: Parsing
    windows: tuple[tuple[float, int], ...]
    streams: tuple[Stream, ...]
    version: str

    @property
    def window(self) -> int:
        """Bytes that a stream may send at first, as announced last."""
        return self.windows[-1][1]


def measure_transfers(
    repeats: int = 20,
    timeout: float = 60.0,
    progress: Callable[[int], None] = lambda done: None,
) -> Transfers:
    """Return what a TensorFlow worker here makes of transfers from a server here.

    Args:
        repeats: times that each size is fetched alone.
        timeout: seconds for the start of TensorFlow, and for each fetch.
        progress: called with the number of fetches that are done.

    Raises:
        MissingExtraError: TensorFlow is not installed.
        InputError: what went through the proxy is not what TensorFlow said that it received.
        WorkerError: one of the two processes failed.
    """
    here = _version()
    watches: list[StreamWatch] = []

    def watch() -> StreamWatch:
        watches.append(StreamWatch())
        return watches[-1]

    server, worker = free_ports(2)
    with (
        tempfile.TemporaryDirectory() as folder,
        Proxy(("127.0.0.1", server), watch) as proxy,
    ):
        processes = Processes("paracosm.profiling.nodes.tensorflow.job", timeout)
        try:
            for number, (role, port) in enumerate((("ps", server), ("worker", proxy.address[1]))):
                setup = {
                    "role": role,
                    "server": f"127.0.0.1:{port}",
                    "worker": f"127.0.0.1:{worker}",
                    "sizes": SIZES,
                }
                processes.start(f"TensorFlow's {role}", setup, Path(folder) / role)
                processes.answers("to start", [number])
            alone = []
            for turn in range((_WARM + repeats) * len(SIZES)):
                alone.append(_fetch(processes, [turn % len(SIZES)]))
                progress(turn + 1)
            before = sum(len(each.ended) for each in watches)
            for _ in range(_TOGETHER):
                _fetch(processes, range(len(SIZES)))
        finally:
            processes.end()
        if proxy.failures:
            raise InputError(f"the proxy between worker and server: {proxy.failures[0]}")
    streams = [stream for each in watches for stream in each.ended]
    overheads = overheads_of(streams[:before], alone[_WARM * len(SIZES) :])
    seconds = {SIZES[at]: statistics.median(each) for at, each in overheads.items()}
    windows = sorted(each for watch in watches for each in watch.windows)
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

    The stream of a transfer is the one of that tensor whose last byte went by at the time nearest
    to its end: fetches of one tensor are far apart.

    Args:
        streams: as they went by, their instants in Unix seconds.
        ended: of several fetches, when each tensor was there, Unix seconds.

    Raises:
        InputError: a tensor was received for which no stream went by.
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
    """Return TensorFlow's version without importing it: this process does not need it."""
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    raise MissingExtraError(
        'measuring transfers needs tensorflow: pip install "paracosm[tensorflow]"'
    )

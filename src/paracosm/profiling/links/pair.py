"""The link between two ranks of gloo: latency, bandwidth, costs per message and per byte.

Both ranks run the same calls over the link that their job would use. A line through all-reduces of
many sizes gives the time of a ring's message (`fit_line`, `link_of`). Consecutive messages, whose
latencies overlap, show how much of it occupies the sender. All-reduces concurrent with computing
take more processor time than computing alone: that gives the bytes per second that occupy a core.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from paracosm.errors import InputError, require
from paracosm.files import replacing
from paracosm.processes import python_module
from paracosm.profiling.links.measure import fit_line, link_of
from paracosm.units import format_bandwidth, format_duration, parse_whole

SIZES = tuple(4**power for power in range(5, 13))  # bytes: 1 KiB to 16 MiB
_BUCKETS, _BUCKET = 4, 4 << 20  # all-reduces concurrent with computing, bytes of each
_ALONE = 300  # computations without them
_MATRIX = 192  # rows of what is multiplied meanwhile: it fits in the core's own cache
_FEW, _MANY = 10, 210  # messages in a row
_SMALL = 1 << 10  # bytes of each of them
_ROUNDS = 9
_BEFORE = 2  # calls that do not count


@dataclass(frozen=True)
class PairLink:
    latency: float  # seconds until a message is there, beyond its overhead and bytes
    overhead: float  # seconds that a message holds its sender's port, besides its bytes
    bandwidth: float  # bytes/s each way
    core_bandwidth: float  # bytes/s, of both ways together, that take one core all of its time
    error: float  # mean relative error of the line through all-reduces
    worst: float  # its largest

    def text(self) -> str:
        """Return the file of values that `paracosm emulate --calibration` reads."""
        return (
            f"# Measured between two ranks of gloo; the line through all-reduces of 1 KiB to "
            f"16 MiB\n# has a mean error of {self.error:.0%}, {self.worst:.0%} at most.\n"
            f"bandwidth: {format_bandwidth(self.bandwidth)}\n"
            f"latency: {format_duration(self.latency)}\n"
            f"overhead: {format_duration(self.overhead)}\n"
            f"core_bandwidth: {format_bandwidth(self.core_bandwidth)}\n"
        )


def calibrate_link(seconds: float = 0.5, timeout: float = 60.0) -> PairLink | None:
    """Measure as the rank that the environment names (RANK, MASTER_ADDR ...), or two ranks here.

    `seconds` is for each size, `timeout` for a silent peer. Rank 1 returns None.

    Raises:
        InputError: the world is not of two ranks, the other one fails, `timeout` is below 1 s.
    """
    if not 1.0 <= timeout < inf:
        raise InputError(f"a timeout must be 1 s or more, not {timeout:g} s")
    # What its store says of a silent peer, with the stack, is in the error's one line as well.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    require("torch", "torch", "calibrating a link")
    if "RANK" in os.environ:
        return _measured(seconds, timeout)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    os.environ |= address | {"WORLD_SIZE": "2"}
    command = [*python_module(__name__, "-P"), str(seconds), str(timeout)]
    other = subprocess.Popen(command, env=os.environ | {"RANK": "1"})
    try:
        os.environ["RANK"] = "0"
        return _measured(seconds, timeout)
    finally:
        for name in (*address, "WORLD_SIZE", "RANK"):
            os.environ.pop(name, None)
        other.kill()
        other.wait()


def _check_environment() -> None:
    world, rank, port = (os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK", "MASTER_PORT"))
    if world != "2" or rank not in ("0", "1"):
        raise InputError("a link is between two ranks: WORLD_SIZE=2, and RANK 0 here and 1 there")
    if not os.environ.get("MASTER_ADDR"):
        raise InputError("MASTER_ADDR is not set: give the address of rank 0 at both ranks")
    if not parse_whole(port, 65535):
        raise InputError(
            f'MASTER_PORT is "{port[:40]}": give the same number from 1 to 65535 at both'
        )


def _measured(seconds: float, timeout: float) -> PairLink | None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    _check_environment()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
        times = [statistics.median(_all_reduces(size, seconds)) for size in SIZES]
        taken = statistics.median(_core_time_of_all_reduces() for _ in range(_ROUNDS))
        few, many = (statistics.median(_rows(count)) for count in (_FEW, _MANY))
        rank = dist.get_rank()
        dist.barrier()
        dist.destroy_process_group()
    except RuntimeError as error:  # what gloo and its rendezvous raise
        raise InputError(f"the other rank: {str(error).splitlines()[0]}") from None
    finally:
        torch.set_num_threads(threads)
    if rank:
        return None
    line = link_of(fit_line(SIZES, times), "all_reduce", 2)
    message = (many - few) / (_MANY - _FEW) - _SMALL / line.bandwidth
    overhead = round(min(max(message, 0.0), line.latency), 9)
    latency = max(0.0, round(line.latency - overhead, 9))
    core = 2.0 * _BUCKETS * _BUCKET / taken if taken > 0 else inf
    return PairLink(
        latency,
        overhead,
        line.bandwidth,
        core,
        line.error,
        line.worst,
    )


def _all_reduces(size: int, seconds: float) -> list[float]:
    """Return the seconds of each of a row of all-reduces."""
    import torch
    import torch.distributed as dist

    vector, count = torch.zeros(size // 4), torch.zeros(1, dtype=torch.int64)
    for _ in range(_BEFORE):
        once = _time(lambda: dist.all_reduce(vector))
    count[0] = min(max(int(seconds / once), _ROUNDS), 500)
    dist.broadcast(count, 0)
    return [_time(lambda: dist.all_reduce(vector)) for _ in range(int(count))]


def _core_time_of_all_reduces() -> float:
    """Return the core seconds that all-reduces take, beyond those of concurrent computing alone.

    With an idle core they are the processor time of this process. With none they show in elapsed
    time, including unattributed kernel work on messages; the load of other processes is subtracted
    as far as computing alone shows it.
    """
    import torch
    import torch.distributed as dist

    matrix, gradients = torch.ones(_MATRIX, _MATRIX), torch.zeros(_BUCKETS, _BUCKET // 4)

    def compute() -> None:
        torch.mm(matrix, matrix)

    dist.barrier()
    began, done = _clocks(), 0
    for _ in range(_ALONE):
        compute()
    alone = [(end - begin) / _ALONE for begin, end in zip(began, _clocks(), strict=True)]
    began = _clocks()
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    while not all(work.is_completed() for work in works):
        compute()
        done += 1
    used, passed = (
        end - begin - done * seconds_alone
        for begin, end, seconds_alone in zip(began, _clocks(), alone, strict=True)
    )
    return max(used, passed * alone[0] / alone[1])


def _clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _rows(count: int) -> list[float]:
    """Return the seconds of rows of messages from rank 0 to rank 1, until an answer came."""
    import torch
    import torch.distributed as dist

    message, answer = torch.zeros(_SMALL // 4), torch.zeros(1)
    here, there = (dist.send, dist.recv) if dist.get_rank() == 0 else (dist.recv, dist.send)

    def row() -> None:
        for _ in range(count):
            here(message, 1 - dist.get_rank())
        there(answer, 1 - dist.get_rank())

    return [_time(row) for _ in range(_ROUNDS)]


def _time(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def write_calibration(link: PairLink, path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text(link.text(), encoding="utf-8")


if __name__ == "__main__":
    try:
        _measured(*map(float, sys.argv[1:]))
    except InputError:
        sys.exit(1)  # rank 0 has met the same, and says so in a line, or was interrupted

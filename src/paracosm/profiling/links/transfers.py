"""Every scenario as a call that a worker process can time, and the worker's main loop."""

import datetime
import json
import math
import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from paracosm.factory import describe_error
from paracosm.profiling.allocator import keep_memory
from paracosm.profiling.environment import Clock, CudaClock, HostClock
from paracosm.profiling.links.measure import ITEM, Scenario
from paracosm.profiling.processes import answering, loopback


@dataclass(frozen=True, slots=True)
class Member:
    rank: int
    ranks: int
    memory: int  # file descriptor of memory that all workers share
    # File descriptors of a pipe that this worker reads from, and of one that the other one of
    # a pair reads from; -1 beyond the first pair
    signals: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Transfer:
    call: Callable[[], object]  # one transfer, or there and back
    messages: int  # that one after the other pass in a call
    clock: Clock


def transfer(scenario: Scenario, size: int, member: Member) -> Transfer:
    """Return one worker's part of a scenario, with messages of `size` bytes."""
    # One core's copies are timed by its CPU time; what waits for others, by the wall clock.
    host = HostClock(threads=scenario.processes)
    match scenario.kind:
        case "host copy":
            here, there = _full(size), _full(size)
            return Transfer(lambda: there.copy_(here), 1, host)
        case "new memory":
            return Transfer(lambda: _touch(size), 1, host)
        case "shared memory" if scenario.directions == 2:
            return Transfer(_exchange(size, member), 1, host)
        case "shared memory":
            return Transfer(_round_trip(size, member), 2, host)
        case "host to device" | "device to host" | "device to device":
            return Transfer(_device_copy(scenario, size), 1, CudaClock())
        case "send_recv":
            return Transfer(_ping_pong(size, member), 2, host)
    if scenario.kind == "ddp":
        step, alone = _training_steps(size)
        return Transfer(step, 1, _Beside(alone))
    if scenario.backend == "nccl":
        torch.cuda.set_device(member.rank)
        return Transfer(_collective(scenario, size, member, "cuda"), 1, CudaClock())
    return Transfer(_collective(scenario, size, member, "cpu"), 1, host)


def _touch(size: int) -> None:
    with mmap.mmap(-1, size) as room:
        room[:: mmap.PAGESIZE] = bytes(-(-size // mmap.PAGESIZE))


def _full(size: int, device: str = "cpu") -> torch.Tensor:
    """Return memory with its own pages: untouched zeros would all share one."""
    return torch.full((size,), 1, dtype=torch.uint8, device=device)


def _shared(size: int, member: Member) -> list[torch.Tensor]:
    """Return shared memory for four messages: two per rank, one written while one is read."""
    room = mmap.mmap(member.memory, 4 * size)
    whole = torch.frombuffer(room, dtype=torch.uint8).fill_(1)
    return list(whole.view(4, size))


def _round_trip(size: int, member: Member) -> Callable[[], object]:
    """Copy into shared memory, signal, copy out; then the same from the other one."""
    rooms, mine, other = _shared(size, member), _full(size), _full(size)
    listen, tell = member.signals

    def first() -> None:
        rooms[0].copy_(mine)
        os.write(tell, b"x")
        os.read(listen, 1)
        other.copy_(rooms[1])

    def second() -> None:
        os.read(listen, 1)
        other.copy_(rooms[0])
        rooms[1].copy_(mine)
        os.write(tell, b"x")

    return first if member.rank == 0 else second


def _exchange(size: int, member: Member) -> Callable[[], object]:
    rooms, mine, other = _shared(size, member), _full(size), _full(size)
    listen, tell = member.signals
    turn = 0

    def call() -> None:
        nonlocal turn
        turn = 2 - turn
        rooms[turn + member.rank].copy_(mine)
        os.write(tell, b"x")
        os.read(listen, 1)
        other.copy_(rooms[turn + 1 - member.rank])

    return call


def _device_copy(scenario: Scenario, size: int) -> Callable[[], object]:
    if scenario.kind == "device to device":
        return _between_devices(size, scenario.directions)
    host = torch.full((size,), 1, dtype=torch.uint8, pin_memory=scenario.name.startswith("pinned"))
    device = _full(size, "cuda:0")
    if scenario.kind == "host to device":
        return lambda: device.copy_(host, non_blocking=True)
    return lambda: host.copy_(device, non_blocking=True)


def _between_devices(size: int, directions: int) -> Callable[[], object]:
    """Copy from device 0 to device 1, and optionally back, on separate streams."""
    pairs = [(_full(size, f"cuda:{i}"), _full(size, f"cuda:{1 - i}")) for i in range(directions)]
    stream_on: Any = torch.cuda.Stream
    streams = [stream_on(device=f"cuda:{i}") for i in range(directions)]

    def call() -> None:
        now = torch.cuda.current_stream()
        for (here, there), stream in zip(pairs, streams, strict=True):
            stream.wait_stream(now)
            with torch.cuda.stream(stream):
                there.copy_(here, non_blocking=True)
        for stream in streams:
            now.wait_stream(stream)

    return call


def _ping_pong(size: int, member: Member) -> Callable[[], object]:
    message, other = _full(size), 1 - member.rank

    def first() -> None:
        dist.send(message, other)
        dist.recv(message, other)

    def second() -> None:
        dist.recv(message, other)
        dist.send(message, other)

    return first if member.rank == 0 else second


def _collective(scenario: Scenario, size: int, member: Member, device: str) -> Callable[[], object]:
    # Zeros stay zeros however often they are added up; fill_ makes their pages real.
    mine = torch.empty(size // ITEM, device=device).fill_(0.0)
    match scenario.kind:
        case "all_reduce":
            return lambda: dist.all_reduce(mine)
        case "all_gather":
            parts = [torch.zeros_like(mine) for _ in range(member.ranks)]
            return lambda: dist.all_gather(parts, mine)
        case "reduce_scatter":
            inputs = list(mine.chunk(member.ranks))
            part = torch.zeros_like(inputs[0])
            return lambda: dist.reduce_scatter(part, inputs)
        case "broadcast":
            return _broadcast(mine, member.ranks)
    raise ValueError(scenario.kind)


class _Beside(HostClock):
    """CPU time of all threads of this process, minus that of another call."""

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__()
        self._other = other

    def seconds(self, call: Callable[[], object], times: int = 1) -> float:
        spent = []
        for each in (self._other, call):
            begin = time.process_time()
            for _ in range(times):
                each()
            spent.append(time.process_time() - begin)
        return max(spent[1] - spent[0], 1e-9)  # of small messages less than one step differs


def _training_steps(size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return two steps of square layers, `size` bytes of gradients: with and without reduction."""
    width = min(_WIDTH, math.isqrt(size // ITEM))
    layers = max(1, round(size / ITEM / width**2))
    stack = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
    model, inputs = torch.nn.parallel.DistributedDataParallel(stack), torch.ones(_BATCH, width)

    def reduced() -> None:
        model.zero_grad()
        model(inputs).sum().backward()

    def kept() -> None:
        with model.no_sync():
            reduced()

    return reduced, kept


_WIDTH, _BATCH = 512, 32


def _broadcast(message: torch.Tensor, ranks: int) -> Callable[[], object]:
    """Broadcast from each rank in turn: a fixed root would run ahead of the others."""
    turn = 0

    def call() -> None:
        nonlocal turn
        turn = (turn + 1) % ranks
        dist.broadcast(message, turn)

    return call


def main() -> None:
    """Serve orders until the input ends, keeping what the last one prepared for the next."""
    setup = json.loads(sys.argv[1])
    member = Member(setup["rank"], setup["ranks"], setup["memory"], tuple(setup["signals"]))
    answer = answering()
    known: tuple[Scenario, int] | None = None
    try:
        _begin(setup, member)
        answer(ready=True)
        for line in sys.stdin:
            order = json.loads(line)
            request = Scenario(**order["scenario"]), int(order["size"])
            if request != known:
                last: Transfer | None = None  # whose memory is free now
                known, last = request, transfer(*request, member)
            assert last is not None
            answer(seconds=[_row(last, order["times"], member) for _ in range(order["rows"])])
    except Exception as error:
        answer(error=describe_error(error))
    # Not an orderly end: a group whose other ranks are gone would wait for them.
    os._exit(0)


def _begin(setup: Mapping[str, Any], member: Member) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    keep_memory()
    if member.ranks == 1:
        return
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, loopback())
    dist.init_process_group(
        setup["backend"],
        store=FileStore(setup["store"], member.ranks),
        rank=member.rank,
        world_size=member.ranks,
        timeout=datetime.timedelta(seconds=setup["timeout"]),
    )


def _row(transfer: Transfer, times: int, member: Member) -> float:
    if member.ranks > 1:
        dist.barrier()
    transfer.clock.wait()
    return transfer.clock.seconds(transfer.call, times) / (times * transfer.messages)


if __name__ == "__main__":
    main()

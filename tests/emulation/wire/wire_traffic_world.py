"""Run a suite of collectives in a world of real ranks, or with one real rank, and record rank 0.

Rank 0 publishes the address of a relay instead of its own, so that the messages of all its pairs
can be counted: real or emulated, its peers cannot tell. A process of its own, since it imports
torch once and forks all ranks of all worlds from there.

Arguments: a folder, then worlds as "4" or "4:0,2" (which ranks are real where not all are). Prints
a JSON object: by world, and by whether all ranks are real, what was on the wire.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paracosm.emulation.rank.announce import announce, tell_members
from paracosm.emulation.wire.announcements import AnnouncementWriter, announcements_file

HEADER = struct.Struct("<QQQQQQ")
ADDRESS = struct.Struct("<HH4s")  # of a sockaddr_in: family, port, IPv4 address
OUTER = b"\xff\xff\xff\xfe"  # 255.255.255.254: greater than any, so that rank 0 waits for peers


class Recorder:
    """Counts the messages of rank 0's pairs: by group, peer, direction, slot."""

    def __init__(self) -> None:
        self.data: dict[str, list[int]] = {}
        self.notices: dict[str, int] = {}
        self._lock = threading.Lock()

    def relay(self, group: str, target: tuple[str, int], pair_ids: list[int]) -> tuple[str, int]:
        """Listen for rank 0's peers in a group; return where."""
        listener = socket.socket()
        for port in range(1024 + os.getpid() % 100 * 256, 32768, 256):
            # gloo compares ports in network order: these are smaller than all that are free
            try:
                listener.bind((target[0], port))
                break
            except OSError:
                continue
        listener.listen(64)
        threading.Thread(
            target=self._accept, args=(listener, group, target, pair_ids), daemon=True
        ).start()
        return target[0], listener.getsockname()[1]

    def _accept(
        self, listener: socket.socket, group: str, target: tuple[str, int], ids: list[int]
    ) -> None:
        while True:
            incoming, _ = listener.accept()
            outgoing = socket.create_connection(target)
            for end in (incoming, outgoing):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair_id = _exactly(incoming, 8)
            outgoing.sendall(pair_id)
            peer = ids.index(struct.unpack("<q", pair_id)[0])
            for source, sink, way in ((incoming, outgoing, "to"), (outgoing, incoming, "from")):
                name = f"{group} {way} 0 pair {peer}"
                threading.Thread(target=self._pump, args=(source, sink, name), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        try:
            while True:
                header = _exactly(source, HEADER.size)
                sink.sendall(header)
                size, opcode, slot, _, length, _ = HEADER.unpack(header)
                with self._lock:
                    key = f"{name} slot {slot:#x}"
                    if opcode == 1:
                        self.data.setdefault(key, []).append(length)
                    else:
                        key = f"{key} opcode {opcode}"
                        self.notices[key] = self.notices.get(key, 0) + 1
                left = size - HEADER.size
                while left:
                    piece = source.recv(min(left, 1 << 20))
                    if not piece:
                        raise ConnectionError
                    sink.sendall(piece)
                    left -= len(piece)
        except OSError:
            for end in (source, sink):
                end.close()


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = source.recv(count - len(found))
        if not piece:
            raise ConnectionError
        found += piece
    return found


class RelayedStore(dist.Store):
    """The store as rank 0 sees it, and what it writes as others see it."""

    def __init__(self, inner: dist.Store, recorder: Recorder) -> None:
        super().__init__()
        self._inner = inner
        self._recorder = recorder

    def set(self, key: str, value: Any) -> None:
        value = value.encode() if isinstance(value, str) else bytes(value)
        if key.endswith("//cpu//0/0"):
            host = 8 + struct.unpack_from("<Q", value)[0]
            begin = host + 8
            family, port, ip = ADDRESS.unpack_from(value, begin)
            size = struct.unpack_from("<Q", value, host)[0]
            ids = [one for (one,) in struct.iter_unpack("<q", value[begin + size :])]
            target = socket.inet_ntoa(ip), socket.ntohs(port)
            where, instead = self._recorder.relay(key.rsplit("/", 1)[0], target, ids)
            address = ADDRESS.pack(family, socket.htons(instead), socket.inet_aton(where))
            value = value[:begin] + address + value[begin + ADDRESS.size :]
        self._inner.set(key, value)

    def get(self, key: str) -> bytes:
        value = self._inner.get(key)
        if "//cpu//0/" in key:
            begin = 8 + struct.unpack_from("<Q", value)[0] + 8
            family, port, _ = ADDRESS.unpack_from(value, begin)
            address = ADDRESS.pack(family, port, OUTER)
            value = value[:begin] + address + value[begin + ADDRESS.size :]
        return value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if timeout is None:
            self._inner.wait(keys)
        else:
            self._inner.wait(keys, timeout)

    def add(self, key: str, value: int) -> int:
        return self._inner.add(key, value)

    def check(self, keys: list[str]) -> bool:
        return self._inner.check(keys)

    def delete_key(self, key: str) -> bool:
        return self._inner.delete_key(key)


Check = Callable[[str, torch.Tensor, torch.Tensor], None]


def suite(world: int, rank: int, check: Check) -> None:
    """Call every collective; `check` is given what comes of it where peers mirror rank 0."""
    data = torch.arange(1.0, 1001.0)
    for dtype in (torch.float32, torch.uint8, torch.int64, torch.float16, torch.float64):
        for count in (1, 3, 5, 7, 64, 1000, 70_001):
            mine = (torch.arange(count) % 5 + 1).to(dtype)
            found = mine.clone()
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
            check(f"all_reduce {dtype} {count}", found, mine)
    kinds = dist.ReduceOp
    for operator in (kinds.SUM, kinds.PRODUCT, kinds.MIN, kinds.MAX, kinds.BAND, kinds.BOR):
        for dtype in (torch.int32, torch.uint8, torch.float32):
            if dtype is torch.float32 and operator in (kinds.BAND, kinds.BOR):
                continue
            mine = (torch.arange(1000) % 5 + 1).to(dtype)
            found = mine.clone()
            dist.all_reduce(found, op=operator)
            check(f"all_reduce {operator} {dtype}", found, mine)
    # 16 and then 64 MiB among two, and 5 MB, have segments of the same length, or nearly.
    for count in (1 << 22, 1 << 24, 1_310_720, 1_300_001, 1 << 22):
        mine = torch.arange(count) % 7.0 + 1
        found = mine.clone()
        dist.all_reduce(found)
        check(f"all_reduce {count}", found, mine)
    for count in (1, 3, 1000, 300_000):
        mine = torch.arange(count) % 7.0 + 1
        parts = [torch.zeros(count) for _ in range(world)]
        dist.all_gather(parts, mine)
        check(f"all_gather {count}", torch.cat(parts), mine.repeat(world))
        whole = torch.zeros(count * world)
        dist.all_gather_single(whole, mine)
        check(f"all_gather_single {count}", whole, mine.repeat(world))
        dist.reduce_scatter_single(torch.zeros(count), whole)
    for root in range(world):
        for count in (1, 10, 1000, 100_003, 3_000_000 if root == 0 else 100):
            mine = torch.arange(count) % 7.0 + 1
            found = mine.clone()
            dist.reduce(found, root)
            if root == 0 and count > 10:
                check(f"reduce {count}", found, mine)
            dist.broadcast(mine, root)
        parts = [torch.zeros(1000) for _ in range(world)] if rank == root else None
        dist.gather(data, parts, root)
        if root == 0:  # what an emulated root would give cannot be known
            dist.scatter(torch.zeros(1000), parts, root)
    found = torch.zeros(1000 // world * world)
    mine = data[: len(found)]
    dist.all_to_all_single(found, mine.clone())
    check("all_to_all", found, mine)
    sends, receives = [j + 1 for j in range(world)], [rank + 1] * world
    dist.all_to_all_single(torch.zeros(sum(receives)), torch.ones(sum(sends)), receives, sends)
    for _ in range(3):
        dist.barrier()
    dist.send(data, (rank + 1) % world) if rank == 0 else None
    if rank == 1:
        dist.recv(torch.zeros(1000), 0)
        dist.send(data, 0, tag=7)
    if rank == 0:
        dist.recv(torch.zeros(1000), 1, tag=7)
    works = [dist.all_reduce(data.clone() * i, async_op=True) for i in range(6)]
    whole = torch.zeros(1000 * world)
    works.append(dist.all_gather_single(whole, data, async_op=True))
    for work in works:
        work.wait()
    check("all_gather_single in flight", whole, data.repeat(world))
    with_rank = dist.new_group(list(range(max(2, world // 2))))
    without = dist.new_group(list(range(1, world)))
    if rank < max(2, world // 2):
        dist.all_reduce(data.clone(), group=with_rank)
    if rank:
        dist.all_reduce(data.clone(), group=without)
    dist.barrier()


def run_rank(
    world: int, real: list[int], rank: int, port: int, announced: Path | None, answers: Any
) -> None:
    torch.set_num_threads(1)
    if announced is not None:
        tell_members()
        announce(AnnouncementWriter(announced), real)
    store: dist.Store = dist.TCPStore("127.0.0.1", port, world, rank == 0, wait_for_workers=False)
    recorder = Recorder()
    if rank == 0:
        store = RelayedStore(store, recorder)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=120)
    )
    wrong: list[str] = []

    def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        if not torch.equal(found, expected):
            wrong.append(name)

    suite(world, rank, check)
    if rank == 0:
        time.sleep(0.1)
        answers.put({"data": recorder.data, "notices": recorder.notices, "wrong": wrong})
        answers.close()
        answers.join_thread()
    dist.destroy_process_group()


def run_emulator(world: int, real: list[int], port: int, records: Path) -> None:
    from paracosm.emulation.config import EmulateConfig
    from paracosm.emulation.wire.main import emulate_peers

    config = EmulateConfig(script=Path(__file__), world_size=world, rank=tuple(real), mode="wire")
    address = "127.0.0.1", port
    done = emulate_peers(config, 0, records, "127.0.0.1", address, threading.Event())
    sys.exit(0 if done else 1)


def run_world(world: int, real: list[int], records: Path) -> dict[str, Any]:
    fork = multiprocessing.get_context("fork")
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    answers = fork.Queue()
    files: dict[int, Path | None] = dict.fromkeys(real)
    if len(real) < world:
        files = {rank: announcements_file(records, rank) for rank in real}
        for file in files.values():
            file.unlink(missing_ok=True)  # of the world before
    processes = [
        fork.Process(target=run_rank, args=(world, real, rank, port, file, answers))
        for rank, file in files.items()
    ]
    if len(real) < world:
        processes.append(fork.Process(target=run_emulator, args=(world, real, port, records)))
    for process in processes:
        process.start()
    try:
        found: dict[str, Any] = answers.get(timeout=240)
        for process in processes:
            process.join(20)
        found["exits"] = [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    found = {}
    for named in sys.argv[2:]:
        world, _, real = named.partition(":")
        ranks = [int(rank) for rank in (real or "0").split(",")]
        records = folder / f"emulator{named}.records"
        found[named] = {
            "real": run_world(int(world), list(range(int(world))), records),
            "emulated": run_world(int(world), ranks, records),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Play the ends that a job may come to in wire mode; prints a JSON object of what was seen.

A process of its own, since it imports torch once and forks ranks and emulators from there.
Arguments: a folder.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paracosm.emulation.rank.announce import announce
from paracosm.emulation.wire.announcements import AnnouncementWriter, announcements_file

FORK = multiprocessing.get_context("fork")


def rank_zero(world: int, port: int, records: Path, work: Callable[[Any], None], told: Any) -> None:
    torch.set_num_threads(1)
    announce(AnnouncementWriter(announcements_file(records, 0)), [0])
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=0,
        world_size=world,
        timeout=timedelta(seconds=20),
    )
    work(told)


def emulator(world: int, port: int, records: Path, what_if: tuple[str, ...], told: Any) -> None:
    from paracosm.emulation.config import EmulateConfig
    from paracosm.emulation.wire.main import emulate_peers

    config = EmulateConfig(script=Path(__file__), world_size=world, mode="wire", what_if=what_if)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    told.put("emulating")
    done = emulate_peers(config, 0, records, "127.0.0.1", ("127.0.0.1", port), stop)
    sys.exit(0 if done else 1)


def play(
    records: Path,
    work: Callable[[Any], None],
    what_if: tuple[str, ...] = (),
    upset: Callable[[Any, Any, Any], None] | None = None,
) -> dict[str, Any]:
    """Run rank 0 of 4 and its peers, and do something to them meanwhile."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    told, started = FORK.Queue(), FORK.Queue()
    peers = FORK.Process(target=emulator, args=(4, port, records, what_if, started))
    peers.start()
    started.get(timeout=120)
    real = FORK.Process(target=rank_zero, args=(4, port, records, work, told))
    real.start()
    found: dict[str, Any] = {}
    try:
        if upset is not None:
            upset(real, peers, told)
        else:
            found["told"] = told.get(timeout=120)
        real.join(30)
        if upset is not None and not told.empty():
            found["told"] = told.get()
        peers.join(10)
        if peers.exitcode is None:
            peers.terminate()
            peers.join(10)
            found["was asked to end"] = True
        found |= {"rank": real.exitcode, "emulator": peers.exitcode}
    finally:
        real.kill()
        peers.kill()
    return found


def reduce_for_long(told: Any) -> None:
    data = torch.ones(1 << 20)
    dist.all_reduce(data)
    told.put("in the second")
    begin = time.monotonic()
    try:
        dist.all_reduce(data)
        told.put("done")
    except RuntimeError as error:
        told.put([str(error), time.monotonic() - begin])


def kill_rank(real: Any, peers: Any, told: Any) -> None:
    assert told.get(timeout=120) == "in the second"
    time.sleep(0.3)
    os.kill(real.pid, signal.SIGKILL)


def kill_emulator(real: Any, peers: Any, told: Any) -> None:
    assert told.get(timeout=120) == "in the second"
    time.sleep(0.3)
    os.kill(peers.pid, signal.SIGKILL)


def end_emulator(real: Any, peers: Any, told: Any) -> None:
    assert told.get(timeout=120) == "in the second"
    time.sleep(0.3)
    os.kill(peers.pid, signal.SIGTERM)


def reduce_and_go(told: Any) -> None:
    dist.all_reduce(torch.ones(1000))
    told.put("gone")
    told.close()
    told.join_thread()
    os._exit(0)  # without a word to anybody


def time_reduces(told: Any) -> None:
    data = torch.ones(1000)
    dist.all_reduce(data)
    begin = time.monotonic()
    for _ in range(3):
        dist.all_reduce(data)
    told.put(time.monotonic() - begin)
    dist.destroy_process_group()


def main() -> None:
    folder = Path(sys.argv[1])
    late = ("all_reduce: +1 s",)

    def place(name: str) -> Path:
        return folder / f"{name}.records"

    print(
        json.dumps(
            {
                "rank killed": play(place("rank killed"), reduce_for_long, late, kill_rank),
                "emulator killed": play(
                    place("emulator killed"), reduce_for_long, late, kill_emulator
                ),
                "emulator ended": play(
                    place("emulator ended"), reduce_for_long, late, end_emulator
                ),
                "rank gone": play(place("rank gone"), reduce_and_go),
                "delayed": play(place("delayed"), time_reduces, ("all_reduce: +200 ms",)),
            }
        )
    )


if __name__ == "__main__":
    main()

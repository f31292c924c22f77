"""Wait for ranks that never come by what a store offers, and print after how long it is refused."""

from __future__ import annotations

import datetime
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

W = 2


def until(done: Callable[[], bool], pause: float = 0.0) -> None:
    while not done():
        time.sleep(pause)


def swallow(store: Any) -> None:
    while True:
        try:
            return store.wait(["other"], datetime.timedelta(seconds=1))
        except Exception:
            continue


def train(store: Any) -> None:
    """Look for a key between collectives for longer than a wait may take."""
    end = time.monotonic() + 11
    while time.monotonic() < end:
        store.check(["stop"])
        dist.all_reduce(torch.ones(2))
        time.sleep(0.2)


WAITS: dict[str, Callable[[Any], Any]] = {
    "add": lambda store: until(lambda: store.add("here", 0) >= W),
    "check": lambda store: until(lambda: store.check(["other"]), 0.05),
    "compare_set": lambda store: until(lambda: store.compare_set("k", "b", "c") == b"c", 0.3),
    "num_keys": lambda store: until(lambda: store.num_keys() > 1000, 0.1),
    "get": lambda store: until(lambda: int(store.get("mine")) >= W, 0.01),
    "wait": lambda store: store.wait(["other"], datetime.timedelta(minutes=5)),
    "swallow": swallow,
    "train": train,
}
STORES: dict[str, Callable[[], Any]] = {
    "default": lambda: dist.distributed_c10d._get_default_store(),
    "tcp": lambda: dist.TCPStore("127.0.0.1", 29791, W, True),
    "file": lambda: dist.FileStore(f"{tempfile.mkdtemp()}/store", W),
    "hash": lambda: dist.HashStore(),
    "prefix": lambda: dist.PrefixStore("mine", dist.HashStore()),
}


def main() -> None:
    dist.init_process_group("gloo")
    store = STORES[sys.argv[2]]()
    store.set("mine", "1")
    begin, came = time.monotonic(), "nothing"
    try:
        WAITS[sys.argv[1]](store)
    except BaseException as error:
        came = f"{type(error).__name__}: {error}"
    print(f"after {time.monotonic() - begin:.1f} s: {came}")
    for _ in range(2):
        dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    main()

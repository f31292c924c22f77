"""The costs of collectives, for the shim of NCCL: a table in shared memory, filled on request.

`table.h` describes the same bytes in C. The shim writes the number of an entry, or of a group, to a
FIFO and waits for the answer; the real rank writes when a wait or an iteration has ended.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import directions
from paracosm.emulation.nccl.build import shim
from paracosm.emulation.peers import peers_of
from paracosm.emulation.records import COLLECTIVES, Group, RecordReader
from paracosm.errors import InputError
from paracosm.factory import is_reference

VARIABLE = "PARACOSM_NCCL_TABLE"  # environment variable: the file of the table

_GROUP = np.dtype([("state", "u4"), ("ranks", "i4"), ("name", "S128")])
_ENTRY = np.dtype(
    [
        *[("state", "u4"), ("group", "i4"), ("kind", "i4"), ("peer", "i4"), ("size", "u8")],
        *[(name, "f8") for name in ("late", "fixed", "busy", "after", "share")],
        *[("stations", "u8"), ("own", "i4"), ("peer_global", "i4"), ("again", "i4")],
        ("unused", "i4"),
    ]
)
_TABLE = np.dtype(
    [
        *[("magic", "u4"), ("bytes", "u4"), ("rank", "i4"), ("serial", "i4")],
        *[("questions", "S512"), ("records", "S512"), ("refusal", "S512")],
        *[("groups", _GROUP, 1024), ("entries", _ENTRY, 8192)],
    ]
)
_MAGIC = 0x50435431
_ANSWERED, _REFUSED = 2, 3
_GROUP_QUESTION = 1 << 20
WAIT_ENDED, ITERATION_ENDED, _CLOSE = -1, -2, -3  # notices, not questions
_QUESTIONS = "nccl.questions"
_MOST_STATIONS = 64


class CostTable:
    """The emulator's side: a thread answers one real rank's shim until it is closed."""

    def __init__(self, folder: Path, config: EmulateConfig, seed: int, rank: int, records: Path):
        self.path, self.records = folder / "nccl.table", folder / f"rank{rank}.nccl.records"
        questions = folder / _QUESTIONS
        os.mkfifo(questions, 0o600)
        # Open for writing too: then reading does not end while no process has it open.
        self._questions = os.open(questions, os.O_RDWR | os.O_CLOEXEC)
        with self.path.open("xb") as file:
            file.truncate(_TABLE.itemsize)
        with self.path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        self._table = np.frombuffer(memory, _TABLE)[0]
        self._table["magic"], self._table["bytes"] = _MAGIC, _TABLE.itemsize
        self._table["rank"], self._table["serial"] = rank, config.shared == "serial"
        self._table["questions"] = str(questions).encode()
        self._table["records"] = str(self.records).encode()
        self._communication = communication_of(config)
        self._peers = peers_of(config, rank, seed)
        self._is_drawn = self._peers.may_be_late or is_reference(config.communication_model)
        self._rank, self._world = rank, config.world
        self._rank_records = RecordReader(records)  # of the real rank: who is in which group
        self._members: dict[str, tuple[int, ...]] = {}
        self._stations: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="paracosm-nccl", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        tell(self._questions, _CLOSE)
        self._thread.join()
        os.close(self._questions)

    def environment(self) -> dict[str, str]:
        """Return the variables under which a process loads the shim in place of NCCL."""
        preloaded = [str(shim()), *filter(None, [os.environ.get("LD_PRELOAD")])]
        return {VARIABLE: str(self.path), "LD_PRELOAD": ":".join(preloaded)}

    def _run(self) -> None:
        while True:
            (question,) = struct.unpack("=i", os.read(self._questions, 4))
            now = time.monotonic()
            if question == _CLOSE:
                return
            if question == WAIT_ENDED:
                self._peers.resumed(now)
            elif question == ITERATION_ENDED:
                self._peers.iteration_ended(now)
            elif question >= _GROUP_QUESTION:
                self._answer(self._table["groups"][question - _GROUP_QUESTION], self._group, now)
            else:
                self._answer(self._table["entries"][question], self._cost, now)

    def _answer(self, asked: Any, answer: Any, now: float) -> None:
        state = _ANSWERED
        try:
            answer(asked, now)
        except InputError as error:
            self._table["refusal"] = str(error).encode()[:511]
            state = _REFUSED
        asked["state"] = state

    def _group(self, group: Any, now: float) -> None:
        name = group["name"].decode()
        for record in self._rank_records.more():
            if isinstance(record, Group):
                self._members[record.name] = record.members
        if name not in self._members and group["ranks"] == self._world:
            self._members[name] = tuple(range(self._world))
        if name not in self._members:
            raise InputError(
                f'NCCL communicator "{name}": members are known only of process groups of '
                "torch.distributed"
            )
        group["ranks"] = len(self._members[name])

    def _cost(self, entry: Any, now: float) -> None:
        name = self._table["groups"][entry["group"]]["name"].decode()
        kind, members = COLLECTIVES[entry["kind"]], self._members[name]
        peer = members[entry["peer"]] if entry["peer"] >= 0 else -1
        cost = self._communication.cost(kind, members, int(entry["size"]), self._rank, peer)
        entry["late"] = self._peers.entered(kind, members, peer, now) - now
        for field in ("fixed", "busy", "after", "share"):
            entry[field] = getattr(cost, field)
        ways = directions(cost.link)
        entry["own"] = self._station(cost.own) if cost.own else -1
        names = (*ways, cost.own) if cost.own else ways
        entry["stations"] = sum(1 << self._station(name) for name in names)
        entry["peer_global"], entry["again"] = peer, self._is_drawn

    def _station(self, name: str) -> int:
        number = self._stations.setdefault(name, len(self._stations))
        if number >= _MOST_STATIONS:
            raise InputError(f"--nccl: more than {_MOST_STATIONS} links of one rank")
        return number


def tell(questions: int, what: int) -> None:
    """Write one number to a FIFO of questions, which is open as a file descriptor."""
    os.write(questions, struct.pack("=i", what))


def questions_of(table: Path) -> int:
    """Open the FIFO of a table for writing."""
    return os.open(table.with_name(_QUESTIONS), os.O_WRONLY | os.O_CLOEXEC)

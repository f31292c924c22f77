"""The plan of a job: what one rank of a backend run asked of whom, in order, and with what data.

Wire mode needs it where rank 0 is emulated: other ranks live on what rank 0 sends them (parameters,
shapes, pickled objects).
"""

from __future__ import annotations

import json
import threading
import zipfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.data_files import parse_json
from paracosm.emulation.records import COLLECTIVES, Note
from paracosm.errors import InputError
from paracosm.files import replacing

VERSION = 1
LARGEST_SMALL = 1 << 16
"""Bytes of what one collective gives, up to which it is recorded; broadcasts are whatever size."""
MOST_BYTES = 256 << 20  # bytes that are recorded of broadcasts, and as many of everything else
_MOST_COLLECTIVES = 1_000_000
_WITH_DATA = frozenset(("all_gather", "broadcast", "gather", "scatter", "all_to_all", "send"))
_FIELDS = ("kind", "size", "peer", "tags", "start", "length")

Column = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlannedGroup:
    """The collectives of one process group, in the order in which they were asked for."""

    name: str  # in torch.distributed
    members: tuple[int, ...]  # global ranks, in the group's order; empty where nobody knew
    kind: Column  # index in `records.COLLECTIVES`
    size: Column  # bytes, as `records.Collective.size` counts them
    peer: Column  # global rank of the root or the other end; -1 for none
    tags: Column  # how many operations of gloo each one is
    start: Column  # first byte of what the rank gave, in `Plan.data`; -1 where it is not recorded
    length: Column  # bytes of that


@dataclass(frozen=True)
class Plan:
    world: int  # ranks of the job
    rank: int  # whose plan it is
    groups: dict[str, PlannedGroup]  # by name, in the order in which they were first used
    data: npt.NDArray[np.uint8]  # bytes that the rank gave


def load_plan(path: Path) -> Plan:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        told = parse_json(str(arrays["plan"]), str(path))
        version = told["version"]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise InputError(f"{path}: not a plan: a backend run writes plan.npz") from None
    if version != VERSION:
        raise InputError(f"{path}: a plan of version {version}, not {VERSION}: write it again")
    try:
        groups = {
            each["name"]: PlannedGroup(
                each["name"],
                tuple(each["members"]),
                *(arrays[f"{number}.{field}"].astype(np.int64) for field in _FIELDS),
            )
            for number, each in enumerate(told["groups"])
        }
        return Plan(told["world"], told["rank"], groups, arrays["data"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: a plan that is damaged: write it again") from None


@dataclass
class _Written:
    members: tuple[int, ...]
    rows: array[int] = field(default_factory=lambda: array("q"))  # one after the other


class PlanWriter:
    """Keeps what a rank asks for, and writes it in the end; any thread may tell it."""

    def __init__(self, path: Path, world: int, rank: int, note: Callable[[Note], None]) -> None:
        self._path, self._world, self._rank, self._note = path, world, rank, note
        self._groups: dict[str, _Written] = {}
        self._data: list[bytes] = []
        self._at = 0
        self._left = {True: MOST_BYTES, False: MOST_BYTES}
        self._count = 0
        self._noted: set[str] = set()
        self._lock = threading.Lock()

    def on_collective(
        self, group: str, kind: str, size: int, peer: int, inputs: Sequence[Any]
    ) -> None:
        tags = 0 if kind in ("send", "recv") else len(inputs) if kind == "reduce_scatter" else 1
        with self._lock:
            if self._count >= _MOST_COLLECTIVES:
                self._note_once(f"the plan ends after {_MOST_COLLECTIVES:,} collectives")
                return
            self._count += 1
            if group not in self._groups:
                self._groups[group] = _Written(_members(group))
            start, length = self._record(kind, inputs)
            row = COLLECTIVES.index(kind), size, peer, tags, start, length
            self._groups[group].rows.extend(row)

    def write(self) -> None:
        """Write what there is so far, whole or not at all."""
        with self._lock:
            groups = [{"name": name, "members": one.members} for name, one in self._groups.items()]
            job = {"version": VERSION, "world": self._world, "rank": self._rank}
            told = {**job, "groups": groups}
            arrays: dict[str, Any] = {
                f"{number}.{name}": np.array(each.rows[place :: len(_FIELDS)], dtype=np.int64)
                for number, each in enumerate(self._groups.values())
                for place, name in enumerate(_FIELDS)
            }
            data = np.frombuffer(b"".join(self._data), dtype=np.uint8)
        with replacing(self._path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, plan=np.array(json.dumps(told)), data=data, **arrays)

    def _record(self, kind: str, inputs: Sequence[Any]) -> tuple[int, int]:
        if kind not in _WITH_DATA:
            return -1, 0
        length = sum(int(tensor.nbytes) for tensor in inputs)
        whole = kind == "broadcast"
        if not length or (length > LARGEST_SMALL and not whole):
            return -1, 0
        if length > self._left[whole]:
            what = "broadcasts" if whole else "small messages"
            self._note_once(
                f"the plan holds the first {MOST_BYTES >> 20} MiB of {what}: in mode wire the rest "
                "comes as zeros"
            )
            return -1, 0
        data = b"".join(map(_bytes_of, inputs))
        if len(data) != length:
            return -1, 0
        self._left[whole] -= length
        self._data.append(data)
        self._at += length
        return self._at - length, length

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(Note(self._rank, False, text))


def _bytes_of(tensor: Any) -> bytes:
    """Return what a tensor holds; nothing of one that holds nothing: fake, or on device meta."""
    import torch

    try:
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        return bytes(flat.view(torch.uint8).numpy().tobytes())
    except (RuntimeError, NotImplementedError, TypeError):
        return b""


def _members(group: str) -> tuple[int, ...]:
    import torch.distributed as dist

    c10d: Any = dist.distributed_c10d
    try:
        return tuple(c10d.get_process_group_ranks(c10d._resolve_process_group(group)))
    except (RuntimeError, ValueError, KeyError):
        return ()

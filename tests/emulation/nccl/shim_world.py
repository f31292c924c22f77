"""The shim of NCCL on a fake device, called as PyTorch calls NCCL."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.emulation.compiled_c import compiled
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.nccl import build
from paracosm.emulation.nccl.table import VARIABLE, CostTable
from paracosm.emulation.records import Collective, Group, Record, RecordReader, RecordWriter

HERE = Path(__file__).parent
SUM, PROD, MAX, MIN, AVG = range(5)
FLOAT = 7
TYPES = {  # ncclDataType_t
    0: np.int8,
    1: np.uint8,
    2: np.int32,
    3: np.uint32,
    4: np.int64,
    5: np.uint64,
    6: np.float16,
    7: np.float32,
    8: np.float64,
}


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class NcclConfig(ctypes.Structure):
    """The beginning of ncclConfig_t (nccl.h)."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *[(name, ctypes.c_uint) for name in ("magic", "version")],
        *[(name, ctypes.c_int) for name in ("blocking", "cga", "least", "most")],
        ("net_name", ctypes.c_char_p),
    ]


class ShimWorld:
    """A real rank's view: communicators of the shim, streams and memory of the fake device."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        groups: Mapping[str, Sequence[int]],
        flags: Sequence[str] = (),  # of the fake device
        rank: int = 0,
        **config: Any,
    ) -> None:
        # A library is loaded once under one name: each world has one of its own, with its state.
        fake = compiled(HERE, ("fake_cuda.c",), ("-fvisibility=default", *flags))
        device, shim = folder / "fake_cuda.so", folder / "libnccl.so.2"
        shutil.copy(fake, device)
        shutil.copy(build.shim(), shim)
        on_processor = compiled(
            Path(build.__file__).parent, ("multiply.c",), ("-fvisibility=default",)
        )
        self.rank = rank
        records = folder / f"rank{rank}.records"
        recorder = RecordWriter(records)
        for name, members in groups.items():
            recorder.append(Group(rank, name, len(members), tuple(members), "nccl"))
        recorder.close()
        job = EmulateConfig(script=Path("train.py"), rank=(rank,), **config)
        self.table = CostTable(folder, job, 0, rank, records)
        monkeypatch.setenv(VARIABLE, str(self.table.path))
        monkeypatch.setenv(build.DRIVER, str(device))
        monkeypatch.setenv(build.KERNELS, str(on_processor))
        self.device, self.shim = ctypes.CDLL(str(device)), ctypes.CDLL(str(shim))
        self.device.fake_now.restype = self.device.fake_when.restype = ctypes.c_double
        for name in ("fake_stream", "fake_mark"):
            getattr(self.device, name).restype = ctypes.c_void_p
        self.shim.paracosm_wait_begins.restype = ctypes.c_void_p
        self.shim.ncclGetLastError.restype = ctypes.c_char_p
        self._read = RecordReader(self.table.records)

    def communicator(self, name: str, ranks: int, rank: int | None = None) -> ctypes.c_void_p:
        made, config = ctypes.c_void_p(), NcclConfig(net_name=name.encode())
        rank = self.rank if rank is None else rank
        arguments = (ctypes.byref(made), ranks, UniqueId(), rank, ctypes.byref(config))
        self.check(self.shim.ncclCommInitRankConfig(*arguments))
        return made

    def stream(self, busy: float = 0.0) -> ctypes.c_void_p:
        """Return a stream that is busy with a kernel for some seconds."""
        made = ctypes.c_void_p(self.device.fake_stream())
        if busy:
            self.compute(made, busy)
        return made

    def compute(self, stream: ctypes.c_void_p, seconds: float) -> None:
        self.device.fake_kernel(stream, ctypes.c_double(seconds))

    def mark(self, stream: ctypes.c_void_p) -> Callable[[], float]:
        """Return what says when, in seconds of the device's time, a stream has come here."""
        event = ctypes.c_void_p(self.device.fake_mark(stream))
        return lambda: float(self.device.fake_when(event))

    def all_reduce(
        self, comm: ctypes.c_void_p, stream: ctypes.c_void_p, array: Any, op: int = AVG
    ) -> int:
        data, kind = data_of(array), type_of(array)
        return int(self.shim.ncclAllReduce(data, data, size_of(array), kind, op, comm, stream))

    def run(self) -> None:
        assert self.device.cuCtxSynchronize() == 0

    def check(self, result: int) -> None:
        assert result == 0, self.error

    @property
    def error(self) -> str:
        return str(self.shim.ncclGetLastError(None).decode())

    def records(self) -> list[Record]:
        self.shim.paracosm_flush()
        return self._read.more()

    def collectives(self) -> list[Collective]:
        return [record for record in self.records() if isinstance(record, Collective)]


def data_of(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def size_of(array: Any) -> ctypes.c_size_t:
    return ctypes.c_size_t(array.size)


def type_of(array: Any) -> int:
    return next(number for number, kind in TYPES.items() if array.dtype == kind)

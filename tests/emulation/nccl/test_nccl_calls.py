"""Communicators, groups and errors of the shim of NCCL."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from shim_world import AVG, SUM, NcclConfig, ShimWorld, UniqueId, data_of, size_of

from paracosm.emulation.nccl import build
from paracosm.emulation.nccl.table import VARIABLE

Worlds = Callable[..., ShimWorld]
CUDA_ERROR, INVALID_ARGUMENT, INVALID_USAGE = 1, 4, 5

# nm -D --undefined-only libtorch_cuda.so, of the wheel torch 2.13.0 (cu130)
ASKED_FOR = re.findall(
    r"\w+",
    """
AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommDeregister CommDestroy
CommFinalize CommGetAsyncError CommInitAll CommInitRank CommInitRankConfig CommInitRankScalable
CommMemStats CommRegister CommResume CommShrink CommSplit CommSuspend CommUserRank
CommWindowDeregister CommWindowRegister DevCommCreate DevCommDestroy GetErrorString GetLastError
GetLsaMultimemDevicePointer GetPeerDevicePointer GetUniqueId GetVersion GroupEnd
GroupSimulateEnd GroupStart MemAlloc MemFree PutSignal Recv RedOpCreatePreMulSum RedOpDestroy
Reduce ReduceScatter Send Signal WaitSignal
""",
)


def test_it_has_what_pytorch_asks_for() -> None:
    shim = ctypes.CDLL(str(build.shim()))
    assert [name for name in ASKED_FOR if not hasattr(shim, f"nccl{name}")] == []


def test_it_is_of_the_version_that_pytorch_is_built_with(world: Worlds) -> None:
    made, version = world(2), ctypes.c_int()
    made.check(made.shim.ncclGetVersion(ctypes.byref(version)))
    assert version.value == 22907
    made.shim.ncclGetErrorString.restype = ctypes.c_char_p
    assert made.shim.ncclGetErrorString(5) == b"invalid usage"
    assert made.shim.ncclGetErrorString(99) == b"unknown result code"


def test_unique_ids_differ(world: Worlds) -> None:
    made, first, second = world(2), UniqueId(), UniqueId()
    for each in (first, second):
        made.check(made.shim.ncclGetUniqueId(ctypes.byref(each)))
    assert first.internal != second.internal


def told(world: ShimWorld, name: str, comm: ctypes.c_void_p) -> int:
    number = ctypes.c_int(-99)
    world.check(getattr(world.shim, name)(comm, ctypes.byref(number)))
    return number.value


def test_a_communicator_knows_who_it_is(world: Worlds) -> None:
    made = world(8, {"tp": (4, 5, 6, 7)}, rank=6)
    comm = made.communicator("tp", 4, rank=2)
    assert [told(made, name, comm) for name in ("ncclCommCount", "ncclCommUserRank")] == [4, 2]
    assert told(made, "ncclCommCuDevice", comm) == 0
    assert told(made, "ncclCommGetAsyncError", comm) == 0


def test_ids_of_several_roots_make_one_communicator(world: Worlds) -> None:
    made, comm, ids = world(300), ctypes.c_void_p(), (UniqueId * 3)()
    config = NcclConfig(net_name=b"0", blocking=0)
    make = made.shim.ncclCommInitRankScalable
    made.check(make(ctypes.byref(comm), 300, 0, 3, ids, ctypes.byref(config)))
    assert told(made, "ncclCommCount", comm) == 300


def test_a_split_has_the_ranks_of_its_group(world: Worlds) -> None:
    made = world(8, {"even": (0, 2, 4, 6)})
    parent, stream, array = made.communicator("0", 8), made.stream(), np.zeros(4, np.float32)
    split, config = ctypes.c_void_p(), NcclConfig(net_name=b"even")
    arguments = (ctypes.byref(split), ctypes.byref(config))
    made.check(made.shim.ncclCommSplit(parent, 1, 0, *arguments))
    assert told(made, "ncclCommCount", split) == 4
    made.check(made.all_reduce(split, stream, array))
    made.check(made.shim.ncclSend(data_of(array), size_of(array), 7, 3, split, stream))
    made.run()
    reduced, sent = made.collectives()
    assert (reduced.group, sent.group, sent.peer, sent.number) == ("even", "even", 6, 1)


def test_a_rank_that_is_in_no_part_of_a_split_gets_none(world: Worlds) -> None:
    made = world(4)
    split = ctypes.c_void_p(1)
    made.check(made.shim.ncclCommSplit(made.communicator("0", 4), -1, 0, ctypes.byref(split), None))
    assert not split.value
    parent = made.communicator("0", 4)
    assert made.shim.ncclCommSplit(parent, 0, 0, ctypes.byref(split), None) == INVALID_USAGE
    assert made.error == "who is in a split is known by its name alone"


def test_two_ranks_of_a_group_have_a_communicator_for_their_messages(world: Worlds) -> None:
    """PyTorch makes one for messages that are not batched; ranks 0 and 1 of it are of the two."""
    made = world(8, {"pp": (1, 3, 5, 7)}, rank=5)
    made.shim.paracosm_next_peer(3)  # rank 7, where this is rank 2 of the group
    comm, stream, array = made.communicator("pp", 2, rank=0), made.stream(), np.zeros(4, np.float32)
    made.check(made.shim.ncclSend(data_of(array), size_of(array), 7, 1, comm, stream))
    made.run()
    (found,) = made.collectives()
    assert (found.kind, found.peer, found.group) == ("send", 7, "pp")


def test_a_group_that_nobody_knows(world: Worlds) -> None:
    made, comm, config = world(4), ctypes.c_void_p(), NcclConfig(net_name=b"mine")
    arguments = (ctypes.byref(comm), 3, UniqueId(), 0, ctypes.byref(config))
    assert made.shim.ncclCommInitRankConfig(*arguments) == INVALID_USAGE
    assert 'communicator "mine"' in made.error
    made.communicator("of-all", 4)  # whoever is in it is everybody


def test_an_aborted_communicator_lets_its_stream_go_on(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s")
    aborted, kept = made.communicator("0", 2), made.communicator("0", 2)
    stream, other, array = made.stream(), made.stream(), np.zeros(1_000_000, np.float32)
    made.check(made.all_reduce(aborted, stream, array))
    made.check(made.all_reduce(kept, other, array))
    over = made.mark(stream)
    made.check(made.shim.ncclCommAbort(aborted))
    made.run()
    assert over() == pytest.approx(1000)
    (found,) = made.collectives()
    assert found.done == pytest.approx(1000.004)  # as where nothing is beside it


def test_a_destroyed_communicator_leaves_what_is_launched(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s")
    comm, stream = made.communicator("0", 2), made.stream()
    made.check(made.all_reduce(comm, stream, np.zeros(1_000_000, np.float32)))
    made.check(made.shim.ncclCommFinalize(comm))
    made.check(made.shim.ncclCommDestroy(comm))
    made.run()
    assert [collective.done for collective in made.collectives()] == [pytest.approx(1000.004)]


def test_an_error_of_the_device_stays_with_the_communicator(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(2)
    comm, stream, array = made.communicator("0", 2), made.stream(), np.zeros(4, np.float32)
    monkeypatch.setenv(build.KERNELS, "/nowhere")
    assert made.all_reduce(comm, stream, array, SUM) == CUDA_ERROR
    assert made.error == "cuModuleLoad failed with CUDA error 500"
    assert told(made, "ncclCommGetAsyncError", comm) == CUDA_ERROR
    assert made.all_reduce(comm, stream, array) == CUDA_ERROR
    assert made.error == "the communicator has failed before"


def test_wrong_arguments_are_refused_with_a_reason(world: Worlds) -> None:
    made = world(2)
    comm, stream, array = made.communicator("0", 2), made.stream(), np.zeros(4, np.float32)
    data, size = data_of(array), size_of(array)
    reduce = made.shim.ncclAllReduce
    assert reduce(data, data, size, 12, 0, comm, stream) == INVALID_ARGUMENT
    assert made.error == "no data type 12"
    assert reduce(data, data, size, 7, 5, comm, stream) == INVALID_ARGUMENT
    assert made.error == "no reduction 5"
    assert made.shim.ncclSend(data, size, 7, 2, comm, stream) == INVALID_ARGUMENT
    assert made.error == "rank 2: there are 2"
    assert reduce(data, data, size, 7, 0, None, stream) == INVALID_ARGUMENT
    assert reduce(data, data, size, 10, SUM, comm, stream) == INVALID_USAGE
    assert made.error == "sums of 8-bit floating point are not emulated"
    assert made.shim.ncclGroupEnd() == INVALID_USAGE
    assert made.shim.ncclCommShrink() == INVALID_USAGE
    assert made.error == "ncclCommShrink is not emulated"


def test_a_graph_is_not_captured(world: Worlds) -> None:
    made = world(2)
    comm, stream = made.communicator("0", 2), made.stream()
    made.device.fake_capture(stream, 1)
    assert made.all_reduce(comm, stream, np.zeros(4, np.float32)) == INVALID_USAGE
    assert made.error == "collectives within a CUDA graph are not emulated"
    made.device.fake_capture(stream, 0)
    made.check(made.all_reduce(comm, stream, np.zeros(4, np.float32)))


def test_what_the_model_refuses_is_said(world: Worlds, tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("def cost(kind, size):\n    return -1.0 if size > 100 else 1e-3\n")
    made = world(2, communication=f"{model}:cost")
    comm, stream = made.communicator("0", 2), made.stream()
    made.check(made.all_reduce(comm, stream, np.zeros(4, np.float32)))
    assert made.all_reduce(comm, stream, np.zeros(400, np.float32)) == INVALID_USAGE
    assert "returned no time for all_reduce" in made.error
    made.check(made.all_reduce(comm, stream, np.zeros(4, np.float32)))


def test_more_sizes_than_the_table_has_room_for(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s")
    comm, stream, array = made.communicator("0", 2), made.stream(), np.zeros(5000, np.uint8)
    for size in range(1, 5000, 1):
        made.check(made.all_reduce(comm, stream, array[:size], AVG))
        made.run()
    lasted = np.array([collective.done - collective.begun for collective in made.collectives()])
    assert lasted == pytest.approx(np.arange(1, 5000) * 1e-9, abs=1e-12)


def test_memory_and_its_registration(world: Worlds) -> None:
    made, memory, handle = world(2), ctypes.c_void_p(), ctypes.c_void_p()
    comm = made.communicator("0", 2)
    made.check(made.shim.ncclMemAlloc(ctypes.byref(memory), ctypes.c_size_t(64)))
    size = ctypes.c_size_t(64)
    made.check(made.shim.ncclCommRegister(comm, memory, size, ctypes.byref(handle)))
    made.check(made.shim.ncclCommDeregister(comm, handle))
    made.check(made.shim.ncclCommWindowRegister(comm, memory, size, ctypes.byref(handle), 0))
    made.check(made.shim.ncclCommWindowDeregister(comm, handle))
    made.check(made.shim.ncclMemFree(memory))


def test_outside_an_emulated_job_it_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(build.shim().read_bytes())
    monkeypatch.delenv(VARIABLE, raising=False)
    shim = ctypes.CDLL(str(library))
    shim.ncclGetLastError.restype = ctypes.c_char_p
    assert shim.ncclGetUniqueId(ctypes.byref(UniqueId())) == 2
    assert shim.ncclGetLastError(None) == b"this libnccl.so.2 is for paracosm emulate --nccl"

"""The device that PyTorch and scripts find: its number, properties, streams, memory, generators.

PyTorch's own code asks as scripts do, and takes the paths that it takes on a GPU.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from paracosm.emulation.device.config import has_short_floats
from paracosm.emulation.device.memory import DeviceMemory
from paracosm.emulation.device.recording import DEVICE, RELEASE, RecordingWriter
from paracosm.emulation.device.streams import Streams

_NCCL = (2, 27, 5)
_CUDA = "12.8"
_SEED = 67280421310721  # of generators that were given none (c10::detail::default_rng_seed_val)
_MULTIPROCESSORS = 132  # an H100's; nothing that is recorded depends on it


@dataclass(frozen=True)
class Properties:
    """What a script may ask about its device."""

    title: str  # as a driver names it: "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int]
    memory: int  # bytes
    devices: int  # of one node


def show_device(
    properties: Properties,
    writer: RecordingWriter,
    streams: Streams,
    memory: DeviceMemory,
    refuse: Callable[[str], Exception],
) -> None:
    """Let `torch.cuda` and `torch.accelerator` answer for the device of the catalogue."""

    def synchronize(device: Any = None) -> None:
        writer.add(DEVICE, streams.current)

    def refused(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            raise refuse(f"torch.cuda.{name}")

        return call

    def release() -> None:
        writer.add(RELEASE, streams.current)
        memory.allocator.release()

    _low_level(properties, streams, memory, synchronize, release)
    _high_level(properties, writer, streams, memory, synchronize, refused)
    _of_torch(properties)
    _generators()


def _low_level(
    properties: Properties,
    streams: Streams,
    memory: DeviceMemory,
    synchronize: Callable[..., None],
    release: Callable[[], None],
) -> None:
    """Answer what `torch.cuda` asks of C++, which a CPU build lacks."""
    nothing: Callable[..., None] = lambda *arguments: None
    stats = _memory_stats(memory)

    answers: dict[str, Any] = {
        "_cuda_init": nothing,
        "_cuda_getDeviceCount": lambda: properties.devices,
        "_cuda_getDevice": lambda: streams.device,
        "_cuda_setDevice": streams.set_device,
        "_cuda_exchangeDevice": streams.exchange_device,
        "_cuda_maybeExchangeDevice": streams.exchange_device,
        "_cuda_synchronize": synchronize,
        "_cuda_isInBadFork": False,
        "_cuda_hasPrimaryContext": lambda device: True,
        "_cuda_canDeviceAccessPeer": lambda one, other: True,
        "_cuda_getArchFlags": lambda: "sm_{}{}".format(*properties.capability),
        "_cuda_getCompiledVersion": lambda: 12080,
        "_cuda_getCurrentRawStream": lambda device=0: streams.current,
        "_cuda_ipc_collect": nothing,
        "_cuda_emptyCache": release,
        "_cuda_cudaHostAllocator": lambda: 0,
        "_cuda_memoryStats": lambda device=0: stats(),
        "_cuda_resetPeakMemoryStats": lambda device=0: memory.reset_highest(),
        "_cuda_resetAccumulatedMemoryStats": nothing,
        "_cuda_memorySnapshot": lambda *arguments: {"segments": [], "device_traces": []},
        "_cuda_record_memory_history": lambda *arguments, **options: None,
        "_CudaDeviceProperties": SimpleNamespace,
        "_accelerator_getDeviceIndex": lambda: streams.device,
        "_accelerator_setDeviceIndex": streams.set_device,
        "_accelerator_exchangeDevice": streams.exchange_device,
        "_accelerator_maybeExchangeDevice": streams.exchange_device,
        "_accelerator_synchronizeDevice": synchronize,
        "_accelerator_getStream": lambda device=None: streams.Stream(stream_id=streams.current),
        "_accelerator_setStream": streams.set_stream,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_emptyCache": release,
        "_accelerator_emptyHostCache": nothing,
        "_accelerator_getDeviceStats": lambda device=0: stats(),
        "_accelerator_resetAccumulatedStats": nothing,
        "_accelerator_resetPeakStats": lambda device=0: memory.reset_highest(),
        "_accelerator_getMemoryInfo": lambda device=0: (
            max(properties.memory - memory.allocator.reserved, 0),
            properties.memory,
        ),
        "_has_cuda": True,
    }
    for name, answer in answers.items():
        setattr(torch._C, name, answer)


def _memory_stats(memory: DeviceMemory) -> Callable[[], Mapping[str, Any]]:
    """Return what answers for the caching allocator."""

    def counts(current: int, peak: int) -> Mapping[str, int]:
        return {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}

    def stats() -> Mapping[str, Any]:
        of_bytes = counts(memory.allocated, memory.highest)
        reserved = counts(memory.allocator.reserved, memory.allocator.highest)
        of_blocks = counts(memory.count, memory.count)
        by_pool = ("all", "small_pool", "large_pool")
        return {
            **dict.fromkeys(_OF_BYTES, dict.fromkeys(by_pool, of_bytes)),
            "reserved_bytes": dict.fromkeys(by_pool, reserved),
            **dict.fromkeys(_OF_BLOCKS, dict.fromkeys(by_pool, of_blocks)),
            **dict.fromkeys(_SPLIT, dict.fromkeys(by_pool, counts(0, 0))),
            **dict.fromkeys(("oversize_allocations", "oversize_segments"), counts(0, 0)),
            **dict.fromkeys(("num_ooms", "num_alloc_retries", "num_sync_all_streams"), 0),
            **dict.fromkeys(("num_device_alloc", "num_device_free"), 0),
            "max_split_size": -1,
        }

    return stats


_OF_BYTES = ("allocated_bytes", "active_bytes", "requested_bytes")
_OF_BLOCKS = ("allocation", "segment", "active")
_SPLIT = ("inactive_split", "inactive_split_bytes")


def _high_level(
    properties: Properties,
    writer: RecordingWriter,
    streams: Streams,
    memory: DeviceMemory,
    synchronize: Callable[..., None],
    refused: Callable[[str], Callable[..., Any]],
) -> None:
    shown = SimpleNamespace(
        name=properties.title,
        major=properties.capability[0],
        minor=properties.capability[1],
        total_memory=properties.memory,
        multi_processor_count=_MULTIPROCESSORS,
        warp_size=32,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=232448,
        L2_cache_size=50 << 20,
        gcnArchName="",
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid="GPU-0",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )

    def note_who_asks() -> None:
        """PyTorch itself asks for what no recording shows; anybody else may do what it likes."""
        asking = str(sys._getframe(2).f_globals.get("__name__")).partition(".")[0]
        if asking != "torch":
            writer.asks_capability = True

    def get_properties(device: Any = None) -> Any:
        note_who_asks()
        return shown

    def get_capability(device: Any = None) -> tuple[int, int]:
        note_who_asks()
        return properties.capability

    def get_architectures() -> list[str]:
        note_who_asks()
        return ["sm_{}{}".format(*properties.capability)]

    def current_stream(device: Any = None) -> Any:
        return streams.Stream(stream_id=streams.current)

    # Seed and offset, as CUDA's generators have them.
    random_state = torch.tensor([_SEED, 0]).view(torch.uint8)

    def initial_seed() -> int:
        return int(random_state.view(torch.int64)[0])

    def manual_seed(seed: int) -> None:
        random_state.view(torch.int64)[:] = torch.tensor([int(seed) & (1 << 63) - 1, 0])

    def get_random_state(device: Any = None) -> Tensor:
        return random_state.clone()

    def set_random_state(state: Tensor, device: Any = None) -> None:
        if state.numel() == random_state.numel():
            random_state.copy_(state)

    nothing: Callable[..., None] = lambda *arguments, **options: None
    answers: dict[str, Any] = {
        **dict.fromkeys(("init", "_lazy_init", "ipc_collect"), nothing),
        **dict.fromkeys(("seed", "seed_all"), nothing),
        **dict.fromkeys(("manual_seed", "manual_seed_all"), manual_seed),
        **dict.fromkeys(("_set_rng_state_offset", "set_rng_state_all"), nothing),
        "set_rng_state": set_random_state,
        **dict.fromkeys(("set_per_process_memory_fraction", "_set_stream_by_id"), nothing),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_compiled": lambda: True,
        "device_count": lambda: properties.devices,
        "synchronize": synchronize,
        "get_device_properties": get_properties,
        "get_device_name": lambda device=None: properties.title,
        "get_device_capability": get_capability,
        "get_arch_list": get_architectures,
        "is_bf16_supported": lambda including_emulation=True: has_short_floats(
            properties.capability
        ),
        "is_tf32_supported": lambda: has_short_floats(properties.capability),
        "mem_get_info": lambda device=None: (
            max(properties.memory - memory.allocator.reserved, 0),
            properties.memory,
        ),
        "Stream": streams.Stream,
        "Event": streams.Event,
        "stream": streams.StreamContext,
        "StreamContext": streams.StreamContext,
        "current_stream": current_stream,
        "default_stream": lambda device=None: streams.Stream(stream_id=0),
        "set_stream": streams.set_stream,
        "_exchange_device": streams.exchange_device,
        "_maybe_exchange_device": streams.exchange_device,
        "initial_seed": initial_seed,
        "get_rng_state": get_random_state,
        "get_rng_state_all": lambda: [get_random_state()] * properties.devices,
        "_get_rng_state_offset": lambda device=None: 0,
        "utilization": lambda device=None: 100,
    }
    cuda: Any = torch.cuda
    for name, answer in answers.items():
        for module in (cuda, cuda.streams, cuda.random, cuda.memory):
            if module is cuda or hasattr(module, name):
                setattr(module, name, answer)
    cuda._initialized = True
    for name in _ONLY_ON_GPUS:  # classes, which libraries name in their annotations
        getattr(cuda, name).__new__ = refused(name)
    cuda.nccl.version = lambda: _NCCL
    nvtx = cuda.nvtx
    for name in ("rangePushA", "rangePop", "markA"):
        setattr(nvtx._nvtx, name, nothing)
    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.device_count = lambda: properties.devices
    _generic(streams)


def _generic(streams: Streams) -> None:
    """Make streams and events of the device also by the names that are the same for all devices."""

    def stands_for(plain: Any, of_device: Any) -> Any:
        class Kinds(type):
            def __call__(cls, device: Any = None, *arguments: Any, **options: Any) -> Any:
                if device is not None and torch.device(device).type != "cuda":
                    return plain(device, *arguments, **options)
                if of_device is streams.Stream:
                    options["device"] = device
                return of_device(*arguments, **options)

            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, (plain, of_device))

        return Kinds(plain.__name__, (), {})

    pytorch: Any = torch
    pytorch.Stream = stands_for(torch.Stream, streams.Stream)
    pytorch.Event = stands_for(torch.Event, streams.Event)


_ONLY_ON_GPUS = ("MemPool", "CUDAPluggableAllocator", "ExternalStream")


def _of_torch(properties: Properties) -> None:
    torch.version.cuda = _CUDA
    torch.backends.cuda.is_built = lambda: True
    # The first tensor of a device would have a real one initialise the device.
    importlib.import_module("torch._subclasses.fake_tensor").__dict__["init_gpu_context"] = (
        lambda *arguments: None
    )
    # torch.tensor(..., device="cuda") then moves where the tracer sees it.
    torch._C._set_only_lift_cpu_tensors(True)


def _generators() -> None:
    """Make generators for the device on the host: nothing is drawn from them."""
    real = torch.Generator

    class OfDevice(real):  # type: ignore[misc, valid-type]
        device = property(lambda generator: torch.device("cuda", torch.cuda.current_device()))

    class Generators(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return OfDevice("cpu") if torch.device(device).type == "cuda" else real(device)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

    torch.Generator = Generators("Generator", (), {})  # type: ignore[misc, assignment]
    cuda: Any = torch.cuda
    cuda.default_generators = tuple(OfDevice("cpu") for _ in range(16))

"""In a process without a GPU, "cuda" means the CPU.

Scripts and libraries find devices; what they ask of one is done on the CPU, as soon as it is asked
for. PyTorch's own code goes on seeing the machine as it is, and takes its paths for the CPU. What
is on a device already is not copied to it, and "copied back" is the same tensor.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.jit._builtins import _get_builtin_table, _register_builtin
from torch.nn.parallel import DistributedDataParallel
from torch.utils._device import DeviceContext, _device_constructors

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank.observe import peak_memory

Call = Callable[..., Any]

_CPU = torch.device("cpu")


def use_cpu_for_cuda(
    config: EmulateConfig, refuse: Callable[[str], Exception], asked: Call
) -> None:
    """Have scripts of this process find CUDA devices, all of which are the CPU, and nccl.

    `refuse` makes the error for what only a GPU does, and `asked` is called when the script
    computes on a device for the first time.
    """
    cpu_for = _Asked(asked).cpu_for
    _translate_tensors(cpu_for)
    _translate_contexts(cpu_for)
    _show_devices(config.devices, refuse)
    if config.mode == "wire":
        _use_gloo_for_nccl()


class _Asked:
    def __init__(self, asked: Call) -> None:
        self._asked: Call | None = asked

    def cpu_for(self, device: Any) -> Any:
        """Return what to give PyTorch in the place of a device, a name or a number of one."""
        if isinstance(device, torch.device):
            is_cuda = device.type == "cuda"
        elif isinstance(device, str):
            is_cuda = device.partition(":")[0] == "cuda"
        else:
            is_cuda = isinstance(device, int)
        if is_cuda and self._asked is not None:
            asked, self._asked = self._asked, None
            asked()
        return _CPU if is_cuda else device


_LIKE = ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
_NEW = ("empty", "empty_strided", "full", "ones", "tensor", "zeros")


def _translate_tensors(cpu_for: Call) -> None:
    def translated(make: Call) -> Call:
        @wraps(make)
        def made(*args: Any, **options: Any) -> Any:
            if "device" in options:
                options["device"] = cpu_for(options["device"])
            options.pop("pin_memory", None)
            return make(*args, **options)

        op: Any = _get_builtin_table().get(id(make))  # type: ignore[no-untyped-call]
        _register_builtin(made, op)  # for torch.jit.script
        return made

    move = torch.Tensor.to

    def moving(move: Call) -> Call:
        @wraps(move)
        def to(moved: Any, *args: Any, **options: Any) -> Any:
            if args:
                args = (cpu_for(args[0]), *args[1:])
            elif "device" in options:
                options["device"] = cpu_for(options["device"])
            return move(moved, *args, **options)

        return to

    def cuda(tensor: Any, device: Any = 0, non_blocking: bool = False, **options: Any) -> Any:
        return move(tensor, cpu_for(0), **options)

    # PyTorch's own list of what a default device is for, which has to be made before.
    makers: Any = _device_constructors()
    made_with = [name for make in makers if hasattr(torch, name := make.__name__)]
    for name in (*made_with, *(f"{name}_like" for name in _LIKE)):
        setattr(torch, name, translated(getattr(torch, name)))
    for name in _NEW:
        setattr(torch.Tensor, f"new_{name}", translated(getattr(torch.Tensor, f"new_{name}")))
    of_tensors: dict[str, Call] = {
        "to": moving(move),
        "cuda": cuda,
        "pin_memory": lambda tensor, device=None: tensor,
        "record_stream": lambda tensor, stream: None,
    }
    for name, by in of_tensors.items():
        setattr(torch.Tensor, name, by)
    setattr(torch.nn.Module, "to", moving(torch.nn.Module.to))  # noqa: B010
    plain = torch.Generator

    class Generators(type):
        def __call__(cls, device: Any = _CPU) -> Any:
            return plain(cpu_for(device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, plain)

    setattr(torch, "Generator", Generators("Generator", (), {}))  # noqa: B010
    # A number lower than those of PyTorch's own ways to restore a storage.
    torch.serialization.register_package(
        0, lambda stored: None, lambda stored, at: stored if at.startswith("cuda") else None
    )


def _translate_contexts(cpu_for: Call) -> None:
    """Have what is made for a type of device be made for the CPU."""

    def first(owner: Any, default: Any = None) -> None:
        begin = owner.__init__

        @wraps(begin)
        def begun(self: Any, device_type: Any = default, *args: Any, **options: Any) -> None:
            device = options.pop("device", device_type)
            begin(self, str(cpu_for(device)), *args, **options)

        owner.__init__ = begun

    for owner in (DeviceMesh, DeviceContext):
        first(owner)
    first(torch.amp.GradScaler, "cuda")
    begin_autocast, begin_parallel = torch.autocast.__init__, DistributedDataParallel.__init__
    begin_group = c10d.init_process_group

    @wraps(begin_autocast)
    def autocast(
        self: Any, device_type: str, dtype: Any = None, *args: Any, **options: Any
    ) -> None:
        if device_type == "cuda":
            device_type, dtype = str(cpu_for("cuda")), dtype or torch.get_autocast_dtype("cuda")
        begin_autocast(self, device_type, dtype, *args, **options)

    @wraps(begin_parallel)
    def parallel(
        self: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **options: Any,
    ) -> None:
        begin_parallel(self, module, None, None, *args, **options)

    @wraps(begin_group)
    def init_process_group(*args: Any, device_id: Any = None, **options: Any) -> None:
        begin_group(*args, **options)

    torch.autocast.__init__ = autocast  # type: ignore[method-assign]
    DistributedDataParallel.__init__ = parallel  # type: ignore[method-assign]
    for module in (c10d, dist):
        setattr(module, "init_process_group", init_process_group)  # noqa: B010


def _use_gloo_for_nccl() -> None:
    make: Call = c10d._new_process_group_helper

    def made(size: int, rank: int, members: Any, backend: Any, *args: Any, **options: Any) -> Any:
        if "nccl" in str(backend).lower():
            backend = c10d.Backend("gloo")
        return make(size, rank, members, backend, *args, **options)

    for name, by in {"_new_process_group_helper": made, "is_nccl_available": lambda: True}.items():
        setattr(c10d, name, by)
    setattr(c10d, "default_pg_nccl_timeout", c10d.default_pg_timeout)  # noqa: B010
    setattr(dist, "is_nccl_available", c10d.is_nccl_available)  # noqa: B010


class _Stream(torch.cpu.Stream):
    """Is done with everything as soon as it has been asked for."""

    cuda_stream, device, device_index, priority = 0, torch.device("cuda", 0), 0, 0

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        super().__init__()

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = event or _Event()
        event.record()
        return event


class _Event(torch.cpu.Event):
    """The instant at which it was recorded."""

    def __init__(self, enable_timing: bool = False, **options: Any) -> None:
        super().__init__()
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end._at - self._at)


def _show_devices(devices: int, refuse: Callable[[str], Exception]) -> None:
    current, memory = 0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    stream = _Stream()

    def set_device(device: Any) -> None:
        nonlocal current
        index = device if isinstance(device, int) else torch.device(device).index or 0
        if index >= devices:
            raise RuntimeError(f"there is no cuda:{index}: {devices} devices are emulated")
        current = max(index, 0)

    free_memory: Call = lambda device=None: (memory - peak_memory(), memory)
    properties = {"name": _NAME, "major": _CAPABILITY[0], "minor": _CAPABILITY[1]}
    properties |= {"total_memory": memory, "multi_processor_count": os.cpu_count()}
    shown: dict[str, Call] = {
        "is_available": lambda: True,
        "device_count": lambda: devices,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device": lambda: current,
        "set_device": set_device,
        "get_device_name": lambda device=None: _NAME,
        "get_device_capability": lambda device=None: _CAPABILITY,
        "get_device_properties": lambda device=None: SimpleNamespace(**properties),
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "mem_get_info": free_memory,
        "get_memory_info": free_memory,
        "memory_stats": lambda device=None: defaultdict(int),
        "memory_summary": lambda device=None, abbreviated=False: "",
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda device, peer_device: True,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()] * devices,
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
    }
    for module in (torch.cuda, torch.cuda.random, torch.accelerator):
        for name in module.__all__:
            value = getattr(module, name, None)
            if not isinstance(value, FunctionType) or name in _HARMLESS:
                continue
            if name in _CONTEXTS:
                setattr(module, name, contextlib.nullcontext)
            elif name in _NOTHING or name.startswith("reset_"):
                _show(module, name, lambda *args, **options: None)
            elif "memory_allocated" in name or "memory_reserved" in name:
                _show(module, name, lambda device=None: peak_memory())
            else:
                known = name.removesuffix("_index").removesuffix("_idx")
                _show(module, name, shown.get(known) or _refused(name, refuse))
    for name in _ONLY_ON_GPUS:
        getattr(torch.cuda, name).__new__ = _refused(name, refuse)
    for name, by in {"Stream": _Stream, "Event": _Event, "device": contextlib.nullcontext}.items():
        setattr(torch.cuda, name, by)
    for name in ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA"):
        setattr(torch.cuda.nvtx._nvtx, name, lambda *args: None)  # type: ignore[attr-defined]


_NAME = "the CPU, in the place of a CUDA device"
_CAPABILITY = (8, 0)  # the least with which scripts take the paths that they take on today's GPUs
_CONTEXTS = {"stream", "device_index"}
_NOTHING = {"init", "synchronize", "empty_cache", "ipc_collect", "set_stream"} | {
    "set_per_process_memory_fraction"
}
_HARMLESS = {"manual_seed", "manual_seed_all", "seed", "seed_all", "is_initialized"}
_ONLY_ON_GPUS = ("CUDAGraph", "graph", "MemPool", "CUDAPluggableAllocator", "ExternalStream")


def _show(module: Any, name: str, shown: Call) -> None:
    """Have a function answer scripts and libraries so, and PyTorch and Paracosm as before."""
    real: Call = getattr(module, name)

    @wraps(real)
    def answer(*args: Any, **options: Any) -> Any:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        return (real if asking in ("torch", "paracosm") else shown)(*args, **options)

    setattr(module, name, answer)


def _refused(name: str, refuse: Callable[[str], Exception]) -> Call:
    def call(*args: Any, **options: Any) -> Any:
        raise refuse(f"torch.cuda.{name}")

    return call

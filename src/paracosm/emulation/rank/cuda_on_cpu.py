"""In a process without a GPU, "cuda" means the CPU.

Scripts and libraries find devices, whose work is done on the CPU at once. PyTorch's own code still
sees the machine as it is, and takes its paths for the CPU. A tensor that is copied to a device and
back remains one tensor.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.jit._builtins import _get_builtin_table
from torch.nn.parallel import DistributedDataParallel
from torch.utils._device import DeviceContext, _device_constructors

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank.nccl_names import give_nccl_names
from paracosm.emulation.rank.observe import peak_memory
from paracosm.emulation.rank.on_import import on_import
from paracosm.emulation.rank.sync_batch_norm import synchronise_on_cpu

Call = Callable[..., Any]


def use_cpu_for_cuda(
    config: EmulateConfig,
    refuse: Callable[[str], Exception],  # makes the error for what only a GPU does
    asked: Callable[[], None],  # called whenever the script means to be on a device
) -> None:
    """Make scripts of this process find CUDA devices, all of which are the CPU, and nccl."""

    def cpu_for(device: Any) -> Any:
        is_cuda = isinstance(device, str | torch.device) and str(device).startswith("cuda")
        if is_cuda or isinstance(device, int):
            asked()
            return "cpu"
        return device

    _translate_tensors(cpu_for)
    _translate_types(cpu_for)
    _show_devices(config.devices, refuse)
    synchronise_on_cpu()
    if config.mode == "wire":
        _use_gloo_for_nccl()
        give_nccl_names(refuse)
    on_import("torch.distributed.fsdp", partial(_shard_on_cpu, cpu_for, config.devices))
    on_import("torch.distributed.tensor", _shard_attention_on_cpu)
    on_import("torch.distributed.pipelining._IR", partial(_build_stages_on_cpu, cpu_for))


def _shard_on_cpu(cpu_for: Call, devices: int, fsdp: Any) -> None:
    """Let FullyShardedDataParallel (FSDP1) use the CPU, which it does only where it is told to.

    Its hybrid shards span a machine, whose ranks are as many as the devices that it counts.
    """
    begin = fsdp.FullyShardedDataParallel.__init__

    @wraps(begin)
    def begun(self: Any, *args: Any, device_id: Any = None, **options: Any) -> None:
        cpu_for(0 if device_id is None else device_id)
        begin(self, *args, device_id=torch.device("cpu"), **options)

    fsdp.FullyShardedDataParallel.__init__ = begun
    fsdp._common_utils._FSDPDeviceHandle.device_count = lambda handle: devices
    # It frees what it has copied to the CPU, which here is the copy itself.
    fsdp._flat_param.FlatParamHandle.to_cpu = lambda handle: nullcontext()


def _build_stages_on_cpu(cpu_for: Call, pipelining: Any) -> None:
    """Build stages of a traced model for the CPU: the device is written into their graph."""
    build = pipelining.Pipe.build_stage

    @wraps(build)
    def built(pipe: Any, stage_index: int, device: Any, *args: Any, **options: Any) -> Any:
        return build(pipe, stage_index, torch.device(cpu_for(device)), *args, **options)

    pipelining.Pipe.build_stage = built


def _shard_attention_on_cpu(tensor: Any) -> None:
    """Let DTensor shard the CPU's attention by examples or by heads, as it does a GPU's.

    PyTorch has no such rule for it (torch/distributed/tensor/_ops/_matrix_ops.py).
    """
    from torch.distributed.tensor.experimental import register_sharding

    def sharding(outputs: int, inputs: int) -> Call:
        def acceptable(*args: Any, **options: Any) -> list[tuple[list[Any], list[Any]]]:
            others = [None] * (len(args) - inputs)
            placements = (tensor.Replicate(), tensor.Shard(0), tensor.Shard(1))
            return [([at] * outputs, [at] * inputs + others) for at in placements]

        return acceptable

    ops: Any = torch.ops.aten
    name = "_scaled_dot_product_flash_attention_for_cpu"
    register_sharding(getattr(ops, name).default)(sharding(2, 3))
    register_sharding(getattr(ops, f"{name}_backward").default)(sharding(3, 6))


_LIKE = ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
_NEW = ("empty", "empty_strided", "full", "ones", "tensor", "zeros")


def _translate_tensors(cpu_for: Call) -> None:
    builtins: Any = _get_builtin_table()  # type: ignore[no-untyped-call]  # of torch.jit.script
    constructors: Any = _device_constructors()  # a list that has to be made before

    def translate(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        @wraps(call)
        def translated(*args: Any, **options: Any) -> Any:
            if name == "to" and len(args) > 1:
                args = (args[0], cpu_for(args[1]), *args[2:])
            if "device" in options:
                options["device"] = cpu_for(options["device"])
            options.pop("pin_memory", None)
            return call(*args, **options)

        setattr(owner, name, translated)
        builtins[id(translated)] = builtins.get(id(call))

    makers = [name for constructor in constructors if hasattr(torch, name := constructor.__name__)]
    for name in (*makers, *(f"{name}_like" for name in _LIKE)):
        translate(torch, name)
    for name in ("to", *(f"new_{name}" for name in _NEW)):
        translate(torch.Tensor, name)
    translate(torch.nn.Module, "to")

    def cuda(tensor: Any, device: Any = 0, non_blocking: bool = False, **options: Any) -> Any:
        return tensor.to(cpu_for(0), **options)

    here: dict[str, Call] = {
        "cuda": cuda,
        "pin_memory": lambda tensor, device=None: tensor,
        "record_stream": lambda tensor, stream: None,
    }
    for name, call in here.items():
        setattr(torch.Tensor, name, call)
    # A number lower than those of PyTorch's own ways to restore a storage.
    torch.serialization.register_package(
        0, lambda stored: None, lambda stored, at: stored if at.startswith("cuda") else None
    )


def _translate_types(cpu_for: Call) -> None:
    """Redirect to the CPU what is made for a device type."""

    def translate(owner: Any, default: Any = None) -> None:
        begin = owner.__init__

        @wraps(begin)
        def begun(self: Any, device_type: Any = default, *args: Any, **options: Any) -> None:
            begin(self, cpu_for(options.pop("device", device_type)), *args, **options)

        owner.__init__ = begun

    translate(DeviceMesh)
    translate(DeviceContext)
    translate(torch.amp.GradScaler, "cuda")
    translate(torch.autocast)
    on_cpu, plain = torch.autocast.__init__, torch.Generator
    begin_parallel, begin_group = DistributedDataParallel.__init__, c10d.init_process_group

    @wraps(on_cpu)
    def autocast(
        self: Any, device_type: Any, dtype: Any = None, *args: Any, **options: Any
    ) -> None:
        if device_type == "cuda":
            dtype = dtype or torch.get_autocast_dtype("cuda")
        on_cpu(self, device_type, dtype, *args, **options)

    class Generators(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return plain(cpu_for(device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, plain)

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

    for owner, name, by in (
        (torch.autocast, "__init__", autocast),
        (torch, "Generator", Generators("Generator", (), {})),
        (DistributedDataParallel, "__init__", parallel),
        (c10d, "init_process_group", init_process_group),
        (dist, "init_process_group", init_process_group),
    ):
        setattr(owner, name, by)


def _use_gloo_for_nccl() -> None:
    make: Call = c10d._new_process_group_helper

    def made(size: int, rank: int, members: Any, backend: Any, *args: Any, **options: Any) -> Any:
        if "nccl" in str(backend).lower():
            backend = c10d.Backend("gloo")
        return make(size, rank, members, backend, *args, **options)

    for name, by in (
        ("_new_process_group_helper", made),
        ("is_nccl_available", lambda: True),
        ("default_pg_nccl_timeout", c10d.default_pg_timeout),
    ):
        setattr(c10d, name, by)
    setattr(dist, "is_nccl_available", c10d.is_nccl_available)  # noqa: B010


class _Stream(torch.cpu.Stream):
    """A stream whose work is complete as soon as it is issued."""

    cuda_stream = device_index = priority = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = event or _Event()
        event.record()
        return event


class _Event(torch.cpu.Event):
    """An event that has completed when it is recorded."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end._at - self._at)


class _Entered(nullcontext[Any]):
    """The context of a stream or a device, which changes nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, *options.values())


_NAME = "the CPU, in the place of a CUDA device"
_CAPABILITY = (8, 0)  # the least with which scripts take the paths that they take on today's GPUs
_NCCL = (2, 27, 5)
_NOTHING = ("init", "synchronize", "empty_cache", "ipc_collect", "set_stream", "set_per_process")
_AS_IT_IS = ("manual_seed", "seed", "is_initialized")  # they do without a device
_ONLY_ON_GPUS = ("CUDAGraph", "graph", "MemPool", "CUDAPluggableAllocator", "ExternalStream")


def _show_devices(devices: int, refuse: Callable[[str], Exception]) -> None:
    current, memory = 0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def set_device(device: Any) -> None:
        nonlocal current
        index = device if isinstance(device, int) else torch.device(device).index or 0
        if index >= devices:
            raise RuntimeError(f"there is no cuda:{index}: {devices} devices are emulated")
        current = max(index, 0)

    def refused(name: str, *args: Any, **options: Any) -> Any:
        raise refuse(f"torch.cuda.{name}")

    processors = os.cpu_count()
    properties = SimpleNamespace(
        name=_NAME, major=8, minor=0, total_memory=memory, multi_processor_count=processors
    )
    stream = _Stream()
    # By how names begin.
    shown: dict[str, Call] = {
        **dict.fromkeys((*_NOTHING, "reset_"), lambda *args, **options: None),
        **dict.fromkeys(("stream", "device_index"), _Entered),
        **dict.fromkeys(("memory_allocated", "memory_reserved"), lambda device=None: peak_memory()),
        **dict.fromkeys(("max_memory_",), lambda device=None: peak_memory()),
        "is_available": lambda: True,
        "device_count": lambda: devices,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device": lambda: current,
        "set_device": set_device,
        "get_device_name": lambda device=None: _NAME,
        "get_device_capability": lambda device=None: _CAPABILITY,
        "get_device_properties": lambda device=None: properties,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "mem_get_info": lambda device=None: (memory - peak_memory(), memory),
        "get_memory_info": lambda device=None: (memory - peak_memory(), memory),
        "memory_stats": lambda device=None: defaultdict(int),
        "memory_summary": lambda *args, **options: "",
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda *devices: True,
        "get_rng_state_all": lambda: [torch.get_rng_state()] * devices,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    }
    for module in (torch.cuda, torch.cuda.random, torch.accelerator):
        for name in module.__all__:
            if isinstance(getattr(module, name), FunctionType) and not name.startswith(_AS_IT_IS):
                calls = (call for begin, call in shown.items() if name.startswith(begin))
                _show(module, name, next(calls, partial(refused, name)))
    for name in _ONLY_ON_GPUS:
        getattr(torch.cuda, name).__new__ = partial(refused, name)
    for name, by in {"Stream": _Stream, "Event": _Event, "device": _Entered}.items():
        setattr(torch.cuda, name, by)
    nvtx: Any = torch.cuda.nvtx
    for name in ("rangePushA", "rangePop", "markA"):
        setattr(nvtx._nvtx, name, lambda *args: None)
    nccl: Any = torch.cuda.nccl
    nccl.version = lambda: _NCCL  # PyTorch itself asks, to log an error of a collective


def _show(module: Any, name: str, shown: Call) -> None:
    """Change a function for scripts and libraries, but not for PyTorch and Paracosm.

    PyTorch saves and restores the state of random numbers of the devices that it is told.
    """
    real: Call = getattr(module, name)
    libraries = () if "_rng_state" in name else ("torch", "paracosm")

    @wraps(real)
    def answer(*args: Any, **options: Any) -> Any:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        return (real if asking in libraries else shown)(*args, **options)

    setattr(module, name, answer)

"""Make PyTorch take "cuda" for a device of this machine, where there is none.

PyTorch chooses its paths by what C++ says of the device: which accelerator there is, and which
guard switches between devices. A CPU build has neither for CUDA, and those of a CUDA build ask a
driver. Both are put in place by ctypes,
without a compiler: the table of virtual functions of `at::CUDAHooksInterface` is copied, with other
answers to whether CUDA is built, available and initialised; and the registry of device guards gets,
for CUDA, the guard that PyTorch has for devices written in Python, with as many devices as a node
has.

Where a function stands in the table follows from the order of declarations in the headers that
PyTorch comes with, so no version has numbers of its own. Then a backward pass is tried out.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from paracosm.errors import InputError

TESTED = "PyTorch 2.11 to 2.14 on Linux, builds for the CPU and for CUDA"

_LIBRARIES = Path(torch.__file__).parent / "lib"
_HEADERS = Path(torch.__file__).parent / "include"
_OF_HOOKS = ("ATen/detail/AcceleratorHooksInterface.h", "ATen/detail/CUDAHooksInterface.h")
_OF_GUARDS = ("c10/core/impl/DeviceGuardImplInterface.h",)
_CPU, _CUDA, _PRIVATE_USE, _NO_DEVICE = 0, 1, 20, -1  # numbers of c10::DeviceType
_DEVICE_TYPES = 21
_HEADER = 2  # entries of a table of virtual functions before its first function (Itanium C++ ABI)

_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_MEMORY = "_ZN3c1015GetCPUAllocatorEv"
_TIMERS = "_ZN4c10d13TimerRegistryEv"
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"

_kept: list[Any] = []  # what C++ refers to must not be freed


def install_guard(devices: int = 1) -> None:
    """Make "cuda" the accelerator of this process, of which there are so many devices.

    Raises:
        InputError: this PyTorch is built otherwise than those that this was tested with.
    """
    try:
        _put_in_place(devices)
        _try_out()
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(
            f"hardware: PyTorch {torch.__version__} does not let a device take the place of CUDA "
            f"({error}): tested with {TESTED}"
        ) from None


def _put_in_place(devices: int) -> None:
    c10, cpu = (ctypes.CDLL(str(_LIBRARIES / f"lib{name}.so")) for name in ("c10", "torch_cpu"))
    yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda hooks: True)
    has_context = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(
        lambda hooks, device: True
    )
    count = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda guard: devices)
    nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda hooks: None)
    memory = getattr(c10, _MEMORY)
    memory.restype = ctypes.c_void_p
    pinned = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda hooks: memory())
    is_pinned = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(
        lambda hooks, address: True
    )
    hooks = getattr(cpu, _HOOKS)
    hooks.restype = ctypes.c_void_p
    _answer(
        hooks(),
        virtual_functions(_OF_HOOKS),
        {
            **dict.fromkeys(("isBuilt", "isAvailable", "hasCUDA"), yes),
            "hasPrimaryContext": has_context,
            "init": nothing,
            "deviceCount": count,
            # Pinned memory, which C++ takes for itself, is memory.
            "getPinnedMemoryAllocator": pinned,
            "isPinnedPtr": is_pinned,
        },
    )
    python: Any = torch._C._acc

    class Guard(python.DeviceGuard):  # type: ignore[misc]
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.CUDA

    guard = Guard()
    _kept.append(guard)
    python.register_python_privateuseone_device_guard(guard)
    guards = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(c10, _GUARDS)
    made = guards[_PRIVATE_USE]
    if not made:
        raise ValueError("it registers no guard written in Python")
    _answer(made, virtual_functions(_OF_GUARDS), {"deviceCount": count})
    guards[_CUDA] = made
    _without_timers(cpu)


def _without_timers(cpu: ctypes.CDLL) -> None:
    """Let DistributedDataParallel find no timer for CUDA, as in a CPU build.

    A timer of a CUDA build makes events of the driver. It stands in a registry by type of device,
    which is a hash map of the standard library: its number of buckets and its first node stand
    behind its buckets, and a node has the next one and the type.
    """
    registry = getattr(cpu, _TIMERS)
    registry.restype = ctypes.c_void_p
    buckets, number, node, count = (ctypes.c_void_p * 4).from_address(registry())
    del buckets, number
    for _ in range(count or 0):
        if not node:
            raise ValueError("its registry of timers is made otherwise")
        kind = ctypes.c_int8.from_address(node + _POINTER)
        if kind.value not in (_CPU, _CUDA, _NO_DEVICE):
            raise ValueError(f"its registry of timers has one for a device of type {kind.value}")
        if kind.value == _CUDA:
            kind.value = _NO_DEVICE
        node = ctypes.c_void_p.from_address(node).value


def _answer(address: int, functions: Sequence[str], answers: Mapping[str, Any]) -> None:
    """Give an object of C++ a copy of its table of virtual functions, with other answers."""
    table_of = ctypes.c_void_p.from_address(address)
    size = _HEADER + len(functions)
    assert table_of.value is not None
    held = (ctypes.c_void_p * size).from_address(table_of.value - _HEADER * _POINTER)
    copy = (ctypes.c_void_p * size)(*held)
    for name, answer in answers.items():
        if name not in functions:
            raise ValueError(f"its headers have no virtual function {name}")
        copy[_HEADER + functions.index(name)] = ctypes.cast(answer, ctypes.c_void_p).value
    _kept.extend((copy, *answers.values()))
    table_of.value = ctypes.addressof(copy) + _HEADER * _POINTER


_POINTER = ctypes.sizeof(ctypes.c_void_p)


def virtual_functions(headers: Sequence[str]) -> list[str]:
    """Return the virtual functions that headers declare, in the order of their table.

    A class comes after its base. A function that overrides one of the base takes that one's place,
    and a destructor two places.

    Raises:
        ValueError: a header is missing.
    """
    names: list[str] = []
    for header in headers:
        path = _HEADERS / header
        if not path.is_file():
            raise ValueError(f"its header {header} is missing")
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        code = re.sub(r"#ifdef USE_ROCM.*?#endif", "", code, flags=re.DOTALL)
        for name in re.findall(r"\bvirtual\s+[^;{()]*?(~?\b\w+)\s*\(", code):
            names += [name] * (2 if name.startswith("~") else 1)
    return names


def _try_out() -> None:
    if (accelerator := _accelerator()) != torch.device("cuda"):
        raise RuntimeError(f"its accelerator is {accelerator}")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        weight = torch.ones(2, 2, device="cuda", requires_grad=True)
        (weight @ weight).sum().backward()  # type: ignore[no-untyped-call]
    if weight.grad is None or weight.grad.device.type != "cuda":
        raise RuntimeError("a backward pass gives no gradient on the device")


_accelerator: Callable[[], Any] = torch._C._accelerator_getAccelerator

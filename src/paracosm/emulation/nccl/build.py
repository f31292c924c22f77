"""Compile the shim, and its kernel, where they are needed for the first time."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from paracosm.emulation.compiled_c import compiled, compiled_folder, compiler
from paracosm.errors import InputError
from paracosm.files import replacing

_HERE = Path(__file__).parent
_SHIM = ("nccl.c", "launches.c", "emulator.c", "links.c")
_ASKED = "--nccl"
_SONAME = "-Wl,-soname,libnccl.so.2"  # what PyTorch's libraries ask the loader for
KERNELS = "PARACOSM_NCCL_KERNELS"  # environment variable: where the compiled `multiply.c` is
DRIVER = "PARACOSM_CUDA_DRIVER"  # environment variable: another library than libcuda.so.1


def check_machine() -> None:
    """Raise InputError where there is no Linux, no C compiler, or no GPU."""
    if sys.platform != "linux":
        raise InputError(f"--nccl: NCCL runs on Linux, not on {sys.platform}")
    compiler(_ASKED)
    name = os.environ.get(DRIVER, "libcuda.so.1")
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        raise InputError(f"--nccl: no GPU: the CUDA driver, {name}, is not installed") from None
    count = ctypes.c_int()
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or not count.value:
        raise InputError(f"--nccl: no GPU: the CUDA driver finds none (CUDA error {error})")


def shim() -> Path:
    """Return the library that takes the place of NCCL, compiled now if it is not yet."""
    return compiled(_HERE, _SHIM, (_SONAME,), _ASKED)


def kernels(nvrtc: Any, capability: tuple[int, int]) -> Path:
    """Return `multiply.c` for devices of a compute capability, compiled now if it is not yet.

    `nvrtc` is NVIDIA's runtime compiler, a `ctypes.CDLL`.

    Raises:
        InputError: it fails.
    """
    source = (_HERE / "multiply.c").read_bytes()
    target = f"sm_{capability[0]}{capability[1]}"
    digest = hashlib.sha256(source + target.encode()).hexdigest()[:32]
    file = compiled_folder(_ASKED) / f"multiply-{target}-{digest}.cubin"
    if not file.exists():
        with replacing(file) as unfinished:
            unfinished.write_bytes(_for_device(nvrtc, source, target))
    return file


def _for_device(nvrtc: Any, source: bytes, target: str) -> bytes:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    error = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"multiply.c", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={target}".encode())
    error = error or nvrtc.nvrtcCompileProgram(program, 1, options)
    error = error or nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    error = error or nvrtc.nvrtcGetCUBIN(program, code)
    if error:
        raise InputError(f"--nccl: NVRTC cannot compile for {target}: error {error}")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw

"""Compile the shim, and its kernel, where they are needed for the first time."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.files import replacing, user_cache_folder

_HERE = Path(__file__).parent
_SHIM = ("nccl.c", "launches.c", "emulator.c", "links.c")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("-lpthread", "-ldl", "-lm")
_SONAME = "-Wl,-soname,libnccl.so.2"  # what PyTorch's libraries ask the loader for
KERNELS = "PARACOSM_NCCL_KERNELS"  # environment variable: where the compiled `multiply.c` is
DRIVER = "PARACOSM_CUDA_DRIVER"  # environment variable: another library than libcuda.so.1


def check_machine() -> None:
    """Raise InputError where there is no Linux, no C compiler, or no GPU."""
    if sys.platform != "linux":
        raise InputError(f"--nccl: NCCL runs on Linux, not on {sys.platform}")
    _compiler()
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
    return compiled(_HERE, _SHIM, (_SONAME,))


def compiled(folder: Path, sources: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """Return the shared library of C files, kept under a digest of these and of the compiler.

    Raises:
        InputError: there is no compiler, or it fails.
    """
    compiler = _compiler()
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    inputs = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    digest = hashlib.sha256(version + repr((sources, flags, _FLAGS)).encode())
    for each in inputs:
        digest.update(each.read_bytes())
    library = _cache() / f"{Path(sources[0]).stem}-{digest.hexdigest()[:32]}.so"
    if not library.exists():
        with replacing(library) as unfinished:
            command = [compiler, *_FLAGS, *flags, *sources, "-o", str(unfinished), *_LIBRARIES]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                line = (done.stderr.strip().splitlines() or ["no message"])[0]
                raise InputError(f"--nccl: {compiler} cannot compile the shim: {line}")
    return library


def kernels(nvrtc: Any, capability: tuple[int, int]) -> Path:
    """Return `multiply.c` for devices of a compute capability, compiled now if it is not yet.

    `nvrtc` is NVIDIA's runtime compiler, a `ctypes.CDLL`.

    Raises:
        InputError: it fails.
    """
    source = (_HERE / "multiply.c").read_bytes()
    target = f"sm_{capability[0]}{capability[1]}"
    digest = hashlib.sha256(source + target.encode()).hexdigest()[:32]
    file = _cache() / f"multiply-{target}-{digest}.cubin"
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


def _compiler() -> str:
    for name in (os.environ.get("CC", "cc"), "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return found
    raise InputError(
        "--nccl: no C compiler (cc, gcc or clang), with which the shim of NCCL is made: install gcc"
    )


def _cache() -> Path:
    folder = user_cache_folder()
    if folder is None:
        raise InputError(
            "--nccl: no folder of your own for what is compiled: set XDG_CACHE_HOME to one that "
            "only you can write to"
        )
    return folder

"""Compiled functions refuse arrays of other shapes than they go by, before they run."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections import Counter, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

import paracosm
from paracosm.compiled import Kernel, _Part

INNER = {
    # called by compiled functions only, or with numbers
    *("_search", "_later", "_join", "uniform", "normal_quantile", "stop", "note_iteration"),
    *("_copy_shared", "_copy_edge", "_update_edge", "acquire", "release", "begin_together"),
    *("read_clock", "_check", "_decide", "_arrive", "_sum", "_local_residual", "nanoseconds"),
    # with the arrays of a relaxation, made together for the rows of its matrix
    *("advance", "set_limits", "norm_of"),
    # with what is made together, from one size, by the function that calls
    *("play_steps", "play_schedule", "_draw_first", "_store", "_group"),
}


def kernels() -> dict[str, Any]:
    """Return every function of the package that is compiled, and that Python may call."""
    found = {}
    for module in pkgutil.walk_packages(paracosm.__path__, "paracosm."):
        if "nccl" in module.name or module.name.endswith("__main__"):
            continue
        for var in vars(importlib.import_module(module.name)).values():
            if isinstance(var, CPUDispatcher) and not isinstance(var, _Part):
                found[f"{var.py_func.__module__}.{var.py_func.__qualname__}"] = var
    return found


KERNELS = kernels()
SHAPED = {name: each for name, each in KERNELS.items() if isinstance(each, Kernel)}


def test_whoever_calls_a_kernel_goes_through_its_shapes() -> None:
    assert {name.rpartition(".")[2] for name in KERNELS.keys() - SHAPED.keys()} <= INNER
    assert len(SHAPED) > 10


def arrays(kernel: Kernel) -> dict[str, Any]:
    """Return arrays of zeros of the shapes that a kernel goes by, of different lengths."""
    symbols: dict[str, int] = {"*": 9}

    def length(wanted: str) -> int:
        symbol, _, more = wanted.partition("+")
        own = int(symbol) if symbol.isdigit() else symbols.setdefault(symbol, 10 + len(symbols))
        return own + int(more or 0)

    return {name: np.zeros([*map(length, shape)]) for name, shape in kernel.shapes.items()}


def call(kernel: Kernel, given: dict[str, Any]) -> None:
    """Call a kernel with arrays, those that are no parameters in a tuple; no other argument."""
    names = kernel.py_func.__code__.co_varnames[: kernel.py_func.__code__.co_argcount]
    fields = {name: each for name, each in given.items() if name not in names}
    others = namedtuple("others", fields)(**fields)  # type: ignore[misc]
    kernel(*(given.get(name, others) for name in names))


def wrong(kernel: Kernel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arrays of which one is empty, or longer or shorter by one, along one axis."""
    sound = arrays(kernel)
    uses = Counter(part.partition("+")[0] for shape in kernel.shapes.values() for part in shape)
    for name, shape in kernel.shapes.items():
        for axis, part in enumerate(shape):
            symbol = part.partition("+")[0]
            is_free = uses[symbol] == 1 and not symbol.isdigit()
            if symbol == "*" or (is_free and symbol == part):
                continue
            for more in (-sound[name].shape[axis], *(() if is_free else (1, -1))):
                sizes = [*sound[name].shape]
                sizes[axis] += more
                yield f"{name}{sizes}", {**sound, name: np.zeros(sizes)}


@pytest.mark.parametrize("name", SHAPED)
def test_a_kernel_refuses_arrays_that_are_too_short_or_too_long(name: str) -> None:
    kernel = SHAPED[name]
    tried = list(wrong(kernel))
    assert tried
    child = os.fork()  # what gets past the shapes may end the process
    if child == 0:
        passed = 1
        try:
            for _, given in tried:
                with pytest.raises(ValueError, match="is of shape"):
                    call(kernel, given)
            passed = 0
        finally:
            os._exit(passed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_message_names_the_array_and_the_shape() -> None:
    kernel = SHAPED["paracosm.simulation.replay._vary"]
    with pytest.raises(ValueError, match=r"_vary: kind is of shape \(3,\), not \(n\) with n = 4"):
        kernel(np.zeros(4), np.zeros(3), 0, 0.1)

"""Signals while Numba compiles: LLVM calls Python back, where no exception can be raised."""

import signal
import sys
from collections.abc import Iterator
from typing import Any

import numba
import pytest
from llvmlite.binding import ffi
from numba.core.registry import cpu_target

from paracosm import compiled_cache
from paracosm.compiled import compiled, compiling_announced


class Interrupted(BaseException):
    """What the handler of this test raises."""


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        raise Interrupted

    monkeypatch.setattr(compiled_cache, "CACHE", None)
    before = signal.signal(signal.SIGINT, end)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    return found


def cube(x: float) -> float:
    return x * x * x


def calls_of_llvm(at: int) -> int:
    """Compile, and send a signal in one of the calls of LLVM; return how many there were."""
    count = 0

    def begin() -> None:
        nonlocal count
        count += 1
        if count == at:
            signal.raise_signal(signal.SIGINT)

    def end() -> None:
        pass

    ffi.register_lock_callback(begin, end)
    try:
        assert compiled(cube)(2.0) == 8.0
    finally:
        ffi.unregister_lock_callback(begin, end)
    return count


def test_a_signal_at_any_call_of_llvm_is_raised_and_nothing_else(unraisable: list[Any]) -> None:
    calls_of_llvm(at=0)  # the first needs some more
    calls = calls_of_llvm(at=0)
    assert calls > 100
    for at in range(1, calls, 7):
        with pytest.raises(Interrupted):
            calls_of_llvm(at)
        assert unraisable == []
        assert callable(signal.getsignal(signal.SIGINT))
    calls_of_llvm(at=0)  # and it compiles again


def test_a_signal_within_a_callback_of_llvm_is_raised(
    monkeypatch: pytest.MonkeyPatch, unraisable: list[Any]
) -> None:

    codegen = cpu_target.target_context.codegen()
    old = codegen._engine._ee._object_cache_notify
    seen: list[int] = []

    def noted(module: Any, buffer: bytes) -> None:
        seen.append(1)
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)
        old(module, buffer)

    monkeypatch.setattr(codegen._engine._ee, "_object_cache_notify", noted)
    with pytest.raises(Interrupted):
        compiled(cube)(2.0)
    assert seen
    assert unraisable == []
    assert compiled(cube)(3.0) == 27.0


def test_compiling_is_announced_once_and_only_where_something_is_compiled() -> None:
    announced: list[str] = []
    first, second = numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)
    with compiling_announced(lambda: announced.append("compiling")):
        assert (first(1), second(1)) == (2, 3)
    assert announced == ["compiling"]
    with compiling_announced(lambda: announced.append("again")):
        assert first(1) == 2
    assert announced == ["compiling"]

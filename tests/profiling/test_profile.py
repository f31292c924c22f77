"""Passes over ops: what is kept, what is refused, and what Ctrl-C leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling.environment import (
    CudaClock,
    HostClock,
    environment_here,
    flushes_denormals,
    free_memory,
    last_level_cache,
    pinned,
)
from paracosm.profiling.profiler import LEAST, MOST, Settings, profile
from paracosm.profiling.samples import OpTiming, spread_of
from paracosm.profiling.torch_ops import Bench

FAST = Settings(budget=0.0)  # one pass


def op(name: str, *args: Any) -> Op:
    return Op(name, encode_arguments(args, {}))


def add(length: int) -> Op:
    return op("aten.add.Tensor", TensorArgument((length,), "float32"), 1.0)


NO_SUCH_OP = Op("aten.addd.Tensor", '{"args":[]}')


def test_every_distinct_op_gets_a_timing_for_every_cache_state() -> None:
    done = profile([add(10), add(20), add(10)], FAST, source="here")
    assert Counter((t.op, t.cache) for t in done.timings) == Counter(
        (op, cache) for op in (add(10), add(20)) for cache in ("cold", "warm")
    )
    assert all(t.time.minimum > 0 and t.probe > 0 and t.source == "here" for t in done.timings)
    assert done.environment == environment_here()


def test_a_larger_op_takes_longer() -> None:
    small, large = add(1000), add(4_000_000)
    done = profile([small, large], Settings(budget=1.0))
    median = {(t.op, t.cache): t.time.median for t in done.timings}
    for cache in ("cold", "warm"):
        assert median[large, cache] > 5 * median[small, cache]


def test_an_op_is_visited_until_its_mean_is_known() -> None:
    loose = profile([add(10)], Settings(budget=60.0, precision=1e9))
    assert all(t.time.count <= LEAST for t in loose.timings)  # less outliers
    strict = profile([add(10)], Settings(budget=60.0, precision=1e-9))
    assert all(MOST // 2 < t.time.count <= MOST for t in strict.timings)


def test_what_cannot_run_is_refused_with_its_reason_and_the_rest_is_timed() -> None:
    wrong = op("aten.mm.default", *(TensorArgument((2, 3), "float32"),) * 2)
    huge = op("aten.clone.default", TensorArgument((10**12,), "float32"))
    done = profile([NO_SUCH_OP, wrong, huge, add(10)], FAST)
    assert set(done.refused) == {NO_SUCH_OP, wrong, huge}
    assert "has no such op" in done.refused[NO_SUCH_OP]
    assert "mat1 and mat2" in done.refused[wrong]
    assert "8,000,000,000,000 bytes" in done.refused[huge]
    assert {t.op for t in done.timings} == {add(10)}


def test_the_memory_of_an_op_is_that_of_all_it_is_given_and_makes() -> None:
    """Two sets of arguments, also where the op looks at a part of them or at none; its results."""
    table = TensorArgument((1000, 1000), "float32")
    view = op("aten.t.default", table)
    gather = op("aten.embedding.default", table, TensorArgument((2,), "int64"))
    made = Op("aten.new_zeros.default", add(1).arguments, bytes_written=8_000_001)
    small = op("aten.clone.default", TensorArgument((1000, 999), "float32"))
    done = profile([view, gather, made, small], Settings(budget=0.0, memory=8e6 - 1))
    assert set(done.refused) == {view, gather, made}


def test_without_a_limit_of_its_own_an_op_may_take_half_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["paracosm.profiling.profiler"]
    monkeypatch.setattr(module, "free_memory", lambda device: 16_000)
    done = profile([add(1000), add(1001)], FAST)
    assert set(done.refused) == {add(1001)}


def test_free_memory_is_no_more_than_the_machine_has() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = free_memory()
    assert free is not None
    assert 0 < free <= pages


def test_what_was_measured_is_kept_when_something_else_fails() -> None:
    kept: list[OpTiming] = []
    calls: list[int] = []

    def fail_later() -> None:
        calls.append(1)
        if len(calls) > 2:  # both ops were visited once
            raise RuntimeError("the real iteration failed")

    with pytest.raises(RuntimeError, match="the real iteration failed"):
        profile([add(10), add(20)], Settings(budget=60.0), keep=kept.extend, between=fail_later)
    assert {t.op for t in kept} == {add(10), add(20)}


def test_one_sample_of_each_op_is_not_called_stable() -> None:
    once = profile([add(10), add(20)], FAST)
    assert {t.time.count for t in once.timings} == {1}
    assert once.stable == 0.0
    often = [replace(t, time=spread_of([1.0, 1.001, 1.002])) for t in once.timings]
    assert replace(once, timings=[*often, *once.timings]).stable == 0.5


def test_an_interrupt_keeps_what_is_known() -> None:
    kept: list[OpTiming] = []

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    done = profile([add(10), add(20)], FAST, keep=kept.extend, progress=interrupt)
    assert done.interrupted
    assert len({t.op for t in done.timings}) == 1
    assert kept == done.timings


def test_timings_are_kept_once_each() -> None:
    kept: list[OpTiming] = []
    done = profile([add(10), add(20)], FAST, keep=kept.extend)
    assert kept == done.timings
    assert len({t.key for t in kept}) == 4


def test_something_real_runs_before_every_visit_and_after_the_last() -> None:
    calls: list[int] = []
    settings = Settings(budget=60.0, precision=1e9)
    profile([add(10)], settings, between=lambda: calls.append(torch.get_num_threads()))
    assert calls == [1] * (LEAST + 1)


def test_threads_and_denormals_are_as_before_after_a_profile() -> None:
    before = torch.get_num_threads()
    with pinned("cpu", 1):
        assert torch.get_num_threads() == 1
        with pinned("cpu", 1):
            pass
        assert flushes_denormals(torch)
    assert torch.get_num_threads() == before
    assert not flushes_denormals(torch)


def test_all_is_as_before_where_pinning_itself_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "sched_setaffinity", fail_once(InterruptedError))
    with pytest.raises(InterruptedError), pinned("cpu", 1):
        pass
    assert torch.get_num_threads() == before
    assert not flushes_denormals(torch)


def fail_once(error: type[Exception]) -> Any:
    errors = [error]

    def stay_on(process: int, cores: set[int]) -> None:
        if errors:
            raise errors.pop()

    return stay_on


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core here: threads untested")
def test_threads_that_would_be_slow_on_denormals_are_refused() -> None:
    """Each has a setting of its own: a thread that is there already does not follow."""
    program = (
        "import torch; from paracosm.profiling.environment import pinned\n"
        "torch.set_num_threads(2); torch.ones(1 << 20) * 2\n"
        "with pinned('cpu', 2): pass"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "threads: those of PyTorch were started before" in done.stderr


class Steps(HostClock):
    """Notes what is asked of a clock, and when the cache is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def seconds(self, call: Any, times: int = 1) -> float:
        self.seen.append("timed")
        return super().seconds(call, times)

    def head_start(self) -> None:
        self.seen.append("head start")


def test_the_host_is_ahead_of_the_device_when_an_op_is_timed_cold() -> None:
    """Timing the second set of arguments waits for the device, which then has nothing to do."""
    clock = Steps()
    Bench("cpu", clock).visit(add(10), ("cold",), seed=0)
    assert clock.seen == ["timed", "head start", "timed"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": -1.0}, "budget"),
        ({"precision": 0.0}, "precision"),
        ({"caches": ("tepid",)}, "cold and warm, not tepid"),
        ({"caches": ()}, "cold and warm"),
        ({"threads": 9999}, "may use .* cores, not 9999"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings(**settings)


def test_a_device_that_is_not_here_is_refused() -> None:
    with pytest.raises(InputError, match="choose from cpu, cuda"):
        environment_here("tpu")
    with pytest.raises(InputError, match="cores"), pinned("cpu", 4096):
        pass


def test_the_clock_counts_work_and_not_sleep() -> None:
    import time

    clock = HostClock(threads=1)
    assert clock.seconds(lambda: time.sleep(0.05)) < 0.02
    assert HostClock(threads=2).seconds(lambda: time.sleep(0.05)) >= 0.05


def test_the_cache_to_be_flushed_has_a_size() -> None:
    assert 1 << 18 <= last_level_cache() <= 1 << 31


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device here: GPU timing untested"
)
def test_a_gpu_is_timed_by_the_same_code() -> None:
    done = profile([add(1000), add(100_000_000)], Settings(device="cuda", budget=2.0))
    median = {(t.op, t.cache): t.time.median for t in done.timings}
    assert done.environment.device == "cuda"
    assert median[add(100_000_000), "cold"] > 10 * median[add(1000), "cold"]
    clock = CudaClock()
    assert clock.seconds(lambda: torch.cuda._sleep(10_000_000)) > 1e-3
    clock.wait()
    clock.head_start()  # launching costs nothing then
    assert clock.seconds(lambda: torch.cuda._sleep(1)) < 1e-5


def test_the_result_of_an_op_timed_cold_lies_in_memory_of_its_own() -> None:
    """Not where the call before it left its result, which is still in the cache."""
    places: list[int] = []

    class Watch(HostClock):
        def seconds(self, call: Any, times: int = 1) -> float:
            with _Results(places):
                return super().seconds(call, times)

    Bench("cpu", Watch()).visit(add(100_000), ("cold",), seed=0)
    assert len(places) == len(set(places)) == 2


class _Results(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, places: list[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = places

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._places.append(result.data_ptr())
        return result

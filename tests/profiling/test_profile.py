"""Passes over ops: what is kept, what is refused, and what Ctrl-C leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from paracosm.errors import InputError
from paracosm.graphs import Op, TensorArgument
from paracosm.graphs.op import encode_arguments
from paracosm.profiling.clock import CudaClock, HostClock
from paracosm.profiling.here import environment_here, last_level_cache
from paracosm.profiling.pinning import pinned
from paracosm.profiling.profile import LEAST, MOST, Settings, profile
from paracosm.profiling.samples import OpTiming

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


def test_an_op_is_visited_until_its_median_is_known() -> None:
    loose = profile([add(10)], Settings(budget=60.0, precision=1e9))
    assert all(t.time.count <= LEAST for t in loose.timings)  # less outliers
    strict = profile([add(10)], Settings(budget=60.0, precision=1e-9))
    assert all(MOST // 2 < t.time.count <= MOST for t in strict.timings)


def test_what_cannot_run_is_refused_with_its_reason_and_the_rest_is_timed() -> None:
    wrong = op("aten.mm.default", *(TensorArgument((2, 3), "float32"),) * 2)
    huge = Op("aten.clone.default", add(10).arguments, bytes_read=10**12)
    done = profile([NO_SUCH_OP, wrong, huge, add(10)], FAST)
    assert set(done.refused) == {NO_SUCH_OP, wrong, huge}
    assert "has no such op" in done.refused[NO_SUCH_OP]
    assert "mat1 and mat2" in done.refused[wrong]
    assert "1,000,000,000,000 bytes" in done.refused[huge]
    assert {t.op for t in done.timings} == {add(10)}


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


def test_something_real_runs_before_every_pass_and_after_the_last() -> None:
    calls: list[int] = []
    settings = Settings(budget=60.0, precision=1e9)
    profile([add(10)], settings, between=lambda: calls.append(torch.get_num_threads()))
    assert calls == [1] * (LEAST + 1)


def test_threads_are_as_before_after_a_profile() -> None:
    before = torch.get_num_threads()
    with pinned("cpu", 1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": -1.0}, "budget"),
        ({"precision": 0.0}, "precision"),
        ({"caches": ("tepid",)}, "cold and warm, not tepid"),
        ({"caches": ()}, "cold and warm"),
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

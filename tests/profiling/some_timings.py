"""Timings that nobody measured, for tests of the database."""

from __future__ import annotations

from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import IterationTiming, LinkTiming, OpTiming, spread_of

CPU = Environment("cpu", "AMD EPYC", "torch 2.13.0", 1, "malloc pinned", "flushed")
GPU = Environment("cuda", "NVIDIA H200", "torch 2.13.0", 0, "cuda caching", "kept")

RELU = Op("aten.relu.default", encode_arguments([TensorArgument((8, 4), "float32")], {}), 32, 1, 1)
DAY = "2026-01-02T03:04:05+00:00"


def timing(
    key: str,
    op: Op = RELU,
    environment: Environment = CPU,
    cache: str = "cold",
    samples: tuple[float, ...] = (1e-3, 2e-3, 3e-3),
    probe: float = 0.0,
    source: str = "model resnet50",
    measured_at: str = DAY,
) -> OpTiming:
    time = spread_of(samples)
    return OpTiming(op, environment, cache, time, probe, source, measured_at, key)


def link(key: str, size: int = 1000, environment: Environment = CPU) -> LinkTiming:
    time = spread_of([1e-3])
    return LinkTiming("all_reduce", "gloo", size, 2, environment, time, "here", DAY, key)


def iteration(key: str, environment: Environment = CPU, median: float = 0.5) -> IterationTiming:
    time = spread_of([median])
    return IterationTiming("f00d", "resnet50, batch 4", environment, time, 0.0, "here", DAY, key)


def some(count: int, prefix: str = "", environment: Environment = CPU) -> list[OpTiming]:
    """Return timings of `count` different ops."""
    return [
        timing(f"{prefix}{number}", Op("aten.add.Tensor", f"{number}"), environment)
        for number in range(count)
    ]

"""Profile databases of machines that are not there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from paracosm.graphs import Node, Op, build_graph, save_graph
from paracosm.graphs.graph import TensorArgument, encode_arguments
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import OpTiming, Spread

CPU = Environment("cpu", "Old Chip 7 (family 6)", "torch 2.13.0", 1, "malloc pinned", "flushed")
GPU = Environment("cuda", "NVIDIA H100", "torch 2.13.0, CUDA 12.8", 0, "cuda caching", "kept")
MICRO = 1e-6


def op(name: str, size: int, flops: int = 0) -> Op:
    """Return an op on a vector of `size` numbers."""
    arguments = encode_arguments([TensorArgument((size,), "float32")], {})
    return Op(name, arguments, flops or size, 4 * size, 4 * size)


CONV, RELU = op("aten.convolution.default", 1000, 10**6), op("aten.relu.default", 1000)
VIEW = Op("aten.view.default", "", 0, 0, 0)


def timing(
    of: Op,
    seconds: float,
    environment: Environment = CPU,
    cache: str = "cold",
    probe: float = 1e-3,
) -> OpTiming:
    """Return a timing without any spread."""
    spread = Spread(10, seconds, 0.0, seconds, seconds, seconds, seconds)
    return OpTiming(of, environment, cache, spread, probe)


def make_database(path: Path, timings: Iterable[OpTiming]) -> Path:
    """Write a database of these timings."""
    with ProfileDatabase.open(path, create=True) as database:
        database.add(timings)
    return path


def make_graph(path: Path, *extra: Op, resource: str = "compute", block: int = 4000) -> Path:
    """Write the graph of two convolutions with a ReLU between them, and what is given besides."""
    ops = [CONV, RELU, CONV, *extra]
    phases = ["forward", "forward", "backward", *["optimizer"] * len(extra)]
    nodes = [
        Node(
            i,
            op,
            name=f"layer{i}",
            phase=phase,
            resource=resource if i > 2 else "compute",
            dependencies=(i - 1,) if i else (),
            allocates=((block, -1),),
        )
        for i, (op, phase) in enumerate(zip(ops, phases, strict=True))
    ]
    save_graph(build_graph(nodes, provenance={"examples": 8}), path)
    return path


KNOWN = [timing(CONV, 200 * MICRO), timing(RELU, 100 * MICRO)]
WARM = [replace(timing(each, t), cache="warm") for each, t in ((CONV, 150e-6), (RELU, 50e-6))]

"""What an op costs in a script on a CPU beyond what it takes alone.

There Python, autograd and dispatch are serial with the kernels. What they take of each op is
measured on a network so narrow that it consists of little else: its forward and backward pass, and
its optimizer's step, less what their ops take in a row, over the number of ops that were
dispatched. Ops that only the host sees (views, sizes) count among these, and are not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.errors import require
from paracosm.graphs.graph import Op
from paracosm.profiling.environment import clock_for, environment_here, pinned, private_cache
from paracosm.profiling.samples import LinkTiming, now, spread_of, typical

KIND = "host of an op"
"""Of a timing among those of links: seconds of one op, and as size the cache of one core."""

FORWARD, OPTIMIZER = "forward and backward", "optimizer"

_LAYERS, _WIDTH, _BATCH = 16, 8, 4
_ROUNDS, _VISITS = 150, 5


def measure_host_ops(threads: int = 1) -> list[LinkTiming]:
    """Measure what the host takes of an op here, in either part of a step."""
    require("torch", "torch", "measuring what the host takes")
    from paracosm.profiling.torch_ops import Bench

    clock = clock_for("cpu", threads)
    environment = environment_here("cpu", threads)
    with pinned("cpu", threads, 0):
        parts = _network()
        for _ in range(3):
            for run in parts.values():
                run()
        recorded = {name: _ops_of(run) for name, run in parts.items()}
        bench = Bench("cpu", clock)
        timed = {op for ops in recorded.values() for op in ops if op is not None}
        visits = {
            op: [bench.visit(op, ("warm",), seed)["warm"] for seed in range(_VISITS)]
            for op in timed
        }
        alone = {op: float(np.median(seconds)) for op, seconds in visits.items()}
        samples: Mapping[str, list[float]] = {name: [] for name in parts}
        for _ in range(_ROUNDS):
            for name, run in parts.items():
                ops = recorded[name]
                kernels = sum(alone[op] for op in ops if op is not None)
                samples[name].append(max(clock.seconds(run) - kernels, 0.0) / len(ops))
    return [
        LinkTiming(
            kind=KIND,
            scenario=name,
            size=private_cache(),
            ranks=1,
            environment=environment,
            time=spread_of(typical(seconds)),
            source="a narrow network",
            measured_at=now(),
        )
        for name, seconds in samples.items()
    ]


def _network() -> dict[str, Callable[[], object]]:
    """Return the parts of a step of a network whose kernels take next to nothing."""
    import torch
    from torch.nn import functional

    layers: list[torch.nn.Module] = []
    for _ in range(_LAYERS):
        layers += [
            torch.nn.Linear(_WIDTH, _WIDTH),
            torch.nn.LayerNorm(_WIDTH),
            torch.nn.GELU(),
        ]
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(network.parameters())
    inputs = torch.ones(_BATCH, _WIDTH)
    classes = torch.zeros(_BATCH, dtype=torch.int64)

    def forward_and_backward() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), classes).backward()  # type: ignore[no-untyped-call]

    return {FORWARD: forward_and_backward, OPTIMIZER: optimizer.step}


def _ops_of(run: Callable[[], object]) -> Sequence[Op | None]:
    """Return the ops that are dispatched; None for what only the host sees."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from paracosm.graphs.capture.calls import effects_of, encode_call, resource_of, traffic_of

    ops: list[Op | None] = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if func.namespace != "aten":  # marks of a profiler
                return func(*args, **kwargs)
            arguments = encode_call(func, args, kwargs, "cpu")
            result = func(*args, **kwargs)
            effects = effects_of(func, args, kwargs, result)
            if resource_of(func, effects, "cpu") == "host":
                ops.append(None)
            else:
                ops.append(Op(str(func), arguments, 0, *traffic_of(func, effects)))
            return result

    with Watch():  # type: ignore[no-untyped-call]
        run()
    return ops

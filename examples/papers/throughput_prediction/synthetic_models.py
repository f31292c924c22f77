"""Profiles of models that nobody ran: layers in a chain, computing in proportion to FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.errors import require
from paracosm.models import built_in
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile

__all__ = ["Layer", "layers_of", "profile_of"]

STEPS = 100
VARIATION = 0.05  # of durations from step to step, relative
ASKED = 1e-6  # seconds between two transfers that are asked for at a step's begin


@dataclass(frozen=True)
class Layer:
    """A layer with parameters: its name, their bytes, its FLOPs for one example."""

    name: str
    sizes: tuple[float, ...]
    flops: float


def layers_of(model: str) -> list[Layer]:
    """Return the layers of a built-in model of images, in the order in which they compute.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    torch: Any = require("torch", "torch", "a model's layers")
    about = built_in(model)
    layers: list[Layer] = []

    def note(name: str) -> Any:
        def hook(module: Any, _inputs: Any, output: Any) -> None:
            own = list(module.parameters(recurse=False))
            places = output.numel() / output.shape[1]
            layers.append(
                Layer(
                    name,
                    tuple(float(each.numel() * each.element_size()) for each in own),
                    2 * places * own[0].numel(),
                )
            )

        return hook

    with torch.device("meta"):
        network = about.make(about.shape, about.classes)
        for name, module in network.named_modules():
            if list(module.parameters(recurse=False)):
                module.register_forward_hook(note(name))
        network(torch.empty(1, *about.shape))
    return layers


def profile_of(layers: Sequence[Layer], computing: float) -> JobProfile:
    """Return a profile of one worker: pull, forward, backward, push and apply.

    A layer's forward pass waits for its parameters and the layer before; its backward pass takes
    twice as long, and is followed by its pushes. Servers apply at once. Parameters are asked for in
    an order by chance, and durations vary, in every step.

    Args:
        layers: in the order in which they compute.
        computing: seconds of a step's computing.
    """
    names: list[str] = []
    resource: list[int] = []
    size: list[float] = []
    share: list[float] = []
    waits: list[list[int]] = []

    def add(name: str, kind: int, bytes_: float, part: float, waits_for: list[int]) -> int:
        names.append(name)
        resource.append(kind)
        size.append(bytes_)
        share.append(part)
        waits.append(waits_for)
        return len(names) - 1

    total = 3 * sum(layer.flops for layer in layers)
    pulls = [
        [
            add(f"pull {layer.name} {number}", DOWNLINK, bytes_, 0.0, [])
            for number, bytes_ in enumerate(layer.sizes)
        ]
        for layer in layers
    ]
    last: list[int] = []
    for layer, its in zip(layers, pulls, strict=True):
        last = [add(f"forward {layer.name}", WORKER, 0, layer.flops / total, [*its, *last])]
    for layer, its in reversed(list(zip(layers, pulls, strict=True))):
        last = [add(f"backward {layer.name}", WORKER, 0, 2 * layer.flops / total, last)]
        for number, pull in enumerate(its):
            push = add(f"push {layer.name} {number}", UPLINK, size[pull], 0.0, last)
            add(f"apply {layer.name} {number}", SERVER, 0, 0.0, [push, pull])
    rng = np.random.default_rng(0)
    ops = len(names)
    seconds = computing * np.array(share) * rng.gamma(VARIATION**-2, VARIATION**2, (STEPS, ops))
    begin = np.cumsum(seconds, axis=1) - seconds + 1.0
    asked = sum(len(its) for its in pulls)
    begin[:, :asked] = ASKED * np.array([rng.permutation(asked) for _ in range(STEPS)])
    end = begin + seconds
    length = end.max(axis=1)
    step_end = np.cumsum(length)
    return JobProfile(
        names=tuple(names),
        kinds=tuple(name.split()[0] for name in names),
        resource=np.array(resource, np.int8),
        server=np.zeros(ops, np.int64),
        size=np.array(size).astype(np.int64),
        first_dependency=np.cumsum([0, *(len(wait) for wait in waits)]),
        dependencies=np.array([op for wait in waits for op in wait], np.int64),
        begin=begin,
        end=end,
        step_begin=step_end - length,
        step_end=step_end,
        provenance={"source": "synthetic"},
    )

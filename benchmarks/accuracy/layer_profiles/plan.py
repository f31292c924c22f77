"""Plans: which layers run on which GPUs, and what that took, as Sailor publishes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from op_latencies import read_json

from layer_profiles.entries import Content
from paracosm.errors import InputError

__all__ = ["Measured", "Plan", "Stage", "Worker", "read_plan"]


@dataclass(frozen=True, slots=True)
class Worker:
    """The GPUs of one node that split the layers of a stage between them.

    Attributes:
        gpu: their kind.
        zone: where the node is.
        tensor: how many split each layer.
    """

    gpu: str
    zone: str
    tensor: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers that follow each other, and the workers that have them: one for each replica."""

    layers: range
    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a plan took: seconds of an iteration and of the all-reduce of the gradients at its end,
    bytes on the fullest GPU; None where nobody says."""

    iteration: float
    all_reduce: float | None
    memory: float | None


@dataclass(frozen=True)
class Plan:
    """A pipeline of stages, each of which has as many workers as there are replicas.

    Attributes:
        name: the file's, "plan_config_N4_D2".
        stages: in order.
        microbatch: examples that a worker works on at once.
        batch: examples of an iteration, of all replicas.
        measured: what it took; None where nobody says.
    """

    name: str
    stages: tuple[Stage, ...]
    microbatch: int
    batch: int
    measured: Measured | None

    @property
    def replicas(self) -> int:
        """How many workers each stage has."""
        return len(self.stages[0].workers)

    @property
    def microbatches(self) -> int:
        """How many each replica works on in an iteration."""
        return math.ceil(self.batch / (self.microbatch * self.replicas))

    @property
    def gpus(self) -> int:
        """How many there are in all."""
        return sum(worker.tensor for stage in self.stages for worker in stage.workers)


def read_plan(path: Path) -> Plan:
    """Read a plan (JSON).

    Raises:
        InputError: it cannot be read, lacks a name or has another than one pipeline, stages with
            different numbers of workers, workers on several nodes, or layers that do not follow
            each other.
    """
    content = Content(read_json(path), str(path))
    pipelines = content.under("key", "pipeline_list")
    if not isinstance(pipelines.value, list) or len(pipelines.value) != 1:
        raise InputError(f"{pipelines.where}: holds another number than one pipeline")
    pipeline = Content(pipelines.value[0], pipelines.where)
    layers = pipeline.under("key", "layers_per_stage")
    workers = pipeline.under("key", "tmp_per_stage")
    try:
        pairs = list(zip(layers.value, workers.value, strict=True))
    except (TypeError, ValueError):
        raise InputError(
            f"{pipeline.where}: layers and GPUs are not given stage by stage"
        ) from None
    if not pairs:
        raise InputError(f"{pipeline.where}: has no stages")
    stages: list[Stage] = []
    for number, (own, devices) in enumerate(pairs):
        where = f"{pipeline.where}: stage {number}"
        first = stages[-1].layers.stop if stages else 0
        stages.append(Stage(_layers(own, first, where), _workers(devices, where)))
    if len({len(stage.workers) for stage in stages}) > 1:
        raise InputError(f"{pipeline.where}: stages have different numbers of replicas")
    return Plan(
        name=path.stem,
        stages=tuple(stages),
        microbatch=_count(content, "mbs"),
        batch=_count(content, "gbs"),
        measured=_measured(content),
    )


def _layers(value: Any, first: int, where: str) -> range:
    if not isinstance(value, list) or value != list(range(first, first + len(value))) or not value:
        raise InputError(f"{where}: its layers do not begin with {first} and follow each other")
    return range(first, first + len(value))


def _workers(value: Any, where: str) -> tuple[Worker, ...]:
    """Return the workers of `[[[[gpu, gpus of the node, zone], ...], tensor], ...]`."""
    workers = []
    try:
        for nodes, tensor in value:
            if len(nodes) != 1:
                raise InputError(
                    f"{where}: a layer is split over {len(nodes)} nodes: only 1 can be"
                )
            gpu, _, zone = nodes[0]
            workers.append(Worker(str(gpu), str(zone), int(tensor)))
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: its GPUs are not given as nodes and a number") from None
    if not workers:
        raise InputError(f"{where}: has no GPUs")
    return tuple(workers)


def _count(content: Content, name: str) -> int:
    value = content.under("key", name).value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{content.where}: {name}: {value!r} is no whole number from 1")
    return value


def _measured(content: Content) -> Measured | None:
    iteration = _amount(content, "real")
    if iteration is None:
        return None
    return Measured(iteration, _amount(content, "red_grads"), _amount(content, "max_mem"))


def _amount(content: Content, name: str) -> float | None:
    """Return a number above 0, None where there is none."""
    value = content.value.get(name)
    if value is None:
        return None
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not (usable and math.isfinite(value) and value > 0):
        raise InputError(f"{content.where}: {name}: {value!r} is no number above 0")
    return float(value)

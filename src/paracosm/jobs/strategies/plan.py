"""A replica cut into stages: what all ranks of a job have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs.strategies.gradients import gradient_bytes
from paracosm.jobs.strategies.layers import Layers, layers_of
from paracosm.jobs.strategies.part import Part, parts_of
from paracosm.jobs.strategies.replica import Replica
from paracosm.jobs.strategies.stages import stages_of
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.tensor_parallel import kept_gradients, split
from paracosm.jobs.strategies.work import Work, work_of

__all__ = ["Plan", "plan_of"]

DIVIDED = ("parameters", "gradients", "optimizer")
"""What tensor-parallel ranks hold their parts of."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A replica's work, and who does which part of it.

    Attributes:
        strategy: that it is for.
        work: of one of the tensor-parallel ranks.
        layers: of the graph.
        parts: one for each stage; chunk c of rank p of a pipeline is `parts[c * pipeline + p]`.
        gradients: bytes that each node makes.
        resident: bytes that a replica holds throughout, by what they are.
    """

    strategy: Strategy
    work: Work
    layers: Layers
    parts: tuple[Part, ...]
    gradients: npt.NDArray[np.int64]
    resident: dict[str, float]

    @property
    def gathers(self) -> bool:
        """Whether layers are gathered before they are used."""
        return self.strategy.sharding == "parameters"

    @property
    def parameters(self) -> float:
        """Bytes of a replica's parameters; where nobody says, as many as those of its gradients."""
        return self.resident.get("parameters") or float(self.gradients.sum())

    @cached_property
    def layer_parameters(self) -> npt.NDArray[np.float64]:
        """Bytes of the parameters of every layer, in proportion to those of their gradients."""
        there = self.layers.layer >= 0
        sizes = np.bincount(
            self.layers.layer[there],
            weights=self.gradients[there],
            minlength=len(self.layers.names),
        )
        return np.asarray(sizes * (self.parameters / max(float(sizes.sum()), 1.0)))

    @cached_property
    def until(self) -> npt.NDArray[np.int64]:
        """The last layer whose forward pass looks at what each node makes; -1 for none."""
        graph, layers = self.work.graph, self.layers
        until = np.full(len(graph), -1, dtype=np.int64)
        for row in layers.forward_rows:
            np.maximum.at(until, graph.predecessors(row), layers.layer[row])
        return until

    def sections(self, rows: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return these rows as runs of rows of one layer, each with the number of the layer."""
        layer = self.layers.layer
        return [
            (int(number), list(run)) for number, run in groupby(rows, key=lambda row: layer[row])
        ]

    def backward_rows(self, part: Part) -> list[int]:
        """Return the rows of a stage's backward pass in the order in which they run.

        Where something is done before every layer, it is layer by layer, the last one first: an
        order that can run, for no row has to wait for a layer before it.
        """
        if not (self.gathers or self.strategy.recompute):
            return list(part.backward)
        return sorted(part.backward, key=lambda row: -self.layers.layer[row])


def plan_of(replica: Replica, strategy: Strategy) -> Plan:
    """Cut a replica into the stages of a strategy.

    Raises:
        InputError: the strategy does not fit the model.
    """
    graph, layers = replica.graph, layers_of(replica.graph)
    work = work_of(replica, strategy.tensor)
    if strategy.tensor != replica.tensor and not work.collective:
        if replica.tensor > 1:
            raise InputError(
                f"strategy: tp={strategy.tensor}, but the replica is one of {replica.tensor} "
                f"tensor-parallel ranks: tp={replica.tensor} fits"
            )
        work = split(work, layers, strategy.tensor)
    passes = np.arange(layers.optimizer)
    time = np.bincount(
        layers.layer[passes],
        weights=np.array(work.duration)[passes],
        minlength=len(layers.names),
    ).astype(np.float64)
    stage = stages_of(layers, time, strategy.pipeline * strategy.chunks, strategy.cut)
    gradients = gradient_bytes(graph.storages, work.storage_size, layers.backward_rows, len(graph))
    kept = kept_gradients(work, work.storage_size, layers)
    return Plan(
        strategy=strategy,
        work=work,
        layers=layers,
        parts=tuple(parts_of(graph, layers, stage, gradients)),
        gradients=gradients,
        resident={
            what: size * (kept if what in DIVIDED else 1.0) for what, size in graph.resident.items()
        },
    )

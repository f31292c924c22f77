"""One replica of a job: its graph, and how long every node takes on its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.graph import Graph

__all__ = ["Replica"]


@dataclass(frozen=True, eq=False)
class Replica:
    """A training step of one replica, on a worker of speed 1.

    Attributes:
        graph: forward, backward and optimizer, of one micro-batch.
        duration: n seconds on the node's own lane.
        asynchronous: whether the host runs ahead of the device, as with a GPU.
        launch: seconds that the host spends on issuing a node that it does not carry out itself.
        tensor: tensor-parallel ranks that the graph is one of. Where it has no nodes that
            communicate, durations are taken to include that.

    Raises:
        InputError: a duration or the launch time is missing (NaN), negative or infinite; no rank.
    """

    graph: Graph
    duration: npt.NDArray[np.float64]
    asynchronous: bool = False
    launch: float = 0.0
    tensor: int = 1

    @property
    def examples(self) -> int | None:
        """How many the graph's batch has; None where its provenance does not say."""
        said = self.graph.provenance
        examples = said.get("examples", said.get("batch"))
        return examples if isinstance(examples, int) else None

    def __post_init__(self) -> None:
        times = np.asarray(self.duration, dtype=np.float64)
        if times.shape != (len(self.graph),):
            raise InputError(f"replica: {times.size} durations for {len(self.graph)} nodes")
        wrong = np.flatnonzero(~(np.isfinite(times) & (times >= 0)))
        if len(wrong):
            row = int(wrong[0])
            op = self.graph.ops[self.graph.op[row]].name
            raise InputError(
                f"replica: the duration of node {int(self.graph.id[row])} ({op}) is {times[row]} s"
            )
        if self.tensor < 1:
            raise InputError(f"replica: tensor must be 1 or more, not {self.tensor}")
        if not (np.isfinite(self.launch) and self.launch >= 0):
            raise InputError(f"replica: the launch time is {self.launch} s")

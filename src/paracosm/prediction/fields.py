"""What every form of a prediction has: the cluster, numbers of workers, and changes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field

from paracosm.cluster.changes import Change, changes_cluster, refuse_changes
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCounts
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.quantities import Bandwidth
from paracosm.validation import validated


class PredictionFields(ClusterFields):
    """The cluster of a prediction. A form adds `_check`, which raises InputError."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    CAN_CHANGE: ClassVar[str] = (
        "how fast workers and servers compute, links, and the number of workers"
    )

    workers: WorkerCounts = Field(
        None,
        description=(
            "numbers of workers: 16, or several: 1,2,4..1024 continues by the same "
            "factor, 2,5..20 by the same difference, 1..8 by ones"
        ),
    )
    cluster: Path | dict[str, Any] | None = Field(
        None,
        description=(
            "a cluster file, in place of flags for links; workers then selects the first "
            "ones of its nodes"
        ),
    )
    bandwidth: Bandwidth | None = Field(
        None,
        gt=0,
        description="bandwidth of every link: 25Gbit/s, or inf (of a profile: the node's, or what "
        "it was profiled on)",
    )
    servers: int | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="parameter servers of strategies ps and ps-async (1), or of a profiled job "
        "(its own)",
    )

    @property
    def is_auto(self) -> bool:
        """Whether to search for the strategy."""
        return False

    @property
    def predictions(self) -> int | None:
        """The length of a sweep over workers; None for a single number."""
        return len(self.workers) if self.workers is not None and len(self.workers) > 1 else None

    def idle(self) -> dict[str, set[str]]:
        if self.cluster is None:
            return {}
        return {"the cluster file defines it": {*LINK_FIELDS, "servers"}}

    def check(self) -> None:
        """Raise InputError for missing files, and for what does not fit together."""
        for config in (self.unchanged, self.resolved) if self.what_if else (self,):
            config._check()

    def _check(self) -> None:
        raise NotImplementedError

    @cached_property
    def unchanged(self) -> Self:
        return self._with("what_if", what_if=())

    @cached_property
    def resolved(self) -> Self:
        """The configuration with the number of workers of `what_if`, if any."""
        refused = (change for change in self.what_if if not self._can_change(change))
        refuse_changes(refused, "predict", self.CAN_CHANGE)
        counts = [change for change in self.what_if if change.what == "count"]
        if not counts:
            return self
        if len(counts) > 1 or (self.workers is not None and len(self.workers) > 1):
            raise counts[-1].error("workers already lists several numbers: leave one out")
        rest = tuple(change for change in self.what_if if change.what != "count")
        return self._with("what_if", workers=(counts[0].value,), what_if=rest)

    def _can_change(self, change: Change) -> bool:
        return changes_cluster(change) or change.what == "count"

    def _with(self, where: str, **values: Any) -> Self:
        fields_set = {name: getattr(self, name) for name in self.model_fields_set} | values
        fields_set = {name: value for name, value in fields_set.items() if value is not None}
        return validated(type(self), fields_set, where)

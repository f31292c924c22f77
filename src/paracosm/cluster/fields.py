"""The cluster of a configuration: the same fields and flags for every command."""

from collections.abc import Mapping
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from paracosm.cluster.changes import Changes, apply_changes, changes_cluster
from paracosm.cluster.cluster import Cluster, star, switch
from paracosm.cluster.description import cluster_from_mapping, load_cluster
from paracosm.cluster.file import SharingField
from paracosm.cluster.link import Duplex, Link
from paracosm.cluster.worker_counts import MOST_NODES, parse_workers
from paracosm.configuration import Configuration
from paracosm.errors import InputError
from paracosm.quantities import Bandwidth, Duration

LINK_FIELDS = frozenset({"latency", "bandwidth", "overhead", "duplex", "pipelined", "sharing"})
"""The fields that a cluster file takes the place of."""


def _parse_one(value: Any) -> Any:
    """Read "16" as the command line gives it."""
    if isinstance(value, str | list | tuple):
        counts = parse_workers(value)
        if len(counts) > 1:
            raise InputError(f"one number here, not {len(counts)}: a list is a sweep of runs")
        return counts[0]
    return value


WorkerCount = Annotated[int, BeforeValidator(_parse_one), Field(ge=1, le=MOST_NODES)]
"""One number of workers."""

WorkerCounts = Annotated[
    tuple[int, ...] | None, BeforeValidator(lambda v: None if v is None else parse_workers(v))
]
"""Numbers of workers: 16, or several: 1,2,4..64."""


class ClusterFields(Configuration):
    """The fields that describe the cluster: flags for links, or a cluster file, and changes.

    A configuration inherits them, sets its own defaults of `workers` and `servers`, and calls
    `cluster_of`.
    """

    latency: Annotated[Duration, Field(allow_inf_nan=False)] = Field(
        0.0, description="latency of every link"
    )
    bandwidth: Bandwidth | None = Field(
        None, gt=0, description="bandwidth of every link: 25Gbit/s, or inf"
    )
    overhead: Annotated[Duration, Field(allow_inf_nan=False)] = Field(
        0.0, description="port time of each message in addition to its bytes"
    )
    duplex: Duplex = Field(
        "full", description="full, or half where a port either sends or receives"
    )
    pipelined: bool = Field(
        True, description="latency does not hold the ports, as on a real network"
    )
    sharing: SharingField = Field(
        "fair",
        description="messages that meet at a port share it (fair), have it one after the other "
        "(serial), or in turn, so much at a time: packets(16KiB)",
    )
    cluster: Path | dict[str, Any] | None = Field(
        None, description="a cluster file, in place of the fields of links"
    )
    what_if: Changes = Field(
        (),
        description='a change, compared with the unchanged run: "worker 5: compute 1.5x slower", '
        '"links: bandwidth 2x", "latency: 50 us"; may be given several times',
    )

    @model_validator(mode="before")
    @classmethod
    def _synonyms(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for word, name in cls.SYNONYMS.items():
            if word in given:
                if given.get(name) is not None:
                    raise InputError(f"{word} and {name} are the same: give one of them")
                given = {name if key == word else key: value for key, value in given.items()}
        return given

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values, from which cached properties are derived anew.

        A cluster file is read once, unless it is another one.
        """
        copy = super().model_copy(update=update, deep=deep)
        kept = set() if "cluster" in (update or {}) else {"cluster_in_file"}
        for name in copy.__dict__.keys() - type(self).model_fields.keys() - kept:
            del copy.__dict__[name]
        return copy

    @property
    def link(self) -> Link:
        """The link of the flags; its bandwidth is unlimited by default."""
        return Link(
            bandwidth=inf if self.bandwidth is None else self.bandwidth,
            latency=self.latency,
            overhead=self.overhead,
            duplex=self.duplex,
            pipelined=self.pipelined,
            sharing=self.sharing,
        )

    @cached_property
    def cluster_in_file(self) -> Cluster | None:
        """The cluster of `cluster`, without changes; None if flags describe it."""
        if self.cluster is None:
            return None
        if isinstance(self.cluster, Path):
            return load_cluster(self.cluster)
        return cluster_from_mapping(self.cluster)

    def cluster_of(self, workers: int, servers: int) -> Cluster:
        """Return the unchanged cluster of the file or the flags; with servers, a star."""
        if self.cluster_in_file is not None:
            return self.cluster_in_file
        if servers:
            return star(workers, servers, self.link)
        return switch(workers, 0, self.link)

    def refuse_power(self, command: str) -> None:
        """Raise InputError if the cluster file has power, for a run that computes no energy."""
        if self.cluster_in_file is not None and self.cluster_in_file.nodes[0].power is not None:
            raise InputError(f"cluster: power: {command} does not compute energy: remove the key")

    def changed(self, cluster: Cluster) -> Cluster:
        """Return the cluster with those of `what_if` that concern links and speeds."""
        return apply_changes(
            cluster, (change for change in self.what_if if changes_cluster(change))
        )

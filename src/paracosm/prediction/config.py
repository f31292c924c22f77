"""What `predict` is asked for: the one description behind the command line and study file."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from paracosm.cluster import Cluster, cluster_from_mapping, cluster_from_shorthand, load_cluster
from paracosm.cluster.subset import first_workers
from paracosm.errors import InputError
from paracosm.prediction.fields import CAPTURE, PredictFields
from paracosm.prediction.jobs.shown_ranks import check_ranks
from paracosm.prediction.jobs.stragglers import parse_stragglers, slowed

if TYPE_CHECKING:
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.graphs.strategies import Strategy
    from paracosm.prediction.parameter_servers.settings import Settings
    from paracosm.profiling.jobs import JobProfile

__all__ = ["PredictConfig"]

MOST_NODES = 1_000_000
"""Workers of one job, and servers: so many workers take a minute and 2 GB."""


class PredictConfig(PredictFields):
    """A prediction: which computation, on which cluster, from whose timings."""

    @property
    def predictions(self) -> int | None:
        """How many numbers of workers a sweep has; None where there is one only."""
        return len(self.workers) if self.workers is not None and len(self.workers) > 1 else None

    def check(self) -> None:
        """Raise InputError for files that are not there, and options that no capture takes."""
        if self.profile is not None:
            _ = self.settings
            return
        if self.op_latencies is not None:
            if not self.op_latencies.is_dir():
                raise InputError(f"{self.op_latencies}: no such folder")
            return
        if self.graph is not None and not self.graph.is_file():
            raise InputError(f"{self.graph}: no such file")
        if self.model is not None:
            self.options(self.device)
        if self.is_on_cluster:
            for workers, strategy in self.jobs:
                self.resolve_cluster(workers, strategy)
            if self.timeline_ranks is not None:
                check_ranks(self.timeline_ranks, workers + strategy.servers)
        if self.db.is_dir():
            raise InputError(f"{self.db}: a folder, not a profile database: --db names its file")
        if not self.db.is_file() and not self.is_timed:
            raise InputError(
                f"{self.db}: no such database: paracosm profile ops writes one, --db names it"
            )

    @cached_property
    def is_timed(self) -> bool:
        """Whether a graph has the durations of all that a device does, and no database is there."""
        if self.graph is None or "db" in self.model_fields_set or self.db.exists():
            return False
        from paracosm.graphs import load_graph

        return load_graph(self.graph).is_timed

    def options(self, device: str, tensor: int = 1) -> CaptureOptions:
        """Return what the capture of the model on `device` is asked for.

        Args:
            device: "cpu" or "cuda".
            tensor: ranks that split each layer between them.

        Raises:
            InputError: an option that it does not take.
        """
        from paracosm.graphs.capture import CaptureOptions

        asked = {name: getattr(self, name) for name in ("model", *sorted(CAPTURE))}
        if tensor > 1:
            asked |= {"parallel": "tensor", "ranks": tensor}
        return CaptureOptions(**asked, device=device)

    @cached_property
    def jobs(self) -> list[tuple[int, Strategy]]:
        """Return the numbers of workers that are asked for, each with its strategy.

        Raises:
            InputError: the strategy cannot be read, or does not fit a number of workers.
        """
        from paracosm.prediction.jobs.strategies_by_workers import strategies_by_workers

        workers, held = self.workers, None
        if self.cluster is not None:
            held = len(self._given_cluster.servers)
            workers = workers or (len(self._given_cluster.workers),)
        return strategies_by_workers(self.strategy or "ddp", workers, self.servers, held)

    def resolve_cluster(self, workers: int, strategy: Strategy) -> Cluster:
        """Return the cluster that a job of so many workers is imagined on.

        Raises:
            InputError: more than `MOST_NODES`; the cluster cannot be read or has fewer workers;
                nobody says how fast its links are; servers that the strategy has no use for, or
                lacks; a straggler that is no worker.
        """
        for what, number in (("workers", workers), ("servers", strategy.servers)):
            if number > MOST_NODES:
                raise InputError(f"{what}: a job has {MOST_NODES:,} at most, not {number:,}")
        if self.cluster is not None:
            cluster = first_workers(self._given_cluster, workers)
        else:
            cluster = self._shorthand(workers, strategy)
        return self._with_stragglers(cluster, self.jobs[-1][0])

    def cluster_of_profile(self, servers: int, bandwidth: float) -> Cluster:
        """Return the cluster that a profiled job is imagined on, with all workers ever asked for.

        Args:
            servers: how many, without a cluster file.
            bandwidth: bytes/s of every link, without a cluster file.

        Raises:
            InputError: as `resolve_cluster`; nobody says how many workers.
        """
        workers = self.profiled_workers[-1]
        if self.cluster is not None:
            cluster = first_workers(self._given_cluster, workers)
        else:
            cluster = cluster_from_shorthand(
                workers, servers, self.latency, bandwidth, pipelined=True
            )
        return self._with_stragglers(cluster, workers)

    @cached_property
    def profiled_workers(self) -> tuple[int, ...]:
        """The numbers of workers that a profile is to predict.

        Raises:
            InputError: nobody says how many.
        """
        if self.workers is not None:
            return self.workers
        if self.cluster is None:
            raise InputError("workers: how many? --workers 1..16")
        return (len(self._given_cluster.workers),)

    def _with_stragglers(self, cluster: Cluster, most: int) -> Cluster:
        """Return a cluster with the slower workers; `most` is the largest number of any."""
        if self.straggler is None:
            return cluster
        factors = parse_stragglers(self.straggler)
        known = {f"worker{number}" for number in range(most)}
        for name in factors:
            if name not in known:
                raise InputError(
                    f'straggler: there is no "{name}": workers are worker0 to worker{most - 1}'
                )
        return slowed(cluster, factors)

    @cached_property
    def job_profile(self) -> JobProfile:
        """The profile, with its batch if that is given.

        Raises:
            InputError: it cannot be read, or has another batch.
        """
        from paracosm.prediction.parameter_servers.asked import asked_profile

        return asked_profile(self)

    @cached_property
    def settings(self) -> Settings:
        """What is imagined of the profiled job.

        Raises:
            InputError: files that cannot be read, a bandwidth that nobody knows, a cluster or an
                option that does not fit the profile.
        """
        from paracosm.prediction.parameter_servers.asked import asked_settings

        return asked_settings(self, self.job_profile)

    @cached_property
    def _given_cluster(self) -> Cluster:
        if isinstance(self.cluster, Path):
            return load_cluster(self.cluster)
        return cluster_from_mapping(self.cluster or {})

    def _shorthand(self, workers: int, strategy: Strategy) -> Cluster:
        if self.bandwidth is None and workers + strategy.servers > 1:
            raise InputError(
                "bandwidth: nobody says how fast the links between nodes are: --bandwidth "
                "25Gbit/s (or inf, for a network that costs nothing), or --cluster"
            )
        return cluster_from_shorthand(
            workers=workers,
            servers=strategy.servers,
            latency=self.latency,
            bandwidth=float("inf") if self.bandwidth is None else self.bandwidth,
            pipelined=True,
        )

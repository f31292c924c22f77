"""What `predict` is asked for: the one description behind the command line and study file."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paracosm.cluster import Cluster, star
from paracosm.cluster.changes import Change, is_of_cluster, refuse_changes
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError
from paracosm.prediction.fields import CAPTURE, PredictFields
from paracosm.prediction.jobs.shown_ranks import check_ranks
from paracosm.prediction.parameter_servers.config import load_profile
from paracosm.prediction.parameter_servers.settings import Settings
from paracosm.profiling.jobs import JobProfile

if TYPE_CHECKING:
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.jobs.strategies import Strategy

__all__ = ["PredictConfig"]


class PredictConfig(PredictFields):
    """A prediction: which computation, on which cluster, from whose timings."""

    @property
    def predictions(self) -> int | None:
        """How many numbers of workers a sweep has; None where there is one only."""
        return len(self.workers) if self.workers is not None and len(self.workers) > 1 else None

    def check(self) -> None:
        """Raise InputError for files that are not there, and options that no capture takes."""
        for config in (self.unchanged, self.resolved) if self.what_if else (self,):
            config._check()

    def _check(self) -> None:
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
            workers, strategy = self.jobs[-1]
            self.resolve_cluster(workers)
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

    def without_effect(self) -> set[str]:
        """Return the fields that make no difference, whatever their values, to such a run."""
        return super().without_effect() | ({"db"} if self.is_timed else set())

    def options(self, device: str, tensor: int = 1) -> CaptureOptions:
        """Return what the capture of the model on "cpu" or "cuda" is asked for, by one of `tensor`
        ranks."""
        from paracosm.graphs.capture import CaptureOptions

        asked = {name: getattr(self, name) for name in ("model", *sorted(CAPTURE))}
        if tensor > 1:
            asked |= {"parallel": "tensor", "ranks": tensor}
        return CaptureOptions(**asked, device=device)

    @cached_property
    def unchanged(self) -> PredictConfig:
        """The same without `what_if`."""
        return self._with(what_if=(), timeline_ranks=None)

    @cached_property
    def resolved(self) -> PredictConfig:
        """The same with the number of workers that `what_if` says, if it says one.

        Raises:
            InputError: a change that a prediction cannot make; two numbers of workers, or several
                before.
        """
        of_profile = self.profile is not None
        refuse_changes(
            (
                change
                for change in self.what_if
                if not (is_of_cluster(change) or change.what == "count")
                and (of_profile or change.subject != "collectives")
            ),
            "predict",
            "how fast workers and servers compute, links, "
            + ("" if of_profile else "collectives, ")
            + "and the number of workers",
        )
        counts = [change for change in self.what_if if change.what == "count"]
        if not counts:
            return self
        if len(counts) > 1 or (self.workers is not None and len(self.workers) > 1):
            raise counts[-1].error("there are several numbers of workers already: leave one out")
        rest = tuple(change for change in self.what_if if change.what != "count")
        return self._with(workers=(counts[0].value,), what_if=rest)

    @cached_property
    def of_collectives(self) -> tuple[Change, ...]:
        return tuple(change for change in self.what_if if change.subject == "collectives")

    def _with(self, **values: Any) -> PredictConfig:
        given = {name: getattr(self, name) for name in self.model_fields_set} | values
        return PredictConfig(**{name: value for name, value in given.items() if value is not None})

    @cached_property
    def jobs(self) -> list[tuple[int, Strategy]]:
        """The numbers of workers that are asked for, each with its strategy."""
        from paracosm.prediction.jobs.strategies_by_workers import strategies_by_workers

        workers, held = self.workers, None
        if self.cluster_in_file is not None:
            held = len(self.cluster_in_file.servers)
            workers = workers or (len(self.cluster_in_file.workers),)
        return strategies_by_workers(self.strategy or "ddp", workers, self.servers, held)

    def resolve_cluster(self, workers: int) -> Cluster:
        """Return the changed cluster that a job of so many workers is predicted on.

        Raises:
            InputError: more than `MOST_NODES`; the cluster cannot be read, has fewer workers, or
                cannot be changed so; nothing says how fast its links are.
        """
        return first_workers(self._largest, workers)

    @cached_property
    def _largest(self) -> Cluster:
        workers, strategy = self.jobs[-1]
        for what, number in (("workers", workers), ("servers", strategy.servers)):
            if number > MOST_NODES:
                raise InputError(f"{what}: a job has {MOST_NODES:,} at most, not {number:,}")
        cluster = self.cluster_in_file
        if cluster is None and self.bandwidth is None and workers + strategy.servers > 1:
            raise InputError(
                "link bandwidth not specified: add --bandwidth 10Gbit/s (inf where links cost "
                "nothing), or --cluster FILE"
            )
        return self.changed(first_workers(self.cluster_of(workers, strategy.servers), workers))

    @cached_property
    def profiled_workers(self) -> tuple[int, ...]:
        """The numbers of workers that a profile is to predict."""
        if self.workers is not None:
            return self.workers
        if self.cluster_in_file is None:
            raise InputError("missing number of workers: add --workers 8, or --workers 1..16")
        return (len(self.cluster_in_file.workers),)

    @cached_property
    def job_profile(self) -> JobProfile:
        """The profile, with its batch if that is given."""
        assert self.profile is not None
        return load_profile(self.profile, self.batch if "batch" in self.model_fields_set else None)

    @cached_property
    def profile_cluster(self) -> Cluster:
        """The changed cluster of a profiled job, with all workers asked for."""
        workers = self.profiled_workers[-1]
        if self.cluster_in_file is not None:
            cluster = first_workers(self.cluster_in_file, workers)
        else:
            bandwidth = self.resolve_bandwidth(self.bandwidth, self.job_profile)
            link = replace(self.link, bandwidth=bandwidth)
            cluster = star(workers, self.servers or self.job_profile.servers, link)
        return self.changed(cluster)

    @cached_property
    def settings(self) -> Settings:
        """The settings that a profiled job is simulated with."""
        _ = self.job_profile  # what is wrong with it comes first
        return self.resolve_settings(self.profile_cluster, self.profiled_workers)

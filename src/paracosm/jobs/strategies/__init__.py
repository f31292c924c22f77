"""Strategies: from the graph of one replica and a cluster to the task graph of the whole job."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.jobs.strategies.build import build_job
    from paracosm.jobs.strategies.strategy import parse_strategy
    from paracosm.jobs.strategies.work import Replica

__all__ = ["Replica", "build_job", "parse_strategy"]

__getattr__ = exported_from(
    __name__,
    {
        "build": ("build_job",),
        "strategy": ("parse_strategy",),
        "work": ("Replica",),
    },
)

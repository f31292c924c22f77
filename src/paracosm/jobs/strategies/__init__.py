"""Strategies: from the graph of one replica and a cluster to the task graph of the whole job."""

from paracosm.jobs.strategies.build import build_job, check_changes
from paracosm.jobs.strategies.strategy import (
    ALL_REDUCES,
    SCHEDULES,
    SHARDINGS,
    Strategy,
    parse_strategy,
)
from paracosm.jobs.strategies.work import NO_INTERFERENCE, OF_GPUS, WITHIN, Interference, Replica

__all__ = [
    "ALL_REDUCES",
    "NO_INTERFERENCE",
    "OF_GPUS",
    "SCHEDULES",
    "SHARDINGS",
    "WITHIN",
    "Interference",
    "Replica",
    "Strategy",
    "build_job",
    "check_changes",
    "parse_strategy",
]

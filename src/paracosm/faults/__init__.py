"""Faults of a running computation, and checkpoints that repair it."""

from paracosm.faults.checkpoint import (
    INTERVALS,
    CheckpointPolicy,
    advice,
    daly_interval,
    expected_makespan,
    parse_checkpoint,
    score,
    young_interval,
)
from paracosm.faults.fault import (
    check_fault,
    choose_components,
    choose_processor,
    fault_times,
    mean_time_between_faults,
    parse_fault,
)
from paracosm.faults.node_failures import Mtbf, failure_instants

__all__ = [
    "INTERVALS",
    "CheckpointPolicy",
    "Mtbf",
    "advice",
    "check_fault",
    "choose_components",
    "choose_processor",
    "daly_interval",
    "expected_makespan",
    "failure_instants",
    "fault_times",
    "mean_time_between_faults",
    "parse_checkpoint",
    "parse_fault",
    "score",
    "young_interval",
]

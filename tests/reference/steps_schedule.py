"""Who reads and updates which tensor in which version, worked out after the fact in plain Python.

Algorithm 3.1 without haste says when ops are handed on and end (`steps_simulation`); all that
happens to the tensors is then looked at once more in order, updates first at each time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from steps_simulation import Happened, requests_and_ends

from paracosm.profiling.jobs import DOWNLINK, SERVER
from paracosm.simulation.rules import Rule
from paracosm.simulation.system import System, Workload

__all__ = ["Read", "Update", "schedule_literally"]

DIGITS = 9
"""Of seconds: what is nearer than that is at one time, and differs by rounding."""

Read = tuple[float, int, int, int, int]
"""Seconds, worker, step, tensor, version."""

Update = tuple[float, int, int, int, int, int]
"""Seconds, worker, step, tensor, version after it, version of the gradient."""


def schedule_literally(
    workload: Workload,
    system: System,
    rule: Rule,
    drawn: npt.NDArray[np.int64],
    tensor: list[int],
) -> tuple[list[Read], list[Update]]:
    """Return all reads and updates in the order of time; arguments as of `stream_schedule`."""
    backup = None if rule.answers == "each" else system.workers - rule.pushes
    system = replace(system, backup=backup, slack=rule.slack)
    simulated, requests, ends = requests_and_ends(workload, system, drawn)
    asked = [row for row in requests if tensor[row[3]] >= 0 and is_on(workload, row, DOWNLINK)]
    arrived = [row for row in ends if tensor[row[3]] >= 0 and is_on(workload, row, SERVER)]
    if rule.drops_late:
        in_time = []
        for _, worker, step, op in arrived:
            end = simulated.step_end[worker, step]
            if simulated.accepted[worker, step] and not np.isnan(end):
                in_time.append((float(end), worker, step, op))
        arrived = sorted(in_time, key=lambda row: row[0])
    events = [(round(row[0], DIGITS), False, row) for row in arrived]
    events += [(round(row[0], DIGITS), True, row) for row in asked]
    version = dict.fromkeys(range(max(tensor) + 1), 0)
    gathered: dict[int, list[tuple[int, int, int]]] = {each: [] for each in version}
    seen: dict[tuple[int, int, int], int] = {}
    reads: list[Read] = []
    updates: list[Update] = []
    for _, is_read, (time, worker, step, op) in sorted(events, key=lambda event: event[:2]):
        own = tensor[op]
        if is_read:
            seen.setdefault((worker, step, own), version[own])
            reads.append((time, worker, step, own, seen[worker, step, own]))
            continue
        # A gradient may arrive at the very time at which its tensor was read.
        seen.setdefault((worker, step, own), version[own])
        gathered[own].append((worker, step, seen[worker, step, own]))
        if len(gathered[own]) == rule.pushes:
            version[own] += 1
            updates += [(time, w, k, own, version[own], read) for w, k, read in gathered[own]]
            gathered[own] = []
    return reads, updates


def is_on(workload: Workload, row: Happened, resource: int) -> bool:
    return int(workload.resource[row[3]]) == resource

"""One step of asynchronous SGD on clusters that differ in one key, and how long it takes by hand.

Two workers and a server. Each worker computes for c = 100 ms, pushes a gradient of 100 kB, and gets
parameters of 100 kB as soon as the server has its gradient; the update takes no time. A message
takes s = 100 ms at 1 MB/s and l = 10 ms of latency. The time is that at which both have their
parameters. Both workers (a, b) begin together.

Every value below is worked out by hand in the comment beside it.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.file import save_job_profile

__all__ = ["ALL_REDUCE", "ASYNCHRONOUS_STEP", "CLUSTERS", "write_profile"]

Mapping = dict[str, Any]

BASE: Mapping = {
    "topology": "switch",
    "workers": 2,
    "servers": 1,
    "links": {"default": {"bandwidth": "1MB/s", "latency": "10ms"}},
}


def _with(**changes: Any) -> Mapping:
    """Return the base with values of its default link, or other keys of the file, replaced."""
    mapping = deepcopy(BASE)
    for key, value in changes.items():
        if key in ("bandwidth", "latency", "overhead", "duplex", "pipelined", "sharing"):
            mapping["links"]["default"][key] = value
        elif key == "links":
            mapping["links"] |= value
        else:
            mapping[key] = value
    return mapping


_SLOW_B = {"overrides": [{"between": ["worker1", "server0"], "bandwidth": "250kB/s"}]}
_B_AT_04 = [{"count": 1}, {"count": 1, "speed": 0.4}]
_MACHINES: Mapping = {
    "topology": "hierarchical",
    "group_size": 1,
    "links": {"between_groups": {"bandwidth": "500kB/s", "latency": "10ms"}},
}

CLUSTERS: dict[str, Mapping] = {
    "fair": _with(sharing="fair"),
    "serial": _with(sharing="serial"),
    "default": _with(),
    "bandwidth": _with(bandwidth="2MB/s"),
    "latency": _with(latency="20ms"),
    "fair overhead": _with(overhead="20ms"),
    "serial overhead": _with(overhead="20ms", sharing="serial"),
    "fair held": _with(pipelined=False),
    "serial held": _with(pipelined=False, sharing="serial"),
    "fair half": _with(duplex="half"),
    "serial half": _with(duplex="half", sharing="serial"),
    "serial half held": _with(duplex="half", sharing="serial", pipelined=False),
    "speed": _with(workers=_B_AT_04),
    "fair override": _with(links=_SLOW_B),
    "serial override": _with(links=_SLOW_B, sharing="serial"),
    "placement": _with(placement="workers"),
    "serial placement": _with(placement="workers", sharing="serial"),
    "fair hierarchical": _with(**_MACHINES),
    "serial hierarchical": _with(**_MACHINES, sharing="serial"),
    "packets": _with(sharing="packets(40kB)"),
    "packets overhead": _with(overhead="20ms", sharing="packets(50kB)"),
    "packets held": _with(pipelined=False, sharing="packets(40kB)"),
    "packets half": _with(duplex="half", sharing="packets(40kB)"),
    "packets override": _with(links=_SLOW_B, sharing="packets(40kB)"),
    "packets placement": _with(placement="workers", sharing="packets(40kB)"),
    "packets hierarchical": _with(**_MACHINES, sharing="packets(40kB)"),
}

ASYNCHRONOUS_STEP: dict[str, float] = {
    # Pushes share the server's port from c to c + 2s, arrive l later; so do the answers.
    "fair": 0.1 + 0.4 + 0.02,
    # Push a to c + s, b to c + 2s; answer a from c + s + l, b from c + 2s + l, each s, then l.
    "serial": 0.1 + 0.3 + 0.02,
    "default": 0.1 + 0.4 + 0.02,  # fair, full duplex, pipelined
    "bandwidth": 0.1 + 0.2 + 0.02,  # fair, s = 50 ms
    "latency": 0.1 + 0.4 + 0.04,
    "fair overhead": 0.1 + 4 * 0.12 + 0.02,  # each message needs s + 20 ms of its ports
    "serial overhead": 0.1 + 3 * 0.12 + 0.02,
    "fair held": 0.1 + 4 * 0.11,  # each needs s + l of its ports, and has then arrived
    "serial held": 0.1 + 3 * 0.11,
    # Both pushes are done at c + 2s, so that answers begin together at c + 2s + l.
    "fair half": 0.1 + 0.4 + 0.02,
    # Answer a is due at c + s + l, while b pushes until c + 2s; then a to c + 3s, b to c + 4s.
    "serial half": 0.1 + 0.4 + 0.01,
    "serial half held": 0.1 + 4 * 0.11,  # push, push, answer, answer: one at a time
    # b computes until 0.25, when a has its answer: nobody meets.
    "speed": 0.25 + 0.1 + 0.01 + 0.1 + 0.01,
    # b has 250 kB/s from 0.1 to 0.5; its answer the same from 0.51 to 0.91.
    "fair override": 0.1 + 0.4 + 0.01 + 0.4 + 0.01,
    # a pushes to 0.2, b to 0.6; a's answer is through at 0.31; b's from 0.61 to 1.01.
    "serial override": 0.1 + 0.1 + 0.4 + 0.01 + 0.4 + 0.01,
    # The server is on a's node: only b's messages travel, alone.
    "placement": 0.1 + 0.1 + 0.01 + 0.1 + 0.01,
    "serial placement": 0.1 + 0.1 + 0.01 + 0.1 + 0.01,
    # The server is in a's group; b is in another, and has ports of its own for what leaves it.
    "fair hierarchical": 0.1 + 0.2 + 0.01 + 0.2 + 0.01,
    "serial hierarchical": 0.1 + 0.2 + 0.01 + 0.2 + 0.01,
    # Pushes: a 40 kB, b 40, a 40, b 40, a 20, to 0.28, b 20, to 0.3. Answers: a from 0.29, b comes
    # at 0.31 and waits for a's turn until 0.33: b 40, a 40, b 40, a 20, b 20, to 0.49.
    "packets": 0.5,
    # 120 kB each, of which 50 in a turn: pushes end at 0.32 and 0.34. Answers: a from 0.33 to 0.38,
    # b 50, a 50, b 50, a 20, b 20, to 0.57.
    "packets overhead": 0.58,
    # 110 kB each, and no latency after it: pushes end at 0.29 and 0.32, answers at 0.48 and 0.51.
    "packets held": 0.51,
    # b still pushes until 0.3 when a's answer comes at 0.29: answers have the port from then on.
    "packets half": 0.3 + 0.2 + 0.01,
    # Nobody else is limited by the link that limits b.
    "packets override": 0.1 + 0.4 + 0.01 + 0.4 + 0.01,
    "packets placement": 0.1 + 0.1 + 0.01 + 0.1 + 0.01,
    "packets hierarchical": 0.1 + 0.2 + 0.01 + 0.2 + 0.01,
}
"""Seconds of one asynchronous step of both workers, by the cluster."""

ALL_REDUCE: dict[str, float] = {
    # A ring of two: 2 exchanges of 50 kB, each 50 ms and l. Nobody meets anybody at a port.
    "fair": 0.12,
    "serial": 0.12,
    "default": 0.12,
    "bandwidth": 2 * (0.025 + 0.01),
    "latency": 2 * (0.05 + 0.02),
    "fair overhead": 2 * (0.05 + 0.02 + 0.01),
    "serial overhead": 2 * (0.05 + 0.02 + 0.01),
    "fair held": 0.12,
    "serial held": 0.12,
    # Each has one message after the other on its port: 50 ms, then 50 ms and l.
    "fair half": 2 * (0.05 + 0.05 + 0.01),
    "serial half": 2 * (0.05 + 0.05 + 0.01),
    "serial half held": 2 * (0.06 + 0.06),
    # b computes until 0.25 s, 150 ms longer than a: said by whoever computes.
    "speed": 0.12,
    # Between a and b themselves at 250 kB/s: 2 * (0.2 + 0.01).
    "fair override": 0.42,
    "serial override": 0.42,
    "placement": 0.12,  # of servers: there are none
    "serial placement": 0.12,
    "fair hierarchical": 2 * (0.1 + 0.01),
    "serial hierarchical": 2 * (0.1 + 0.01),
    "packets": 0.12,
    "packets overhead": 2 * (0.05 + 0.02 + 0.01),
    "packets held": 0.12,
    "packets half": 2 * (0.05 + 0.05 + 0.01),
    "packets override": 0.42,
    "packets placement": 0.12,
    "packets hierarchical": 2 * (0.1 + 0.01),
}
"""Seconds of an all-reduce of 100 kB by a ring of both workers, by the cluster."""


def write_profile(folder: Path, size: int) -> Path:
    """Write a step of pull, compute (100 ms), push, update: measured on another link."""
    profile = JobProfile(
        names=("pull", "compute", "push", "update"),
        kinds=("Recv", "MatMul", "Recv", "Apply"),
        resource=np.array([DOWNLINK, WORKER, UPLINK, SERVER], np.int8),
        server=np.zeros(4, np.int64),
        size=np.array([size, 0, size, 0]),
        first_dependency=np.array([0, 0, 1, 2, 3]),
        dependencies=np.array([0, 1, 2]),
        begin=np.array([[0.0, 1.0, 1.1, 2.1]]),
        end=np.array([[1.0, 1.1, 2.1, 2.1]]),
        step_begin=np.array([0.0]),
        step_end=np.array([2.1]),
    )
    path = folder / "job.profile"
    save_job_profile(profile, path)
    return path

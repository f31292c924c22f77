"""A job profile of the small network on digits, made up: what takes how long is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile, save_job_profile
from paracosm.profiling.jobs.job_profile import ProfiledOp, job_profile_of

TENSORS = {
    "layers.0.weight": 64 * 64,
    "layers.0.bias": 64,
    "layers.2.weight": 10 * 64,
    "layers.2.bias": 10,
}
"""Elements of the tensors of `mlp` on digits."""

FORWARD, BACKWARD = 0.01, 0.02
BANDWIDTH = 1e6  # bytes/s


def profiled_network(steps: int = 8, tensors: dict[str, int] = TENSORS) -> JobProfile:
    """Return steps of: all pulls, a forward and a backward pass, all pushes, all updates.

    Forward and backward take `FORWARD` and `BACKWARD` seconds, a step k times 0.2 % more; updates
    no time. Transfers were alone on a link of `BANDWIDTH`.
    """
    count = len(tensors)
    size = [4 * elements for elements in tensors.values()]
    ops = [
        ProfiledOp(f"pull/{n}", "Pull", DOWNLINK, 0, b) for n, b in zip(tensors, size, strict=True)
    ]
    ops.append(ProfiledOp("forward", "Forward", WORKER, waits=range(count)))
    ops.append(ProfiledOp("backward", "Backward", WORKER, waits=[count]))
    for name, each in zip(tensors, size, strict=True):
        ops.append(ProfiledOp(f"push/{name}", "Push", UPLINK, 0, each, [count + 1]))
    for place, name in enumerate(tensors):
        ops.append(ProfiledOp(f"update/{name}", "SGD", SERVER, 0, waits=[count + 2 + place]))
    transfers = np.cumsum(size) / BANDWIDTH
    begin, end, ends = [], [], []
    for step in range(steps):
        factor = 1 + 0.002 * step
        computed = transfers[-1] + FORWARD * factor
        done = computed + BACKWARD * factor
        pushed = done + transfers
        begin.append([*[0.0] * count, transfers[-1], computed, *[done] * count, *pushed])
        end.append([*transfers, computed, done, *pushed, *pushed])
        ends.append(pushed[-1])
    begins = np.concatenate([[0.0], np.cumsum(ends)[:-1]])
    return job_profile_of(
        ops,
        np.array(begin),
        np.array(end),
        begins,
        begins + np.array(ends),
        batch=32,
        bandwidth=BANDWIDTH,
        provenance={"hardware": "made up"},
    )


def save_network(folder: Path, **changes: object) -> Path:
    """Write such a profile and return its path."""
    path = folder / "job.profile"
    save_job_profile(profiled_network(**changes), path)  # type: ignore[arg-type]
    return path

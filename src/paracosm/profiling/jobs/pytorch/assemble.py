"""From the times that worker and servers noted to a profile of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.profiling.jobs.dependencies import dependencies_of
from paracosm.profiling.jobs.job_profile import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile

__all__ = ["assemble"]


def assemble(
    made: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    *,
    servers: int,
    bandwidth: float,
    provenance: Mapping[str, Any],
) -> JobProfile:
    """Return the profile of the steps.

    The ops of a step are a pull of each parameter, the segments that the worker computes, and for
    each gradient its push and the update. A segment waits for the one before it, as a module runs
    one line after the other, and for the pulls that it is the first to need; a push for the segment
    that makes its gradient; an update for its push.

    Args:
        made: what the worker said of itself: "parameters", names and bytes; "segments", as
            `segments.Segment`; "examples" of a step.
        steps: as `worker.Step`.
        servers: parameter i is on server i modulo their number.
        bandwidth: bytes/s of the link.
        provenance: of the profile.
    """
    parameters, segments = made["parameters"], made["segments"]
    pulls = {name: i for i, (name, _) in enumerate(parameters)}
    makers = [i for i, segment in enumerate(segments) if segment["end"]["kind"] == "gradient"]
    pushed = [segments[i]["end"]["what"] for i in makers]
    size = [parameters[pulls[name]][1] for name in pushed]
    server = [pulls[name] % servers for name in pushed]
    first_segment = len(parameters)
    first_push = first_segment + len(segments)
    waits = [
        *([] for _ in parameters),
        *(_before(i, segment, pulls, first_segment) for i, segment in enumerate(segments)),
        *([first_segment + i] for i in makers),
        *([first_push + i] for i in range(len(pushed))),
    ]
    first_dependency, dependencies = dependencies_of(waits)
    counts = (len(parameters), len(segments), len(pushed), len(pushed))
    times = np.array([_times(step) for step in steps])
    step_begin = np.array([step["begin"] for step in steps])
    step_end = np.array([step["end"] for step in steps])
    relative = times - step_begin[:, None, None]
    return JobProfile(
        names=(
            *(f"pull/{name}" for name, _ in parameters),
            *(segment["name"] for segment in segments),
            *(f"push/{name}" for name in pushed),
            *(f"update/{name}" for name in pushed),
        ),
        kinds=(
            *("Pull" for _ in parameters),
            *("Forward" if segment["forward"] else "Backward" for segment in segments),
            *("Push" for _ in pushed),
            *("SGD" for _ in pushed),
        ),
        resource=np.repeat(np.array([DOWNLINK, WORKER, UPLINK, SERVER], np.int8), counts),
        server=np.array(
            [*(i % servers for i in range(len(parameters))), *(0 for _ in segments), *server * 2]
        ),
        size=np.array(
            [*(size for _, size in parameters), *(0 for _ in segments), *size, *(0 for _ in pushed)]
        ),
        first_dependency=first_dependency,
        dependencies=dependencies,
        begin=relative[:, :, 0],
        end=relative[:, :, 1],
        step_begin=step_begin - step_begin[0],
        step_end=step_end - step_begin[0],
        batch=made["examples"],
        bandwidth=bandwidth,
        provenance=provenance,
    )


def _before(
    place: int, segment: Mapping[str, Any], pulls: Mapping[str, int], first_segment: int
) -> list[int]:
    previous = [first_segment + place - 1] if place else []
    return previous + [pulls[name] for name in segment["needs"]]


def _times(step: Mapping[str, Any]) -> list[list[float]]:
    """Return begin and end of each op on the machine's clock."""
    return [
        *([step["begin"], end] for end in step["pulled"]),
        *step["computed"],
        *([at, arrived] for at, arrived, _, _ in step["pushed"]),
        *([begin, end] for _, _, begin, end in step["pushed"]),
    ]

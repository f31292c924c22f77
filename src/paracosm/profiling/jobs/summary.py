"""A job profile in a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.profiling.jobs.job_profile import DOWNLINK, RESOURCES, UPLINK, JobProfile
from paracosm.timeline import covered

__all__ = ["summarize_profile"]

Floats = npt.NDArray[np.float64]


def summarize_profile(profile: JobProfile) -> dict[str, Any]:
    """Return what a profile has in it.

    Its `utilisation` is, by resource, the median share of a step in which one of its ops at least
    was under way; of a link that includes the time in which its transfers waited for each other, or
    for the other end. It is None where no step has times of its ops.
    """
    lengths = profile.step_end - profile.step_begin
    return {
        "steps": profile.steps,
        "dropped": dict(profile.dropped),
        "ops": profile.ops,
        "servers": profile.servers,
        "ops_of": {
            name: int((profile.resource == code).sum()) for code, name in enumerate(RESOURCES)
        },
        "bytes_down": int(profile.size[profile.resource == DOWNLINK].sum()),
        "bytes_up": int(profile.size[profile.resource == UPLINK].sum()),
        "step_seconds": float(np.median(lengths)),
        "step_seconds_p10_p90": np.percentile(lengths, (10, 90)).tolist(),
        "utilisation": {
            name: _share(profile, profile.resource == code, lengths)
            for code, name in enumerate(RESOURCES)
        },
        "batch": profile.batch,
        "bandwidth": profile.bandwidth,
        "provenance": dict(profile.provenance),
    }


def _share(profile: JobProfile, ops: npt.NDArray[np.bool_], lengths: Floats) -> float | None:
    shares = [
        covered(begin[traced], end[traced]) / length
        for begin, end, length in zip(profile.begin, profile.end, lengths, strict=True)
        if length > 0 and (traced := ops & np.isfinite(end)).any()
    ]
    return float(np.median(shares)) if shares else None

"""Profiling a PyTorch job with parameter servers, and measuring what many workers make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paracosm.errors import InputError
from paracosm.profiling.jobs.check import check_job_profile
from paracosm.profiling.jobs.job_profile import JobProfile
from paracosm.profiling.jobs.pytorch.job import parameter_server_job
from paracosm.profiling.jobs.pytorch.options import JobOptions
from paracosm.profiling.processes import WorkerError

__all__ = ["measure_throughput", "profile_module"]


def profile_module(
    options: JobOptions, steps: int = 100, progress: Callable[[int, int], None] | None = None
) -> JobProfile:
    """Train with one worker, and return what it and the servers did, op by op.

    Args:
        options: what to train, and how.
        steps: that are profiled, after three that are not.
        progress: called with steps done and in all.

    Raises:
        InputError: options that cannot be, or a process failed.
        MissingExtraError: PyTorch is not installed.
    """
    if steps < 1:
        raise InputError(f"steps: {steps}, but at least 1 is needed")
    try:
        with parameter_server_job(options, workers=1) as job:
            return check_job_profile(job.profile(steps, progress), options.model)
    except WorkerError as error:
        raise InputError(f"profiling {options.model}: {error}") from None


def measure_throughput(
    options: JobOptions, workers: int, seconds: float, stagger: float = 0.0
) -> dict[str, Any]:
    """Train with so many workers, and return when each began and ended its steps.

    Args:
        options: what to train, and how.
        workers: how many.
        seconds: after which no step is begun.
        stagger: worker i begins its first step i times so many seconds later.

    Returns:
        As `Job.window`.

    Raises:
        InputError: options that cannot be, or a process failed.
        MissingExtraError: PyTorch is not installed.
    """
    try:
        with parameter_server_job(options, workers) as job:
            return job.window(workers, seconds, stagger)
    except WorkerError as error:
        raise InputError(f"training {options.model} with {workers} workers: {error}") from None

"""`paracosm profile import`: a job profile from traces that a framework wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paracosm.cli.capture_flags import Classes, Shape, named, sizes
from paracosm.cli.display import progress_bar
from paracosm.cli.job_profile_out import check_out, keep_profile
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.units import parse_bandwidth

if TYPE_CHECKING:
    from paracosm.profiling.jobs import JobProfile

__all__ = ["import_"]


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="TensorFlow: RunMetadata and timelines of steps of one worker with parameter "
            "servers, a step a file; PyTorch: one profiler's trace of a training process"
        ),
    ],
    out: Annotated[Path, typer.Option(help="job profile to write")],
    batch: Annotated[
        int | None, typer.Option(min=1, help="examples of a step, for examples/s")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="of the link that it was traced on, such as 1Gbit/s")
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(min=1, help="parameter servers that are added to a profiler's trace (1)"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="that a profiler's trace is of, built-in or package.module:factory, for names and "
            "bytes of parameters that the trace does not tell"
        ),
    ] = None,
    shape: Shape = None,
    classes: Classes = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Read what TensorFlow or PyTorch has traced, and write it as a job profile.

    Example: paracosm profile import timeline-*.json --batch 64 --out job.profile
    """
    check_out(out, force, json, quiet)
    link = None if bandwidth is None else named("--bandwidth", parse_bandwidth, bandwidth)
    if link is not None and not link > 0:
        raise InputError(f"--bandwidth {bandwidth}: a link has more")
    traces = [path for path in files if _is_profilers(path)]
    if traces:
        if len(files) > 1:
            other = files[0] if files[0] != traces[0] else files[1]
            raise InputError(
                f"{traces[0]}: a profiler's trace has all its steps: give it without {other}"
            )
        profile = _of_trace(files[0], batch, servers or 1, model, shape, classes)
    else:
        asked = {"--servers": servers, "--model": model, "--shape": shape, "--classes": classes}
        for flag, value in asked.items():
            if value is not None:
                raise InputError(f"{flag} has no effect on steps of TensorFlow: they show it")
        from paracosm.profiling.jobs.tensorflow import read_steps

        with progress_bar(len(files), hidden=json or quiet, unit="steps") as shown:
            profile = read_steps(files, lambda done, _: shown(done, None))
    if batch is not None:
        profile = replace(profile, batch=batch)
    if link is not None:
        profile = replace(profile, bandwidth=link)
    return keep_profile(profile, out, json, quiet)


def _is_profilers(path: Path) -> bool:
    """Whether a file is a trace of PyTorch's profiler; timelines of TensorFlow look much alike."""
    from paracosm.graphs.contents import contents
    from paracosm.timeline.kineto import is_kineto

    return is_kineto(path) and b' Compute"' not in contents(path, _HEAD)


_HEAD = 1 << 16
"""Bytes in which a timeline names its devices, "/job:worker/replica:0/task:0/... Compute"."""


def _of_trace(
    path: Path,
    batch: int | None,
    servers: int,
    model: str | None,
    shape: str | None,
    classes: int | None,
) -> JobProfile:
    from paracosm.profiling.jobs.kineto import job_profile_of_trace

    if model is None:
        for flag, value in (("--shape", shape), ("--classes", classes)):
            if value is not None:
                raise InputError(f"{flag} is the --model's: give that as well")
        return job_profile_of_trace(path, batch=batch, servers=servers)
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.profiling.jobs.kineto import parameters_of_model

    options = CaptureOptions(model=model, shape=sizes(shape), classes=classes)
    parameters = parameters_of_model(options)
    return job_profile_of_trace(path, parameters=parameters, batch=batch, servers=servers)

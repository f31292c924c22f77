"""`paracosm profile job`: what one worker and its parameter servers do, op by op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paracosm.cli.capture_flags import Classes, Shape, duration, named, sizes
from paracosm.cli.display import progress_bar
from paracosm.cli.job_profile_out import check_out, keep_profile
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError, unknown
from paracosm.units import parse_bandwidth

if TYPE_CHECKING:
    from paracosm.profiling.jobs import JobProfile

__all__ = ["job"]

FRAMEWORKS = ("tensorflow", "pytorch")
_TENSORFLOW = ("arguments", "bandwidth", "warmup")
_PYTORCH = ("shape", "classes", "rate", "forward", "backward", "threads", "seed")


def job(
    what: Annotated[
        str,
        typer.Argument(
            help="tensorflow: a script that trains with a tf.compat.v1.train.Server; pytorch: a "
            "built-in model, package.module:factory or file.py:factory"
        ),
    ],
    framework: Annotated[str, typer.Option(help="tensorflow or pytorch")],
    out: Annotated[Path, typer.Option(help="job profile to write")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="of the script, behind --; {job}, {task}, {servers}, {workers} stand for its task "
            "and the addresses of all, which are in TF_CONFIG as well",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="that are profiled")] = 100,
    servers: Annotated[int, typer.Option(min=1, help="parameter servers")] = 1,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="examples of a step; of a script, for examples/s (pytorch: 8)"),
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="of this machine's loopback, if known (tensorflow)")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="steps before those that are profiled (tensorflow: 5)")
    ] = None,
    shape: Shape = None,
    classes: Classes = None,
    rate: Annotated[float | None, typer.Option(help="learning rate (pytorch: 0.01)")] = None,
    forward: Annotated[
        str | None,
        typer.Option(help="time that a forward pass takes at least, by waiting (pytorch)"),
    ] = None,
    backward: Annotated[
        str | None,
        typer.Option(help="time that a backward pass takes at least, by waiting (pytorch)"),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="of each process (pytorch: 1)")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="of parameters and examples (pytorch: 0)")
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="without a step, after which the job is given up")
    ] = "5min",
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train with one worker and parameter servers on this machine, and time every op and transfer.

    Example: paracosm profile job --framework tensorflow train.py --steps 100 --out job.profile
    """
    if framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    check_out(out, force, json, quiet)
    given = {
        "arguments": arguments or None,
        "bandwidth": bandwidth,
        "warmup": warmup,
        "shape": shape,
        "classes": classes,
        "rate": rate,
        "forward": forward,
        "backward": backward,
        "threads": threads,
        "seed": seed,
    }
    for name in _PYTORCH if framework == "tensorflow" else _TENSORFLOW:
        if given[name] is not None:
            flag = "what stands behind --" if name == "arguments" else f"--{name}"
            raise InputError(f"{flag} has no effect with --framework {framework}")
    seconds = duration("--timeout", timeout)
    with progress_bar(steps, hidden=json or quiet, unit="steps") as shown:
        profiled = _tensorflow if framework == "tensorflow" else _pytorch
        profile = profiled(
            what, given, steps, servers, batch, seconds, lambda done, _: shown(done, None)
        )
    return keep_profile(profile, out, json, quiet)


def _tensorflow(
    script: str,
    given: dict[str, Any],
    steps: int,
    servers: int,
    batch: int | None,
    timeout: float,
    progress: Callable[[int, int], None],
) -> JobProfile:
    from paracosm.profiling.jobs.tensorflow import ScriptSettings, profile_script

    link = given["bandwidth"]
    link = None if link is None else named("--bandwidth", parse_bandwidth, link)
    warmup = ScriptSettings().warmup if given["warmup"] is None else given["warmup"]
    profile = profile_script(
        Path(script),
        given["arguments"] or [],
        steps,
        ScriptSettings(servers, warmup, timeout),
        progress,
    )
    return replace(profile, batch=batch, bandwidth=link)


def _pytorch(
    model: str,
    given: dict[str, Any],
    steps: int,
    servers: int,
    batch: int | None,
    timeout: float,
    progress: Callable[[int, int], None],
) -> JobProfile:
    from paracosm.profiling.jobs.pytorch import JobOptions, profile_module

    chosen = {name: given[name] for name in ("classes", "rate", "threads", "seed")}
    if batch is not None:
        chosen["batch"] = batch
    if given["forward"] is not None or given["backward"] is not None:
        chosen["waiting"] = tuple(
            duration(f"--{name}", given[name] or "0s") for name in ("forward", "backward")
        )
    options = JobOptions(
        model,
        shape=sizes(given["shape"]),
        servers=servers,
        timeout=timeout,
        **{name: value for name, value in chosen.items() if value is not None},
    )
    return profile_module(options, steps, progress)

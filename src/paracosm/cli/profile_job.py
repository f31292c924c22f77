"""`paracosm profile job`: what one worker and its parameter servers do, op by op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from paracosm.cli.display import aligned, counter, paragraph, printer, show_result
from paracosm.cli.graph_capture import Classes, Shape, options_of, sizes
from paracosm.cli.options import (
    Details,
    ForceFile,
    Json,
    Quiet,
    check_output,
    check_writable,
    duration,
    named,
)
from paracosm.cli.verbs import INTERRUPTED
from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.profiling.jobs import JobProfile
from paracosm.profiling.jobs.file import save_job_profile
from paracosm.profiling.jobs.job_profile import summarize_profile
from paracosm.profiling.jobs.kineto import job_profile_of_trace, parameters_of_model
from paracosm.quantities import read_bandwidth
from paracosm.timeline.kineto import is_kineto
from paracosm.timeline.other_files import refuse_other_files
from paracosm.units import (
    format_bandwidth,
    format_between,
    format_duration,
    format_size,
)

FRAMEWORKS = ("tensorflow", "pytorch")


def job(
    script_or_model: Annotated[
        str,
        Argument(
            help="tensorflow: a script that trains with a tf.compat.v1.train.Server; pytorch: a "
            "built-in model, package.module:factory or file.py:factory"
        ),
    ],
    out: Annotated[Path, Option(help="job profile to write")],
    framework: Annotated[str | None, Option(help="tensorflow or pytorch")] = None,
    arguments: Annotated[
        list[str] | None,
        Argument(
            help=(
                "of the script, after --; {job}, {task}, {servers}, {workers} stand for its "
                "task and all addresses, which TF_CONFIG has as well"
            )
        ),
    ] = None,
    steps: Annotated[int, Option(min=1, max=1_000_000, help="to profile")] = 100,
    servers: Annotated[int, Option(min=1, help="parameter servers")] = 1,
    batch: Annotated[
        int | None,
        Option(
            min=1, help="examples per step; for a script, only used for examples/s (pytorch: 8)"
        ),
    ] = None,
    bandwidth: Annotated[
        str | None, Option(help="of this machine's loopback, if known (tensorflow)")
    ] = None,
    warmup: Annotated[
        int | None, Option(min=0, help="steps before those to profile (tensorflow: 5)")
    ] = None,
    shape: Shape = None,
    data: Annotated[
        str | None,
        Option(
            help=(
                "to train on: digits or package.module:factory (pytorch: one random batch, "
                "repeated)"
            )
        ),
    ] = None,
    lr: Annotated[float | None, Option(help="learning rate (pytorch: 0.01)")] = None,
    seed: Annotated[
        int | None, Option(min=0, help="of parameters and examples (pytorch: 0)")
    ] = None,
    timeout: Annotated[str, Option(help="without a step after which the job is aborted")] = "5min",
    force: ForceFile = False,
    json: Json = False,
    details: Details = False,
    quiet: Quiet = False,
) -> int:
    """Train with one worker and parameter servers on this machine, and time every op and transfer.

    Example: paracosm profile job --framework tensorflow train.py --steps 100 --out job.profile
    """
    if framework is None:
        raise InputError(
            "framework not specified: add --framework pytorch, for a model by name or "
            "file.py:factory, or --framework tensorflow, for a script"
        )
    if framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    _check_out(out, force)
    of_tensorflow = {"arguments": arguments or None, "bandwidth": bandwidth, "warmup": warmup}
    of_pytorch = {"shape": shape, "data": data, "lr": lr, "seed": seed}
    without_effect: Mapping[str, Any] = of_pytorch if framework == "tensorflow" else of_tensorflow
    for name, value in without_effect.items():
        flag = "text after --" if name == "arguments" else f"--{name}"
        _refuse({flag: value}, f"has no effect with --framework {framework}")
    seconds = duration("--timeout", timeout)
    with counter(steps, hidden=json or quiet, unit="steps") as shown:
        if framework == "tensorflow":
            from paracosm.profiling.jobs.tensorflow import ScriptSettings, profile_script

            link = None if bandwidth is None else named("--bandwidth", read_bandwidth, bandwidth)
            first = ScriptSettings().warmup if warmup is None else warmup
            settings = ScriptSettings(servers, first, seconds)
            profile = profile_script(Path(script_or_model), arguments or [], steps, settings, shown)
            profile = replace(profile, batch=batch, bandwidth=link)
        else:
            from paracosm.profiling.jobs.pytorch import JobOptions, profile_module

            chosen: dict[str, Any] = {"data": data, "batch": batch, "lr": lr, "seed": seed}
            chosen = {name: value for name, value in chosen.items() if value is not None}
            options = JobOptions(
                script_or_model, shape=sizes(shape), servers=servers, timeout=seconds, **chosen
            )
            profile = profile_module(options, steps, shown)
    return _save_and_show(profile, out, json, quiet, details)


def import_(
    files: Annotated[
        list[Path],
        Argument(
            help=(
                "TensorFlow: RunMetadata of one worker with parameter servers, one file per "
                "step; PyTorch: one profiler trace of a training process"
            )
        ),
    ],
    out: Annotated[Path, Option(help="job profile to write")],
    batch: Annotated[int | None, Option(min=1, help="examples per step, for examples/s")] = None,
    bandwidth: Annotated[
        str | None, Option(help="of the link in the traced job, such as 1Gbit/s")
    ] = None,
    servers: Annotated[
        int | None,
        Option(min=1, help="parameter servers to add to a profiler trace (1)"),
    ] = None,
    model: Annotated[
        str | None,
        Option(
            help=(
                "of a profiler trace, built-in or package.module:factory, for names and sizes of "
                "parameters, which the trace lacks"
            )
        ),
    ] = None,
    shape: Shape = None,
    classes: Classes = None,
    force: ForceFile = False,
    json: Json = False,
    details: Details = False,
    quiet: Quiet = False,
) -> int:
    """Convert traces of TensorFlow or PyTorch to a job profile.

    Example: paracosm profile import run_metadata-*.pb --batch 64 --out job.profile
    """
    _check_out(out, force)
    link = None if bandwidth is None else named("--bandwidth", read_bandwidth, bandwidth)
    if link is not None and not link > 0:
        raise InputError(f"--bandwidth {bandwidth}: must be above 0")
    for file in files:
        refuse_other_files(file)
    traces = [path for path in files if _is_profiler_trace(path)]
    if traces:
        if len(files) > 1:
            other = files[0] if files[0] != traces[0] else files[1]
            raise InputError(
                f"{traces[0]}: a profiler trace holds all its steps: give it without {other}"
            )
        parameters = (
            () if model is None else parameters_of_model(options_of(model, shape, classes=classes))
        )
        if model is None:
            _refuse(
                {"--shape": shape, "--classes": classes},
                "describes the model: give --model as well",
            )
        profile = job_profile_of_trace(
            files[0], parameters=parameters, batch=batch, servers=servers or 1
        )
    else:
        flags = {"--servers": servers, "--model": model, "--shape": shape, "--classes": classes}
        _refuse(flags, "has no effect on traces of TensorFlow, which record it")
        from paracosm.profiling.jobs.tensorflow import read_steps

        with counter(len(files), hidden=json or quiet, unit="steps") as shown:
            profile = read_steps(files, shown)
    if batch is not None:
        profile = replace(profile, batch=batch)
    if link is not None:
        profile = replace(profile, bandwidth=link)
    return _save_and_show(profile, out, json, quiet, details)


def _is_profiler_trace(path: Path) -> bool:
    """Whether a file is a trace of PyTorch's profiler; TensorFlow timelines look similar."""
    return is_kineto(path) and b' Compute"' not in read_bytes(path, _HEAD)


_HEAD = 1 << 16  # bytes in which a timeline names its devices, "/job:worker/.../task:0/... Compute"


def _refuse(flags: Mapping[str, object], why: str) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise InputError(f"{flag} {why}")


def _check_out(out: Path, force: bool) -> None:
    check_output(out, force)
    if not out.parent.is_dir():
        raise InputError(f"{out}: the folder {out.parent} does not exist")
    check_writable(out)


def _save_and_show(profile: JobProfile, out: Path, json: bool, quiet: bool, details: bool) -> int:
    """Write a profile, print its summary, and return the exit code."""
    save_job_profile(profile, out)
    interrupted = profile.provenance.get("ended") == "interrupted"
    status = "interrupted" if interrupted else "done"
    summary = {"status": status, "file": out, **summarize_profile(profile)}
    show_result(summary, json, quiet, lambda: _show(summary, interrupted, details))
    return INTERRUPTED if interrupted else 0


def _show(summary: dict[str, Any], interrupted: bool, details: bool) -> None:
    say = printer()
    low, high = summary["step_seconds_p10_p90"]
    time, spread = format_between(low, summary["step_seconds"], high, format_duration)
    steps, servers = (_count_of(summary[key], key[:-1]) for key in ("steps", "servers"))
    say(
        paragraph(
            f"A step takes {time} ({spread}): {steps} of {summary['ops']:,} ops, 1 worker, "
            f"{servers}."
        )
    )
    rows = []
    for name, count in summary["ops_of"].items():
        share = summary["utilisation"][name]
        size = {"downlink": "bytes_down", "uplink": "bytes_up"}.get(name)
        carried = "" if size is None else format_size(summary[size])
        rows.append((name, f"{count:,}", carried, "" if share is None else f"{share:.0%}"))
    say(aligned([("", ">ops", ">size", ">busy"), *rows]))
    for reason, count in summary["dropped"].items():
        say(paragraph(f"left out: {_count_of(count, 'step')}: {reason}"), style="red")
    for note in summary["provenance"].get("notes", ()):
        say(paragraph(f"in the trace: {note}"), style="red")
    if summary["provenance"].get("ended") == "by itself":
        say(paragraph("The script ended before more steps were profiled."))
    if interrupted:
        say("Interrupted: these are the steps profiled so far.")
    rest = _details(summary)
    for text in rest if details else ():
        say(paragraph(text))
    if rest and not details:
        say("more: --details")
    say(str(summary["file"]))


def _details(summary: Mapping[str, Any]) -> list[str]:
    """Return what was measured beside the steps, and what was corrected."""
    found, provenance = [], summary["provenance"]
    if summary["bandwidth"] is not None:
        found.append(f"link: {format_bandwidth(summary['bandwidth'])}")
    if missing := provenance.get("transfers_not_traced"):
        found.append(f"transfers without times in some step: {missing:,} (their bytes are known)")
    for place, ahead in provenance.get("clocks_ahead", {}).items():
        distance = f"{format_duration(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"
        found.append(f"the clock of {place} was {distance} of the worker's: corrected")
    return found


def _count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

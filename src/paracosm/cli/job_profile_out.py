"""A job profile that was made: where it goes, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paracosm.cli.display import grid, printer
from paracosm.errors import InputError
from paracosm.study.plain import to_json
from paracosm.units import format_bandwidth, format_duration, format_size

if TYPE_CHECKING:
    from paracosm.profiling.jobs import JobProfile

__all__ = ["check_out", "keep_profile"]


def check_out(out: Path, force: bool, json: bool, quiet: bool) -> None:
    """Refuse, before anything is made, what could not be written or printed afterwards.

    Raises:
        InputError: the file is there already, or cannot be written; flags that exclude each other.
    """
    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    if not out.parent.is_dir():
        raise InputError(f"{out}: there is no folder {out.parent}")
    if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
        raise InputError(f"{out}: cannot be written: see the permissions of its folder")


def keep_profile(profile: JobProfile, out: Path, json: bool, quiet: bool) -> int:
    """Write a profile, say what is in it, and return the exit code."""
    from paracosm.profiling.jobs.file import save_job_profile
    from paracosm.profiling.jobs.summary import summarize_profile

    save_job_profile(profile, out)
    summary = {"file": out, **summarize_profile(profile)}
    interrupted = profile.provenance.get("ended") == "interrupted"
    if json:
        status = "interrupted" if interrupted else "done"
        typer.echo(to_json({"status": status, **summary}), nl=False)
    elif not quiet:
        _show(summary, interrupted)
    return 1 if interrupted else 0


def _show(summary: dict[str, Any], interrupted: bool) -> None:
    say = printer()
    low, high = map(format_duration, summary["step_seconds_p10_p90"])
    steps, servers = (_counted(summary[key], key[:-1]) for key in ("steps", "servers"))
    say(f"{steps} of {summary['ops']:,} ops, 1 worker, {servers}")
    say(f"step: {format_duration(summary['step_seconds'])} ({low} to {high})")
    rows = []
    for name, count in summary["ops_of"].items():
        share = summary["utilisation"][name]
        size = {"downlink": "bytes_down", "uplink": "bytes_up"}.get(name)
        rows.append(
            (
                name,
                f"{count:,}",
                "" if size is None else format_size(summary[size]),
                "" if share is None else f"{share:.0%}",
            )
        )
    say(grid([("", ">ops", ">size", ">busy"), *rows]))
    if summary["bandwidth"] is not None:
        say(f"link: {format_bandwidth(summary['bandwidth'])}")
    for reason, count in summary["dropped"].items():
        say(f"left out: {_counted(count, 'step')}: {reason}", style="red")
    if missing := summary["provenance"].get("transfers_not_traced"):
        say(f"transfers of which a step lacks the times: {missing:,} (it has their bytes)")
    for place, ahead in summary["provenance"].get("clocks_ahead", {}).items():
        what = f"{format_duration(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"
        say(f"the clock of {place} was {what} of the worker's: corrected")
    if summary["provenance"].get("ended") == "by itself":
        say("The script ended before there were more.")
    if interrupted:
        say("Interrupted: these are the steps that were profiled until then.")
    say(str(summary["file"]))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"

"""`paracosm replay`: traces of a real job played again, with something changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import Force, Json, Quiet, check_folder
from paracosm.results import ReplaySummary


def replay(
    traces: Annotated[
        list[Path], Argument(help="Kineto traces, one for each rank: .json or .json.gz")
    ],
    what_if: Annotated[
        list[str] | None,
        Option(
            help='what is different, as often as wanted: "links: bandwidth 2x", "worker 3: compute '
            '1.5x faster", "data loading: none", "kernel *gemm*: 2x slower"'
        ),
    ] = None,
    steps: Annotated[str | None, Option(help="of the profiler, such as 5..9 [all]")] = None,
    alone: Annotated[
        bool,
        Option("--alone", help="one rank of several: collectives take as long as they took it"),
    ] = False,
    out: Annotated[Path | None, Option(help="run folder to write")] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Replay traces of PyTorch's profiler, and say what would be if something were different.

    Example: paracosm replay rank0.json.gz rank1.json.gz --what-if "links: bandwidth 2x"
    """
    from paracosm import api

    check_folder(out, force)
    changes = what_if or []
    summary = api.replay(
        traces, what_if=changes, steps=steps, alone=alone, out=out, force=force
    ).summary
    show_result(summary, json, quiet, lambda: _show(summary, out))
    return 0


def _show(summary: ReplaySummary, out: Path | None) -> None:
    from paracosm.report.answers import answer
    from paracosm.report.replay import VIEW

    say = printer()
    say(answer(summary))
    say()
    steps = f"{len(summary.steps):,} steps" if len(summary.steps) > 1 else "1 step"
    ranks = f"{len(summary.ranks):,} ranks" if len(summary.ranks) > 1 else "1 rank"
    parts = f", played in {summary.parts:,} parts" if summary.parts > 1 else ""
    say(f"{ranks}, {steps}, {summary.tasks:,} tasks{parts}")
    if summary.alone:
        say("one rank alone: its collectives are as long as they were, with their waiting")
    for part in VIEW.tables(summary):
        say()
        say(aligned([(part.title, *(f">{word}" for word in part.header[1:])), *part.rows]))
    say()
    say(aligned([("", ""), *VIEW.remarks(summary).items()]))
    if out is not None:
        say(f"report: {out / 'report.html'}")

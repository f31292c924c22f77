"""`paracosm replay`: traces of a real job played again, with something changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paracosm.cli.display import grid, printer
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.study import RunFolder
from paracosm.study.plain import to_json
from paracosm.study.run_folder import REPLAY

if TYPE_CHECKING:
    from paracosm.prediction.traces import Replays

__all__ = ["replay"]

MOST = 100_000  # steps: what is more is a slip of the keyboard


def replay(
    traces: Annotated[
        list[Path], typer.Argument(help="Kineto traces, one for each rank: .json or .json.gz")
    ],
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            help='what is different, as often as wanted: "links: bandwidth 2x", "worker 3: compute '
            '1.5x faster", "data loading: none", "kernel *gemm*: 2x slower"',
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="of the profiler, such as 5..9 [all]", show_default=False)
    ] = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="one rank of several: collectives take as long as they took it"
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="run folder to write")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the run in the folder")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Replay traces of PyTorch's profiler, and say what would be if something were different.

    Example: paracosm replay rank0.json.gz rank1.json.gz --what-if "links: bandwidth 2x"
    """
    from paracosm.prediction.traces import replay_traces, summarise_replays

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if force and out is None:
        raise InputError("--force replaces the run in a folder: give --out as well")
    numbers = None if steps is None else _numbers(steps)
    asked = {"traces": traces, "what_if": what_if or [], "steps": steps, "alone": alone}
    with nullcontext() if out is None else RunFolder.create(out, {REPLAY: asked}, force) as run:
        replays = replay_traces(traces, what_if or [], numbers, alone)
        summary = summarise_replays(replays)
        if run is not None:
            run.finish(summary, replays.timeline)
    if out is not None:
        from paracosm.report import write_report

        write_report([RunFolder.open(out)], out / "report.html")
    if json:
        typer.echo(to_json(summary), nl=False)
    elif not quiet:
        _show(replays, summary, out)
    return 0


def _numbers(text: str) -> list[int]:
    """Return the steps that "5", "5..9" or "5,7" names."""
    first, dots, last = text.partition("..")
    try:
        if dots:
            numbers = list(range(int(first), min(int(last), int(first) + MOST) + 1))
        else:
            numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers:
        raise InputError(f'--steps: write 5 or 5..9, not "{text}"')
    if len(numbers) > MOST:
        raise InputError(f"--steps: {text} are more than {MOST:,} steps")
    if numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InputError(f"--steps: steps that follow each other, such as 5..9, not {text}")
    return numbers


def _show(replays: Replays, summary: Mapping[str, Any], out: Path | None) -> None:
    from paracosm.report import replay_words

    say, traced = printer(), replays.traced
    steps = f"{len(traced.steps)} steps" if len(traced.steps) > 1 else "1 step"
    ranks = f"{len(traced.ranks)} ranks" if len(traced.ranks) > 1 else "1 rank"
    say(f"{ranks}, {steps}, {traced.job.tasks:,} tasks")
    if traced.alone:
        say("one rank alone: its collectives are as long as they were, with their waiting")
    for part in replay_words.tables(summary):
        say()
        say(grid([(part.title, *(f">{word}" for word in part.header[1:])), *part.rows]))
    say()
    say(grid([("", ""), *replay_words.remarks(summary).items()]))
    if out is not None:
        say(f"report: {out / 'report.html'}")

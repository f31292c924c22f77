"""`paracosm replay`: traces of a real job played again, with something changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paracosm.cli.options import Json, Quiet
from paracosm.cli.tables import grid, printer
from paracosm.errors import InputError
from paracosm.study.plain import to_json
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.prediction.traces import Replays, Scenario

__all__ = ["replay"]

RANKS = 16  # that the table shows: --json has them all


def replay(
    traces: Annotated[
        list[Path], typer.Argument(help="Kineto traces, one for each rank: .json or .json.gz")
    ],
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            help='what is different, as often as wanted: "link bandwidth x2", "rank 3 compute '
            'x1.5" (1.5 times as fast), "without data loading", "kernel *gemm* x2"',
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
    out: Annotated[
        Path | None, typer.Option(help="folder to write: summary.json, trace.json.gz")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace what is in the folder")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Replay traces of PyTorch's profiler, and say what would be if something were different.

    Example: paracosm replay rank0.json.gz rank1.json.gz --what-if "link bandwidth x2"
    """
    from paracosm.prediction.traces import replay_traces, summarise_replays

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if force and out is None:
        raise InputError("--force replaces what is in a folder: give --out as well")
    if out is not None:
        _check_folder(out, force)
    numbers = None if steps is None else _numbers(steps)
    replays = replay_traces(traces, what_if or [], numbers, alone)
    summary = to_json(summarise_replays(replays))
    if out is not None:
        _write(out, replays, summary)
    if json:
        typer.echo(summary, nl=False)
    elif not quiet:
        _show(replays)
        if out is not None:
            typer.echo(f"\ntrace: {out / 'trace.json.gz'}")
    return 0


def _numbers(text: str) -> list[int]:
    """Return the steps that "5", "5..9" or "5,7" names."""
    first, dots, last = text.partition("..")
    try:
        if dots:
            numbers = list(range(int(first), int(last) + 1))
        else:
            numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers:
        raise InputError(f'--steps: write 5 or 5..9, not "{text}"')
    if numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InputError(f"--steps: steps that follow each other, such as 5..9, not {text}")
    return numbers


def _check_folder(out: Path, force: bool) -> None:
    if out.is_file():
        raise InputError(f"{out}: a file, not a folder")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise InputError(f"{out} is not empty: --force replaces what is in it")


def _write(out: Path, replays: Replays, summary: str) -> None:
    from paracosm.timeline import write_trace

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_trace(replays.timeline, out / "trace.json.gz")
        (out / "summary.json").write_text(summary, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None


def _show(replays: Replays) -> None:
    say, traced = printer(), replays.traced
    steps = f"{len(traced.steps)} steps" if len(traced.steps) > 1 else "1 step"
    ranks = f"{len(traced.ranks)} ranks" if len(traced.ranks) > 1 else "1 rank"
    say(f"{ranks}, {steps}, {traced.job.tasks:,} tasks")
    for rank, moved in traced.moved.items():
        say(f"clock of rank {rank}: set by {format_duration(abs(moved))}")
    if traced.alone:
        say("one rank alone: its collectives are as long as they were, with their waiting")
    say()
    rows = [
        ("", ">iteration", ">change"),
        ("as traced", format_duration(replays.measured.iteration_time), ""),
        _row(replays, replays.unchanged, "replayed"),
        *(_row(replays, each, each.what_if) for each in replays.scenarios),
    ]
    if replays.together is not None:
        rows.append(_row(replays, replays.together, "all together"))
    say(grid(rows))
    last = replays.last
    say()
    say(grid(_ranks(replays, last)))
    if len(traced.ranks) > RANKS:
        say(f"and {len(traced.ranks) - RANKS} more ranks: --json has them all")
    say()
    say(_bottleneck(replays, replays.unchanged))
    if (straggler := _straggler(replays.unchanged)) is not None:
        say(straggler)
    if last is not replays.unchanged:
        say(f"Then: {_bottleneck(replays, last)}")


def _row(replays: Replays, scenario: Scenario, name: str) -> tuple[str, str, str]:
    """Return a line: the replay beside what was traced, a what-if beside the replay."""
    time = scenario.outcome.iteration_time
    if scenario is replays.unchanged:
        return name, format_duration(time), f"{replays.error:+.2%}"
    change = time / replays.unchanged.outcome.iteration_time - 1
    return name, format_duration(time), f"{change:+.1%}"


def _ranks(replays: Replays, scenario: Scenario) -> list[tuple[str, ...]]:
    title = scenario.what_if if scenario is not replays.together else "all together"
    head = ("compute", "communication", "waiting", "host", "data loading")
    rows = [(title, *(f">{word}" for word in head))]
    ranked = zip(replays.traced.ranks, scenario.outcome.breakdowns, strict=True)
    for rank, part in list(ranked)[:RANKS]:
        values = (part.compute, part.exposed_communication, part.waiting, part.host)
        cells = [format_duration(value) for value in (*values, part.data_loading)]
        rows.append((f"rank {rank.rank}", *cells))
    return rows


def _bottleneck(replays: Replays, scenario: Scenario) -> str:
    from paracosm.prediction.traces.bottleneck import bottleneck_of

    return bottleneck_of(scenario.outcome, [rank.rank for rank in replays.traced.ranks])


def _straggler(scenario: Scenario) -> str | None:
    late = scenario.outcome.straggler
    if late is None:
        return None
    return (
        f"Rank {late.rank} comes last to {late.last} of {late.collectives} collectives, "
        f"{format_duration(late.lateness)} after the others on the average."
    )

"""`paracosm relax measure`: real threads on this machine, timed phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from paracosm.cli.display import progress_bar
from paracosm.errors import InputError
from paracosm.results import to_json

if TYPE_CHECKING:
    from paracosm.relaxation.problems import Problem
    from paracosm.relaxation.threads import Measurement

__all__ = ["measure"]


def measure(
    problem: Annotated[
        str | None, typer.Option(help="grid problem to solve, such as laplace2d:100")
    ] = None,
    matrix: Annotated[Path | None, typer.Option(help="Matrix Market file to solve instead")] = None,
    variant: Annotated[
        str, typer.Option(help="race (no locks), safe (locks), stencil (boundary rows locked)")
    ] = "race,safe",
    threads: Annotated[
        str, typer.Option(help="relaxation threads; race and safe use one more for the residual")
    ] = "1,2,4",
    tolerance: Annotated[float, typer.Option(help="residual 2-norm to reach")] = 1e-6,
    relative: Annotated[
        bool, typer.Option("--relative", help="tolerance relative to the first residual")
    ] = False,
    repeats: Annotated[
        int, typer.Option(min=1, help="runs of each case with timers, and as many without")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="right-hand side, order of runs")] = 0,
    longest: Annotated[float, typer.Option(help="seconds after which a run is stopped")] = 600.0,
    keep_recordings: Annotated[
        bool, typer.Option("--keep-recordings", help="keep one whole run of each case, to replay")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="file to write, which --time reads")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="folder for histograms with fitted densities")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing but errors")] = False,
) -> int:
    """Measure real parallel runs here: time of every phase of every iteration of every thread.

    Example: paracosm relax measure --problem laplace2d:20 --threads 1,2 --out measured.json
    """
    from paracosm.relaxation.threads import Limits, draw_figures
    from paracosm.relaxation.threads import measure as measure_threads

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if force and out is None:
        raise InputError("--force replaces a file: give --out as well")
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    for folder in ([] if out is None else [out.parent]) + ([] if figures is None else [figures]):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    if not longest > 0:
        raise InputError(f"--longest: give seconds above 0, not {longest}")
    variants, counts = _names(variant), _numbers(threads)
    system = _problem(problem, matrix, seed)
    total = 2 * repeats * len(variants) * len(counts)
    with progress_bar(total, hidden=json or quiet, unit="runs") as shown:
        measurement = measure_threads(
            system,
            variants,
            counts,
            tolerance=tolerance,
            relative=relative,
            repeats=repeats,
            seed=seed,
            keep_recordings=keep_recordings,
            limits=Limits(seconds=longest),
            progress=lambda done, _total, _next: shown(done, None),
        )
    if out is not None:
        measurement.save(out)
    drawn = draw_figures(measurement, figures) if figures is not None else []
    if json:
        typer.echo(to_json(_summary(measurement)), nl=False)
    elif not quiet:
        _show(measurement, out, drawn)
    stopped = any(run.status != "converged" for case in measurement.cases for run in case.runs)
    return 1 if stopped or measurement.interrupted else 0


def _problem(name: str | None, matrix: Path | None, seed: int) -> Problem:
    from paracosm.relaxation.problems import load_matrix, load_problem

    if (name is None) == (matrix is None):
        raise InputError("give either --problem laplace2d:100 or --matrix FILE")
    if matrix is not None:
        return load_matrix(matrix, seed=seed)
    assert name is not None
    return load_problem(name, seed=seed)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"--threads: write numbers such as 1,2,4, not {text}") from None


def _summary(measurement: Measurement) -> dict[str, Any]:
    """Return what was measured without the samples."""
    return {
        "problem": dict(measurement.problem),
        "tolerance": measurement.tolerance,
        "threshold": measurement.threshold,
        "clock_overhead": measurement.clock_overhead,
        "environment": dict(measurement.environment),
        "cases": [
            {
                "variant": case.variant,
                "threads": case.threads,
                "runs": [dict(vars(run)) for run in case.runs],
                "phases": [
                    dict(zip(("copy", "compute", "update", "whole"), worker.mean, strict=True))
                    for worker in case.workers
                ],
                "core_share": case.interruptions.share,
                "foreign_load": case.interruptions.load,
            }
            for case in measurement.cases
        ],
    }


def _show(measurement: Measurement, out: Path | None, drawn: list[Path]) -> None:
    from paracosm.relaxation.threads import render_table1, render_table3, table1, table3
    from paracosm.units import format_duration

    say: Callable[[str], None] = Console(highlight=False, markup=False, soft_wrap=True).print
    cores = measurement.environment["cores"]
    clock = format_duration(measurement.clock_overhead)
    name, threshold = measurement.problem["name"], measurement.threshold
    on = "1 core" if cores == 1 else f"{cores} cores"
    say(f"{name} to a residual of {threshold:.3g} on {on}; a look at the clock: {clock}\n")
    say(f"{'':9}{'threads':>8}{'with timers':>13}{'without':>12}{'iterations':>12}{'on core':>9}")
    for case in measurement.cases:
        made = [sum(run.iterations) / case.threads for run in case.runs]
        say(
            f"{case.variant:9}{case.threads:>8}"
            f"{format_duration(float(np.median(case.times(True)))):>13}"
            f"{format_duration(float(np.median(case.times(False)))):>12}"
            f"{np.median(made):>12,.0f}{case.interruptions.share:>9.0%}"
        )
    if solver := table1(measurement):
        say(f"\n{render_table1(solver)}")
    if stencil := table3(measurement):
        say(f"\n{render_table3(stencil)}")
    from paracosm.relaxation.times import CROWDED

    if any(case.interruptions.share < CROWDED for case in measurement.cases):
        say(
            "\nThreads lost their cores: durations drawn independently of each other are then "
            "wrong; use fewer threads, a replay, or the run-queue model."
        )
    if measurement.interrupted:
        say("\nInterrupted: this is what was measured until then.")
    for path in (*([out] if out else []), *drawn):
        say(str(path))
    for case in measurement.cases:
        for run in case.runs:
            if run.status != "converged":
                say(f"{case.variant}, {case.threads} threads: {run.status} at {run.residual:.3g}")

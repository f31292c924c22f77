"""`paracosm relax tune` and `paracosm relax measure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Option

from paracosm.cli.display import aligned, counter, paragraph, printer, show_result
from paracosm.cli.options import (
    Details,
    ForceFile,
    Quiet,
    StudyFile,
    check_output,
    duration,
    listed,
    make_folder,
    numbers,
    with_run_flags,
)
from paracosm.cli.other_files import way_out
from paracosm.cli.run_verb import run_verb
from paracosm.cli.verbs import INTERRUPTED
from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.results.view import counted
from paracosm.studies import Study, load_study
from paracosm.studies.tuning.config import TuneConfig
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.relaxation.threads import Measurement


OBJECTIVE = "time_over_fault_free"


@with_run_flags(RelaxConfig, TuneConfig, positional=("minimize", "maximize"))
def tune(study: StudyFile = None, **arguments: Any) -> int:
    """Find alpha and omega, and more, that minimise the time to tolerance under faults.

    What can be varied: alpha and omega (of the checkpoint policy), relaxation (the method's
    factor), processors, blocks.

    Example: paracosm relax tune --problem laplace2d:10 --processors 10 --time "normal(10, 1)"
    --fault "uniform(-100, 100) every 1000s" --checkpoint "cost=1s"
    --tune "alpha=1.05..20, omega=1..500s" --trials 30 --out runs/tune
    """
    of_relax = {
        name: arguments.pop(name)
        for name in RelaxConfig.model_fields
        if arguments.get(name) is not None
    }
    try:
        tuned = Study.model_validate({"relax": {}}) if study is None else load_study(study)
    except InputError as error:
        raise (None if study is None else way_out(study, "relax tune")) or error from None
    if tuned.kind != "relax":
        raise InputError(f"{study}: cannot tune a study of {tuned.kind}: give a study of relax")
    if arguments.get("seed") is None:
        arguments["seed"] = tuned.seed
    content = {**tuned.with_arguments(None, of_relax).as_written(), "seed": 0}
    return run_verb("tune", None, {**arguments, "study": content, "minimize": OBJECTIVE})


def measure(
    problem: Annotated[
        str | None, Option(help="grid problem to solve, such as laplace2d:100")
    ] = None,
    matrix: Annotated[
        Path | None, Option(help="a matrix in a file instead: .mtx, .npz, .npy, .mat")
    ] = None,
    variant: Annotated[
        str, Option(help="race (no locks), safe (locks), stencil (boundary rows locked)")
    ] = "race,safe",
    threads: Annotated[
        str, Option(help="relaxation threads; race and safe use one more for the residual")
    ] = "1,2,4",
    tolerance: Annotated[float, Option(help="residual 2-norm to reach")] = 1e-6,
    relative: Annotated[
        bool, Option("--relative", help="tolerance relative to the first residual")
    ] = False,
    repeats: Annotated[
        int, Option(min=1, help="runs of each case with timers, and the same number without")
    ] = 3,
    seed: Annotated[int, Option(min=0, help="right-hand side, order of runs")] = 0,
    longest: Annotated[str, Option(help="longest time of a run")] = "600s",
    out: Annotated[Path | None, Option(help="file to write, for --time")] = None,
    force: ForceFile = False,
    json: Annotated[bool, Option("--json", help="print the summary as JSON")] = False,
    details: Details = False,
    quiet: Quiet = False,
) -> int:
    """Measure real parallel runs on this machine: the time of each phase of each thread's
    iterations.

    Example: paracosm relax measure --problem laplace2d:20 --threads 1,2 --out measured.json
    """
    from paracosm.relaxation.problems import load_matrix, load_problem
    from paracosm.relaxation.threads import Limits
    from paracosm.relaxation.threads import measure as measure_threads

    check_output(out, force)
    if out is not None:
        make_folder(out.parent)
    seconds = duration("--longest", longest)
    if not seconds > 0:
        raise InputError(f"--longest: above 0, not {longest}")
    variants, counts = listed(variant), numbers("--threads", threads, "1,2,4")
    if problem is not None and matrix is None:
        system = load_problem(problem, seed=seed)
    elif matrix is not None and problem is None:
        system = load_matrix(matrix, seed=seed)
    else:
        raise InputError("give either --problem laplace2d:100 or --matrix FILE")
    total = 2 * repeats * len(variants) * len(counts)
    with counter(total, hidden=json or quiet, unit="runs") as shown:
        measurement = measure_threads(
            system,
            variants,
            counts,
            tolerance=tolerance,
            relative=relative,
            repeats=repeats,
            seed=seed,
            limits=Limits(seconds=seconds),
            progress=shown,
        )
    if out is not None:
        measurement.save(out)
    summary = _measurement_summary(measurement)
    show_result(summary, json, quiet, lambda: _show_measurement(measurement, out, details))
    stopped = any(run.status != "converged" for case in measurement.cases for run in case.runs)
    return INTERRUPTED if measurement.interrupted else int(stopped)


def _measurement_summary(measurement: Measurement) -> dict[str, Any]:
    phases = ("copy", "compute", "update", "whole")
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
                "phases": [dict(zip(phases, worker.mean, strict=True)) for worker in case.workers],
                "core_share": case.interruptions.share,
                "foreign_load": case.interruptions.load,
            }
            for case in measurement.cases
        ],
    }


def _show_measurement(measurement: Measurement, out: Path | None, details: bool) -> None:
    from paracosm.relaxation.times import CROWDED

    say = printer()
    cores = measurement.environment["cores"]
    name, threshold = measurement.problem["name"], measurement.threshold
    on = "1 core" if cores == 1 else f"{cores} cores"
    times = {
        f"{case.variant} on {counted(case.threads, 'thread')}": float(np.median(case.times(False)))
        for case in measurement.cases
        if len(case.times(False))
    }
    if times:
        best = min(times, key=lambda case: times[case])
        job = f"{name} to a residual of {threshold:.3g}, on {on}"
        say(paragraph(f"Fastest: {best}, {format_duration(times[best])} ({job})."))
        say()
    rows: list[tuple[str, ...]] = [
        ("", ">threads", ">with timers", ">without", ">iterations", ">on core")
    ]
    for case in measurement.cases:
        made = [sum(run.iterations) / case.threads for run in case.runs]
        seconds = (format_duration(float(np.median(case.times(timed)))) for timed in (True, False))
        share = f"{case.interruptions.share:.0%}"
        rows.append((case.variant, str(case.threads), *seconds, f"{np.median(made):,.0f}", share))
    say(aligned(rows))
    if details:
        say()
        say(aligned(_phases(measurement)))
        say(f"one clock read: {format_duration(measurement.clock_overhead)}")
    if any(case.interruptions.share < CROWDED for case in measurement.cases):
        say()
        say(
            paragraph(
                "The system preempted threads, so durations are not independent: use fewer "
                "threads, a replay, or the run-queue model."
            )
        )
    for case in measurement.cases:
        for run in case.runs:
            if run.status != "converged":
                say(f"{case.variant}, {case.threads} threads: {run.status} at {run.residual:.3g}")
    if measurement.interrupted:
        say("Interrupted: these are the measurements so far.")
    if not details:
        say("more: --details")
    if out is not None:
        say(str(out))


def _phases(measurement: Measurement) -> list[tuple[str, ...]]:
    """Return a table of how long each phase of an iteration takes, on average."""
    rows: list[tuple[str, ...]] = [
        ("mean of", ">threads", ">copy", ">compute", ">update", ">iteration")
    ]
    for case in measurement.cases:
        means, deviations = case.pooled()
        *phases, whole = map(_short_duration, means)
        spread = _short_duration(deviations[-1])
        rows.append((case.variant, str(case.threads), *phases, f"{whole} ± {spread}"))
    return rows


def _short_duration(seconds: float) -> str:
    return format_duration(float(f"{seconds:.3g}"))

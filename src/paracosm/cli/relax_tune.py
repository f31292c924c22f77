"""`paracosm relax tune`: the checkpoint policy, and more, that reaches the tolerance first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from paracosm.cli.display import progress_bar
from paracosm.cli.options import Force, Json, Quiet, Seed, StudyFile, with_fields_of
from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.results import to_builtin, to_json
from paracosm.studies import Study, load_study
from paracosm.units import format_duration
from paracosm.validation import validated

if TYPE_CHECKING:
    from paracosm.studies.tuning import Tuning
    from paracosm.studies.tuning_runs import Outcomes, Parameter, Spread

__all__ = ["tune"]

_WIDTH = 100  # where nobody knows how wide the reader's page is
_NAMES = {
    "best": "best",
    "no checkpoints": "without checkpoints",
    "young": "Young's interval",
    "daly": "Daly's interval",
}


@with_fields_of(RelaxConfig)
def tune(
    study: StudyFile = None,
    *,
    space: Annotated[
        str | None,
        typer.Option(
            "--tune",
            help="what to vary: alpha, omega (of the checkpoint policy), relaxation (the method's "
            'factor), processors, blocks: "alpha=1.05..20, omega=1..500"',
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each trial")] = 20,
    trials: Annotated[int, typer.Option(min=1, help="points of the search")] = 60,
    limit: Annotated[
        float,
        typer.Option(help="times the fault-free time at which a run counts as not converging"),
    ] = 20.0,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for tuning.json, trials.csv and landscape.png")
    ] = None,
    force: Force = False,
    jobs: Annotated[int, typer.Option(min=1, help="runs to carry out at a time")] = 1,
    json: Json = False,
    quiet: Quiet = False,
    **arguments: Any,
) -> int:
    """Find alpha and omega, and more, that minimise the time to tolerance under faults.

    Example: paracosm relax tune --problem laplace2d:10 --processors 10 --time "normal(10, 1)"
    --fault "uniform(-100, 100) every 1000s" --checkpoint "cost=1s"
    --tune "alpha=1.05..20, omega=1..500" --trials 30 --out runs/tune
    """
    from paracosm.studies.tuning import count_runs
    from paracosm.studies.tuning import tune as search
    from paracosm.studies.tuning_figure import claim_folder, write_tuning
    from paracosm.studies.tuning_runs import parse_space

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if force and out is None:
        raise InputError("--force replaces the tuning in a folder: give --out as well")
    if space is None:
        raise InputError('--tune: say what to vary: --tune "alpha=1.05..20, omega=1..500"')
    varied = parse_space(space)
    config, first = _asked(study, arguments, seed, varied)
    total = count_runs(config, varied, seeds, trials)
    if out is not None:
        claim_folder(out, force)
    with progress_bar(total, hidden=json or quiet, unit="runs") as shown:
        done = 0

        def ran(count: int) -> None:
            nonlocal done
            done += count
            shown(done, None)

        try:
            tuning = search(
                config, varied, seeds=seeds, trials=trials, seed=first, limit=limit, jobs=jobs,
                ran=ran,
            )  # fmt: skip
        except BaseException:
            if out is not None and not any(out.iterdir()):
                out.rmdir()
            raise
    if out is not None:
        write_tuning(tuning, out, to_builtin(config.model_dump(exclude_unset=True)))
    if json:
        sys.stdout.write(to_json(tuning.summary()))
    elif not quiet:
        _show(tuning, out)
    return 0 if tuning.status == "done" else 1


def _asked(
    file: Path | None, arguments: Mapping[str, Any], seed: int | None, space: tuple[Parameter, ...]
) -> tuple[RelaxConfig, int]:
    """Return what a study file and flags ask for, and the first seed."""
    from paracosm.studies.tuning_runs import complete_checkpoint

    where = "command line" if file is None else str(file)
    study = Study.model_validate({"relax": {}}) if file is None else load_study(file)
    if study.kind != "relax" or study.is_sweep:
        what = "with a grid" if study.kind == "relax" else f"of {study.kind}"
        raise InputError(f"{where}: a study {what}: tune one of relax, without a grid")
    given = {key: value for key, value in arguments.items() if value is not None}
    study = study.with_arguments(seed, given)
    asked = dict(study.arguments)
    if isinstance(policy := asked.get("checkpoint"), Mapping):
        asked["checkpoint"] = ", ".join(f"{key}={value}" for key, value in policy.items())
    asked["checkpoint"] = complete_checkpoint(asked.get("checkpoint"), space)
    if asked["checkpoint"] is None:
        del asked["checkpoint"]
    return validated(RelaxConfig, asked, where), study.seed


def _show(tuning: Tuning, out: Path | None) -> None:
    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(highlight=False, markup=False, soft_wrap=True, width=width)
    best, found = tuning.best, tuning.best.measured
    if tuning.status == "interrupted":
        console.print("Interrupted: the best so far, not validated.")
    console.print(_values(tuning))
    if best.setting.checkpoint is not None:
        console.print(f'--checkpoint "{best.setting.checkpoint}"')
    console.print(
        f"\n{len(tuning.trials)} trials with seeds {_range(tuning.seeds)}: without faults "
        f"{_times(tuning.fault_free)}, the best {_ratio(found.ratio.median)} times as long "
        f"({_quartiles(found)}){_failing(found)}."
    )
    if tuning.validation:
        console.print(f"Fresh seeds, {_range(tuning.fresh_seeds)}:\n")
        console.print(_validation(tuning))
    for sentence in tuning.remarks():
        console.print(sentence)
    if tuning.status == "failed":
        console.print("No trial's median run converged: widen the ranges.", style="red")
    if out is not None:
        console.print(f"landscape: {out / 'landscape.png'}")


def _values(tuning: Tuning) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("", "best", "within 1 % of it"):
        table.add_column(title, no_wrap=True)
    for name, value in tuning.best.values.items():
        low, high = (_written(name, bound) for bound in tuning.near_best[name])
        table.add_row(name, _written(name, value), f"{low} to {high}" if low != high else "")
    return table


def _validation(tuning: Tuning) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    policy = tuning.best.setting.checkpoint
    titles = ("time / without faults", "quartiles", "time", "not converged")
    for title in (*(() if policy is None else ("omega",)), *titles):
        table.add_column(title, justify="right", no_wrap=True)
    for name, found in tuning.validation.items():
        omega = tuning.suggestions.get(name)
        if name == "best" and policy is not None:
            omega = policy.omega
        table.add_row(
            _NAMES[name],
            *(() if policy is None else ("" if omega is None else format_duration(omega),)),
            _ratio(found.ratio.median),
            _quartiles(found),
            format_duration(found.time.median),
            f"{found.failures:.0%}",
        )
    return table


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _quartiles(found: Outcomes) -> str:
    return f"{_ratio(found.ratio.lower)} to {_ratio(found.ratio.upper)}"


def _range(seeds: range) -> str:
    return f"{seeds.start} to {seeds.stop - 1}" if len(seeds) > 1 else str(seeds.start)


def _failing(found: Outcomes) -> str:
    return f", {found.failures:.0%} not converged" if found.failures else ""


def _written(name: str, value: float) -> str:
    return format_duration(value) if name == "omega" else f"{value:g}"


def _times(found: Spread) -> str:
    median, lower, upper = map(format_duration, (found.median, found.lower, found.upper))
    return f"{median} ({lower} to {upper})"

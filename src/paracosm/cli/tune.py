"""`paracosm tune`: the arguments of a study with which a number of its summary is best."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from paracosm.cli.display import counter, printer, show_result
from paracosm.cli.options import RunFlags, Storage, with_run_flags
from paracosm.cli.run_verb import write_report_of
from paracosm.errors import InputError, on_one_line
from paracosm.studies import load_study
from paracosm.studies.run_folder import BEST

Space = Annotated[
    str | None,
    Option(
        "--tune",
        help="what to vary: ranges, on a logarithmic scale (log), and lists of values: "
        '"lr=0.01..1 log, latency=1..50ms, algorithm=asgd|ssgd"',
    ),
]


@with_run_flags()
def tune(
    study: Annotated[Path, Argument(help="a study file of one run")],
    *,
    space: Space = None,
    minimize: Annotated[str | None, Option(help="number to be small: final_loss")] = None,
    maximize: Annotated[str | None, Option(help="number to be large: final_accuracy")] = None,
    trials: Annotated[int, Option(min=1, max=10_000, help="points of the search")] = 30,
    seeds: Annotated[int, Option(min=1, max=10_000, help="runs of each trial")] = 3,
    storage: Storage = None,
    **arguments: Any,
) -> int:
    """Find the arguments of a study with which it is fastest, or learns best.

    Example: paracosm tune train.yaml --tune "lr=0.01..1 log, algorithm=asgd|ssgd"
    --minimize final_loss --trials 30 --jobs 2 --out runs/tuned
    """
    from paracosm.studies import tune as tuning

    flags = RunFlags(**arguments)
    if space is None or flags.out is None:
        raise InputError(f'tune: give --tune "{tuning.EXAMPLE}", and a folder to write: --out')
    asked, done = load_study(study).with_arguments(flags.seed, {}), itertools.count(1)
    objective = tuning.objective_of(asked, space, minimize, maximize)
    quiet = flags.quiet or flags.json
    with counter(seeds * (trials + 2), quiet, unit="runs") as shown:
        found = tuning.tune(
            *(asked, space, objective, flags.out), trials=trials, seeds=seeds,
            backend=flags.where, force=flags.force, storage=storage,
            finished=lambda _: shown(next(done)),
        )  # fmt: skip
    for point in found.failed[:1]:
        others = f" ({len(found.failed):,} of all runs failed)" if len(found.failed) > 1 else ""
        print(f"paracosm: {on_one_line(f'{point.point}: {point.error}')}{others}", file=sys.stderr)
    if found.points:
        write_report_of(list(found.points), flags.out)
    say = printer()
    if flags.json:
        show_result({"best": found.best.arguments, "reached": found.reached}, True, False, say)
    elif not flags.quiet:
        say(found.sentence)
        say(f"report: {flags.out / 'report.html'}")
        say(f"next: paracosm {asked.kind} {flags.out / BEST} --out runs/best")
    return 0 if math.isfinite(found.reached) else 1

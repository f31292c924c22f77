"""Reproduce Huang et al.: figure 2, tables 1 and 2, and what was left open, on this machine.

python examples/papers/offline_profiling/run.py                 # some twelve minutes on one core
python examples/papers/offline_profiling/run.py --quick         # less of it, in a minute
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "accuracy"))

import conv
import copies
import grids
import steady
from checks import check_all
from document import put_into, write_markdown
from figures import draw_figures
from kept import Kept, write_json
from page import write_page
from plan import FULL, QUICK, Plan
from results import Results, as_json
from tables import make_tables

import models
from paracosm.errors import InputError
from paracosm.profiling.allocator import restart_pinned
from paracosm.units import parse_duration


def main() -> None:
    restart_pinned()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="[runs/papers/offline_profiling]")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller ops and models")
    parser.add_argument("--budget", help="time for timing ops and iterations, such as 8min")
    parser.add_argument("--models", help="others than table 2's, such as resnet18,vgg16")
    parser.add_argument("--batch", type=int, help="of every model")
    parser.add_argument("--document", type=Path, help="page to put tables and figures into")
    options = parser.parse_args()
    name = "offline_profiling_quick" if options.quick else "offline_profiling"
    folder = options.out or Path("runs/papers") / name

    plan = QUICK if options.quick else FULL
    plan = plan.with_models(options.models and options.models.split(","), options.batch)
    if options.budget:
        plan = replace(plan, budget=parse_duration(options.budget))
    with Kept.open(folder, plan) as kept:
        results = reproduce(kept, plan)
    show(results, folder, options.document)


def reproduce(kept: Kept, plan: Plan) -> Results:
    """Measure what no earlier run did."""
    graphs = models.graphs_of(plan)
    types = {op.name for graph in graphs.values() for op in graph.ops}
    figure2 = conv.measure_figure2(kept, plan)
    table1 = copies.measure_copies(kept, plan)
    done = models.measure_models(kept, plan, graphs)
    timed = grids.measure_grids(kept, plan, types)
    table2 = models.accuracies(kept, done, timed)
    return Results(
        environment=kept.environment,
        names={options.model: str(options) for options in plan.models},
        figure2=figure2,
        lines=grids.lines_of(timed),
        steady=steady.steadiness(done),
        table1=table1,
        table2=table2,
        iterations={name: len(each.samples) for name, each in done.items()},
        neighbour=models.neighbour(kept, done, table2),
        designs=grids.compare(
            kept, timed, [timing for each in done.values() for timing in each.profile.timings]
        ),
    )


def show(results: Results, folder: Path, document: Path | None) -> None:
    """Draw, write and print what came out."""
    checks, tables = check_all(results), make_tables(results)
    pictures = draw_figures(results, folder)
    write_json(folder / "results.json", as_json(results, checks))
    write_page(checks, pictures, tables, results.setting, folder / "index.html")
    text = write_markdown(results, checks, tables, pictures)
    (folder / "results.md").write_text(text, encoding="utf-8")
    if document is not None:
        put_into(document, text, pictures)
    for table in tables:
        print(f"\n{table.text()}")
    print()
    for check in checks:
        print(f"{check.verdict:10}  {check.where}: {check.what}: {check.found} ({check.expected})")
    print(f"page: {folder / 'index.html'}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command resumes where it stopped") from None

"""Reproduce Coleman, Jensen, Sosonkina: figures 3 to 5, 7 to 9 and 11, tables 1, 3 and 4.

python examples/papers/asynchronous_iterations/run.py
python examples/papers/asynchronous_iterations/run.py --quick       # less of it, in seconds
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import checks as known
import figures
import further
import real
import speeds
import struck
from measured import draw_figures
from page import Picture, write_page
from tables import Table, make_tables

from paracosm.errors import InputError

Result = TypeVar("Result")

SETTING = (
    "Simulated: the 2-D Laplacian on a 10 x 10 grid, ten processors, updates of about ten units of "
    "time, right-hand sides uniform and normalised. The paper's texts disagree on when a processor "
    "reads what it computes from: at the start of its update (Definition 1) or at its completion "
    "(Algorithm 2 as printed); both are shown. Measured: threads of this machine, with fewer and "
    "shorter runs than the paper's. Known numbers are those of an independent program."
)


class Reproduction:
    """What there is so far: checks, pictures, tables; and how long each part took."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checks: list[known.Check] = []
        self.pictures: list[Picture] = []
        self.tables: list[Table] = []

    def part(self, name: str, work: Callable[[], Result]) -> Result:
        """Do a part of the work, and say how long it took."""
        print(f"{name} ... ", end="", flush=True)
        began = time.perf_counter()
        result = work()
        print(f"{time.perf_counter() - began:.1f} s", flush=True)
        return result

    def picture(self, name: str, caption: str, file: Path) -> None:
        """Add a figure to the page."""
        self.pictures.append(Picture(name, caption, file))

    def file(self, name: str) -> Path:
        """Return where to write a figure."""
        return self.folder / f"{name}.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/paper-asynchronous"))
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs, in seconds")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    paper = Reproduction(options.out)
    simulate_speeds(paper, options.quick)
    measure_threads(paper, options.quick)
    simulate_faults(paper, options.quick)
    if not options.quick:
        simulate_further(paper)

    page = options.out / "index.html"
    write_page(paper.checks, paper.pictures, paper.tables, SETTING, page)
    (options.out / "checks.json").write_text(
        json.dumps([asdict(check) for check in paper.checks], indent=1), encoding="utf-8"
    )
    for table in paper.tables:
        print(f"\n{table.text()}")
    print()
    for check in paper.checks:
        print(f"{check.verdict:10}  {check.where}: {check.what}: {check.found} ({check.expected})")
    print(f"page: {page}")


def simulate_speeds(paper: Reproduction, quick: bool) -> None:
    """Make figures 3, 4 and 5."""
    figure3 = paper.part("figure 3", lambda: speeds.nominal(20))
    paper.checks += known.check_figure3(figure3)
    paper.picture(
        "Figure 3",
        "The residual of the synchronous iteration falls by cos(π/11) a sweep",
        figures.draw_figure3(figure3, paper.file("figure3")),
    )
    slowdowns = (0, 2, 5, 11) if quick else tuple(range(12))
    figure4 = paper.part("figure 4", lambda: speeds.slowed(slowdowns, 10))
    paper.checks += known.check_figure4(figure4)
    paper.picture(
        "Figure 4",
        "One of ten processors is slower by 0 to 11 durations of an update: the iteration still "
        "converges, at a lower rate, and where the processor sits matters",
        figures.draw_figure4(figure4, paper.file("figure4")),
    )
    paper.picture(
        "Figure 4, costs",
        "Nobody waits for the slow processor: it costs far less than the factor by which it is "
        "slower; bars are standard deviations over 10 right-hand sides",
        figures.draw_figure4_costs(figure4, paper.file("figure4_costs")),
    )
    variances = (0, 4) if quick else known.VARIANCES
    figure5 = paper.part("figure 5", lambda: speeds.varied(variances, 30))
    paper.checks += known.check_figure5(figure5)
    paper.picture(
        "Figure 5",
        "Durations that vary cost a step at once when processors read at the start, and then "
        "little; bars are standard errors",
        figures.draw_figure5(figure5, paper.file("figure5")),
    )


def measure_threads(paper: Reproduction, quick: bool) -> None:
    """Measure this machine: tables 1, 3 and 4, figures 7, 8 and 9."""
    settings = real.QUICK if quick else real.FULL
    found = paper.part("tables 1, 3 and 4", lambda: real.measure_machine(settings, paper.folder))
    paper.checks += known.check_machine(found)
    paper.tables += make_tables(found)
    captions = {
        "Figure 7": "SAFE: measured times of copy, compute and update with fitted densities",
        "Figure 8": "RACE: the same without locks",
        "Figure 9": "The finite-difference implementation: times of whole iterations",
    }
    files = paper.part(
        "figures 7 to 9",
        lambda: draw_figures(found.solver, paper.folder) + draw_figures(found.plate, paper.folder),
    )
    for (name, caption), file in zip(captions.items(), files, strict=True):
        paper.picture(name, caption, file)


def simulate_faults(paper: Reproduction, quick: bool) -> None:
    """Make figure 11, and look for the smallest alpha and the best omega."""
    seeds, stagnating = (25, 1) if quick else (81, 21)
    figure11 = paper.part("figure 11", lambda: struck.struck(seeds, stagnating))
    paper.checks += known.check_figure11(figure11)
    paper.picture(
        "Figure 11",
        "A fault halfway. Without checkpoints the work done is lost; alpha = 1 "
        "rejects updates that are needed; alpha = 2 and 10 repair the fault at once",
        figures.draw_figure11(figure11, paper.file("figure11")),
    )
    paper.picture(
        "Figure 11, costs",
        "Run times over the fault-free ones, one point a right-hand side, the fault's time spread "
        "evenly over the run",
        figures.draw_figure11_costs(figure11, paper.file("figure11_costs")),
    )
    if quick:
        return
    counts = paper.part("smallest alpha", lambda: struck.false_rollbacks(20))
    paper.checks += known.check_alphas(counts, 20)
    found = paper.part("best omega", lambda: struck.intervals(12))
    paper.checks += known.check_intervals(found)
    paper.picture(
        "Beyond the paper",
        "Time between checkpoints that cost something, under faults at random: Young's "
        "interval is as good as the best one when processors read at completion, and on the short "
        "side when they read at the start",
        figures.draw_intervals(found, paper.file("intervals")),
    )


def simulate_further(paper: Reproduction) -> None:
    """Try what the paper names as future work, and other methods."""
    found = paper.part("distributed memory, other methods", lambda: further.further(4))
    paper.checks += known.check_further(found)
    paper.picture(
        "Beyond the paper",
        "Halo values that travel as messages: what a latency costs",
        figures.draw_latencies(found, paper.file("latencies")),
    )


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the same command begins anew") from None

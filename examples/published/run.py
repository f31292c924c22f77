"""Published results on clients and asynchrony, at their own scale or in kind.

    python examples/published/run.py [fedprox fedbuff ...] [--out runs/published] [--figures FOLDER]

Each result is a study, `fedprox.yaml` and so on, which `paracosm train` runs as well. This program
runs them, prints what each run came to and whether what the paper found comes out, and exits with 1
where it does not. It continues where it stopped. With --figures it draws a picture of each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import process_time

import matplotlib
from findings import FINDINGS, Run

import paracosm
from paracosm.result import Sweep

HERE = Path(__file__).parent


def runs_of(name: str, out: Path) -> list[Run]:
    """Run the study of a result, or what of it is not yet in its folder."""
    sweep = paracosm.study(HERE / f"{name}.yaml", out=out / name)
    assert isinstance(sweep, Sweep)
    varied = sweep.table.to_pylist()
    return [Run(row, point.metrics) for row, point in zip(varied, sweep.points, strict=True)]


def draw(name: str, runs: Sequence[Run], file: Path) -> None:
    """Draw the training loss of the runs of seed 0 that the finding is about."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    finding = FINDINGS[name]
    figure, plot = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for run in finding.drawn(runs):
        times, updates, losses = run.curve()
        plot.plot(times if finding.against_time else updates, losses, label=run.label, lw=1.2)
    plot.set_xlabel("Virtual time (s)" if finding.against_time else "Updates")
    plot.set_ylabel("Training loss")
    plot.set_yscale("log")
    plot.grid(alpha=0.3)
    plot.legend(fontsize=7)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FINDINGS)}; all by default")
    parser.add_argument("--out", type=Path, default=Path("runs/published"))
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(FINDINGS))
    if unknown:
        parser.error(f"no result is called {unknown[0]}: there are {', '.join(FINDINGS)}")

    comes_out = True
    for name in options.names or FINDINGS:
        begin = process_time()
        runs = runs_of(name, options.out)
        finding = FINDINGS[name]
        print(f"\n{finding.paper} ({process_time() - begin:.0f} s of processor time)\n")
        print("\n".join(finding.table(runs)))
        for claim, holds in finding.claims(runs).items():
            print(f"{'yes' if holds else 'NO '}  {claim}")
            comes_out &= holds
        if options.figures:
            draw(name, runs, options.figures / f"published-{name}.png")
    return 0 if comes_out else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Reproduce Zhang, Tanimura, Nakada: table 4's grid, figures 8 to 14, and what comes out of it.

python examples/papers/hybrid_simulator/run.py
python examples/papers/hybrid_simulator/run.py --cifar10 FOLDER     # their data and network
"""

from __future__ import annotations

import argparse
from pathlib import Path

from curves import read_curves
from figures import draw_figures
from findings import check_findings
from page import write_findings, write_page

from paracosm.backends import Backend
from paracosm.errors import InputError
from paracosm.studies import Point, load_study, run_sweep

HERE = Path(__file__).parent
CIFAR10 = {"model": "paper-cnn", "data": "cifar10"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", type=Path, help="folder of the CIFAR-10 archive")
    parser.add_argument("--updates", type=int, help="fewer updates than the study asks for")
    parser.add_argument("--out", type=Path, default=Path("runs/hybrid_simulator"))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    options = parser.parse_args()

    study = load_study(HERE / "table4.yaml")
    changed = {"updates": options.updates} if options.updates else {}
    if options.cifar10:
        changed |= {**CIFAR10, "data_dir": str(options.cifar10)}
    study = study.with_arguments(None, changed)
    points = study.points("table4.yaml")
    print(f"{len(points)} runs; they go on where they stopped if you interrupt them", flush=True)

    def finished(point: Point) -> None:
        print(".", end="", flush=True)

    run_sweep(study, points, options.out, Backend(jobs=options.jobs), finished=finished)

    curves = read_curves(points, options.out)
    figures = draw_figures(curves, options.out)
    findings = check_findings(curves)
    config = points[0].config
    setting = (
        f"Here: {config.model} on {config.data}, minibatch {config.batch}; a gradient takes 20 or "
        "200 ms (median; lognormal, sigma 0.1), since the paper does not say how long."
    )
    write_page(findings, figures, setting, options.out / "index.html")
    write_findings(findings, setting, options.out / "results.md")
    print()
    for finding in findings:
        print(f"{finding.verdict:9}  {finding.claim}: {finding.evidence}")
    print(f"page: {options.out / 'index.html'}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command resumes where it stopped") from None

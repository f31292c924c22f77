"""Reproduce Li, Yan, Paolieri, Golubchik on the jobs at hand: their figures, in kind.

python examples/papers/throughput_prediction/reproduce.py                 # what is here
python examples/papers/throughput_prediction/reproduce.py --data FOLDER   # with measured jobs
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import figures
import pictures_in_time as in_time
from cost import cost_of, judge_cost
from curves import batches, curve_of, judge_batches, judge_curves
from division import divide, gains_of, judge_division, judge_gains, model_gains
from finding import Finding, counts
from lockstep import Course, ablate, course_of, judge_ablation, judge_courses
from measured_jobs import SEED, MeasuredJob, measured_jobs
from page import Picture, Table, put_into, write_markdown, write_tables
from sending import judge_sending, judge_turns, sending_of, turns_of_figure_12
from tables import ablation_table, curve_tables, sending_tables

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.target import first_steps
from paracosm.timeline import write_trace

Result = TypeVar("Result")

MODELS = (("resnet50", "ResNet-50", 0.25), ("vgg11", "VGG-11", 0.2))
"""Imagined models, and seconds of a step's computing: 64 and 32 images on a GPU of 2018."""

SHOWN = 5.5  # seconds of figure 7


@dataclass(frozen=True)
class Plan:
    """How much is simulated.

    Attributes:
        repeats: windows of each measured run.
        steps: of each worker, for a steady state; None: as `Settings` has it.
        synthetic_steps: the same for synthetic models.
        models: of `MODELS`.
    """

    repeats: int
    steps: int | None
    synthetic_steps: int
    models: tuple[tuple[str, str, float], ...]


FULL, QUICK = Plan(40, None, 300, MODELS), Plan(4, 80, 40, MODELS[-1:])


class Reproduction:
    """What there is so far: findings, pictures and tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.findings: list[Finding] = []
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
    parser.add_argument(
        "--data", type=Path, help="folder of measured jobs, with index.json [$PARACOSM_DATA]"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/papers/throughput_prediction"))
    parser.add_argument("--quick", action="store_true", help="fewer and shorter simulations")
    parser.add_argument("--document", type=Path, help="page to put findings and figures into")
    options = parser.parse_args()
    folder = options.data
    if folder is None and "PARACOSM_DATA" in os.environ:
        folder = Path(os.environ["PARACOSM_DATA"]) / "psthroughput"
    plan = QUICK if options.quick else FULL
    jobs = measured_jobs(folder, plan.steps)
    options.out.mkdir(parents=True, exist_ok=True)
    setting = _setting(jobs, folder)
    print(setting)

    paper = Reproduction(options.out)
    predict_workers(paper, jobs, plan.repeats)
    draw_time(paper, jobs[0])
    drift_apart(paper, jobs, plan.repeats)
    send_otherwise(paper, jobs)
    divide_parameters(paper, jobs, plan)
    costs = paper.part("figure 22", lambda: [cost_of(job) for job in jobs])
    paper.findings += [each for cost in costs for each in judge_cost(cost)]
    paper.picture(
        "Figure 22",
        "Seconds to measure 1 to 10 workers, and to profile one and simulate others on one core",
        figures.draw_cost(costs, paper.file("figure22")),
    )
    show(paper, setting, options.document)


def predict_workers(paper: Reproduction, jobs: list[MeasuredJob], repeats: int) -> None:
    """Make figures 2, 3(c), 13 and 14."""
    found = paper.part("figure 2", lambda: batches(jobs[0]))
    paper.findings += judge_batches(found)
    paper.picture(
        "Figure 2",
        f"Throughput of {jobs[0].name} with other batches; that computing takes longer in "
        "proportion is assumed",
        figures.draw_batches(found, paper.file("figure2")),
    )
    curves = paper.part("figures 3(c), 13 and 14", lambda: [curve_of(job, repeats) for job in jobs])
    paper.findings += judge_curves(curves)
    paper.tables += curve_tables(curves)
    paper.picture(
        "Figure 3(c)",
        "Measured and predicted throughput, from the profile of one worker",
        figures.draw_one_curve(curves[0], paper.file("figure3c")),
    )
    paper.picture(
        "Figures 13 and 14",
        "Above: the steady state by all models; below: each measured run beside simulations of the "
        "same window after the same start",
        figures.draw_curves(curves, paper.file("figure13")),
    )


def draw_time(paper: Reproduction, job: MeasuredJob) -> None:
    """Make figures 7 and 12."""
    timeline = paper.part("figure 7", lambda: first_steps(job.target(2), 2, SEED))
    write_trace(timeline, paper.folder / "trace.json.gz")
    paper.picture(
        "Figure 7",
        f"Synthetic trace of 2 workers of {job.name}; `trace.json.gz` is the same for Perfetto",
        in_time.draw_trace(timeline, SHOWN, paper.file("figure7")),
    )
    turns = turns_of_figure_12()
    paper.findings += judge_turns(turns)
    paper.picture(
        "Figure 12",
        "Streams A to E with WIN = 3, each with its first and its second turn",
        in_time.draw_turns(turns, paper.file("figure12")),
    )


def drift_apart(paper: Reproduction, jobs: list[MeasuredJob], repeats: int) -> None:
    """Make figure 16, and take apart what it shows."""
    several = [job for job in jobs if job.started_together]
    if not several:
        print("figure 16, drift: no run of several workers at hand: give --data")
        return
    courses = paper.part(
        "figure 16",
        lambda: [course_of(job, run, repeats) for job in several for run in job.started_together],
    )
    paper.findings += judge_courses(courses)
    paper.picture(
        "Figure 16",
        "After a common start: throughput over time, and how much in step workers are",
        in_time.draw_courses(
            [_first_of_three(courses, job) for job in several], paper.file("figure16")
        ),
    )
    found = paper.part("drift", lambda: [each for job in several for each in ablate(job, repeats)])
    paper.findings += judge_ablation(found)
    paper.tables.append(ablation_table(found))
    paper.picture(
        "Drift",
        "What makes workers drift apart after a common start",
        in_time.draw_ablation(found, paper.file("drift")),
    )


def _first_of_three(courses: list[Course], job: MeasuredJob) -> Course:
    """Return the course of the job's first run of 3 workers, as the paper shows, or of any."""
    its = [course for course in courses if course.job is job]
    return next((course for course in its if course.run.workers == 3), its[0])


def send_otherwise(paper: Reproduction, jobs: list[MeasuredJob]) -> None:
    """Make figures 17 to 19."""
    found = paper.part("figures 17 to 19", lambda: [sending_of(job) for job in jobs])
    paper.findings += [each for sending in found for each in judge_sending(sending)]
    paper.tables += sending_tables(found)
    paper.picture(
        "Figures 17 to 19",
        "Predicted throughput: above with flow control, over that without; below without, in "
        "enforced orders, over that in the order as scheduled",
        figures.draw_sending(found, paper.file("figure17")),
    )


def divide_parameters(paper: Reproduction, jobs: list[MeasuredJob], plan: Plan) -> None:
    """Make figures 23 and 25."""
    divided = paper.part("figure 23", lambda: divide(jobs[:1]))
    paper.findings += judge_division(divided)
    paper.picture(
        "Figure 23",
        "Parameters divided between two servers",
        figures.draw_division(divided, paper.file("figure23")),
    )
    gains = paper.part(
        "figure 25",
        lambda: [
            gains_of(jobs[0], plan.steps),
            *(model_gains(*model, plan.synthetic_steps) for model in plan.models),
        ],
    )
    paper.findings += judge_gains(gains)
    paper.picture(
        "Figure 25",
        "One server, two, and two if both held as much; ResNet-50 and VGG-11 are synthetic, on "
        "links of 10 Gbit/s, with 64 and 32 images a step",
        figures.draw_gains(gains, paper.file("figure25")),
    )


def show(paper: Reproduction, setting: str, document: Path | None) -> None:
    """Write and print what came out."""
    text = write_markdown(paper.findings, paper.pictures, setting)
    tables = write_tables(paper.findings, paper.tables)
    (paper.folder / "results.md").write_text(text, encoding="utf-8")
    (paper.folder / "tables.md").write_text(tables, encoding="utf-8")
    (paper.folder / "findings.json").write_text(
        json.dumps([asdict(finding) for finding in paper.findings], indent=1), encoding="utf-8"
    )
    if document is not None:
        put_into(document, text, tables, paper.pictures)
    print()
    for finding in paper.findings:
        print(
            f"{finding.verdict:10}  {finding.where}: {finding.what}: {finding.found} "
            f"({finding.expected})"
        )
    print(f"{counts(paper.findings)}\n{paper.folder / 'results.md'}")


def _setting(jobs: list[MeasuredJob], folder: Path | None) -> str:
    listed = "; ".join(f"{job.name} ({job.about})" for job in jobs)
    if folder is not None:
        return f"Jobs: {listed}."
    return (
        f"Jobs: {listed}. The folder of measured TensorFlow jobs was not given (--data, or "
        "PARACOSM_DATA): figures 3(c), 13, 14 and 16, and what makes workers drift apart, need it "
        "for TensorFlow with several workers, and show what is in the repository."
    )


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the same command begins anew") from None

"""Real distributed trainings on this machine, and what is predicted of them from one worker.

Every run of `examples/time_to_accuracy` was really trained: processes, sockets, shaped links. Its
profile is that of one worker. From it alone come a schedule for each number of workers and, over
that, real gradients; what is compared is everything on the way to a time, each by itself, so that
errors cannot cancel:

1. the losses over recorded schedules, and the staleness that they say;
2. throughput, whether workers are in step, and the staleness of predicted schedules;
3. the spread of short measurements of throughput;
4. time, updates and throughput to a target, over the seeds of the real runs;
5. the interval that `plan` prints of seeds of its own, and the real runs that lie within it;
6. the choice between designs, and which of them learn.

    python benchmarks/accuracy/time_to_accuracy.py            # what is stored in the example
    python benchmarks/accuracy/time_to_accuracy.py FOLDER     # what was measured anew
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from printing import print_table, signed
from real_training import RecordedRun, load_run

import paracosm
from paracosm.prediction.parameter_servers.synchronized import coherence
from paracosm.profiling.jobs import load_job_profile
from paracosm.simulation.schedule import Schedule
from paracosm.training import Metrics, TrainConfig
from paracosm.training.numerics.scheduled import train_on_schedule

EXAMPLE = Path(__file__).parents[2] / "examples" / "time_to_accuracy"
sys.path.insert(0, str(EXAMPLE))
from cells import HIDDEN, Cell, plan  # noqa: E402 - found in the example's folder
from comparing import (  # noqa: E402
    DROPPED,
    Course,
    measured,
    predicted,
    updates_between_snapshots,
)

TARGETS = ("loss <= 0.2", "loss <= 0.1")
WINDOW = 20.0  # seconds of a short measurement
REPLAYED = 1000  # updates of a recorded schedule
SEVERAL = 4  # real runs of a design
SEEDS = range(100, 110)  # of plans: no real run has one of them
LEARNT = 1.0  # a loss below which a design has learnt something; guessing has 2.3


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Training:
    """What was really trained, and what is predicted of it."""

    cell: Cell
    run: RecordedRun
    real: Course
    ours: Course

    @property
    def design(self) -> tuple[object, ...]:
        """What runs with several seeds have in common."""
        cell = self.cell
        return cell.job, cell.workers, cell.algorithm, cell.lr, cell.start

    @property
    def described(self) -> str:
        cell = self.cell
        units = "" if cell.hidden == HIDDEN else f", {cell.hidden} units"
        return f"{cell.workers} {cell.algorithm}, lr {cell.lr:g}{units}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=EXAMPLE / "measured")
    folder = parser.parse_args().folder
    trainings = load(folder)
    if not trainings:
        print(f"{folder}: no measured run; examples/time_to_accuracy/run.py measures some")
        return 1
    for part in (
        replays,
        schedules,
        partial(spreads, folder),
        targets,
        partial(intervals, folder),
        designs,
    ):
        part(trainings)
        print()
    return 0


def load(folder: Path) -> list[Training]:
    """Return what is in a folder, predicted too, in the order in which it was measured."""
    found = []
    for cell in plan("full"):
        if (folder / cell.name).is_dir():
            run = load_run(folder / cell.name)
            found.append(Training(cell, run, measured(run), predicted(cell, run, folder)))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def replays(trainings: Iterable[Training]) -> None:
    """Compute the gradients of recorded schedules, and compare their losses with the real ones."""
    rows = []
    for training in trainings:
        cell, run = training.cell, training.run
        if cell.link != "fair" or cell.start != "together" or cell.seed != 0:
            continue
        config = TrainConfig(
            model=run.facts["model"],
            data=run.facts["data"],
            batch=run.facts["batch"],
            algorithm=cell.algorithm,
            lr=cell.lr,
            workers=cell.workers,
            updates=REPLAYED,
            evaluate_every=REPLAYED,
            keep_going=True,
        )
        metrics, schedule = Metrics(), run.schedule
        train_on_schedule(config, [schedule], schedule.tensors, cell.seed, metrics)
        losses: dict[str, list[float]] = {}
        for row in metrics.series("minibatch_loss"):
            losses.setdefault(row.node, []).append(row.value)
        differences = np.concatenate(
            [
                np.abs(np.array(own) - run.losses[int(name.removeprefix("worker"))][: len(own)])
                for name, own in losses.items()
            ]
        )
        rows.append((cell.name, f"{len(differences):,}", f"{np.nanmax(differences):.1e}"))
    print(
        f"1. Over recorded schedules, up to {REPLAYED:,} updates: losses of minibatches (aim: 1e-5;"
    )
    print("versions and staleness that do not fit what happens would be refused)")
    print_table(("run", "gradients", "largest difference"), rows)


def schedules(trainings: Iterable[Training]) -> None:
    """Compare schedules: steps/s, coherence by quarter of the run, staleness of each tensor."""
    rows = []
    errors: dict[str, list[float]] = {}
    for training in trainings:
        cell = training.cell
        if (cell.algorithm, cell.lr) != ("asgd", 0.1):
            continue
        real, ours = training.real.steps_per_second, training.ours.steps_per_second
        errors.setdefault(cell.link, []).append(ours / real - 1)
        pooled, tensors = staleness_distances(training.real.schedule, training.ours.schedule)
        rows.append(
            (
                cell.name,
                f"{real:.2f}",
                f"{ours:.2f}",
                signed(ours / real - 1),
                by_quarter(training.real.schedule, cell.workers),
                by_quarter(training.ours.schedule, cell.workers),
                f"{pooled:.2f}",
                f"{max(tensors):.2f}",
            )
        )
    print("2. Throughput (aims: 10 % each, 5 % in the mean), coherence of steps by quarter (aim:")
    print("0.15), total variation of staleness (aims: 0.10 pooled, 0.15 of each tensor)")
    header = ("run", "steps/s", "predicted", "error", "in step", "predicted", "pooled", "worst")
    print_table(header, rows)
    for link, found in errors.items():
        values = np.abs(found)
        print(f"{link}: {values.mean():.1%} in the mean, {values.max():.1%} at worst")


def spreads(folder: Path, trainings: Iterable[Training]) -> None:
    """Compare the spread of short measurements, which `predict` says as "±", with real ones."""
    windows: dict[tuple[str, int], list[Floats]] = {}
    for training in trainings:
        if (training.cell.algorithm, training.cell.lr) == ("asgd", 0.1):
            key = training.cell.link, training.cell.workers
            windows.setdefault(key, []).append(windows_of(training.real.schedule))
    rows = []
    distances: dict[str, list[Floats]] = {}
    for (link, workers), found in sorted(windows.items()):
        real, profile = np.concatenate(found), folder / f"{link}.profile"
        bandwidth = load_job_profile(profile).bandwidth
        said = paracosm.predict(
            profile=profile, workers=workers, bandwidth=bandwidth, measure=WINDOW
        )
        (row,) = said.summary.throughput
        away = np.abs(real - row.steps_per_second) / row.spread
        distances.setdefault(link, []).append(away)
        rows.append(
            (
                f"{link}, {workers}",
                f"{len(real)}",
                f"{real.mean():.2f} ± {real.std(ddof=1):.2f}",
                f"{row.steps_per_second:.2f} ± {row.spread:.2f}",
                f"{(away <= 1).mean():.0%}",
                f"{(away <= 2).mean():.0%}",
            )
        )
    print(
        f"3. Steps/s in windows of {WINDOW:g} s (aims: 60 to 80 % within one deviation of what is"
    )
    print("predicted, 90 % within two)")
    print_table(("link, workers", "windows", "steps/s", "predicted", "within one", "two"), rows)
    for link, values in distances.items():
        every = np.concatenate(values)
        shares = f"{(every <= 1).mean():.0%} within one deviation, {(every <= 2).mean():.0%}"
        print(f"{link}: of {len(every)} windows {shares} within two")


def windows_of(schedule: Schedule) -> Floats:
    """Return steps/s in windows, one after the other, from when all workers are under way."""
    steps = schedule.steps
    ends = [np.sort(steps["end"][steps["worker"] == w]) / 1e12 for w in np.unique(steps["worker"])]
    begin = max(float(end[DROPPED - 1]) for end in ends)
    count = int((min(float(end[-1]) for end in ends) - begin) // WINDOW)
    edges = begin + WINDOW * np.arange(count + 1)
    return np.histogram(np.concatenate(ends), bins=edges)[0] / WINDOW


def targets(trainings: Iterable[Training]) -> None:
    """Compare times to the targets of designs that were trained with several seeds."""
    print(
        "4. To a loss, medians over seeds (aims: time 7 % in the mean, 12 % at worst, synchronous"
    )
    print("4 %; updates 6 %, throughput 8 %)")
    rows = []
    for own in trained_several_times(trainings):
        speed, got = (
            float(np.median([course.steps_per_second for course in courses]))
            for courses in ([each.real for each in own], [each.ours for each in own])
        )
        for target in TARGETS:
            real = np.array([each.real.passage(target) for each in own])
            ours = np.array([each.ours.passage(target) for each in own])
            if not np.isfinite([np.median(real), np.median(ours)]).all():
                continue
            (time, updates), (said, steps) = np.median(real, axis=0), np.median(ours, axis=0)
            rows.append(
                (
                    own[0].described,
                    target.removeprefix("loss <= "),
                    f"{time:.1f}",
                    f"{said:.1f}",
                    signed(said / time - 1),
                    f"{updates:.0f}",
                    signed(steps / updates - 1),
                    f"{speed:.2f}",
                    signed(got / speed - 1),
                )
            )
    header = ("workers", "loss", "s", "predicted", "error", "updates", "error")
    print_table((*header, "steps/s", "error"), rows)


def intervals(folder: Path, trainings: Iterable[Training]) -> None:
    """Ask `plan` for the time to each target, as one would who has no real run.

    Its seeds have other initial models, minibatches and schedules than the real runs. It evaluates
    as often as these took snapshots.
    """
    print(
        f"5. Seconds to a loss by `plan`, {len(SEEDS)} seeds (aims: 70 to 90 % of real runs within"
    )
    print("the 80 % interval, medians 7 % off, at each learning rate)")
    rows = []
    inside: dict[float, list[bool]] = {}
    errors: dict[float, list[float]] = {}
    for own in trained_several_times(trainings):
        cell, facts = own[0].cell, own[0].run.facts
        profile = folder / f"{cell.job}.profile"
        for target in TARGETS:
            planned = paracosm.plan(
                profile,
                bandwidth=load_job_profile(profile).bandwidth,
                workers=cell.workers,
                model=facts["model"],
                data=facts["data"],
                batch=facts["batch"],
                algorithm=cell.algorithm,
                lr=cell.lr,
                target=target,
                seeds=len(SEEDS),
                seed=SEEDS.start,
                evaluate_every=updates_between_snapshots(own[0].run),
            ).summary
            time = planned.designs[0].time
            low, median, high = (
                np.inf if each is None else each for each in (time.low, time.median, time.high)
            )
            real = np.array([each.real.passage(target)[0] for each in own])
            within = (low <= real) & (real <= high)
            inside.setdefault(cell.lr, []).extend(within.tolist())
            errors.setdefault(cell.lr, []).append(median / float(np.median(real)) - 1)
            rows.append(
                (
                    own[0].described,
                    target.removeprefix("loss <= "),
                    f"{np.median(real):.1f} ({real.min():.1f} to {real.max():.1f})",
                    f"{median:.1f}",
                    signed(errors[cell.lr][-1]),
                    f"{low:.1f} to {high:.1f}",
                    f"{within.sum()} of {len(real)}",
                )
            )
    print_table(("workers", "loss", "s", "predicted", "error", "interval", "within"), rows)
    for lr, found in sorted(inside.items()):
        sizes = np.abs(errors[lr])
        print(
            f"lr {lr:g}: {sum(found)} of {len(found)} real times within the interval "
            f"({np.mean(found):.0%}); medians {sizes.mean():.1%} off, {sizes.max():.1%} at worst"
        )


def trained_several_times(trainings: Iterable[Training]) -> list[list[Training]]:
    return [
        own
        for own in by_design(trainings)
        if len(own) >= SEVERAL and own[0].cell.link == "fair" and own[0].cell.start == "together"
    ]


def designs(trainings: Iterable[Training]) -> None:
    """Compare designs on the fair link: which is best, and which learn."""
    rows, times, expected, right = [], [], [], 0
    for own in by_design(trainings):
        first = own[0]
        if (first.cell.job, first.cell.start) != ("fair", "together"):
            continue
        times.append(float(np.median([each.real.passage(TARGETS[-1])[0] for each in own])))
        expected.append(float(np.median([each.ours.passage(TARGETS[-1])[0] for each in own])))
        last = [float(course.loss[-1]) for course in (first.real, first.ours)]
        learns, said = (loss < LEARNT for loss in last)
        right += learns == said
        rows.append(
            (
                first.described,
                str(len(own)),
                *(
                    f"{each:.1f}" if np.isfinite(each) else "never"
                    for each in (times[-1], expected[-1])
                ),
                *(f"{loss:.3g}" for loss in last),
                "" if learns == said else "wrong",
            )
        )
    print(f"6. Designs: seconds to {TARGETS[-1]}, medians over runs, and the first run's last loss")
    print_table(("workers", "runs", "s", "predicted", "loss", "predicted", "learns?"), rows)
    chosen = int(np.argmin(expected))
    print(
        f"predicted to be the fastest: {rows[chosen][0]}, really {times[chosen]:.1f} s, "
        f"the best {min(times):.1f} s: {signed(times[chosen] / min(times) - 1)} (aim: 10 %)"
    )
    print(f"whether it learns is told right of {right} of {len(rows)}")


def by_design(trainings: Iterable[Training]) -> list[list[Training]]:
    found: dict[object, list[Training]] = {}
    for training in trainings:
        found.setdefault(training.design, []).append(training)
    return list(found.values())


def by_quarter(schedule: Schedule, workers: int) -> str:
    """Return how coherent steps are in each quarter of a run."""
    if workers == 1:
        return ""
    steps = np.sort(schedule.steps, order=("worker", "step"))
    own = [steps[steps["worker"] == worker] for worker in range(workers)]
    begins, ends = ([each[name] / 1e12 for each in own] for name in ("begin", "end"))
    times = np.linspace(max(begin_[0] for begin_ in begins), min(end[-1] for end in ends), 4000)
    quarters = np.array_split(coherence(begins, ends, times), 4)
    return " ".join(f"{np.nanmean(quarter):.2f}" for quarter in quarters)


def staleness_distances(real: Schedule, ours: Schedule) -> tuple[float, Sequence[float]]:
    """Return total variation distances between distributions of staleness: pooled, by tensor."""
    number = {name: i for i, name in enumerate(ours.tensors)}
    each = [
        distance(
            real.staleness[real.updates["tensor"] == i],
            ours.staleness[ours.updates["tensor"] == number[name]],
        )
        for i, name in enumerate(real.tensors)
    ]
    return distance(real.staleness, ours.staleness), each


def distance(ages: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> float:
    most = int(max(ages.max(), others.max())) + 1
    shares = [np.bincount(each, minlength=most) / len(each) for each in (ages, others)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


if __name__ == "__main__":
    sys.exit(main())

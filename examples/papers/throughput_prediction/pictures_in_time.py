"""What happens when, as pictures: figures 7, 12 and 16, and what workers drift apart by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from figures import BLUE, GREY, save
from lockstep import VARIANTS, Ablation, Course
from sending import Turn

from paracosm.timeline import Timeline

__all__ = ["draw_ablation", "draw_courses", "draw_trace", "draw_turns"]

LANES = {"downlink": "#e69f00", "compute": "#d55e00", "uplink": "#009e73", "server": "#56b4e9"}


def draw_trace(timeline: Timeline, seconds: float, path: Path) -> Path:
    """Draw figure 7: the lanes of each worker for some seconds."""
    spans = timeline.spans[timeline.spans.begin < seconds]
    workers = sorted(timeline.spans.node.distinct())
    drawing, axes = plt.subplots(figsize=(9, 0.6 + 1.25 * len(workers)), layout="constrained")
    ticks, labels = [], []
    for number, worker in enumerate(workers):
        for place, (lane, colour) in enumerate(LANES.items()):
            row = number * (len(LANES) + 0.7) + place
            own = spans[spans.node.isin(worker) & spans.resource.isin(lane)]
            bars = np.column_stack([own.begin, own.end - own.begin]).tolist()
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, ec="white", lw=0.25)
            ticks.append(row)
            labels.append(f"{worker} {lane}" if place == 0 else lane)
    axes.set(yticks=ticks, yticklabels=labels, xlabel="Virtual time (s)", xlim=(0, seconds))
    axes.tick_params(axis="y", labelsize="small")
    axes.invert_yaxis()
    axes.grid(alpha=0.25, axis="x")
    return save(drawing, path)


def draw_turns(turns: Sequence[Turn], path: Path) -> Path:
    """Draw figure 12: when each stream is sent; second turns in blue, as the paper has them."""
    drawing, axes = plt.subplots(figsize=(7.5, 1.9), layout="constrained")
    streams = sorted({turn.stream for turn in turns})
    for turn in turns:
        long, row = turn.end - turn.begin, streams.index(turn.stream)
        axes.barh(
            row, long, 0.7, turn.begin, color=BLUE if turn.turn else "#e69f00", edgecolor="white"
        )
        axes.text(
            turn.begin + long / 2,
            row,
            f"{long:g}",
            ha="center",
            va="center",
            color="white" if turn.turn else "black",
            fontsize="small",
        )
    axes.bar(0, 0, color="#e69f00", label="first turn, at most WIN = 3")
    axes.bar(0, 0, color=BLUE, label="second turn, to completion")
    last = max(turn.end for turn in turns)
    axes.set(
        yticks=range(len(streams)),
        yticklabels=streams,
        xlabel="Time, with one unit of size sent in a unit of time",
        xlim=(0, last),
        xticks=np.arange(0, last + 1, 3),
    )
    axes.invert_yaxis()
    axes.grid(alpha=0.25, axis="x")
    axes.legend(frameon=False, fontsize="small", loc="lower left")
    return save(drawing, path)


def draw_courses(courses: Sequence[Course], path: Path) -> Path:
    """Draw figure 16: throughput over time, and how much in step workers are."""
    drawing, panels = plt.subplots(
        2,
        len(courses),
        figsize=(3.6 * len(courses) + 0.6, 5.2),
        layout="constrained",
        squeeze=False,
        sharex="col",
    )
    for course, column in zip(courses, panels.T, strict=True):
        first = course is courses[0]
        for row, (axes, label) in enumerate(
            zip(column, ("Steps/s", "Coherence (1: in step)"), strict=True)
        ):
            simulated = course.simulated[:, row]
            mean, spread = simulated.mean(axis=0), simulated.std(axis=0)
            axes.fill_between(
                course.times, mean - spread, mean + spread, color=BLUE, alpha=0.2, lw=0
            )
            axes.plot(course.times, mean, color=BLUE, label="simulated, mean ± 1 s.d.")
            axes.plot(course.times, simulated[0], color=BLUE, lw=0.6, label="one of them")
            axes.plot(course.times, course.measured[row], color="black", label="measured")
            axes.set_ylim(0, None if row == 0 else 1.05)
            axes.grid(alpha=0.25)
            if first:
                axes.set_ylabel(label)
        column[0].set_title(f"{course.job.name}, {course.run.workers} workers", fontsize="medium")
        column[1].set_xlabel("Time since all began (s)")
        if first:
            column[0].legend(frameon=False, fontsize="small", loc="lower right")
    return save(drawing, path)


def draw_ablation(ablations: Sequence[Ablation], path: Path) -> Path:
    """Draw what each variant does: throughput over measured, and coherence."""
    jobs = list(dict.fromkeys(ablation.job for ablation in ablations))
    drawing, (rates, together) = plt.subplots(
        1, 2, figsize=(10, 3.9), layout="constrained", sharey=True
    )
    names = [variant.name for variant in VARIANTS]
    colours = (BLUE, "#e69f00", "#009e73", "#cc79a7")
    for place, job in enumerate(jobs):
        its = [ablation for ablation in ablations if ablation.job is job]
        shift = (place - (len(jobs) - 1) / 2) * 0.16
        heights = np.arange(len(its)) + shift
        look = {"color": colours[place], "marker": "o", "ms": 4, "ls": "", "capsize": 2}
        errors = [100 * each.errors for each in its]
        rates.errorbar(
            [error.mean() for error in errors],
            heights,
            xerr=[error.std() / np.sqrt(len(error)) for error in errors],
            **look,
        )
        together.errorbar(
            [each.coherences.mean() for each in its],
            heights,
            xerr=[each.coherences.mean(axis=1).std() / np.sqrt(len(each.runs)) for each in its],
            label=job.name,
            **look,
        )
        measured = its[0].measured.mean()
        together.axvline(measured, color=colours[place], lw=1, ls=":")
    together.plot([], [], color=GREY, lw=1, ls=":", label="measured")
    rates.axvline(0, color=GREY, lw=1)
    rates.set(
        yticks=range(len(names)),
        yticklabels=names,
        xlabel="Simulated over measured throughput (%)",
    )
    rates.invert_yaxis()
    together.set(xlabel="Coherence in the second half (1: in step)", xlim=(None, 1.02))
    together.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    for axes in (rates, together):
        axes.grid(alpha=0.25)
    return save(drawing, path)

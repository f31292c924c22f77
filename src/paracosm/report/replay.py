"""Texts and charts of replayed traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from paracosm.report.chart import row_chart, shown_sections, time_unit
from paracosm.report.timeline_charts import first_timelines, lane_timeline, part_bars
from paracosm.results import ReplaySummary
from paracosm.results.chart import Axis, Boxes, Chart, Dots, Section
from paracosm.results.summaries import Lateness, Scenario
from paracosm.results.view import Figure, Run, Table, View, figure, joined
from paracosm.timeline.kineto.communication import KINDS
from paracosm.units import format_duration

RANKS = 16  # in a table or a chart; the summary has all
LEFT_OUT = 6  # steps and traces that are named of those of which something is left out
LATE = 8  # rows of the tables of late ranks
PARTS = {
    "compute": "compute",
    "exposed_communication": "communication",
    "waiting": "waiting",
    "host": "host",
    "data_loading": "data loading",
}


def _replayed(summary: ReplaySummary) -> str | None:
    replayed = summary.replayed
    if replayed is None:
        return None
    return f"{format_duration(replayed.iteration_time)} ({replayed.error:+.2%})"


FIGURES: Mapping[str, Figure] = {
    "As traced": figure("iteration_time", format_duration),
    "Replayed": _replayed,
    "Ranks": figure("ranks", lambda ranks: f"{len(ranks):,}"),
    "Steps": figure("steps", lambda steps: f"{max(len(steps), 1):,}"),
    "Tasks": figure("tasks", "{:,}".format),
}


def _remarks(summary: ReplaySummary) -> dict[str, str]:
    if summary.replayed is None:
        return {}
    last = _last(summary)
    lines = {
        "bottleneck": summary.replayed.bottleneck,
        "then": "" if last.bottleneck == summary.replayed.bottleneck else last.bottleneck,
        "device": f"{format_duration(summary.behind)} behind its host when the last step ends: "
        "steps are as long as the device takes"
        if summary.behind
        else "",
        **_left_out(summary),
        "parts": f"played in {summary.parts:,} parts" if summary.parts > 1 else "",
        "one rank alone": "its collectives are as long as they were, with their waiting"
        if summary.alone
        else "",
        "clocks": "; ".join(
            f"the clock of rank {rank} was corrected by {format_duration(abs(seconds))}"
            for rank, seconds in (summary.clocks_moved or {}).items()
        ),
    }
    return {what: line for what, line in lines.items() if line}


def _left_out(summary: ReplaySummary) -> dict[str, str]:
    """Return what of the traces is not in the answer: steps, then spans of each trace."""
    lines, notes = {}, dict(summary.notes or {})
    if steps := list((summary.steps_left_out or {}).items()):
        shown = "; ".join(f"step {step}: {why}" for step, why in steps[:LEFT_OUT])
        more = f"; and {len(steps) - LEFT_OUT:,} more" if len(steps) > LEFT_OUT else ""
        if summary.all_faulty:
            lines["not whole"] = f"no step is, and all count as they are: {shown}{more}"
        else:
            total = len(steps) + len(summary.steps)
            lines["left out"] = f"{len(steps):,} of {total:,} steps: {shown}{more}"
    several = len(summary.traces or ()) > 1
    for path, said in list(notes.items())[:LEFT_OUT]:
        name = f"in {Path(path).name}" if several else "in the trace"
        lines[name] = "; ".join(said)
    if (others := len(notes) - LEFT_OUT) > 0:
        lines["in others"] = f"the same for {others:,} more traces: notes in summary.json"
    return lines


def _tables(summary: ReplaySummary) -> list[Table]:
    if summary.replayed is None or summary.what_ifs is None:
        return []
    replayed, last = summary.replayed, _last(summary)
    rows = [
        ("as traced", format_duration(summary.iteration_time), ""),
        ("replayed", format_duration(replayed.iteration_time), f"{replayed.error:+.2%}"),
        *(_changed(replayed, each, each.what_if) for each in summary.what_ifs),
    ]
    if summary.together is not None:
        rows.append(_changed(replayed, summary.together, "all together"))
    ranks = list(last.breakdown.items())
    parts = [
        (f"rank {rank}", *(format_duration(times[part]) for part in PARTS))
        for rank, times in ranks[:RANKS]
    ]
    if len(ranks) > RANKS:
        parts.append((f"{len(ranks) - RANKS} more", *("" for _ in PARTS)))
    title = _title(summary, last)
    return [
        Table("What if", ("what if", "iteration", "change"), tuple(rows)),
        Table(f"Ranks, {title}", ("rank", *PARTS.values()), tuple(parts)),
        *_late_tables(summary.lateness),
    ]


def _title(summary: ReplaySummary, last: Scenario) -> str:
    return "all together" if last is summary.together else last.what_if


def _last(summary: ReplaySummary) -> Scenario:
    last = summary.together or [summary.replayed, *summary.what_ifs][-1]
    assert last is not None
    return last


def _changed(replayed: Scenario, scenario: Scenario, what: str) -> tuple[str, str, str]:
    time, before = scenario.iteration_time, replayed.iteration_time
    return what, format_duration(time), f"{time / before - 1:+.1%}" if before else ""


def _late_tables(late: Lateness | None) -> list[Table]:
    """Return late ranks by rank, collective and step, longest first."""
    if late is None or not late.ranks[0].lateness:
        return []
    ranks = tuple(
        (
            f"rank {each.rank}",
            f"{each.last:,} of {each.collectives:,}",
            *map(format_duration, (each.mean, each.most, each.lateness)),
        )
        for each in late.ranks[:LATE]
        if each.last
    )
    collectives = tuple(
        (
            f"{each.kind} {each.place:,} ({each.group})",
            f"rank {each.rank}, {each.last:,} of {each.times:,}",
            format_duration(each.mean),
            f"{format_duration(each.most)}, rank {each.most_rank}"
            + ("" if each.most_step is None else f", step {each.most_step}"),
        )
        for each in late.collectives[:LATE]
    )
    tables = [
        Table("Who comes last", ("rank", "last", "mean", "most", "together"), ranks),
        Table("Collectives", ("collective", "last", "mean", "most"), collectives),
    ]
    longest = sorted(late.steps, key=lambda each: -each.lateness)[:LATE]
    steps = tuple(
        (
            f"step {each.step}",
            f"rank {each.rank}, {each.last:,} of {each.collectives:,}",
            format_duration(each.lateness),
        )
        for each in longest
    )
    if len(steps) > 1:
        tables.append(Table("Steps", ("step", "last", "together"), steps))
    return tables


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return the sections that have data; of several runs, their timelines."""
    several = len(runs) > 1
    timelines = first_timelines(runs, _timeline)
    summary = runs[0].numbers
    if several or not isinstance(summary, ReplaySummary) or summary.replayed is None:
        return shown_sections([("Timeline", timelines)])
    last = _last(summary)
    ranks = list(last.breakdown.items())[:RANKS]
    title = "as replayed" if last is summary.replayed else _title(summary, last)
    title = f"An iteration, rank by rank, {title}"
    names, parts = [f"rank {rank}" for rank, _ in ranks], [times for _, times in ranks]
    late = [_late_ranks(summary.lateness), _late_steps(summary.lateness)]
    return shown_sections(
        [
            ("What if", [_what_ifs(summary)]),
            ("Ranks", [part_bars("ranks", title, "", names, parts)]),
            ("Who comes last", late),
            ("Timeline", timelines),
        ]
    )


def _what_ifs(summary: ReplaySummary) -> Chart:
    replays = [each for each in (summary.replayed, *summary.what_ifs, summary.together) if each]
    names = ["replayed", *(each.what_if for each in summary.what_ifs), "all together"]
    slowest = [
        max(each.breakdown.values(), key=lambda times: sum(times.get(part, 0.0) for part in WHOLE))
        for each in replays
    ]
    return part_bars(
        *("what_ifs", "An iteration of the slowest rank", ""),
        names[: len(replays)],
        slowest,
    )


WHOLE = ("compute", "exposed_communication", "waiting", "host")


def _late_ranks(late: Lateness | None) -> Chart | None:
    if late is None or not late.ranks[0].lateness:
        return None
    ranks = [each for each in late.ranks if each.last][:RANKS]
    factor, unit = time_unit(ranks[0].lateness)
    times = np.array([each.lateness for each in ranks]) * factor
    labels = tuple(
        f"rank {each.rank}: last to {each.last:,} of {each.collectives:,}, "
        f"{format_duration(each.mean)} on average"
        for each in ranks
    )
    rows = np.arange(len(ranks), dtype=np.float64)
    return row_chart(
        *("late_ranks", "Time that the others wait, by rank"),
        Axis(f"total over all collectives ({unit})"),
        [f"rank {each.rank}" for each in ranks],
        [Boxes(np.zeros(len(ranks)), times, rows, labels, 0.7, 4, "comes last")],
        "As traced. For each collective: the time from a rank's arrival to the last rank's, "
        "averaged over the other ranks.",
        pixels=26,
        wide=False,
    )


def _late_steps(late: Lateness | None) -> Chart | None:
    if late is None or len(late.steps) < 2:
        return None
    factor, unit = time_unit(max(each.lateness for each in late.steps))
    order = [each.rank for each in late.ranks]
    marks = []
    for rank in sorted({each.rank for each in late.steps}, key=order.index):
        own = [each for each in late.steps if each.rank == rank]
        labels = tuple(
            f"step {each.step}: rank {rank}, last to {each.last:,} of {each.collectives:,}, "
            f"{format_duration(each.lateness)}"
            for each in own
        )
        steps = np.array([float(each.step) for each in own])
        times = np.array([each.lateness for each in own]) * factor
        marks.append(Dots(steps, times, labels, order.index(rank), f"rank {rank}"))
    return Chart(
        name="late_steps",
        title="The rank that the others wait for longest, by step",
        x=Axis("step"),
        y=Axis(f"time ({unit})"),
        marks=tuple(marks),
    )


LANES = {"host": (0, 5), "device": (1, 0), "communication": (2, 1)}
"""Lane -> its line in the rank's row, and its colour."""


def _timeline(run: Run, of_several: bool) -> Chart | None:
    if run.timeline is None:
        return None
    spans = run.timeline.spans
    waits = (f"wait: {kind}" for kind in MET)
    met = set(spans[spans.name.isin(*MET, *waits)].resource.distinct())

    def lane_of(resource: str) -> str:
        if resource in met:
            return "communication"
        if resource.endswith(" launches"):
            return ""
        return "host" if resource.startswith("thread") else "device"

    return lane_timeline(run, of_several, LANES, lane_of)


MET = (*KINDS, "send_recv", "collective")

VIEW = View(
    figures=FIGURES,
    subject=lambda known: joined(known.get("what_if"), "; ") or None,
    remarks=_remarks,
    tables=_tables,
    sections=sections,
)

"""What a page shows of replayed traces: the answer, what-ifs, ranks, who comes last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.results import ReplaySummary
from paracosm.results.chart import Axis, Chart, Dots, Sections
from paracosm.results.charts import Part, bar_chart, breakdown_chart
from paracosm.results.node_charts import first_timelines, lane_timeline
from paracosm.results.summaries import Lateness, LateRank, LateStep, Scenario
from paracosm.results.view import Figure, Run, Table, View, figure, joined, table
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


def sentence(summary: ReplaySummary) -> str | None:
    """Say how long an iteration takes as traced, replayed and changed, and who comes last."""
    if summary.replayed is None:
        return None
    last = _last(summary)
    change = "" if last is summary.replayed else f", {last.what_if}"
    return (
        f"An iteration takes {format_duration(summary.iteration_time)} as traced, and "
        f"{format_duration(last.iteration_time)} replayed{change}. {last.bottleneck} "
        f"{_latest_rank(summary.lateness)}".rstrip()
    )


def _latest_rank(late: Lateness | None) -> str:
    """Return a sentence on the rank that the others wait for longest; "" without any."""
    if not _is_late(late):
        return ""
    assert late is not None
    rank, steps = late.ranks[0], len(late.steps)
    most = f", {format_duration(rank.most)} at most" if rank.last > 1 else ""
    latest = f"; the others wait longest for it in {rank.steps:,} of {steps:,} steps"
    return (
        f"Rank {rank.rank} comes last to {rank.last:,} of {rank.collectives:,} collectives, "
        f"{format_duration(rank.mean)} after the others on average{most}"
        f"{latest if steps > 1 else ''}."
    )


def _is_late(late: Lateness | None) -> bool:
    return late is not None and late.ranks[0].lateness > 0


def _last(summary: ReplaySummary) -> Scenario:
    """Return the replay with all changes; of none, the unchanged one."""
    last = summary.together or [summary.replayed, *(summary.what_ifs or ())][-1]
    assert last is not None
    return last


def _scenarios(summary: ReplaySummary) -> dict[str, Scenario]:
    """Return the replays by their names."""
    assert summary.replayed is not None
    together = {} if summary.together is None else {"all together": summary.together}
    what_ifs = {scenario.what_if: scenario for scenario in summary.what_ifs or ()}
    return {"replayed": summary.replayed, **what_ifs, **together}


FIGURES: Mapping[str, Figure] = {
    "As traced": figure("iteration_time", "s"),
    "Replayed": figure(
        "replayed",
        lambda scenario: f"{format_duration(scenario.iteration_time)} ({scenario.error:+.2%})",
    ),
    "Ranks": figure("ranks", lambda ranks: f"{len(ranks):,}"),
    "Steps": figure("steps", lambda steps: f"{max(len(steps), 1):,}"),
    "Tasks": figure("tasks", "n"),
}


def _remarks(summary: ReplaySummary) -> dict[str, str | None]:
    if summary.replayed is None:
        return {}
    first, last = summary.replayed.bottleneck, _last(summary).bottleneck
    clocks = (summary.clocks_moved or {}).items()
    return {
        "bottleneck": first,
        "then": None if last == first else last,
        "device": f"{format_duration(summary.behind)} behind its host when the last step ends: "
        "steps are as long as the device takes"
        if summary.behind
        else None,
        "parts": f"played in {summary.parts:,} parts" if (summary.parts or 1) > 1 else None,
        "one rank alone": "its collectives are as long as they were, with their waiting"
        if summary.alone
        else None,
        "clocks": "; ".join(
            f"the clock of rank {rank} was corrected by {format_duration(abs(seconds))}"
            for rank, seconds in clocks
        ),
    }


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
    for path, texts in list(notes.items())[:LEFT_OUT]:
        name = f"in {Path(path).name}" if several else "in the trace"
        lines[name] = "; ".join(texts)
    if (others := len(notes) - LEFT_OUT) > 0:
        lines["in others"] = f"the same for {others:,} more traces: notes in summary.json"
    return lines


def _tables(summary: ReplaySummary) -> list[Table]:
    if summary.replayed is None:
        return []
    last, before = _last(summary), summary.replayed.iteration_time
    times = [("as traced", format_duration(summary.iteration_time), "")]
    for name, scenario in _scenarios(summary).items():
        change = f"{scenario.iteration_time / before - 1:+.1%}" if before else ""
        if scenario is summary.replayed:
            change = f"{scenario.error:+.2%}"
        times.append((name, format_duration(scenario.iteration_time), change))

    def part(key: str) -> Callable[[Any], str]:
        return lambda row: format_duration(row[1][key])

    return [
        Table("What if", ("what if", "iteration", "change"), tuple(times)),
        table(
            f"Ranks, {_title(summary, last)}",
            list(last.breakdown.items()),
            {"rank": lambda row: f"rank {row[0]}"}
            | {name: part(key) for key, name in PARTS.items()},
            RANKS,
            lambda rest: f"{len(rest)} more",
        ),
        *_late_tables(summary.lateness),
    ]


def _title(summary: ReplaySummary, last: Scenario) -> str:
    return "all together" if last is summary.together else last.what_if


def _late_tables(late: Lateness | None) -> list[Table]:
    """Return late ranks by rank, collective and step, longest first."""
    if late is None or not _is_late(late):
        return []
    longest = sorted(late.steps, key=lambda step: -step.lateness) if len(late.steps) > 1 else []
    return [
        table(
            "Who comes last",
            [rank for rank in late.ranks[:LATE] if rank.last],
            {
                "rank": lambda rank: f"rank {rank.rank}",
                "last": lambda rank: f"{rank.last:,} of {rank.collectives:,}",
                "mean": figure("mean", "s"),
                "most": figure("most", "s"),
                "together": figure("lateness", "s"),
            },
        ),
        table(
            "Collectives",
            late.collectives[:LATE],
            {
                "collective": lambda slow: f"{slow.kind} {slow.place:,} ({slow.group})",
                "last": lambda slow: f"rank {slow.rank}, {slow.last:,} of {slow.times:,}",
                "mean": figure("mean", "s"),
                "most": lambda slow: (
                    f"{format_duration(slow.most)}, rank {slow.most_rank}"
                    + ("" if slow.most_step is None else f", step {slow.most_step}")
                ),
            },
        ),
        table(
            "Steps",
            longest[:LATE],
            {
                "step": lambda step: f"step {step.step}",
                "last": lambda step: f"rank {step.rank}, {step.last:,} of {step.collectives:,}",
                "together": figure("lateness", "s"),
            },
        ),
    ]


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of a replay; of several, their timelines."""
    timelines = {"Timeline": first_timelines(runs, _timeline)}
    summary = runs[0].numbers
    if len(runs) > 1 or summary.replayed is None:
        return timelines
    last = _last(summary)
    title = "as replayed" if last is summary.replayed else _title(summary, last)
    ranks = {f"rank {rank}": times for rank, times in list(last.breakdown.items())[:RANKS]}
    return {
        "What if": [_what_ifs(summary)],
        "Ranks": [breakdown_chart("ranks", f"An iteration, rank by rank, {title}", ranks)],
        "Who comes last": _late_charts(summary.lateness),
        **timelines,
    }


WHOLE = ("compute", "exposed_communication", "waiting", "host")


def _what_ifs(summary: ReplaySummary) -> Chart:
    slowest = {
        name: max(
            scenario.breakdown.values(),
            key=lambda times: sum(times.get(part, 0.0) for part in WHOLE),
        )
        for name, scenario in _scenarios(summary).items()
    }
    return breakdown_chart("what_ifs", "An iteration of the slowest rank", slowest)


def _late_charts(late: Lateness | None) -> list[Chart | None]:
    if late is None:
        return []
    ranks = [rank for rank in late.ranks if rank.last][:RANKS]
    bar = Part("comes last", 4, [rank.lateness for rank in ranks], [*map(_late_rank, ranks)])
    order = [rank.rank for rank in late.ranks]
    marks = []
    for rank in sorted({step.rank for step in late.steps}, key=order.index):
        steps = [step for step in late.steps if step.rank == rank]
        x = np.array([step.step for step in steps], np.float64)
        y = np.array([step.lateness for step in steps], np.float64)
        color = order.index(rank)
        marks.append(Dots(x, y, tuple(map(_late_step, steps)), 0, f"rank {rank}", color=color))
    by_rank = bar_chart(
        "late_ranks",
        "Time that the others wait, by rank",
        Axis("time summed over all collectives", "s"),
        [f"rank {rank.rank}" for rank in ranks],
        [bar],
        "As traced. For each collective: the time from a rank's arrival to the last rank's, "
        "averaged over the other ranks.",
        wide=False,
    )
    by_step = Chart(
        name="late_steps",
        title="The rank that the others wait for longest, by step",
        x=Axis("step"),
        y=Axis("time", "s"),
        marks=tuple(marks),
    )
    return [by_rank if _is_late(late) else None, by_step]


def _late_rank(rank: LateRank) -> str:
    return (
        f"rank {rank.rank}: last to {rank.last:,} of {rank.collectives:,}, "
        f"{format_duration(rank.mean)} on average"
    )


def _late_step(step: LateStep) -> str:
    return (
        f"step {step.step}: rank {step.rank}, last to {step.last:,} of {step.collectives:,}, "
        f"{format_duration(step.lateness)}"
    )


LANES = {"host": (0, 5), "device": (1, 0), "communication": (2, 1)}
"""Lane -> its line in the rank's row, and its colour."""

COLLECTIVES = (*KINDS, "send_recv", "collective")


def _timeline(run: Run) -> Chart | None:
    if run.timeline is None:
        return None
    spans = run.timeline.spans
    waits = (f"wait: {kind}" for kind in COLLECTIVES)
    communication = set(spans[spans.name.isin(*COLLECTIVES, *waits)].resource.distinct())

    def lane_of(resource: str) -> str:
        if resource in communication:
            return "communication"
        if resource.endswith(" launches"):
            return ""
        return "host" if resource.startswith("thread") else "device"

    return lane_timeline(run, LANES, lane_of)


VIEW = View(
    figures=FIGURES,
    subject=lambda known: joined(known.get("what_if"), "; ") or None,
    remarks=_remarks,
    warnings=_left_out,
    decisive=frozenset(
        {"As traced", "Replayed", "Ranks", "Steps", "device", "one rank alone", "What if"}
    ),
    tables=_tables,
    sections=sections,
)

"""The timelines of some ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.jobs import KINDS
from paracosm.prediction.jobs.departures import departures, senders
from paracosm.simulation import JobSchedule
from paracosm.simulation.job_schedule import memory_over_time
from paracosm.timeline import Timeline

__all__ = ["job_timeline"]

TASK, COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in KINDS)


def job_timeline(schedule: JobSchedule, ranks: Sequence[int]) -> Timeline:
    """Return the spans of these ranks by lane, and the memory of each as a counter.

    A collective is two spans: waiting for the others, then the operation; so is a receive: waiting
    for the message to be sent, then the message. Messages are on "send" and "receive", whatever
    their lanes; those between two of the ranks are flows. Tasks that take no time are left out, and
    so are those without a lane that are no messages.
    """
    timeline = Timeline()
    flows = _flows(schedule, ranks)
    for rank in ranks:
        _write_spans(timeline, schedule, rank, flows)
        _write_memory(timeline, schedule, rank)
    return timeline


Flows = dict[tuple[int, int], int]


def _flows(schedule: JobSchedule, ranks: Sequence[int]) -> Flows:
    """Return the number of the message by (rank, row), of its send and of its receive."""
    flows: Flows = {}
    shown, count = set(ranks), 0
    for rank in ranks:
        for receives, sender, sends in senders(schedule, rank):
            if sender not in shown:
                continue
            for row, sent in zip(receives.tolist(), sends.tolist(), strict=True):
                flows[rank, row] = flows[sender, sent] = count
                count += 1
    return flows


def _write_spans(timeline: Timeline, schedule: JobSchedule, rank: int, flows: Flows) -> None:
    job, tasks = schedule.job, schedule.tasks_of(rank)
    program, node = job.programs[job.program[rank]], job.labels[rank]
    arrive, begin, end = (each[tasks] for each in (schedule.arrive, schedule.begin, schedule.end))
    begin = np.where(
        program.kind == RECEIVE,
        np.clip(np.nan_to_num(departures(schedule, rank)), arrive, end),
        begin,
    )
    in_lane, messages = program.lane >= 0, np.isin(program.kind, (SEND, RECEIVE))
    shown = np.flatnonzero((in_lane | messages) & (end > arrive))
    columns = (
        shown.tolist(),
        program.name[shown].tolist(),
        program.kind[shown].tolist(),
        program.lane[shown].tolist(),
        arrive[shown].tolist(),
        begin[shown].tolist(),
        end[shown].tolist(),
    )
    for row, name, kind, number, first, middle, last in zip(*columns, strict=True):
        lane = KINDS[kind] if kind in (SEND, RECEIVE) else job.lanes[number]
        if middle > first and number >= 0:
            timeline.span(node, lane, f"wait: {job.names[name]}", first, middle)
        if last > middle:
            flow = flows.get((rank, row), -1)
            timeline.span(node, lane, job.names[name], middle, last, flow)


def _write_memory(timeline: Timeline, schedule: JobSchedule, rank: int) -> None:
    times, held = memory_over_time(schedule, rank)
    if held.any():
        node = schedule.job.labels[rank]
        for time, value in zip(times.tolist(), held.tolist(), strict=True):
            timeline.counter(node, "memory", time, float(value))

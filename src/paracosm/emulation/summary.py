"""The summary of an emulated job, from the records of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.arrays import Floats
from paracosm.cluster.description import describe_cluster
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank_records import (
    Iterations,
    RankRecords,
    by_rank,
    is_measured,
    measured_iterations,
    spans_of,
    spread,
)
from paracosm.emulation.records import COLLECTIVES, Collective, Exchange, Note, Record
from paracosm.results import EmulationSummary
from paracosm.results.summaries import IterationTimes
from paracosm.timeline.analysis import exposure_between
from paracosm.units import format_bandwidth, format_duration

MEGABYTE = 1e6


def summarise(
    config: EmulateConfig,
    records: Sequence[Record],
    exit_code: int | None,
    measured: Sequence[Record] = (),
) -> EmulationSummary:
    """Return the summary of a run, in seconds and bytes, from the records of all processes.

    If the job was composed, `measured` has the records that it was made from. With several real
    ranks the numbers at the top are the slowest one's, and `ranks` has those of each. `exit_code`
    is None if the script was interrupted.
    """
    rank_records = by_rank(records, config.rank)
    numbers = [_numbers(records) for records in rank_records]
    times = [own["iteration_time"] for own in numbers]
    slowness = [-1.0 if time is None else float(time.median) for time in times]
    top = slowness.index(max(slowness))
    notes = _notes(records)
    if not exit_code and config.world > 1 and not any(note["grave"] for note in notes):
        notes += _nothing_done(rank_records)
    cluster = None
    if config.has_links and config.communication in (None, "cluster"):
        cluster = config.resolve_cluster()
    several = len(rank_records) > 1
    shown = ("iterations", "iteration_time", "breakdown", "utilisation", "peak_memory")
    ranks = [
        {"rank": records.rank, **{key: own[key] for key in (*shown, "all_collectives")}}
        for records, own in zip(rank_records, numbers, strict=True)
    ]
    backend, composed = config.mode == "backend", is_measured(measured)
    noise = _noise(measured if composed else (), times[top])
    status = _status(notes, exit_code)
    return EmulationSummary(
        status="noisy" if status == "done" and noise else status,
        noise=noise,
        exit_code=exit_code,
        world_size=config.world,
        mode=config.mode,
        rank=list(config.rank),
        **numbers[top],
        modelled=origins(config, composed),
        notes=notes,
        virtual_time=_duration(rank_records),
        wall_time=_duration(by_rank(measured, config.rank))
        if composed
        else _duration(rank_records),
        cluster=None if cluster is None else describe_cluster(cluster),
        lateness=_lateness(rank_records[top]) if backend and not composed else None,
        emulator=None if backend else _emulator(records),
        slowest_rank=rank_records[top].rank if several else None,
        ranks=ranks if several else None,
    )


def _numbers(own: RankRecords) -> dict[str, Any]:
    iterations = measured_iterations(own.iterations)
    known = len(iterations) > 0
    breakdown = _breakdown(own, iterations) if known else None
    whole = ("compute", "exposed_communication", "waiting")
    length = sum(map(breakdown.__getitem__, whole)) if breakdown else 0.0
    compute = breakdown["compute"] / length if breakdown and length else None
    kinds = [
        kind
        for kind in COLLECTIVES
        if any(collective.kind == kind for collective in own.collectives)
    ]
    return {
        "iterations": len(own.iterations),
        "iteration_time": IterationTimes(**spread(iterations.time)) if known else None,
        "no_iteration_time": None if known else _reason_without_iterations(own),
        "typical_iteration": iterations.typical if known else None,
        "breakdown": breakdown,
        "utilisation": {"compute": compute, "cpu": _cpu(own)},
        "peak_memory": max((iteration.peak_memory for iteration in own.iterations), default=None),
        "collectives": {
            kind: _communication(
                [collective for collective in own.collectives if collective.kind == kind],
                own.waits,
                iterations,
            )
            for kind in kinds
        },
        "all_collectives": _communication(own.collectives, own.waits, iterations),
        "groups": _groups(own),
    }


def _reason_without_iterations(own: RankRecords) -> str:
    if not own.iterations:
        return "the script made no step of an optimizer"
    return "the script made one step of an optimizer: the first iteration holds the start-up"


def _breakdown(own: RankRecords, iterations: Iterations) -> dict[str, float]:
    """Return the seconds of an iteration, averaged over the middle half of them.

    `waiting` is waiting with no collective under way; `late_peers` is the part of
    `exposed_communication` in which no collective under way had all its members.
    """
    middle = iterations.middle
    ends = iterations.begin[middle], iterations.end[middle]
    parts = exposure_between(*ends, own.spans, own.waits)
    # From when all members had come to each collective until it was done.
    entered = np.array([collective.entered for collective in own.collectives], dtype=np.float64)
    asked, done = own.spans.T
    met = np.column_stack([np.clip(entered, asked, done), done])
    moving = exposure_between(*ends, met, own.waits)
    exposed, waiting = float(parts.exposed.mean()), float(parts.other.mean())
    return {
        "compute": max(float(iterations.time[middle].mean()) - exposed - waiting, 0.0),
        "exposed_communication": exposed,
        "waiting": waiting,
        "late_peers": max(exposed - float(moving.exposed.mean()), 0.0),
    }


def _communication(
    collectives: Sequence[Collective], waits: Floats, iterations: Iterations
) -> dict[str, Any]:
    """Return total and per-iteration communication; overlapping collectives count once."""
    spans = spans_of(collectives)
    sizes = np.array([collective.size for collective in collectives], dtype=np.float64)
    whole = np.array([-np.inf]), np.array([np.inf])
    per_iteration = None
    if len(iterations):
        middle = iterations.begin[iterations.middle], iterations.end[iterations.middle]
        per_iteration = _sums(*middle, spans, sizes, waits)
    return {
        **_sums(*whole, spans, sizes, waits),
        "duration": float(np.median(spans[:, 1] - spans[:, 0])) if len(spans) else None,
        "per_iteration": per_iteration,
    }


def _sums(
    begin: Floats, end: Floats, spans: Floats, sizes: Floats, waits: Floats
) -> dict[str, float]:
    """Return the means over stretches of time; a collective counts where it was asked for."""
    asked = spans[:, 0]
    first, last = np.searchsorted(asked, begin, "right"), np.searchsorted(asked, end, "right")
    reached = np.concatenate([[0.0], np.cumsum(sizes)])
    parts = exposure_between(begin, end, spans, waits)
    exposed, hidden = float(parts.exposed.mean()), float(parts.hidden.mean())
    return {
        "count": _number((last - first).mean()),
        "bytes": _number((reached[last] - reached[first]).mean()),
        "time": exposed + hidden,
        "exposed": exposed,
        "hidden": hidden,
    }


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)


def _cpu(own: RankRecords) -> float | None:
    if len(own.iterations) < 2:
        return None
    first, last = own.iterations[0], own.iterations[-1]
    return (last.cpu - first.cpu) / (last.end - first.end) if last.end > first.end else None


def _groups(own: RankRecords) -> list[dict[str, Any]]:
    listed = []
    for group in own.groups:
        sizes = [
            collective.size for collective in own.collectives if collective.group == group.name
        ]
        of_group = {"name": group.name, "size": group.size, "backend": group.backend}
        listed.append({**of_group, "collectives": len(sizes), "bytes": sum(sizes)})
    return listed


def _lateness(own: RankRecords) -> dict[str, Any] | None:
    """Return how long after the last result of a wait the rank resumed."""
    done = np.sort(own.spans[:, 1])
    if not len(done) or not len(own.waits):
        return None
    begin, end = own.waits.T
    newest = done[np.maximum(np.searchsorted(done, end, "right") - 1, 0)]
    came = (newest >= begin) & (newest <= end)
    if not came.any():
        return None
    late = (end - newest)[came]
    p90 = float(np.quantile(late, 0.9))
    return {"median": float(np.median(late)), "p90": p90, "waits": len(late)}


def _emulator(records: Sequence[Record]) -> dict[str, Any] | None:
    newest = {record.rank: record for record in records if isinstance(record, Exchange)}
    if not newest:
        return None
    last = newest.values()  # the last word on each real rank
    sent, received = (
        sum(exchange.sent for exchange in last),
        sum(exchange.received for exchange in last),
    )
    moved = sent + received
    cpu = max(exchange.cpu for exchange in last)
    return {
        "cpu": cpu,
        "sent": sent,
        "received": received,
        "messages": sum(exchange.messages for exchange in last),
        # Of less it is what the start-up takes.
        "cpu_per_MB": cpu / (moved / MEGABYTE) if moved >= MEGABYTE else None,
    }


def _notes(records: Sequence[Record]) -> list[dict[str, Any]]:
    notes = dict.fromkeys(record for record in records if isinstance(record, Note))
    return [{"rank": note.rank, "grave": note.grave, "text": note.text} for note in notes]


def _nothing_done(rank_records: Sequence[RankRecords]) -> list[dict[str, Any]]:
    """Return a note if nothing was emulated: no communication, or an early end of the script."""
    calls = [
        (collective.kind, collective.size, collective.site)
        for own in rank_records
        for collective in own.collectives
    ]
    why = "the script made no collective and sent no message: nothing was emulated"
    if calls:
        if any(own.iterations for own in rank_records) or len(set(calls)) < len(calls):
            return []
        why = (
            "the script made no step of an optimizer and asked for no collective twice: it ended "
            "before its first iteration"
        )
    why += "; see what it printed, and whether it ends before it trains"
    return [{"rank": -1, "grave": True, "text": why}]


_BUSY = 0.1  # of the time that a rank would compute it waits for a core: others compute there
_SCATTER = 0.5  # of the median, from the 10th to the 90th percentile of iterations
_FEWEST = 10  # iterations, without the first: fewer say nothing


def _noise(measured: Sequence[Record], time: IterationTimes | None) -> list[str]:
    """Return the signs that other processes kept the machine busy while computing was measured."""
    notes = []
    for each in by_rank(measured):
        if len(each.iterations) > _FEWEST:
            first, last = each.iterations[0], each.iterations[-1]
            waited, went_on = last.core_wait - first.core_wait, last.end - first.end
            if waited > _BUSY * (waited + went_on):
                share = waited / (waited + went_on)
                notes.append(f"rank {each.rank} waited for a core {share:.0%} of the time")
    if time is not None and time.measured >= _FEWEST:
        scatter = (time.p90 - time.p10) / time.median
        if scatter > _SCATTER:
            notes.append(f"iterations scatter by {scatter:.0%} of their median (p10 to p90)")
    return notes


def _duration(rank_records: Sequence[RankRecords]) -> float:
    """Return the seconds from the first to the last record, including those without a core."""
    waited = max(
        (own.iterations[-1].core_wait for own in rank_records if own.iterations), default=0.0
    )
    return max(
        max(each.last for each in rank_records) - min(each.first for each in rank_records) + waited,
        0.0,
    )


def _status(notes: Sequence[Mapping[str, Any]], exit_code: int | None) -> str:
    if exit_code is None:
        return "interrupted"
    return "failed" if exit_code or any(note["grave"] for note in notes) else "done"


def origins(config: EmulateConfig, composed: bool = False) -> dict[str, str]:
    several = len(config.rank) > 1
    real = f"rank{'s' if several else ''} {', '.join(map(str, config.rank))}"
    own_links = (
        "modelled: real messages, at the pace of the modelled links"
        if config.is_paced
        else "measured: real messages of gloo"
    )
    lines = {
        "compute": f"measured: the script really runs as {real}"
        + (", one after the other" if several and composed else "")
        + (", without waiting for collectives; iterations are put together" if composed else ""),
        "core": ""
        if config.mode == "wire" or config.nccl or config.live
        else "assumed: communication takes nothing from computing"
        if config.core_bandwidth is None
        else f"modelled: {format_bandwidth(config.core_bandwidth)} of messages take a whole core",
        "communication": _communication_text(config),
        "collectives at a time": ""
        if config.mode == "wire" or config.nccl or config.communication_model == "none"
        else f"given: {config.comm_workers} of a group"
        if config.comm_workers is not None
        else "assumed: of a group 2 with gloo, 1 with nccl",
        "links of the real rank": "" if config.mode == "backend" else own_links,
        "other ranks": _COMPOSED + _peers_text(config)
        if several and composed
        else _peers_text(config),
        "values": (
            "assumed: to each rank that runs, as if all held what it holds"
            if several
            else f"assumed: every rank holds what {real} holds"
            if config.mode == "backend"
            else f"assumed: emulated ranks add nothing to sums, so DDP's gradients "
            f"are {len(config.rank)}/{config.world:,} as large as in the real job"
        ),
        "memory": "measured: of the processes of the real ranks"
        if several
        else f"measured: of the process that runs as {real}",
        "what if": "; ".join(map(str, config.what_if)),
    }
    return {what: line for what, line in lines.items() if line}


def _communication_text(config: EmulateConfig) -> str:
    model = config.communication_model
    if model == "none":
        return "assumed: takes no time"
    if model == "measured":
        return "measured: between emulated ranks as on the real rank's own link"
    if model == "cluster":
        how = "" if config.mode == "wire" else f", algorithm {config.algorithm}"
        return f"modelled: {_links_text(config)}{how}"
    return f"modelled: {model}"


def _links_text(config: EmulateConfig) -> str:
    if isinstance(config.cluster, Path):
        return f"cluster {config.cluster.name}"
    if isinstance(config.cluster, Mapping):
        return "a cluster"
    parts = [] if config.bandwidth is None else [format_bandwidth(config.bandwidth)]
    for name, seconds in (("latency", config.latency), ("overhead", config.overhead)):
        parts += [f"{name} {format_duration(seconds)}"] if seconds else []
    return f"every link {', '.join(parts)}" if parts else "links that cost nothing"


_COMPOSED = (
    "composed: those that run wait for each other, and stand for those that have the same place in "
    "their groups; these are "
)


def _peers_text(config: EmulateConfig) -> str:
    if config.skew is None and config.compute_jitter is None:
        return "assumed: compute as fast as the real rank, and come when it comes"
    parts = [] if config.skew is None else [f"skew {config.skew}"]
    if config.compute_jitter == "measured":
        parts.append("compute jitter as measured on the real rank")
    elif config.compute_jitter is not None:
        parts.append(f"compute jitter {config.compute_jitter}")
    return f"assumed: {', '.join(parts)}"

"""Replays of traces, unchanged and with what-ifs, and their summaries."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from paracosm.arrays import Bools
from paracosm.cluster.changes import COLLECTIVES, PARTS, Change, parse_change, refuse_changes
from paracosm.errors import InputError, unknown
from paracosm.jobs.job import Job
from paracosm.replays.account import Account
from paracosm.replays.arrivals import lateness_of
from paracosm.replays.outcome import (
    Outcome,
    Times,
    bottleneck_of,
    joined_outcomes,
    outcome_of,
    replayed,
    timeline_of,
    traced_times,
)
from paracosm.replays.parts import read_parts
from paracosm.replays.traced import MESSAGE, WORK, TracedJob
from paracosm.results import ReplaySummary, summaries
from paracosm.timeline import Timeline
from paracosm.timeline.kineto.communication import MESSAGES, named_kernels
from paracosm.units import format_duration

_COMMUNICATION = WORK.index("communication")


@dataclass(frozen=True, eq=False)
class Scenario:
    """The outcome of a job with changes; several changes are joined by "; "."""

    what_if: str
    outcome: Outcome
    times: Times


@dataclass(frozen=True, eq=False)
class Replays:
    """All replays of some traces."""

    traced: TracedJob  # of large traces, the first part
    steps: tuple[int, ...]  # that count
    tasks: int
    parts: int  # in how many the steps were played
    measured: Outcome  # what came of the job when it was traced
    unchanged: Scenario  # what comes of it when it is played again as it was
    scenarios: tuple[Scenario, ...]  # each what-if by itself
    together: Scenario | None  # all of them at once; None where there are less than two
    account: Account  # what of the traces is not in these

    @property
    def error(self) -> float:
        """Of the replay of the unchanged job, relative to what was traced."""
        return self.unchanged.outcome.iteration_time / self.measured.iteration_time - 1

    @property
    def last(self) -> Scenario:
        return self.together or (self.scenarios or (self.unchanged,))[-1]

    @property
    def timeline(self) -> Timeline:
        """The unchanged replay and the one with all changes, of the first part."""
        parts = [("", self.unchanged)]
        if self.scenarios:
            parts.append((f", {self.last.what_if}", self.last))
        return timeline_of(self.traced, [(text, part.times) for text, part in parts])


def replay_traces(
    paths: Sequence[Path],
    what_ifs: Sequence[str] = (),
    steps: Sequence[int] | None = None,
    alone: bool = False,
    communication: Sequence[str] = (),
    passed: Callable[[float], object] = lambda share: None,
) -> Replays:
    """Read the traces of a job's ranks and play them, unchanged and with each what-if.

    Args:
        paths: one for each rank.
        what_ifs: changes, in the words of `paracosm.cluster.changes`; `changed` says which.
        steps: numbers of the steps to take.
        alone: whether collectives of the only trace take as long as they did.
        communication: which kernels communicate, as `named_kernels` reads it.
        passed: called with how often all traces have been gone through, of twice.

    Raises:
        InputError: a trace cannot be used, or a what-if not be understood or applied.
    """
    changes = [parse_change(text) for text in what_ifs]
    designs: list[list[Change]] = [[], *([change] for change in changes)]
    if len(changes) > 1:
        designs.append(changes)
    without: dict[str, list[NoEffectError]] = {change.text: [] for change in changes}
    first: TracedJob | None = None
    tasks, parts, met = 0, 0, False
    counted: list[int] = []
    measured: list[Outcome] = []
    outcomes: list[list[Outcome]] = [[] for _ in designs]
    times: list[Times] = []
    account = Account()
    named = named_kernels(communication)
    for traced in read_parts(paths, steps, alone, account, named, passed=passed):
        # All jobs are made before one is played: what cannot be is refused at once.
        jobs = [_changed_where_it_can(traced, design, without) for design in designs]
        baseline: Times | None = None  # of the first job, which is unchanged
        for outcome, job in zip(outcomes, jobs, strict=True):
            played = replayed(job)
            baseline = baseline or played
            outcome.append(outcome_of(traced, played, baseline))
            if first is None:
                times.append(played)
        account.ungrouped += traced.ungrouped
        measured.append(outcome_of(traced, traced_times(traced)))
        first = first or traced
        counted += traced.counted
        tasks += traced.job.tasks
        parts += 1
        met = met or any((rank.work == _COMMUNICATION).any() for rank in traced.ranks)
    assert first is not None
    for reasons in without.values():
        if len(reasons) >= parts * (1 + (len(changes) > 1)):
            raise reasons[0]
    if alone and not met:
        raise InputError(f"{paths[0]}: --alone has no effect: the trace has no collectives")
    as_traced = joined_outcomes(measured)
    if not as_traced.iteration_time:
        raise InputError(f"{paths[0]}: everything in the trace takes no time")
    texts = ["unchanged", *(change.text for change in changes), "; ".join(what_ifs)]
    unchanged, *scenarios = (
        Scenario(text, joined_outcomes(outcome), played)
        for text, outcome, played in zip(texts, outcomes, times, strict=False)
    )
    return Replays(
        traced=first,
        steps=tuple(counted),
        tasks=tasks,
        parts=parts,
        measured=as_traced,
        unchanged=unchanged,
        scenarios=tuple(scenarios[: len(changes)]),
        together=scenarios[-1] if len(changes) > 1 else None,
        account=account,
    )


def summarise_replays(replays: Replays) -> ReplaySummary:
    traced = replays.traced
    return ReplaySummary(
        status="done",
        traces=[str(rank.path) for rank in traced.ranks],
        ranks=[rank.rank for rank in traced.ranks],
        steps=list(replays.steps),
        tasks=replays.tasks,
        parts=replays.parts,
        lateness=lateness_of(replays.measured.arrivals),
        alone=traced.alone,
        iteration_time=replays.measured.iteration_time,
        behind=replays.measured.behind,
        replayed=replace(_scenario(replays, replays.unchanged), error=replays.error),
        what_ifs=[_scenario(replays, scenario) for scenario in replays.scenarios],
        together=None if replays.together is None else _scenario(replays, replays.together),
        clocks_moved={str(rank): seconds for rank, seconds in traced.moved.items()},
        steps_left_out={str(step): why for step, why in sorted(replays.account.steps.items())},
        all_faulty=replays.account.all_faulty,
        notes=replays.account.notes,
        missing={str(rank.path): list(rank.missing) for rank in traced.ranks if rank.missing},
        durations={
            "tasks": "measured: as traced",
            "collectives": "measured: with their waiting, as one rank saw them"
            if traced.alone
            else "measured: the shortest of their ranks, from when the last one had come",
        },
    )


def _changed_where_it_can(
    traced: TracedJob, changes: Sequence[Change], without: "dict[str, list[NoEffectError]]"
) -> Job:
    """Return the job with those of the changes that have an effect in this part."""
    left = list(changes)
    while True:
        try:
            return changed(traced, left)
        except NoEffectError as reason:
            without[reason.change.text].append(reason)
            left.remove(reason.change)


def _scenario(replays: Replays, scenario: Scenario) -> summaries.Scenario:
    outcome = scenario.outcome
    return summaries.Scenario(
        what_if=scenario.what_if,
        iteration_time=outcome.iteration_time,
        speedup=replays.unchanged.outcome.iteration_time / outcome.iteration_time
        if outcome.iteration_time
        else None,
        breakdown={
            str(rank.rank): asdict(breakdown)
            for rank, breakdown in zip(replays.traced.ranks, outcome.breakdowns, strict=True)
        },
        straggler=None if outcome.straggler is None else asdict(outcome.straggler),
        bottleneck=bottleneck_of(
            outcome.breakdowns,
            None if outcome.straggler is None else outcome.straggler.rank,
            any(rank.has_device for rank in replays.traced.ranks),
        ),
    )


class NoEffectError(InputError):
    """A change without effect."""

    def __init__(self, change: Change, reason: str) -> None:
        super().__init__(str(change.error(reason)))
        self.change = change


SHOWN = 8  # names, of those that there are

_WORK_OF = {**{part: part for part in PARTS}, "copies": "copy", "kernel": "compute"}


def changed(traced: TracedJob, changes: Sequence[Change]) -> Job:
    """Return the job with the durations after all these changes; structure and order stay.

    What a trace can change, of what `paracosm.cluster.changes` describes:

        [worker R:] compute, copies, host, data loading, kernel PATTERN   slower, faster or none
        all_reduce, ..., collectives  slower, faster, none, +T, -T; from when all their ranks are in
        links: bandwidth              by a factor: collectives take so much less, latency included
        latency                       +T, -T: every collective takes so much longer, or less

    Raises:
        InputError: a change names a rank, kernel or collective that is not there, is none of those
            that a trace can play, or has nothing to change.
    """
    refuse_changes(
        (change for change in changes if not _is_of_traces(change)),
        "replay",
        "compute, copies, host, data loading and kernels of workers; collectives, the bandwidth of "
        "all links by a factor, and their latency by +T",
    )
    job = traced.job
    duration = [program.duration.copy() for program in job.programs]
    for change in changes:
        masks = _masks(traced, change)
        if not any(mask.any() for mask in masks):
            raise _without_effect(traced, change)
        # More bandwidth is less time.
        factor = 1 / change.factor if change.what == "bandwidth" else change.factor
        added = float(change.added)
        longest = max(
            float(times[mask].max(initial=0.0)) for times, mask in zip(duration, masks, strict=True)
        )
        if added < 0 and longest + added <= 0:
            raise change.error(
                f"the longest takes {format_duration(longest)}: to remove them, write "
                "collectives: none"
            )
        for times, mask in zip(duration, masks, strict=True):
            times[mask] = np.maximum(times[mask] * factor + added, 0.0)
    programs = tuple(
        replace(program, duration=times)
        for program, times in zip(job.programs, duration, strict=True)
    )
    return replace(job, programs=programs)


def _is_of_traces(change: Change) -> bool:
    match change.subject:
        case "workers":
            return change.what in PARTS
        case "collectives":
            return change.what == "time"
        case "links" if change.value is None:
            return change.what == ("latency" if change.added else "bandwidth")
        case _:
            return False


def _masks(traced: TracedJob, change: Change) -> list[Bools]:
    known = [rank.rank for rank in traced.ranks]
    ranks = set(known)
    if change.first is not None:
        ranks = set(range(change.first, (change.last or change.first) + 1))
        if missing := ranks - set(known):
            raise change.error(
                f"no worker {min(missing)}: there are traces of ranks {', '.join(map(str, known))}"
            )
    work, meant = WORK.index(_work(change)), _names(traced, change)
    return [
        (rank.work == work) & meant[program.name] & (rank.rank in ranks)
        for rank, program in zip(traced.ranks, traced.job.programs, strict=True)
    ]


def _work(change: Change) -> str:
    return _WORK_OF[change.what] if change.subject == "workers" else "communication"


def _pattern(change: Change) -> str:
    """What names of tasks are compared with; "" where it is about all of them."""
    if change.subject == "collectives":
        kind = "" if change.kinds == COLLECTIVES else change.kinds[0]
        return MESSAGE if kind in MESSAGES else kind
    return change.pattern


def _names(traced: TracedJob, change: Change) -> Bools:
    names = traced.job.names
    pattern = _pattern(change).lower()
    if not pattern:
        return np.ones(len(names), dtype=bool)
    if change.what == "kernel":
        return np.array([change.means(name) for name in names], dtype=bool)
    return np.array([fnmatch.fnmatchcase(name.lower(), pattern) for name in names], dtype=bool)


def _without_effect(traced: TracedJob, change: Change) -> NoEffectError:
    work = WORK.index(_work(change))
    present = {
        traced.job.names[code]
        for rank, program in zip(traced.ranks, traced.job.programs, strict=True)
        for code in np.unique(program.name[rank.work == work]).tolist()
    }
    if (pattern := _pattern(change)) and present:
        kind = "kernel" if change.what == "kernel" else "collective"
        known = sorted({name[:60] for name in present})
        few = [*known[:SHOWN], "..."] if len(known) > SHOWN else known
        near = get_close_matches(pattern, known, n=1, cutoff=0.5)
        return NoEffectError(change, str(unknown(kind, pattern, near or few)))
    hint = ""
    if _work(change) == "communication":
        hint = ': --communication "PATTERN" says which kernels are'
    return NoEffectError(change, f"has no effect: the traces have no {_work(change)}{hint}")

"""Successive halving of designs: few updates for hopeless ones.

Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016,
with its own elimination rules (docs/plan.md), since a target is a first passage and designs differ
in cost. All runs are counted in updates, never in time on the machine that plans. In each rung the
designs with the fewest workers run first; a run that reached the target is done.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal

from paracosm.planning.designs import Design, Outcome
from paracosm.units import format_duration

RUNGS = (1 / 16, 1 / 4, 1.0)
"""Shares of the updates allowed."""

SLOWER = 1.5
"""Slowdown against a design of no more workers at which a design is dropped; allows for the spread
of seeds.
"""

LOOKS = 3
"""Evaluations that have to be no better than the initial model before a design learns nothing."""

Verdict = Literal["open", "reached", "diverged", "learns nothing", "slow", "worse", "not reached"]


@dataclass(frozen=True)
class Request:
    """A requested run."""

    design: Design
    seed: int
    updates: int  # after which it ends
    horizon: float  # virtual seconds at which it ends; infinite: it does not


Run = Callable[[Sequence[Request]], Iterator[tuple[Request, Outcome]]]
"""Makes runs and returns their results in any order."""


@dataclass
class Candidate:
    """The progress of a design."""

    design: Design
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by seed
    verdict: Verdict = "open"
    why: str = ""  # it was dropped

    @property
    def survives(self) -> bool:
        """Whether other seeds are run, too."""
        return self.verdict == "reached"

    def drop(self, verdict: Verdict, why: str) -> None:
        self.verdict, self.why = verdict, why


def halve(
    designs: Sequence[Design],
    seeds: Sequence[int],
    updates: int,
    run: Run,
    is_better: Callable[[float, float], bool],
    candidates: dict[Design, Candidate],
) -> None:
    """Fill `candidates` with the results of all designs, also if it is interrupted.

    Args:
        designs: what to compare.
        seeds: the first one decides eliminations.
        updates: after which a run has missed the target.
        run: makes runs.
        is_better: whether one value of the metric is better than another.
        candidates: empty.
    """
    candidates.update((design, Candidate(design)) for design in designs)
    every = list(candidates.values())
    first = seeds[0]
    for share in RUNGS:
        open_ = [candidate for candidate in every if candidate.verdict == "open"]
        budget = max(1, ceil(share * updates))
        for workers in sorted({candidate.design.workers for candidate in open_}):
            wave = [candidate for candidate in open_ if candidate.design.workers == workers]
            times = _times(every, first)
            requests = [
                Request(candidate.design, first, budget, _horizon(candidate, times))
                for candidate in wave
            ]
            for request, outcome in run(requests):
                candidates[request.design].outcomes[first] = outcome
        _judge(open_, _times(every, first), first, is_better)
    for candidate in every:
        if candidate.verdict == "open":
            candidate.drop("not reached", f"not there after {updates:,} updates")
    _keep_fast(every, first)
    kept = [candidate.design for candidate in every if candidate.survives]
    requests = [Request(design, seed, updates, inf) for seed in seeds[1:] for design in kept]
    for request, outcome in run(requests):
        candidates[request.design].outcomes[request.seed] = outcome


Times = list[tuple[int, float, str]]
"""Workers, seconds to the target, and name, of designs that reached it."""


def _times(candidates: Iterable[Candidate], seed: int) -> Times:
    return [
        (candidate.design.workers, time, str(candidate.design))
        for candidate in candidates
        if seed in candidate.outcomes and (time := candidate.outcomes[seed].time) is not None
    ]


def _horizon(candidate: Candidate, times: Times) -> float:
    fewer = [time for workers, time, _ in times if workers <= candidate.design.workers]
    return SLOWER * min(fewer, default=inf)


def _judge(
    ran: Sequence[Candidate], times: Times, seed: int, is_better: Callable[[float, float], bool]
) -> None:
    for candidate in ran:
        outcome = candidate.outcomes[seed]
        if outcome.status == "reached":
            candidate.verdict = "reached"
        elif outcome.status == "diverged":
            candidate.drop("diverged", outcome.why or "the loss diverged")
        elif len(outcome.curve) > LOOKS and not is_better(outcome.best, outcome.first):
            candidate.drop(
                "learns nothing", f"no better than initially after {outcome.made:,} updates"
            )
        elif outcome.spent >= _horizon(candidate, times):
            fewer = (found for found in times if found[0] <= candidate.design.workers)
            _, time, name = min(fewer, key=lambda found: found[1])
            candidate.drop(
                "slow",
                f"not there after {format_duration(outcome.spent)}; {name} needs "
                f"{format_duration(time)}",
            )
    for group in _groups(candidate for candidate in ran if candidate.verdict == "open"):
        group.sort(key=lambda each: each.outcomes[seed].best, reverse=is_better(1.0, 0.0))
        best = group[0].outcomes[seed].best
        for candidate in group[ceil(len(group) / 2) :]:
            outcome = candidate.outcomes[seed]
            candidate.drop(
                "worse",
                f"{outcome.best:.4g} after {outcome.made:,} updates, lr {group[0].design.lr:g} "
                f"{best:.4g}",
            )


def _groups(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return groups of designs that differ only in their learning rate."""
    groups: dict[tuple[int, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.design.workers, str(candidate.design.algorithm)), []).append(
            candidate
        )
    return list(groups.values())


def _keep_fast(candidates: Sequence[Candidate], seed: int) -> None:
    """Drop designs that reached the target but are best for no number of workers."""
    reached = [candidate for candidate in candidates if candidate.verdict == "reached"]
    time = {id(candidate): candidate.outcomes[seed].time_or_never for candidate in reached}
    for candidate in reached:
        times = [time[id(o)] for o in reached if o.design.workers == candidate.design.workers]
        fewer = [o for o in reached if o.design.workers <= candidate.design.workers]
        best = min(fewer, key=lambda other: time[id(other)])
        if time[id(candidate)] > min(times) and time[id(candidate)] > SLOWER * time[id(best)]:
            candidate.drop(
                "slow",
                f"there after {format_duration(time[id(candidate)])}; {best.design} needs "
                f"{format_duration(time[id(best)])}",
            )

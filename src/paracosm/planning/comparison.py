"""Designs compared: which is fastest, which is cheapest, and what the seeds do not tell apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from paracosm.planning.designs import Design
from paracosm.planning.successive_halving import Candidate
from paracosm.results.spread import are_told_apart, paired_ratio, spread


@dataclass(frozen=True)
class Comparison:
    """Designs that reach the target in most seeds, by their times relative to one of them.

    Ratios are of runs with the same seed (`paired_ratio`): what a plan says of the fastest, of the
    cheapest and of how much faster they are is one statistic.
    """

    times: Mapping[Design, Mapping[int, float]]  # seconds to the target, by seed
    reference: Design | None  # the fastest with the fewest workers
    speedups: Mapping[Design, float]  # relative to it

    @classmethod
    def of(cls, candidates: Mapping[Design, Candidate], seeds: Sequence[int]) -> Comparison:
        times = {
            design: {
                s: candidate.outcomes[s].time_or_never for s in seeds if s in candidate.outcomes
            }
            for design, candidate in candidates.items()
            if candidate.survives
        }
        times = {
            design: own
            for design, own in times.items()
            if own and isfinite(spread([*own.values()]).median)
        }
        fewest = min((design.workers for design in times), default=None)
        first = [design for design in times if design.workers == fewest]
        if not first:
            return cls(times, None, {})
        reference = min(first, key=lambda design: spread([*times[design].values()]).median)
        for _ in first:  # medians of ratios might go round in a circle
            best = max(first, key=lambda design: _speedup(times[reference], times[design]))
            if not _speedup(times[reference], times[best]) > 1:
                break
            reference = best
        speedups = {design: _speedup(times[reference], own) for design, own in times.items()}
        return cls(
            times, reference, {d: speedup for d, speedup in speedups.items() if 0 < speedup < inf}
        )

    def relative_cost(self, design: Design) -> float:
        assert self.reference is not None
        return design.workers / self.reference.workers / self.speedups[design]

    def fastest(self, workers: int | None = None) -> Design | None:
        """Return the fastest design, of those with so many workers."""
        designs = [
            speedup for speedup in self.speedups if workers is None or speedup.workers == workers
        ]
        return max(designs, key=lambda each: (self.speedups[each], -each.workers), default=None)

    def cheapest(self) -> Design | None:
        key = self.relative_cost
        return min(self.speedups, key=lambda each: (key(each), -self.speedups[each]), default=None)

    def not_apart(
        self, best: Design | None, factor: Callable[[Design], float]
    ) -> Sequence[Design] | None:
        """Return the designs whose time times a factor is not told apart from the best one's."""
        if best is None or len(self.times[best]) < 2:
            return None
        best_times = self.times[best]
        close = []
        for other in self.speedups:
            both = [seed for seed in best_times if seed in self.times[other]]
            of_best = [factor(best) * best_times[seed] for seed in both]
            of_other = [factor(other) * self.times[other][seed] for seed in both]
            if other != best and not are_told_apart(of_best, of_other):
                close.append(other)
        return close or None


def _speedup(reference: Mapping[int, float], own: Mapping[int, float]) -> float:
    both = [seed for seed in reference if seed in own]
    return paired_ratio([reference[seed] for seed in both], [own[seed] for seed in both])

"""Several sets of samples of one op as one.

Count, mean, variance and minimum are those of all samples together, exactly: with n_i samples of
mean m_i and variance v_i in set i, N and M of all,

    variance = (sum (n_i - 1) v_i + sum n_i (m_i - M)^2) / (N - 1)

(Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances,
1979). Quantiles cannot be had without the samples: theirs are the averages of the sets', weighted
by count. That is exact where the sets have one distribution, and lies between theirs in any case.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

from paracosm.profiling.samples import OpTiming, Spread

__all__ = ["pool", "pool_spreads"]


def pool(timings: Iterable[OpTiming]) -> dict[tuple[str, str], OpTiming]:
    """Return one timing for every (name, arguments) among timings of one environment and cache.

    A pooled timing has the op of the newest set, the probe of those that probed (by count), the
    latest date, all sources, and a key that follows from the sets' keys.
    """
    sets: dict[tuple[str, str], list[OpTiming]] = {}
    for timing in timings:
        sets.setdefault((timing.op.name, timing.op.arguments), []).append(timing)
    return {key: _one(members) for key, members in sets.items()}


def pool_spreads(spreads: Sequence[Spread]) -> Spread:
    """Return the statistics of all samples of one or more sets; quantiles are approximate."""
    total = sum([each.count for each in spreads])
    mean = math.fsum([each.count * each.mean for each in spreads]) / total
    within = math.fsum([(each.count - 1) * each.variance for each in spreads])
    between = math.fsum([each.count * (each.mean - mean) ** 2 for each in spreads])
    return Spread(
        count=total,
        mean=mean,
        variance=(within + between) / (total - 1) if total > 1 else 0.0,
        minimum=min([each.minimum for each in spreads]),
        p10=math.fsum([each.count * each.p10 for each in spreads]) / total,
        median=math.fsum([each.count * each.median for each in spreads]) / total,
        p90=math.fsum([each.count * each.p90 for each in spreads]) / total,
    )


def _one(sets: Sequence[OpTiming]) -> OpTiming:
    if len(sets) == 1:
        return sets[0]
    newest = max(sets, key=lambda timing: (timing.measured_at, timing.key))
    probed = [timing for timing in sets if timing.probe > 0]
    weight = sum([timing.time.count for timing in probed])
    worth = sum([timing.time.count * timing.probe for timing in probed])
    keys = "".join(sorted([timing.key for timing in sets]))
    return OpTiming(
        op=newest.op,
        environment=newest.environment,
        cache=newest.cache,
        time=pool_spreads([timing.time for timing in sets]),
        probe=worth / weight if probed else 0.0,
        source=", ".join(sorted({timing.source for timing in sets if timing.source})),
        measured_at=newest.measured_at,
        key=hashlib.blake2b(keys.encode(), digest_size=16).hexdigest(),
    )

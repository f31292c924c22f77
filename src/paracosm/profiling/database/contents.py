"""What a database holds, as plain values for a person or a program to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from paracosm.profiling.database.pool import pool_spreads
from paracosm.profiling.database.timings import Timings
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import CACHES, IterationTiming, LinkTiming, OpTiming

__all__ = ["STABLE", "overview"]

STABLE = 0.01
"""The relative standard error that Huang et al. (section 3) find, and call very stable."""


def overview(timings: Timings, shown: Mapping[int, Environment]) -> dict[str, Any]:
    """Return what there is of the `shown` environments, which are numbered for reference."""
    parts = {number: timings.only((environment,)) for number, environment in shown.items()}
    ops = [timing for part in parts.values() for timing in part.ops]
    return {
        "environments": [
            {"number": number, **asdict(shown[number]), **_sums(part)}
            for number, part in parts.items()
        ],
        "models": _models(ops),
        "sources": dict(Counter(timing.source for timing in ops).most_common()),
        "ops": _op_types(ops),
        "iterations": [
            {"environment": number, **row}
            for number, part in parts.items()
            for row in _iterations(part.iterations)
        ],
        "links": [
            {"environment": number, **row}
            for number, part in parts.items()
            for row in _links(part.links)
        ],
    }


def _sums(part: Timings) -> dict[str, Any]:
    cached = Counter(timing.cache for timing in part.ops)
    errors = [timing.time.standard_error for timing in part.ops if timing.time.count > 1]
    dates = [timing.measured_at for timing in part.everyone() if timing.measured_at]
    return {
        "ops": len({(timing.op.name, timing.op.arguments) for timing in part.ops}),
        "op_types": len({timing.op.name for timing in part.ops}),
        "timings": {cache: cached[cache] for cache in CACHES},
        "samples": sum(timing.time.count for timing in part.ops),
        "links": len(part.links),
        "iterations": len(part.iterations),
        "standard_error": {
            "median": median(errors) if errors else None,
            "share_below_1_percent": (
                sum(error < STABLE for error in errors) / len(errors) if errors else None
            ),
        },
        "first_measured_at": min(dates, default=None),
        "last_measured_at": max(dates, default=None),
    }


def _models(ops: Iterable[OpTiming]) -> dict[str, int]:
    """Return the models whose ops were profiled, with their numbers of timings."""
    sources = Counter(timing.source for timing in ops)
    return {
        source.removeprefix("model "): count
        for source, count in sources.most_common()
        if source.startswith("model ")
    }


def _op_types(ops: Iterable[OpTiming]) -> list[dict[str, Any]]:
    types: dict[str, list[OpTiming]] = {}
    for timing in ops:
        types.setdefault(timing.op.name, []).append(timing)
    rows = [
        {
            "name": name,
            "arguments": len({timing.op.arguments for timing in members}),
            "timings": len(members),
        }
        for name, members in types.items()
    ]
    return sorted(rows, key=lambda row: (-row["arguments"], -row["timings"], row["name"]))


def _iterations(timings: Iterable[IterationTiming]) -> list[dict[str, Any]]:
    graphs: dict[tuple[str, str], list[IterationTiming]] = {}
    for timing in timings:
        graphs.setdefault((timing.model, timing.fingerprint), []).append(timing)
    return [
        {
            "model": model,
            "fingerprint": fingerprint,
            "sets": len(members),
            **asdict(pool_spreads([timing.time for timing in members])),
            "last_measured_at": max(timing.measured_at for timing in members) or None,
        }
        for (model, fingerprint), members in graphs.items()
    ]


def _links(timings: Iterable[LinkTiming]) -> list[dict[str, Any]]:
    ways: dict[tuple[str, str, int], list[LinkTiming]] = {}
    for timing in timings:
        ways.setdefault((timing.kind, timing.scenario, timing.ranks), []).append(timing)
    return [
        {
            "kind": kind,
            "scenario": scenario,
            "ranks": ranks,
            "sets": len(members),
            "smallest": min(timing.size for timing in members),
            "largest": max(timing.size for timing in members),
            "highest_bandwidth": _highest(members),
        }
        for (kind, scenario, ranks), members in ways.items()
    ]


def _highest(timings: Sequence[LinkTiming]) -> float | None:
    return max((each.bandwidth for each in timings if each.time.median > 0), default=None)

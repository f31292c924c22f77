"""The paper's findings, one by one, held against what was measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from conv import CLIFF, Series
from copies import PAPER as TABLE1
from iteration_accuracy import Accuracy
from steady import LIMIT

from models import PAPER as TABLE2

if TYPE_CHECKING:
    from results import Results

__all__ = ["Check", "check_all"]

STRONG = 0.95  # R^2 of a "strong linear relationship"
MOST = 0.9  # of the ops, for what holds "for the ops"
AT_ALL = 1.05  # what counts as faster
ERROR = 0.02  # the paper's, of an iteration
NEIGHBOURS, HELD_OUT = 0.04, 0.10  # aimed at here; the paper has no such numbers


@dataclass(frozen=True)
class Check:
    """One claim.

    `holds` is None where this machine lacks the hardware, or a measurement was left out.
    """

    where: str
    what: str
    expected: str
    found: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """Return it in a word or two."""
        return {True: "comes out", False: "does not", None: "not possible"}[self.holds]


def check_all(results: Results) -> list[Check]:
    """Return all checks, in the order of the paper."""
    return [
        *(_linear(series) for series in results.figure2 if series.cache == "warm"),
        *_lines(results),
        *_steady(results),
        *_copies(results),
        *(_paper_way(results.names[name], each) for name, each in results.table2.items()),
        _under(results),
        *(_own(results.names[name], each) for name, each in results.table2.items()),
        *_others(results),
        *_designs(results),
    ]


def _linear(series: Series) -> Check:
    fit, rates = series.line, series.rates
    cliffs = ", ".join(map(str, series.cliffs))
    return Check(
        "Figure 2",
        f"Conv2D time is linear in the input channels: {len(series.channels)} values, "
        f"{series.name}, warm",
        f"strong linear relationship (here: R² of {STRONG} or more)",
        f"R² {fit.r2:.4f}, off by {fit.worst:.0%} at most; {min(rates) / 1e9:.0f} to "
        f"{max(rates) / 1e9:.0f} GFLOP/s; "
        + (f"cliffs (FLOP/s change by {CLIFF:.0%}) at {cliffs}" if cliffs else "no cliffs"),
        fit.r2 >= STRONG,
    )


def _lines(results: Results) -> list[Check]:
    if not results.lines:
        return []
    by_work = np.array([line.by_work.r2 for line in results.lines])
    by_value = np.array([line.by_value.r2 for line in results.lines])
    worst = min(results.lines, key=lambda line: line.by_work.r2)
    return [
        Check(
            "Section 3",
            f"the same for {len({line.op for line in results.lines})} op types, one argument at a "
            f"time ({len(results.lines)} lines, cold)",
            f"R² of {STRONG} or more for {MOST:.0%} of the lines",
            f"against the op's work {(by_work >= STRONG).mean():.0%}, median "
            f"{np.median(by_work):.3f}; against the argument itself "
            f"{(by_value >= STRONG).mean():.0%}, median {np.median(by_value):.3f}; least straight: "
            f"{worst.op} along {worst.argument} ({worst.by_work.r2:.2f})",
            bool((by_work >= STRONG).mean() >= MOST),
        )
    ]


def _steady(results: Results) -> list[Check]:
    warm, cold = (results.steady.all[cache] for cache in ("warm", "cold"))
    types = len({each.what for each in results.steady.by_type})
    checks = [
        Check(
            "Section 3",
            f"ops are stable: {warm.ops} ops of {types} types, the same op in a row, "
            f"{warm.samples} rows each",
            f"standard error below {LIMIT:.0%} of the mean",
            f"for {warm.below:.0%} (median {warm.median:.2%}, p90 {warm.p90:.1%}); with cold data "
            f"{cold.below:.0%} (median {cold.median:.2%}, p90 {cold.p90:.1%})",
            warm.below >= MOST if warm.samples > 1 else None,
        )
    ]
    for again in results.steady.again.values():
        checks.append(
            Check(
                "Section 3",
                f"the same {again.ops} ops timed again minutes later, {again.cache}: what the "
                "standard error does not tell",
                f"not in the paper; within its {LIMIT:.0%}",
                f"means differ by {again.median:.1%} in the median, p90 {again.p90:.1%}",
                again.median < LIMIT,
            )
        )
    return checks


def _copies(results: Results) -> list[Check]:
    found = results.table1.found
    rows = [place in found for _, place, _ in TABLE1.values()]
    checks = [
        Check(
            "Table 1",
            "the paper's transfers that this machine has",
            f"{len(TABLE1)} rows",
            f"{sum(rows)}; nearest ones of the host for "
            f"{sum(near in found for *_, near in TABLE1.values())}",
            True if all(rows) else None,
        )
    ]
    for what, faster, slower, expected in (
        (
            "both directions at once move more than one",
            ("shared memory", "bi-direct"),
            ("shared memory", "uni-direct"),
            "1.5 to 1.9 times as much",
        ),
        (
            "an all-reduce of 2 is slower than a copy",
            ("shared memory", "uni-direct"),
            ("all_reduce", "gloo 2 processes"),
            "1.1 to 1.8 times as fast",
        ),
        (
            "an all-reduce of 4 is slower than one of 2",
            ("all_reduce", "gloo 2 processes"),
            ("all_reduce", "gloo 4 processes"),
            "1.4 times as fast",
        ),
    ):
        if faster in found and slower in found:
            ratio = found[faster].largest / found[slower].largest
            here = f"{ratio:.1f} times ({', '.join(faster)}, over {', '.join(slower)})"
            checks.append(Check("Table 1", what, expected, here, ratio > AT_ALL))
    return checks


def _paper_way(name: str, found: Accuracy) -> Check:
    return Check(
        "Table 2",
        f"{name}: ops timed in a row, the paper's way",
        _paper_error(name),
        _off(found, found.warm),
        _within(found, found.warm, ERROR),
    )


def _paper_error(name: str) -> str:
    if name not in TABLE2:
        return f"within {ERROR:.0%}"
    measured, simulated = TABLE2[name]
    return f"within {ERROR:.0%} ({simulated / measured - 1:+.2%})"


def _under(results: Results) -> Check:
    errors = {name: found.error(found.warm) for name, found in results.table2.items()}
    parts = [
        f"{name} {found.gaps / found.measured:+.1%} and {found.caches / found.measured:+.1%}"
        for name, found in results.table2.items()
        if found.gaps is not None and found.caches is not None
    ]
    return Check(
        "Table 2",
        "all errors are under-estimates, from memory copies and gaps between ops",
        "all three",
        f"{sum(error < 0 for error in errors.values())} of {len(errors)}; gaps, and ops beyond "
        f"their cold time: {', '.join(parts) or 'not measured'}",
        all(error < 0 for error in errors.values()),
    )


def _own(name: str, found: Accuracy) -> Check:
    return Check(
        "Table 2",
        f"{name}: ops timed with cold data, ours",
        f"within {ERROR:.0%}",
        _off(found, found.own),
        _within(found, found.own, ERROR),
    )


def _others(results: Results) -> list[Check]:
    checks = []
    near = results.neighbour
    if near is not None:
        found = results.table2[near.model]
        checks.append(
            Check(
                "Section 2",
                f"{near.model} from {near.other}'s timings, {near.exact:.0%} of the time exact",
                f"not in the paper; within {NEIGHBOURS:.0%}",
                _off(found, near.predicted),
                _within(found, near.predicted, NEIGHBOURS),
            )
        )
    for name, found in results.table2.items():
        if found.held_out is not None and found.per_op is not None:
            checks.append(
                Check(
                    "Section 2",
                    f"{results.names[name]}: its own shapes held out, from grids and other models",
                    f"proposed, not evaluated; within {HELD_OUT:.0%}",
                    f"{_off(found, found.held_out)}; {found.per_op:.0%} per op",
                    _within(found, found.held_out, HELD_OUT),
                )
            )
    return checks


def _designs(results: Results) -> list[Check]:
    whole = {design.design: design for design in results.designs if design.op == "all"}
    if not whole:
        return []
    paper, like = whole["paper"], whole["model-like"]
    return [
        Check(
            "Section 2",
            "values of one argument at a time suffice for a model that estimates the others: "
            f"{paper.ops} ops held out, weighted by time",
            "proposed, not evaluated",
            f"{paper.weighted:.0%} per op from {paper.trained} ops; a model-like design of "
            f"{like.trained} ops errs by {like.weighted:.0%}",
            paper.weighted <= like.weighted,
        )
    ]


def _off(found: Accuracy, predicted: float) -> str:
    """Say how far a prediction is off, and how far iterations are from each other."""
    low, high = found.low / found.measured - 1, found.high / found.measured - 1
    return f"{found.error(predicted):+.2%}; iterations themselves {low:+.1%} to {high:+.1%}"


def _within(found: Accuracy, predicted: float, limit: float) -> bool:
    return abs(found.error(predicted)) < limit


def counts(checks: Sequence[Check]) -> str:
    """Return how many claims come out: "12 come out, 3 do not; not possible here: 2"."""
    number = {holds: sum(check.holds is holds for check in checks) for holds in (True, False, None)}
    return f"{number[True]} come out, {number[False]} do not; not possible here: {number[None]}"

"""Every number that is known for the paper's experiments, held against our runs.

The paper shows its simulated experiments as figures without numbers. The numbers here were found by
an independent program for the same right-hand sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from further import Further
from grid import READS
from measured import table1, table3
from numpy.typing import NDArray
from real import ON_CORE, Compared, Real
from speeds import Nominal, Slowed, Varied
from struck import ALPHAS, PATIENCE, Intervals, Struck

Array = NDArray[np.float64]

MIDDLE = {"start": (4.34, 0.17), "completion": (4.05, 0.12)}
EDGE = 1.82
VARIANCES = (0, 1, 4, 9, 16, 25)
TIMES = {
    "start": (2823, 3341, 3366, 3396, 3449, 3522),
    "completion": (2039, 2073, 2101, 2139, 2189, 2253),
}
UNREPAIRED = {"start": 1.84, "completion": 1.99}
REPAIRED = {"start": 1.001, "completion": 1.002}
BEST_INTERVALS = (20, 50, 80, 200)
CLOSE = 0.07
LATENCIES = {0: 1157, 1: 1617, 5: 3462, 10: 5771, 50: 24286}


@dataclass(frozen=True)
class Check:
    """One number or claim: where it is from, what is known, what came out.

    `holds` is None where it is not possible on this machine; `found` says why.
    """

    where: str
    what: str
    expected: str
    found: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """Return it in a word or two."""
        return {True: "within", False: "not within", None: "not possible"}[self.holds]


def check_figure3(figure: Nominal) -> list[Check]:
    """Check the nominal iteration."""
    rate, start, completion = np.cos(np.pi / 11), *(figure.sweeps[r].mean() for r in READS)
    count = figure.sweeps["start"].size
    exact = count == 20  # so many right-hand sides the means are known for
    return [
        Check(
            "Figure 3",
            "factor of the residual in a synchronous sweep, cos(pi/11)",
            f"{rate:.6f}",
            f"{figure.rate:.6f}",
            bool(abs(figure.rate - rate) < 1e-5),
        ),
        Check(
            "Figure 3",
            "constant durations, read at the start: the synchronous iterates",
            "to the bit",
            "to the bit" if figure.same else "other iterates",
            figure.same,
        ),
        Check(
            "Figure 3",
            f"sweeps to 1e-6, read at the start, mean of {count} right-hand sides",
            "283.45",
            f"{start:.2f}",
            bool(abs(start - 283.45) < 0.01) if exact else None,
        ),
        Check(
            "Figure 3",
            "the same, read at completion (Algorithm 2 as printed): not synchronous Jacobi",
            "207.5",
            f"{completion:.2f}",
            bool(abs(completion - 207.5) < 0.1) if exact else None,
        ),
    ]


def check_figure4(figure: Slowed) -> list[Check]:
    """Check the single slow processor."""
    last = figure.slowdowns.index(11)
    checks = []
    for read in READS:
        mean, spread = MIDDLE[read]
        row = figure.ratios[read, "middle"][last]
        checks.append(
            Check(
                "Figure 4",
                f"run time over nominal, middle processor slowed by 11, read at {read}",
                f"{mean} ± {spread}",
                f"{row.mean():.2f} ± {row.std():.2f}",
                bool(abs(row.mean() - mean) < 0.01 * mean and abs(row.std() - spread) < 0.02),
            )
        )
    for read in READS:
        row = figure.ratios[read, "edge"][last]
        checks.append(
            Check(
                "Figure 4",
                f"the same for a processor at the edge, read at {read}",
                f"{EDGE}",
                f"{row.mean():.2f} ± {row.std():.2f}",
                bool(abs(row.mean() - EDGE) < 0.01 * EDGE),
            )
        )
    from_two = [i for i, slowdown in enumerate(figure.slowdowns) if slowdown >= 2]
    means = {read: figure.ratios[read, "middle"].mean(axis=1)[from_two] for read in READS}
    most = max(float(mean[-1]) for mean in means.values())
    checks.append(
        Check(
            "Figure 4",
            "from a slow-down of 2 on, a slower middle processor costs more, far below 12 times",
            "rising, below 6",
            "; ".join(f"{read}: {_listed(mean, '.2f')}" for read, mean in means.items()),
            bool(all((np.diff(mean) > 0).all() for mean in means.values()) and most < 6),
        )
    )
    return checks


def check_figure5(figure: Varied) -> list[Check]:
    """Check durations that vary."""
    checks = []
    for read in READS:
        expected = np.array([TIMES[read][VARIANCES.index(v)] for v in figure.variances], np.float64)
        found = figure.times[read].mean(axis=1)
        checks.append(
            Check(
                "Figure 5",
                f"units of time to 1e-6 by variance {_listed(figure.variances)}, read at {read}, "
                f"mean of {figure.times[read].shape[1]} right-hand sides, to 1 %",
                _listed(expected, ".0f"),
                _listed(found, ".0f"),
                bool((np.abs(found / expected - 1) < 0.01).all()),
            )
        )
    return checks


def check_figure11(figure: Struck) -> list[Check]:
    """Check the fault, with and without checkpoints."""
    checks = []
    for read in READS:
        ratios = figure.ratios[read, "none"]
        expected = UNREPAIRED[read]
        checks.append(
            Check(
                "Figure 11 (a)",
                f"run time over fault-free, no checkpoints, read at {read}, mean of {ratios.size} "
                "runs, to 6 %",
                f"{expected}",
                f"{ratios.mean():.2f} ± {ratios.std():.2f}",
                bool(abs(ratios.mean() / expected - 1) < 0.06),
            )
        )
    every = {read: figure.converged[read, "none"] for read in READS}
    runs = figure.ratios["start", "none"].size
    checks.append(
        Check(
            "Figure 11 (a)",
            "a fault alone never prevents convergence, read at start and completion",
            f"{runs} of {runs}",
            ", ".join(f"{count} of {runs}" for count in every.values()),
            all(count == runs for count in every.values()),
        )
    )
    done = {read: figure.converged[read, "alpha = 1"] for read in READS}
    runs = figure.ratios["start", "alpha = 1"].size
    checks.append(
        Check(
            "Figure 11 (b)",
            f"alpha = 1 stagnates: runs that converge within {PATIENCE} times the fault-free time",
            "1 of 120",
            ", ".join(f"{count} of {runs} ({read})" for read, count in done.items()),
            max(done.values()) <= max(0.02 * runs, 1),
        )
    )
    for panel, policy in (("c", "alpha = 2"), ("d", "alpha = 10")):
        means = {read: float(figure.ratios[read, policy].mean()) for read in READS}
        converged = all(
            figure.converged[read, policy] == figure.ratios[read, policy].size for read in READS
        )
        checks.append(
            Check(
                f"Figure 11 ({panel})",
                f"run time over fault-free, {policy}, omega = 10, read at start and completion, "
                "to 0.003",
                ", ".join(f"{REPAIRED[read]:.3f}" for read in READS),
                _listed(means.values(), ".4f"),
                converged and all(abs(means[read] - REPAIRED[read]) < 0.003 for read in READS),
            )
        )
    same = all(
        np.array_equal(figure.ratios[read, "alpha = 2"], figure.ratios[read, "alpha = 10"])
        for read in READS
    )
    checks.append(
        Check(
            "Figure 11",
            "a fault this large is beyond 10 times the residual: alpha = 2 and 10 do the same",
            "the same",
            "the same" if same else "different",
            same,
        )
    )
    return checks


def check_alphas(counts: dict[tuple[str, float], int], runs: int) -> list[Check]:
    """Check from where on alpha is safe."""
    below, above = ALPHAS
    too_small = min(counts[read, below] for read in READS)
    safe = max(counts[read, above] for read in READS)
    return [
        Check(
            "Section 6.2",
            "the smallest alpha that never rolls back without a fault",
            f"{below} to {above}",
            f"at {below} at least {too_small} of {runs} runs are rolled back, at {above} {safe}",
            too_small > 0 and safe == 0,
        )
    ]


def check_intervals(found: Intervals) -> list[Check]:
    """Check Young's interval against the best one tried."""
    excess = found.excess("completion")
    best = found.best("start")
    young = _listed(found.young, ".0f")
    return [
        Check(
            "Section 6.2",
            f"Young's interval ({young} units) takes at most 2 % more time than the best of those "
            "tried, read at completion",
            f"best: {_listed(BEST_INTERVALS)}",
            f"best: {_listed(found.best('completion') * found.young, '.0f')}; "
            f"Young's takes {_listed(100 * excess, '.1f')} % more",
            bool(excess.max() < 0.02),
        ),
        Check(
            "Section 6.2",
            "read at the start, longer intervals are best: results in flight survive the rollback",
            "1 to 2.5 times Young's",
            f"{_listed(best, '.1f')} times Young's",
            bool(best.min() >= 1 and best.max() <= 2.5),
        ),
    ]


def check_further(found: Further) -> list[Check]:
    """Check distributed memory and other methods."""
    latencies = list(found.by_latency)
    expected = np.array([LATENCIES[latency] for latency in latencies])
    sweeps = np.array(list(found.by_latency.values()))
    numbers = (
        ("Jacobi, asynchronous", 1246, found.jacobi),
        ("exact solves of the blocks, asynchronous", 757, found.block_jacobi),
        ("second-order Richardson, best parameters, in step", 98, found.momentum_in_step),
        ("second-order Richardson, beta = 0.5, asynchronous", 744, found.half_momentum),
    )
    return [
        Check(
            "Section 7",
            f"distributed memory, 20 x 20: sweeps by latency of {_listed(latencies)} updates, to "
            "7 %",
            _listed(expected, ".0f"),
            _listed(sweeps, ".0f"),
            bool((np.abs(sweeps / expected - 1) < 0.07).all()),
        ),
        *(
            Check(
                "Section 7",
                f"{method}: sweeps on 20 x 20, to 1 %",
                f"{number}",
                f"{came:.0f}",
                abs(came / number - 1) < 0.01,
            )
            for method, number, came in numbers
        ),
        Check(
            "Section 7",
            "second-order Richardson with the best parameters in step, asynchronous",
            "diverges",
            "diverges" if found.diverged else "does not",
            found.diverged,
        ),
    ]


def check_machine(real: Real) -> list[Check]:
    """Check what the threads of this machine did."""
    late = [replayed.late_by for replayed in real.replayed]
    near = sum(by is not None and abs(by) <= 1 for by in late)
    checks = [
        Check(
            "Section 5.4",
            "recorded runs, played again: detection within one residual check of the real one",
            "8 of 10 or more",
            f"{near} of {len(late)}",
            len(late) > 0 and near >= 0.8 * len(late),
        )
    ]
    for row in real.compared:
        if row.side == 100 and row.threads <= 2:
            checks += _table4(row)
    share = min(case.interruptions.share for case in real.solver.cases)
    rows = table1(real.solver)
    part = min(row.compute / (row.copy + row.compute + row.update) for row in rows)
    small = real.solver.problem["unknowns"] < 10_000
    checks.append(
        Check(
            "Table 1",
            "computing dominates an iteration, with every number of threads",
            "above half",
            f"{part:.0%} or more" + ("; a small grid" if small else ""),
            None if small else part > 0.5,
        )
    )
    if len({row.threads for row in rows}) < 2:
        return checks
    compute = [row.compute for row in rows if row.variant == "race"]
    checks.append(_scaling("Table 1", compute, share))
    share = min(case.interruptions.share for case in real.plate.cases)
    checks.append(_scaling("Table 3", [row.mean for row in table3(real.plate)], share))
    return checks


def _table4(row: Compared) -> list[Check]:
    """Check the iterations and the run time of a case, where the machine allows to judge them."""
    what = f"100 x 100, {row.variant}, threads: {row.threads}: simulated over measured"
    ratio = float(np.median(row.simulated) / np.median(row.measured))
    apart = float(row.measured.max() / row.measured.min())
    busy = f"; threads had {row.share:.0%} of a core" if row.share < ON_CORE else ""
    unsteady = f"; measured runs differ by a factor of {apart:.2f}" if apart > 1 + CLOSE else ""
    return [
        Check(
            "Table 4",
            f"{what} {name}",
            f"{1 - CLOSE:.2f} to {1 + CLOSE:.2f}",
            f"{found:.2f}{excuse}",
            None if excuse else abs(found - 1) <= CLOSE,
        )
        for name, found, excuse in (
            ("iterations", row.iterations, busy),
            ("run time", ratio, busy + unsteady),
        )
    ]


def _scaling(where: str, means: Sequence[float], share: float) -> Check:
    busy = share < ON_CORE
    return Check(
        where,
        "two threads: an iteration of each takes less time than with one",
        "less",
        f"{means[1] / means[0]:.2f} times"
        + (f"; threads had down to {share:.0%} of a core" if busy else ""),
        None if busy else means[1] < means[0],
    )


def _listed(values: Iterable[Any], form: str = "") -> str:
    return ", ".join(format(value, form) for value in values)

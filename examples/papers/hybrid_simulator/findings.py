"""The paper's findings (section 4.4 and section 5), each held against our runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from curves import Curve, select

MODES = {"ssgd": "synchronous", "asgd": "asynchronous"}
COMPUTE = {"fast": "20 ms", "slow": "200 ms"}
SMALL = (0.0, 0.001, 0.01)
LATENCIES = (*SMALL, 0.1)
MANY = (8, 16, 32, 64)


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, whether it comes out here, and the figures that say so."""

    claim: str
    holds: bool
    evidence: str


def check_findings(curves: Sequence[Curve]) -> list[Finding]:
    """Check every finding; each compares medians over the seeds."""
    by_compute = [
        check(select(curves, compute=compute), f"a gradient takes {time}; ")
        for check in (
            _four_beat_two_in_time,
            _small_latencies_coincide,
            _large_latency_hurts,
            _async_beats_sync_at_large_latency,
            _async_beats_sync,
        )
        for compute, time in COMPUTE.items()
    ]
    fast = select(curves, compute="fast")
    return [
        *by_compute,
        _latency_is_invisible_in_updates(fast),
        _four_beat_two_in_updates(fast),
        _large_steps_break(fast),
        _small_steps_coincide(fast),
        _sixty_four_workers_run(fast),
    ]


def _median(curves: Sequence[Curve], measure: Callable[[Curve], float], **wanted: object) -> float:
    return float(np.median([measure(curve) for curve in select(curves, **wanted)]))


def _time(curves: Sequence[Curve], algorithm: str, workers: int, latency: float) -> float:
    return _median(
        curves, Curve.time_to_target, algorithm=algorithm, workers=workers, latency=latency
    )


def _updates(curves: Sequence[Curve], algorithm: str, workers: int, latency: float) -> float:
    return _median(
        curves, Curve.updates_to_target, algorithm=algorithm, workers=workers, latency=latency
    )


def _four_beat_two_in_time(curves: Sequence[Curve], setting: str) -> Finding:
    gains = {
        algorithm: _time(curves, algorithm, 2, 0.001) / _time(curves, algorithm, 4, 0.001)
        for algorithm in MODES
    }
    return Finding(
        f"{setting}against virtual time, 4 workers converge faster than 2, in both modes",
        min(gains.values()) > 1.05,
        ", ".join(f"{MODES[mode]} {gain:.2f} times as fast" for mode, gain in gains.items())
        + f" to loss {curves[0].target} at latency 0.001 s",
    )


def _small_latencies_coincide(curves: Sequence[Curve], setting: str) -> Finding:
    factors = {
        (algorithm, workers): max(times) / min(times)
        for algorithm in MODES
        for workers in (2, 4)
        if (times := [_time(curves, algorithm, workers, latency) for latency in SMALL])
    }
    return Finding(
        f"{setting}against virtual time, latencies 0, 0.001 and 0.01 s basically coincide",
        max(factors.values()) < 1.25,
        f"times to loss {curves[0].target} differ by a factor "
        + ", ".join(f"{f:.2f} ({MODES[mode]}, {w})" for (mode, w), f in factors.items()),
    )


def _large_latency_hurts(curves: Sequence[Curve], setting: str) -> Finding:
    factors = [
        _time(curves, algorithm, workers, 0.1) / _time(curves, algorithm, workers, 0.0)
        for algorithm in MODES
        for workers in (2, 4)
    ]
    return Finding(
        f"{setting}a latency of 0.1 s is clearly slower than the others",
        min(factors) > 1.5,
        f"it takes {min(factors):.1f} to {max(factors):.1f} times the time of latency 0",
    )


def _async_beats_sync_at_large_latency(curves: Sequence[Curve], setting: str) -> Finding:
    factors = {w: _time(curves, "ssgd", w, 0.1) / _time(curves, "asgd", w, 0.1) for w in (2, 4)}
    return Finding(
        f"{setting}at latency 0.1 s the asynchronous mode converges faster",
        min(factors.values()) > 1.05,
        ", ".join(f"{factor:.2f} times as fast with {w} workers" for w, factor in factors.items()),
    )


def _async_beats_sync(curves: Sequence[Curve], setting: str) -> Finding:
    factors = [
        _time(curves, "ssgd", workers, latency) / _time(curves, "asgd", workers, latency)
        for workers in (2, 4)
        for latency in SMALL
    ]
    return Finding(
        f"{setting}at small latencies both modes converge at the same speed against virtual time",
        max(factors) < 1.25 and min(factors) > 0.8,
        f"the asynchronous mode is {min(factors):.2f} to {max(factors):.2f} times as fast: for "
        "each update of the synchronous mode it makes two or four, of one gradient each",
    )


def _latency_is_invisible_in_updates(curves: Sequence[Curve]) -> Finding:
    factors = [
        max(counts) / min(counts)
        for algorithm in MODES
        for workers in (2, 4)
        if (counts := [_updates(curves, algorithm, workers, latency) for latency in LATENCIES])
    ]
    return Finding(
        "against updates, the four latencies coincide, in both modes",
        max(factors) < 1.25,
        f"updates to loss {curves[0].target} differ by up to a factor {max(factors):.2f}",
    )


def _four_beat_two_in_updates(curves: Sequence[Curve]) -> Finding:
    two, four = (_updates(curves, "ssgd", workers, 0.001) for workers in (2, 4))
    return Finding(
        "synchronous, against updates: 4 workers converge faster than 2",
        four < 0.95 * two,
        f"loss {curves[0].target} after {two:.0f} updates with 2 workers, {four:.0f} with 4",
    )


def _final_losses(curves: Sequence[Curve], **wanted: object) -> dict[int, float]:
    def last(curve: Curve) -> float:
        return float(curve.loss[-1])

    return {workers: _median(curves, last, workers=workers, **wanted) for workers in MANY}


def _in_words(losses: dict[int, float]) -> str:
    return "final loss " + ", ".join(f"{loss:.3g} with {w}" for w, loss in losses.items())


def _large_steps_break(curves: Sequence[Curve]) -> Finding:
    final = _final_losses(curves, algorithm="asgd", lr=0.2)
    peak = max(float(c.loss.max()) for c in select(curves, algorithm="asgd", lr=0.2, workers=64))
    guessing = float(np.log(10))
    stuck = all(final[workers] > 0.9 * guessing for workers in (16, 32, 64))
    return Finding(
        "with the step that works for 8 workers, 16 do not improve, 32 and 64 explode (figure 14)",
        final[8] < 1 and stuck and peak > 10,
        f"{_in_words(final)}; highest loss on the way with 64: {peak:.3g} "
        f"(guessing gives {guessing:.2f})",
    )


def _small_steps_coincide(curves: Sequence[Curve]) -> Finding:
    small = _final_losses(curves, algorithm="asgd", lr=0.01)
    aware = _final_losses(curves, algorithm="staleness-aware")
    return Finding(
        "with another update method, 8 to 64 workers have basically the same curve against updates",
        max(small.values()) < 1.25 * min(small.values()),
        f"the paper does not name its method; with learning rate 0.01: {_in_words(small)}; with "
        f"0.2 / staleness, which learns too but not equally fast: {_in_words(aware)}",
    )


def _sixty_four_workers_run(curves: Sequence[Curve]) -> Finding:
    count = len(select(curves, workers=64))
    return Finding(
        "the simulator runs 64 workers on one machine",
        count > 0,
        f"{count} runs with 64 workers in this study; benchmarks/schedule.py runs 1,024 with "
        "gradients and 10,000 without",
    )

"""What compressed messages cost in loss, and gain in time.

1. Top-k needs error feedback: of 1000 numbers of each gradient one is sent. With what was left out
   added to the next message, workers learn as if all were sent; without it they do not get there
   (Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression
   Schemes", 2019, in kind).
2. Virtual time to a target by bandwidth: compression pays where messages are what takes the time.

Prints two tables and its checks; ends with 1 where a check fails. `--quick` takes one seed, fewer
updates and two bandwidths.
"""

from __future__ import annotations

import sys
from statistics import fmean
from typing import Any

from paracosm.training import TrainConfig, train
from paracosm.units import format_duration

WORKERS = 8
JOB: dict[str, Any] = {
    "algorithm": "ssgd",
    "topology": "all-reduce",
    "workers": WORKERS,
    "batch": 16,
    "compute": "lognormal(20ms, 0.1)",
    "latency": "50us",
}
LEARNING: dict[str, Any] = {"lr": 0.5, "evaluate_every": 10}
TARGET = "loss <= 0.05"
BANDWIDTHS = ("1Mbit/s", "10Mbit/s", "100Mbit/s", "1Gbit/s", "10Gbit/s")
CODECS = (None, "fp16", "qsgd", "signsgd", "powersgd(rank=2)", "topk(0.01)")


def run(codec: str | None, seed: int = 0, **arguments: Any) -> Any:
    """Return the summary of a run with a codec; None sends messages as they are."""
    given = {**JOB, **arguments} if codec is None else {**JOB, **arguments, "compress": codec}
    return train(TrainConfig.model_validate(given), seed).summary


def feedback(seeds: range, updates: int) -> dict[str | None, float]:
    """Print and return the training loss after so many updates, mean over seeds, by codec."""
    found = {}
    print(f"Training loss after {updates} updates of {WORKERS} workers, mean of {len(seeds)}")
    for codec in (None, "topk(0.001)", "topk(0.001, feedback=false)"):
        runs = [run(codec, seed, updates=updates, **LEARNING) for seed in seeds]
        found[codec] = fmean(run.final_loss for run in runs)
        smaller = runs[0].compression.ratio if codec else 1
        print(f"  {codec or 'as it is':28} {found[codec]:.4f}   messages {smaller:,.0f} times less")
    return found


def by_bandwidth(bandwidths: tuple[str, ...]) -> dict[tuple[str | None, str], float]:
    """Print and return the virtual seconds to the target, by codec and bandwidth.

    What synchronous workers compute depends on no bandwidth: so each codec is trained once, and the
    time of its updates is found without computing.
    """
    found = {}
    print(f"Virtual time to {TARGET}")
    print(f"  {'':18} updates " + " ".join(f"{bandwidth:>12}" for bandwidth in bandwidths))
    for codec in CODECS:
        updates = run(codec, until=TARGET, updates=3000, **LEARNING).reached_updates
        assert updates is not None, f"{codec} has not reached {TARGET}"
        for bandwidth in bandwidths:
            timed = run(codec, updates=updates, bandwidth=bandwidth, timing_only=True)
            found[codec, bandwidth] = timed.virtual_time
        times = " ".join(f"{format_duration(found[codec, b]):>12}" for b in bandwidths)
        print(f"  {codec or 'as it is':18} {updates:7} {times}")
    return found


def main(arguments: list[str]) -> int:
    is_quick = "--quick" in arguments
    losses = feedback(range(1 if is_quick else 3), 400 if is_quick else 800)
    bandwidths = BANDWIDTHS[::4] if is_quick else BANDWIDTHS
    times = by_bandwidth(bandwidths)
    slow, fast = bandwidths[0], bandwidths[-1]
    plain, kept, forgotten = losses.values()
    coded = [codec for codec in CODECS if codec is not None]
    gain = {codec: times[None, slow] / times[codec, slow] for codec in coded}
    change = {codec: times[codec, fast] / times[None, fast] - 1 for codec in coded}
    checks = {
        f"with error feedback top-k loses nothing: {kept:.4f} against {plain:.4f}": (
            kept <= 1.25 * plain
        ),
        f"without, {forgotten / plain:.1f} times the loss": forgotten > 3 * plain,
        f"at {slow} every codec is sooner there, from {min(gain.values()):.1f} to "
        f"{max(gain.values()):.1f} times": min(gain.values()) > 1.5,
        f"at {fast} none gains more than 5 %: {min(change.values()):+.1%} at best": (
            min(change.values()) > -0.05
        ),
    }
    for text, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'}  {text}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

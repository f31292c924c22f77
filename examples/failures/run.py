"""Asynchronous and synchronous SGD where workers fail, and where some are slow for a while.

Eight workers learn to read digits, until 93 % of the test set is right. The same failures, by the
seed, strike each way to go on: asynchronous SGD, whose workers leave and rejoin by themselves, and
synchronous SGD that restarts from a checkpoint (as a communicator that lost a rank makes it do),
waits for the worker, or does without it until it is back.

It prints a table and its checks, and ends with 1 if one of them fails.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from paracosm.training import TrainConfig, TrainingResult, train

COMMON: Mapping[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "workers": 8,
    "batch": 16,
    "compute": "lognormal(20ms, 0.2)",
    "latency": "500us",
    "bandwidth": "10Gbit/s",
    "until": "accuracy >= 0.93",
    "updates": 20_000,
    "timeline": False,
}
CHECKPOINTS = {"checkpoint_cost": "50ms", "checkpoint_every": "daly"}

WAYS: Mapping[str, Mapping[str, Any]] = {
    "asgd": {"algorithm": "asgd", "lr": 0.05, "evaluate_every": 16},
    "ssgd, restart": {"algorithm": "ssgd", "lr": 0.4, "evaluate_every": 2, "recovery": "restart"},
    "ssgd, rejoin": {"algorithm": "ssgd", "lr": 0.4, "evaluate_every": 2, "recovery": "rejoin"},
    "ssgd, elastic": {"algorithm": "ssgd", "lr": 0.4, "evaluate_every": 2, "recovery": "elastic"},
}
CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "slow": {"fault": "slow(5x, 300ms) every 150ms"},
    "failing": {"mtbf": "4s a worker", "restart_cost": "400ms"},
}


def run(way: str, condition: str, seed: int, **changed: Any) -> TrainingResult:
    """Train one way to go on under one condition."""
    asked = {**COMMON, **WAYS[way], **CONDITIONS[condition], **changed}
    if condition != "failing":
        asked.pop("recovery", None)  # which would have no effect
    elif way == "ssgd, restart":
        asked |= CHECKPOINTS
    return train(TrainConfig.model_validate(asked), seed)


def times_to_target(way: str, condition: str, seeds: Sequence[int]) -> float:
    """Return the virtual seconds to the target, in the median over seeds."""
    found = [run(way, condition, seed).summary.reached_at for seed in seeds]
    return median(float("inf") if each is None else each for each in found)


def checks(times: Mapping[tuple[str, str], float]) -> list[tuple[str, bool]]:
    """Return what should hold of the times by way and condition, and whether it does."""

    def longer(way: str, condition: str) -> float:
        return times[way, condition] / times[way, "nothing"]

    ssgd = [way for way in WAYS if way.startswith("ssgd")]
    slow = [longer(way, "slow") for way in (ssgd[0], "asgd")]
    asgd, elastic, rejoin, restart = (longer(way, "failing") for way in ("asgd", *reversed(ssgd)))
    held_up = "a slow worker holds up all of a synchronous job, itself alone in an asynchronous one"
    cheapest = "failures cost more where workers wait (rejoin) than where none does (asgd, elastic)"
    return [
        ("every way reaches the target", all(time < float("inf") for time in times.values())),
        (f"{held_up}: {slow[0]:.1f} and {slow[1]:.1f} times as long", slow[0] > 1.5 * slow[1]),
        (
            f"{cheapest}: {rejoin:.2f} against {asgd:.2f} and {elastic:.2f} times as long",
            max(asgd, elastic) < rejoin,
        ),
        (f"and most with restarts: {restart:.2f} times as long", rejoin < restart),
    ]


def main(seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> int:
    """Print the table and the checks; return 1 if one of them does not hold."""
    times = {
        (way, condition): times_to_target(way, condition, seeds)
        for way in WAYS
        for condition in CONDITIONS
    }
    print("virtual seconds until 93 % of the test set is right, median of", len(seeds), "seeds")
    print(f"{'':16}" + "".join(f"{condition:>10}" for condition in CONDITIONS))
    for way in WAYS:
        print(f"{way:16}" + "".join(f"{times[way, each]:10.2f}" for each in CONDITIONS))
    found = checks(times)
    for text, holds in found:
        print("holds:" if holds else "FAILS:", text)
    return 0 if all(holds for _, holds in found) else 1


if __name__ == "__main__":
    sys.exit(main())

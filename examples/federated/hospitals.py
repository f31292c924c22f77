"""Federated learning on data of one's own: hospitals that share a model, and no patient.

    python examples/federated/hospitals.py [--seeds 2]

Twelve hospitals have cells of 569 breast tumours, measured under a microscope (Wolberg, Street,
Mangasarian; scikit-learn ships them). They differ in size, in how many of their tumours are
malignant, and in the speed of their computers. `load` returns the data of each, made when a round
draws it. Four hospitals take part at a time. Where each makes 20 local steps, all wait for the
slowest; where each makes as many as fit into 2 s, nobody waits, and slow hospitals send what they
have: FedProx's partial work (Li et al., "Federated Optimization in Heterogeneous Networks", 2020,
section 5.2). Prints how well hospitals are served, and whether the claims hold; exits with 1 where
one does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
from torch import nn

from paracosm.results import TrainingSummary
from paracosm.training import TrainConfig, train

HOSPITALS = 12


@cache
def tumours() -> tuple[np.ndarray, np.ndarray]:
    """Return 30 standardised measures of each tumour, and whether it is benign (1)."""
    package = find_spec("sklearn")  # to import it would take a second
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "breast_cancer.csv"
    rows = np.loadtxt(file, delimiter=",", skiprows=1)
    measures, labels = rows[:, :-1], rows[:, -1].astype(int)
    return (measures - measures.mean(0)) / measures.std(0), labels


class Hospitals:
    """What each hospital has: (train_x, train_y, test_x, test_y)."""

    classes = 2

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        _, labels = tumours()
        sizes, shares = rng.lognormal(0, 0.7, count), rng.beta(2, 2, count)
        owner = np.empty(len(labels), int)
        for label, weights in enumerate((sizes * shares, sizes * (1 - shares))):
            cases = np.flatnonzero(labels == label)
            owner[cases] = rng.choice(count, len(cases), p=weights / weights.sum())
        self._cases = [np.flatnonzero(owner == hospital) for hospital in range(count)]

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, hospital: int) -> tuple[np.ndarray, ...]:
        measures, labels = tumours()
        cases = self._cases[hospital]
        test, training = cases[::4], np.delete(cases, np.s_[::4])
        return measures[training], labels[training], measures[test], labels[test]


def load(clients: int) -> Hospitals:
    """Return the data of so many hospitals: `paracosm train --data hospitals.py:load`."""
    return Hospitals(clients)


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return logistic regression, which begins at zero."""
    layer = nn.Linear(shape[0], classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


TARGET = 0.1  # training loss

ALGORITHMS = {
    "20 steps each": "fedprox(steps=20, mu=0.01)",
    "what fits into 2 s": "fedprox(steps=2s, mu=0.01)",
}


def run(algorithm: str, seed: int, rounds: int = 150) -> TrainingSummary:
    """Train until the target."""
    arguments = {
        "algorithm": algorithm,
        "data": f"{__file__}:load",
        "model": f"{__file__}:logistic",
        "clients": HOSPITALS,
        "workers": 4,
        "client_speed": "lognormal(1, 1)",
        "batch": 10,
        "lr": 0.01,
        "compute": "lognormal(100ms, 0.2)",
        "updates": rounds,
        "until": f"loss <= {TARGET}",
        "evaluate_every": 1,
    }
    return train(TrainConfig.model_validate(arguments), seed).summary


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args(arguments)

    times: dict[str, list[float]] = {}
    worst: list[float] = []
    print(f"{'':20}{'seed':>5}{'s':>8}{'rounds':>8}{'accuracy':>10}{'worst':>8}{'fairness':>10}")
    for name, algorithm in ALGORITHMS.items():
        for seed in range(given.seeds):
            found = run(algorithm, seed)
            assert found.by_client is not None
            accuracy = found.by_client.accuracy
            assert accuracy is not None
            reached = float("inf") if found.reached_at is None else found.reached_at
            times.setdefault(name, []).append(reached)
            worst.append(accuracy.worst_tenth)
            print(
                f"{name:20}{seed:>5}{reached:>8.1f}{found.updates:>8}{accuracy.mean:>10.1%}"
                f"{accuracy.worst_tenth:>8.1%}{accuracy.fairness:>10.4f}"
            )
    ratio = median(times["20 steps each"]) / median(times["what fits into 2 s"])
    claims = {
        f"every run reaches a loss of {TARGET}": max(map(max, times.values())) < float("inf"),
        f"with what fits into a time in at most two thirds of it ({ratio:.1f} times)": ratio >= 1.5,
        "and the model is right on 75 % of the worst tenth of hospitals": min(worst) >= 0.75,
    }
    for claim, holds in claims.items():
        print(f"{'yes' if holds else 'NO '}  {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""How well a model does for each client, and how even that is."""

from collections.abc import Sequence
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Floats, Ints
from paracosm.results import ClientQuality, Spread

MOST_MEASURED = 1_000  # clients, evenly spread by number
_LEAST_MEASURED = 20
_EVALUATIONS = 10  # as many examples as this many evaluations have

Kind = Literal["test", "training"]


class ClientScore(NamedTuple):
    """What a model does on one client's own examples."""

    client: int
    loss: float  # the mean
    accuracy: float | None  # None where targets are no labels


def measured(clients: int, mean_examples: float, examples: int) -> Ints:
    """Return the clients to evaluate on what each has: all, or if these are too many some, evenly
    spread by number.

    Args:
        clients: how many there are.
        mean_examples: that one of them has.
        examples: of an evaluation.
    """
    affordable = max(_LEAST_MEASURED, int(_EVALUATIONS * examples / mean_examples))
    most = min(clients, MOST_MEASURED, affordable)
    places: Ints = np.linspace(0, clients - 1, most).round().astype(np.int64)
    return places


def quality_of(scores: Sequence[ClientScore], clients: int, kind: Kind) -> ClientQuality:
    """Return how well the clients that were measured are served.

    Mean, standard deviation and the means of the worst and the best tenth are the figures of Li,
    Sanjabi, Beirami, Smith, "Fair Resource Allocation in Federated Learning", 2020, table 1.
    """
    accuracies = [score.accuracy for score in scores if score.accuracy is not None]
    losses = np.array([score.loss for score in scores])
    return ClientQuality(
        examples=kind,
        measured=len(scores),
        clients=clients,
        loss=_spread(losses, is_best_high=False),
        accuracy=_spread(np.array(accuracies), is_best_high=True) if accuracies else None,
    )


def fairness(shares: npt.NDArray[Any]) -> float | None:
    """Return Jain's index (sum x)^2 / (n sum x^2): 1 where all have the same, 1/n where one has all
    (Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
    Allocation in Shared Computer Systems", 1984); None where nobody has any.
    """
    squares = float(np.square(shares, dtype=np.float64).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else None


def _spread(values: Floats, is_best_high: bool) -> Spread:
    ordered = np.sort(values)
    tenth = ceil(len(values) / 10)
    low, high = float(ordered[:tenth].mean()), float(ordered[-tenth:].mean())
    return Spread(
        mean=float(values.mean()),
        deviation=float(values.std()),
        worst_tenth=low if is_best_high else high,
        best_tenth=high if is_best_high else low,
        fairness=fairness(values),
    )

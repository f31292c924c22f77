"""The seven-parameter formula of Pollux (Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for
Goodput-Optimized Deep Learning", OSDI 2021, section 3.2), a baseline beside our own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from scaling.runs import Runs

__all__ = ["PolluxFormula", "fit_pollux"]

Floats = npt.NDArray[np.float64]

LEAST = 1e-8  # seconds; keeps logarithms and quotients finite


@dataclass(frozen=True)
class PolluxFormula:
    """T = (T_grad^gamma + T_sync^gamma)^(1/gamma), equations 9 to 11 of the paper.

    Attributes:
        gradient, per_example: T_grad = gradient + per_example x batch, seconds.
        network, network_more: T_sync on several nodes: seconds, and for each replica beyond two.
        node, node_more: the same on one node.
        gamma: 1, no overlap, to 10, nearly all of it.
    """

    gradient: float
    per_example: float
    network: float
    network_more: float
    node: float
    node_more: float
    gamma: float

    def predict(
        self, nodes: npt.ArrayLike, replicas: npt.ArrayLike, batch: npt.ArrayLike
    ) -> Floats:
        """Return seconds of a step; arrays are taken together."""
        n, p, examples = (np.asarray(each, dtype=np.float64) for each in (nodes, replicas, batch))
        compute, step = _times(np.array(tuple(vars(self).values())), n, p, examples)
        return np.broadcast_to(step, np.broadcast_shapes(step.shape, compute.shape))


def fit_pollux(runs: Runs) -> PolluxFormula:
    """Fit the formula as Pollux does: the logarithmic error of steps and of compute times, with its
    penalties on gamma and on a cost that grows with the replicas, by L-BFGS-B from its start.

    Raises:
        InputError: a run does not say what of its step is exposed.
    """
    from scipy.optimize import minimize

    if bool(np.isnan(runs.exposed).any()):
        raise InputError("the formula of Pollux is fitted to compute times: give sync_time")
    n, p = runs.nodes.astype(np.float64), runs.replicas.astype(np.float64)
    computed = runs.step - runs.exposed

    def objective(values: Floats) -> float:
        compute, step = _times(values, n, p, runs.batch)
        return float(
            _root_mean_square(np.log(step / runs.step))
            + _root_mean_square(np.log(compute / computed))
            + 1e-3 * (values[6] - 1) ** 2
            + 1e-2 * ((values[3] / values[2]) ** 2 + (values[5] / values[4]) ** 2)
        )

    start = np.array([1e-1, 1e-2] * 3 + [1.0 + 1e-3])
    bounds = [(LEAST, None)] * 6 + [(1.0, 10.0)]
    found = minimize(objective, start, bounds=bounds, method="L-BFGS-B")
    return PolluxFormula(*map(float, found.x))


def _times(values: Floats, nodes: Floats, replicas: Floats, batch: Floats) -> tuple[Floats, Floats]:
    """Return seconds of T_grad and of the step."""
    gradient, per_example, network, network_more, node, node_more, gamma = values
    compute = gradient + per_example * batch
    beyond = np.maximum(replicas - 2, LEAST)
    across, within = network + network_more * beyond, node + node_more * beyond
    waiting = np.select([nodes > 1, replicas > 1], [across, within], LEAST)
    return compute, (compute**gamma + waiting**gamma) ** (1 / gamma)


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))

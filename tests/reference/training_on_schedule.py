"""Training over a schedule, as plainly as it can be said: every version of every tensor is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn

Row = tuple[int, int, int, int, int, int]  # time, worker, step, tensor, version, read


def train_plainly(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    batches: Callable[[int, int], np.ndarray],  # of a worker and a step: indices of examples
    reads: Sequence[tuple[int, int, int, int, int]],  # time, worker, step, tensor, version
    updates: Sequence[Row],  # in order; those of one version of a tensor together
    tensors: Sequence[str],
    lr: float,
    weight: Callable[[int], float] = lambda staleness: 1.0,
) -> tuple[dict[tuple[int, int], float], dict[str, Tensor]]:
    """Return the minibatch loss of each (worker, step) that updates, and the last tensors.

    An update subtracts lr * mean(weights) * (weighted mean of gradients), as in the papers that
    scale gradients by their staleness.
    """
    parameters = dict(module.named_parameters())
    versions = [[parameters[name].detach().clone()] for name in tensors]
    read = {(worker, step, tensor): version for _, worker, step, tensor, version in reads}
    losses: dict[tuple[int, int], float] = {}
    gradients: dict[tuple[int, int], list[Tensor]] = {}
    for (tensor, version), group in groupby(updates, key=lambda row: row[3:5]):
        assert version == len(versions[tensor])
        weights, terms = [], []
        for _, worker, step, _, _, stale in group:
            if (worker, step) not in gradients:
                for number, name in enumerate(tensors):
                    at = read.get((worker, step, number), 0)
                    parameters[name].data = versions[number][at].clone()
                chosen = torch.from_numpy(batches(worker, step))
                value = loss(module(x[chosen]), y[chosen])
                found = torch.autograd.grad(value, [parameters[name] for name in tensors])
                gradients[worker, step], losses[worker, step] = list(found), value.item()
            weights.append(weight(version - 1 - stale))
            terms.append(gradients[worker, step][tensor])
        total = sum(w * g for w, g in zip(weights, terms, strict=True))
        mean = total / sum(weights)
        step_size = lr * sum(weights) / len(weights)
        versions[tensor].append(versions[tensor][-1] - step_size * mean)
    return losses, {name: made[-1] for name, made in zip(tensors, versions, strict=True)}

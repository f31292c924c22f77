"""Rounds of local training as plain loops over clients and steps, after the papers' algorithms.

Every client takes part in every round. Parameters are one list of tensors; nothing is batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

Parameters = list[Tensor]


@dataclass
class Task:
    """What clients learn from: a model, data, and each client's minibatches in their order."""

    module: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    x: Tensor
    y: Tensor
    batches: Sequence[Callable[[], np.ndarray]]  # by client, the next one
    steps: Sequence[int]  # by client, in one round
    lr: float

    def initial(self) -> Parameters:
        return [tensor.detach().clone() for tensor in self.module.parameters()]

    def gradient(self, client: int, at: Parameters) -> Parameters:
        """Return the gradient of the client's next minibatch."""
        for tensor, values in zip(self.module.parameters(), at, strict=True):
            tensor.data = values.clone()
        chosen = torch.from_numpy(self.batches[client]())
        value = self.loss(self.module(self.x[chosen]), self.y[chosen])
        return list(torch.autograd.grad(value, list(self.module.parameters())))

    def local(self, client: int, start: Parameters, mu: float = 0.0) -> Parameters:
        """ClientUpdate of McMahan et al.; with mu, steps on the proximal objective of Li et al."""
        w = [t.clone() for t in start]
        for _ in range(self.steps[client]):
            gradient = self.gradient(client, w)
            w = [
                a - self.lr * (g + mu * (a - s)) for a, g, s in zip(w, gradient, start, strict=True)
            ]
        return w


def fedavg(task: Task, rounds: int, sizes: Sequence[int], mu: float = 0.0) -> Parameters:
    """McMahan et al. 2017, algorithm 1; with mu, FedProx."""
    w = task.initial()
    for _ in range(rounds):
        made = [task.local(client, w, mu) for client in range(len(sizes))]
        w = [
            sum(n * t for n, t in zip(sizes, same, strict=True)) / sum(sizes)
            for same in zip(*made, strict=True)
        ]
    return w


def fedavgm(
    task: Task, rounds: int, sizes: Sequence[int], momentum: float, server_lr: float
) -> Parameters:
    """Hsu, Qi, Brown 2019: v <- beta v + Dw, w <- w - eta v."""
    w = task.initial()
    v = [torch.zeros_like(t) for t in w]
    for _ in range(rounds):
        made = [task.local(client, w) for client in range(len(sizes))]
        for place, same in enumerate(zip(*made, strict=True)):
            change = sum(n / sum(sizes) * (w[place] - t) for n, t in zip(sizes, same, strict=True))
            v[place] = momentum * v[place] + change
        w = [t - server_lr * b for t, b in zip(w, v, strict=True)]
    return w


def adaptive(
    task: Task,
    rounds: int,
    clients: int,
    kind: str,
    server_lr: float,
    beta1: float,
    beta2: float,
    tau: float,
) -> Parameters:
    """Reddi et al. 2021, algorithm 2: "adam" or "yogi"."""
    x = task.initial()
    m = [torch.zeros_like(t) for t in x]
    v = [torch.full_like(t, tau**2) for t in x]
    for _ in range(rounds):
        made = [task.local(client, x) for client in range(clients)]
        for place, same in enumerate(zip(*made, strict=True)):
            delta = sum(t - x[place] for t in same) / clients
            m[place] = beta1 * m[place] + (1 - beta1) * delta
            if kind == "adam":
                v[place] = beta2 * v[place] + (1 - beta2) * delta**2
            else:
                v[place] = v[place] - (1 - beta2) * delta**2 * torch.sign(v[place] - delta**2)
        x = [a + server_lr * b / (torch.sqrt(c) + tau) for a, b, c in zip(x, m, v, strict=True)]
    return x


def scaffold(task: Task, rounds: int, clients: int, server_lr: float) -> Parameters:
    """Karimireddy et al. 2020, algorithm 1 with option II."""
    x = task.initial()
    c = [torch.zeros_like(t) for t in x]
    own = [[torch.zeros_like(t) for t in x] for _ in range(clients)]
    for _ in range(rounds):
        moves, drifts = [], []
        for i in range(clients):
            y = [t.clone() for t in x]
            for _ in range(task.steps[i]):
                g = task.gradient(i, y)
                y = [
                    a - task.lr * (b - ci + cc)
                    for a, b, ci, cc in zip(y, g, own[i], c, strict=True)
                ]
            scale = 1 / (task.steps[i] * task.lr)
            plus = [ci - cc + scale * (a - b) for ci, cc, a, b in zip(own[i], c, x, y, strict=True)]
            moves.append([b - a for a, b in zip(x, y, strict=True)])
            drifts.append([new - old for new, old in zip(plus, own[i], strict=True)])
            own[i] = plus
        x = [a + server_lr * sum(same) / clients for a, *same in zip(x, *moves, strict=True)]
        c = [a + sum(same) / clients for a, *same in zip(c, *drifts, strict=True)]
    return x


def post_local_sgd(task: Task, rounds: int, workers: int, after: int, steps: int) -> Parameters:
    """Lin et al. 2020: one step before each of the first `after` means, `steps` from then on."""
    w = task.initial()
    for number in range(rounds):
        task.steps = [1 if number < after else steps] * workers
        made = [task.local(worker, w) for worker in range(workers)]
        w = [sum(same) / workers for same in zip(*made, strict=True)]
    return w

"""Rounds of local training as plain loops over clients and steps, after the papers' algorithms.

Every client takes part in every round. Parameters are one list of tensors; nothing is batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt

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
    losses: list[float] = field(default_factory=list)  # of all gradients, in their order

    def initial(self) -> Parameters:
        return [tensor.detach().clone() for tensor in self.module.parameters()]

    def gradient(self, client: int, at: Parameters) -> Parameters:
        """Return the gradient of the client's next minibatch."""
        for tensor, values in zip(self.module.parameters(), at, strict=True):
            tensor.data = values.clone()
        chosen = torch.from_numpy(self.batches[client]())
        value = self.loss(self.module(self.x[chosen]), self.y[chosen])
        self.losses.append(value.item())
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


def fednova(task: Task, rounds: int, sizes: Sequence[int]) -> Parameters:
    """Wang et al. 2020, equation 4, w = p: x - tau_eff sum_i p_i eta d_i, d_i mean gradients."""
    x = task.initial()
    p = [n / sum(sizes) for n in sizes]
    for _ in range(rounds):
        d: list[Parameters] = []
        for i in range(len(sizes)):
            y, total = [t.clone() for t in x], [torch.zeros_like(t) for t in x]
            for _ in range(task.steps[i]):
                g = task.gradient(i, y)
                total = [a + b for a, b in zip(total, g, strict=True)]
                y = [a - task.lr * b for a, b in zip(y, g, strict=True)]
            d.append([t / task.steps[i] for t in total])
        tau_eff = sum(pi * tau for pi, tau in zip(p, task.steps, strict=True))
        x = [
            t - tau_eff * task.lr * sum(pi * di for pi, di in zip(p, same, strict=True))
            for t, *same in zip(x, *d, strict=True)
        ]
    return x


def feddyn(task: Task, rounds: int, clients: int, alpha: float) -> Parameters:
    """Acar et al. 2021, algorithm 1, with steps of gradient descent on the clients' objectives."""
    theta = task.initial()
    h = [torch.zeros_like(t) for t in theta]
    gradients = [[torch.zeros_like(t) for t in theta] for _ in range(clients)]
    for _ in range(rounds):
        made = []
        for k in range(clients):
            y = [t.clone() for t in theta]
            for _ in range(task.steps[k]):
                g = task.gradient(k, y)
                y = [
                    a - task.lr * (b - own + alpha * (a - s))
                    for a, b, own, s in zip(y, g, gradients[k], theta, strict=True)
                ]
            gradients[k] = [
                own - alpha * (a - s) for own, a, s in zip(gradients[k], y, theta, strict=True)
            ]
            made.append(y)
        h = [
            c - alpha * sum(a - s for a in same) / clients
            for c, s, *same in zip(h, theta, *made, strict=True)
        ]
        theta = [sum(same) / clients - c / alpha for c, *same in zip(h, *made, strict=True)]
    return theta


def local_adam(
    task: Task, rounds: int, workers: int, beta1: float, beta2: float, epsilon: float
) -> Parameters:
    """Cheng, Glasgow 2025, section 3: parameters and both moments are averaged."""
    x = task.initial()
    u, v = [torch.zeros_like(t) for t in x], [torch.zeros_like(t) for t in x]
    made = 0
    for _ in range(rounds):
        ends: list[list[Parameters]] = []
        for worker in range(workers):
            y, m, s = x, u, v
            for step in range(made + 1, made + 1 + task.steps[worker]):
                g = task.gradient(worker, y)
                m = [beta1 * a + (1 - beta1) * b for a, b in zip(m, g, strict=True)]
                s = [beta2 * a + (1 - beta2) * b * b for a, b in zip(s, g, strict=True)]
                y = [
                    p - task.lr * a / (1 - beta1**step) / ((b / (1 - beta2**step)).sqrt() + epsilon)
                    for p, a, b in zip(y, m, s, strict=True)
                ]
            ends.append([y, m, s])
        made += task.steps[0]
        x, u, v = (
            [sum(same) / workers for same in zip(*each, strict=True)]
            for each in zip(*ends, strict=True)
        )
    return x


def adacomm(
    task: Task, means: int, workers: int, steps: int, step_time: float, interval: float
) -> tuple[Parameters, list[int]]:
    """Wang, Joshi 2019, with a constant learning rate; also the steps before each mean."""
    x, tau, now, looked, taken = task.initial(), steps, 0.0, 0, []
    first = 0.0
    for mean in range(means):
        task.steps, task.losses = [tau] * workers, []
        made = [task.local(worker, x) for worker in range(workers)]
        x = [sum(same) / workers for same in zip(*made, strict=True)]
        taken.append(tau)
        now += tau * step_time
        loss = sum(task.losses) / len(task.losses)
        if mean == 0:
            first = loss
        if int(now / interval) > looked:
            looked = int(now / interval)
            wanted = ceil(sqrt(loss / first) * steps)
            tau = wanted if wanted < tau else ceil(tau / 2)
    return x, taken


def one_bit_adam(
    task: Task, updates: int, workers: int, freeze: int, beta1: float, beta2: float, epsilon: float
) -> Parameters:
    """Tang et al. 2021, algorithm 1, where workers compress and nobody compresses the mean."""
    x = task.initial()
    m, v = [torch.zeros_like(t) for t in x], [torch.zeros_like(t) for t in x]
    errors = [[torch.zeros_like(t) for t in x] for _ in range(workers)]
    for update in range(updates):
        gradients = [task.gradient(worker, x) for worker in range(workers)]
        if update < freeze:
            g = [sum(same) / workers for same in zip(*gradients, strict=True)]
            m = [beta1 * a + (1 - beta1) * b for a, b in zip(m, g, strict=True)]
            v = [beta2 * a + (1 - beta2) * b * b for a, b in zip(v, g, strict=True)]
        else:
            sent = []
            for worker, g in enumerate(gradients):
                own = [
                    beta1 * a + (1 - beta1) * b + e
                    for a, b, e in zip(m, g, errors[worker], strict=True)
                ]
                one_bit = [t.abs().mean() * torch.where(t < 0, -1.0, 1.0) for t in own]
                errors[worker] = [a - b for a, b in zip(own, one_bit, strict=True)]
                sent.append(one_bit)
            m = [sum(same) / workers for same in zip(*sent, strict=True)]
        x = [p - task.lr * a / (b.sqrt() + epsilon) for p, a, b in zip(x, m, v, strict=True)]
    return x


def d_psgd(task: Task, rounds: int, weights: np.ndarray) -> Parameters:
    """Lian et al. 2017, algorithm 1; the mean of all workers."""
    x = [task.initial() for _ in weights]
    for _ in range(rounds):
        g = [task.gradient(i, x[i]) for i in range(len(x))]
        half = [mixed(row, x) for row in weights.tolist()]
        x = [
            [a - task.lr * b for a, b in zip(mine, own, strict=True)]
            for mine, own in zip(half, g, strict=True)
        ]
    return mixed([1 / len(x)] * len(x), x)


def sgp(task: Task, rounds: int, shares: Callable[[int], np.ndarray]) -> Parameters:
    """Assran et al. 2019, algorithm 1; the mean of the z_i as the last gradients have been added.

    `shares` has by step the matrix P whose column j says what worker j sends to whom.
    """
    workers = len(shares(0))
    x, w = [task.initial() for _ in range(workers)], [1.0] * workers
    for k in range(rounds):
        z = [[t / wi for t in xi] for xi, wi in zip(x, w, strict=True)]
        g = [task.gradient(i, z[i]) for i in range(workers)]
        x = [
            [a - task.lr * b for a, b in zip(mine, own, strict=True)]
            for mine, own in zip(x, g, strict=True)
        ]
        if k < rounds - 1:
            matrix = shares(k).tolist()
            x, w = (
                [mixed(row, x) for row in matrix],
                [sum(p * wj for p, wj in zip(row, w, strict=True)) for row in matrix],
            )
    return mixed([1 / wi / workers for wi in w], x)


def mixed(weights: Sequence[float], vectors: Sequence[Parameters]) -> Parameters:
    """Return the weighted sum of several lists of tensors."""
    return [
        sum(a * t for a, t in zip(weights, same, strict=True))
        for same in zip(*vectors, strict=True)
    ]

"""DiLoCo and its relatives as their papers write them: replicas of a module, one step at a time.

Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
algorithm 1; Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, algorithm 2;
Liu et al., "Asynchronous Local-SGD Training for Language Modeling", 2024, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Batch = Callable[[int, int], tuple[Tensor, Tensor]]
"""Of a worker and the number of its step, from 0: inputs and targets."""
Inner = Callable[[nn.Module], torch.optim.Optimizer]
Loss = Callable[[Tensor, Tensor], Tensor]


class Replica:
    """A worker's copy of the module, with an inner optimizer of its own."""

    def __init__(self, module: nn.Module, worker: int, batch: Batch, inner: Inner, loss: Loss):
        self.module = deepcopy(module)
        self.losses: list[float] = []
        self._batch = lambda: batch(worker, len(self.losses))
        self._optimizer = inner(self.module)
        self._loss = loss

    def step(self) -> None:
        x, y = self._batch()
        loss = self._loss(self.module(x), y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.losses.append(loss.item())

    def values(self, names: Sequence[str]) -> list[Tensor]:
        parameters = dict(self.module.named_parameters())
        return [parameters[name].detach().clone() for name in names]

    def set(self, names: Sequence[str], values: Sequence[Tensor]) -> None:
        parameters = dict(self.module.named_parameters())
        for name, value in zip(names, values, strict=True):
            parameters[name].data = value.clone()


class Outer:
    """Some of the shared parameters, and Nesterov's momentum (as torch.optim.SGD has it)."""

    def __init__(self, module: nn.Module, names: Sequence[str], lr: float, momentum: float):
        parameters = dict(module.named_parameters())
        self.names = names
        self.values = [parameters[name].detach().clone() for name in names]
        self._velocity = [torch.zeros_like(value) for value in self.values]
        self._lr, self._momentum = lr, momentum

    def step(self, changes: Sequence[Sequence[Tensor]]) -> None:
        """Step against the mean of workers' changes."""
        for index, ofs in enumerate(zip(*changes, strict=True)):
            mean = torch.stack(ofs).mean(0)
            velocity = self._momentum * self._velocity[index] + mean
            self._velocity[index] = velocity
            self.values[index] = self.values[index] - self._lr * (mean + self._momentum * velocity)

    def changes(self, replica: Replica) -> list[Tensor]:
        own = replica.values(self.names)
        return [shared - mine for shared, mine in zip(self.values, own, strict=True)]


@dataclass(frozen=True)
class Setting:
    """What is trained, by how many, for how long."""

    module: nn.Module
    loss: Loss
    workers: int
    batch: Batch
    inner: Inner
    rounds: int
    steps: int
    lr: float  # of the outer step
    momentum: float

    def replicas(self) -> list[Replica]:
        common = (self.batch, self.inner, self.loss)
        return [Replica(self.module, worker, *common) for worker in range(self.workers)]

    def outer(self, names: Sequence[str]) -> Outer:
        return Outer(self.module, names, self.lr, self.momentum)


def diloco(setting: Setting) -> dict[str, Tensor]:
    """Return the shared parameters after all rounds."""
    names = [name for name, _ in setting.module.named_parameters()]
    outer, replicas = setting.outer(names), setting.replicas()
    for _ in range(setting.rounds):
        for replica in replicas:
            replica.set(names, outer.values)
            for _ in range(setting.steps):
                replica.step()
        outer.step([outer.changes(replica) for replica in replicas])
    return dict(zip(names, outer.values, strict=True))


def streaming_diloco(
    setting: Setting,
    fragments: Sequence[Sequence[str]],  # names of tensors
    offsets: Sequence[int],  # steps at which a fragment is sent, modulo `steps`
    overlap: int,
    mixing: float,
) -> dict[str, Tensor]:
    """Return the shared parameters once every fragment has been updated in all rounds."""
    outers = [setting.outer(names) for names in fragments]
    replicas, steps = setting.replicas(), setting.steps
    sent: dict[int, list[list[Tensor]]] = {}
    updates = [0] * len(outers)
    t = 0
    while min(updates) < setting.rounds:
        t += 1
        for replica in replicas:
            replica.step()
        for p, outer in enumerate(outers):
            if t >= 1 and (t - offsets[p]) % steps == 0:
                sent[p] = [outer.changes(replica) for replica in replicas]
        for p, outer in enumerate(outers):
            if p in sent and (t - offsets[p] - overlap) % steps == 0:
                outer.step(sent.pop(p))
                updates[p] += 1
                for replica in replicas:
                    own = replica.values(outer.names)
                    mixed = [
                        mixing * mine + (1 - mixing) * shared
                        for mine, shared in zip(own, outer.values, strict=True)
                    ]
                    replica.set(outer.names, mixed)
    return {
        name: value
        for outer in outers
        for name, value in zip(outer.names, outer.values, strict=True)
    }


def delayed_nesterov(
    module: nn.Module,
    loss: Loss,
    batch: Batch,
    inner: Inner,
    arrivals: Sequence[int],  # whose change comes, in order; that worker is answered at once
    steps: int,
    buffer: int,
    lr: float,
    momentum: float,
    activation: float,
) -> dict[str, Tensor]:
    """Return the server's parameters after these arrivals."""
    names = [name for name, _ in module.named_parameters()]
    workers = range(max(arrivals) + 1)
    replicas = [Replica(module, worker, batch, inner, loss) for worker in workers]
    theta = [parameter.detach().clone() for _, parameter in module.named_parameters()]
    read = [theta] * len(replicas)
    m = [torch.zeros_like(value) for value in theta]
    delta = [torch.zeros_like(value) for value in theta]
    c, n = activation, buffer
    for t, worker in enumerate(arrivals):
        replica = replicas[worker]
        replica.set(names, read[worker])
        for _ in range(steps):
            replica.step()
        own = replica.values(names)
        g = [was - now for was, now in zip(read[worker], own, strict=True)]
        delta = [d + each for d, each in zip(delta, g, strict=True)]
        factor = c
        if (t + 1) % n == 0:
            m = [momentum * old + d / n for old, d in zip(m, delta, strict=True)]
            delta = [torch.zeros_like(value) for value in theta]
            factor = 1 - c * n + c
        theta = [
            value - lr * (factor * momentum * old + each / n)
            for value, old, each in zip(theta, m, g, strict=True)
        ]
        read[worker] = theta
    return dict(zip(names, theta, strict=True))


def streaming_end(
    times: Sequence[Iterator[float]],  # of each worker: seconds of its steps
    seconds: Sequence[float],  # of the all-reduce of each fragment
    rounds: int,
    steps: int,
    offsets: Sequence[int],
    overlap: int,
) -> float:
    """Return when every fragment has been updated `rounds` times."""
    clocks = [0.0] * len(times)
    over: dict[int, float] = {}  # of the fragments under way
    free = 0.0  # when the last all-reduce is over
    updated: list[list[float]] = [[] for _ in seconds]
    t = 0
    while min(map(len, updated)) < rounds:
        t += 1
        clocks = [now + next(each) for now, each in zip(clocks, times, strict=True)]
        for p, length in enumerate(seconds):
            if (t - offsets[p]) % steps == 0:
                free = over[p] = max(free, *clocks) + length
                updated[p].append(free)
        for p in list(over):
            if (t - offsets[p] - overlap) % steps == 0:
                late = over.pop(p)
                clocks = [max(now, late) for now in clocks]
    return max(ends[rounds - 1] for ends in updated)

"""Which rank has which place in a job, and whom it communicates with.

Tensor-parallel ranks stand next to each other, then data-parallel ones, then stages:

    rank = t + tensor x (d + data x p)

    tensor=2, data=2, pipeline=2:    p=0: (0 1) (2 3)    p=1: (4 5) (6 7)
                                     data groups (0 2) (1 3) (4 6) (5 7)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs import Communicators
from paracosm.jobs.strategies.strategy import Strategy

__all__ = ["Layout", "layout_of"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of R ranks.

    Attributes:
        stage: of each rank.
        groups: role to the ranks of each group, one row for each; messages have a role at either
            end, and pairs (sender, receiver).
    """

    stage: Ints
    groups: dict[tuple[str, ...], Ints]

    @property
    def roles(self) -> tuple[str, ...]:
        """All that a communicator is to some rank."""
        return tuple(role for roles in self.groups for role in roles)

    def communicators(self) -> Communicators:
        """Return all groups as communicators, in the order of `groups`."""
        rows = [(len(ranks), ranks.shape[1]) for ranks in self.groups.values()]
        sizes = np.concatenate(
            [np.full(count, each) for count, each in rows] or [np.zeros(0, dtype=np.int64)]
        )
        members = [ranks.reshape(-1) for ranks in self.groups.values()]
        return Communicators(
            offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
            members=np.concatenate(members or [np.zeros(0, dtype=np.int64)]).astype(np.int32),
        )

    def table(self, roles: tuple[str, ...]) -> npt.NDArray[np.int32]:
        """Return the communicator of each rank in each of `roles`; -1 for none."""
        table = np.full((len(self.stage), len(roles)), -1, dtype=np.int32)
        first = 0
        for names, ranks in self.groups.items():
            numbers = np.arange(first, first + len(ranks))
            for place, role in enumerate(names):
                if role in roles:
                    who = ranks if len(names) == 1 else ranks[:, place : place + 1]
                    table[who, roles.index(role)] = numbers[:, None]
            first += len(ranks)
        return table


def layout_of(strategy: Strategy) -> Layout:
    """Return the places of all ranks."""
    pp, dp, tp = strategy.pipeline, strategy.data, strategy.tensor
    ranks = np.arange(pp * dp * tp, dtype=np.int64).reshape(pp, dp, tp)
    groups: dict[tuple[str, ...], Ints] = {}
    if dp > 1:
        groups["data",] = ranks.transpose(0, 2, 1).reshape(-1, dp)
    if tp > 1:
        groups["tensor",] = ranks.reshape(-1, tp)
    if pp > 1:
        following = np.roll(ranks, -1, axis=0)
        kept = pp if strategy.chunks > 1 else pp - 1
        here, there = ranks[:kept].reshape(-1), following[:kept].reshape(-1)
        groups["activations out", "activations in"] = np.column_stack((here, there))
        groups["gradients out", "gradients in"] = np.column_stack((there, here))
    return Layout(np.arange(pp * dp * tp, dtype=np.int64) // (dp * tp), groups)

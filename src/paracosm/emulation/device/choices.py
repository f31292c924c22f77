"""What a router of a mixture of experts chooses: by a rule, since its scores were never computed.

The rule gives indices, not counts: what the script makes of them (bincount, one-hot sums, sorting,
`nonzero` for each expert, split sizes) is then computed, and adds up. Tokens choose experts in
exact proportion to their loads, each expert at most once a token, and neighbouring tokens choose
different ones: systematic sampling with unequal probabilities (Madow 1949).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paracosm.arrays import Floats, Ints
from paracosm.graphs.transformer.share import expert_loads

CHOOSERS: Mapping[str, int] = {
    "aten.topk": 1,
    "aten.sort": 1,
    "aten.max": 1,
    "aten.min": 1,
    "aten.argmax": 0,
    "aten.argmin": 0,
    "aten.argsort": 0,
    "aten.multinomial": 0,
}
"""Ops that choose along a dimension, and which of their results has the indices."""


class Router:
    """Chooses as the routing says; experts of each layer are loaded anew, as `predict` has it."""

    def __init__(self, routing: str, seed: int) -> None:
        self._routing, self._seed = routing, seed
        self._layers: dict[Any, int] = {}

    def choose(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], indices: Tensor
    ) -> Tensor | None:
        """Return the indices that an op chooses; None where it does not choose along a dimension.

        `indices` is what it returns, of which the shape matters.
        """
        source = args[0]
        if not source.dim() or not source.is_floating_point():
            return None
        place = 2 if name in ("aten.topk",) else 1
        dim = kwargs.get("dim", args[place] if len(args) > place else None)
        if name == "aten.multinomial":
            dim = -1
        elif dim is None or isinstance(dim, bool):
            if name in ("aten.topk", "aten.sort", "aten.argsort"):
                dim = -1
            else:
                return None  # the largest of all elements
        dim %= source.dim()
        count = source.shape[dim]
        if not source.numel():
            return None
        rows = source.numel() // count
        chosen = indices.numel() // rows
        loads = self._loads(count)
        if name in ("aten.sort", "aten.argsort"):
            first = spread(loads, rows, 1)
            columns = (first + np.arange(count)) % count  # any prefix of the rows is balanced
        else:
            columns = spread(loads, rows, min(chosen, count))
            if chosen > count:  # drawn with replacement
                columns = np.resize(columns.T, (chosen, rows)).T
        shape = [size for place, size in enumerate(source.shape) if place != dim]
        values = torch.from_numpy(np.ascontiguousarray(columns)).reshape([*shape, chosen])
        return values.movedim(-1, dim).reshape(indices.shape)

    def _loads(self, count: int) -> Floats:
        routing = self._routing
        if "+" in routing and routing.count("+") + 1 != count:
            routing = "uniform"  # a choice among others than the experts whose loads are given
        drawn = routing.startswith(("zipf", "dirichlet"))
        return expert_loads(routing, count, self._seed, self._layer() if drawn else 0)

    def _layer(self) -> int:
        """Return the number of the module that chooses, in which a layer is known again."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module):
                return self._layers.setdefault(id(module), len(self._layers))
            frame = frame.f_back
        return 0


def spread(loads: Floats, rows: int, chosen: int) -> Ints:
    """Return which of the experts each of `rows` tokens chooses, shape (rows, chosen).

    The loads are shares of all choices. Where one would need a token to choose an expert twice, the
    others take over.
    """
    ends = np.cumsum(_whole_loads(loads, rows, chosen))
    step = max(round(rows * (math.sqrt(5) - 1) / 2), 1)  # the golden section: neighbours lie apart
    while math.gcd(step, rows) != 1:
        step += 1
    points = np.arange(rows, dtype=np.int64) * step % rows
    picked = points[:, None] + np.arange(chosen) * rows
    return np.searchsorted(ends, picked, side="right").astype(np.int64)


def _whole_loads(loads: Floats, rows: int, chosen: int) -> Ints:
    """Return how many tokens choose each expert: rows x chosen in sum, and at most `rows` each."""
    total = rows * chosen
    share = loads * total
    full = np.zeros(len(loads), dtype=np.bool_)
    while (over := ~full & (share > rows)).any():
        full |= over
        rest, weights = total - rows * int(full.sum()), np.where(full, 0.0, loads)
        if not weights.sum():
            weights = np.where(full, 0.0, 1.0)
        share = np.where(full, float(rows), rest * weights / max(weights.sum(), 1e-300))
    whole = np.floor(share).astype(np.int64)
    missing = total - int(whole.sum())
    parts = np.where(whole < rows, share - whole, -1.0)
    whole[np.argsort(-parts, kind="stable")[:missing]] += 1
    return whole


def busiest(chunks: Sequence[Tensor]) -> Tensor:
    """Return the chunk of counts with the largest sum.

    That is what every rank sends to the rank that is recorded, which is taken for the one whose
    experts get most, as `predict` takes it.
    """
    return max(chunks, key=lambda chunk: float(chunk.sum()))

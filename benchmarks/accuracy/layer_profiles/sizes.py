"""Sizes of a model's layers, as Sailor publishes them: model, ranks that split a layer, layer:
bytes of its parameters, of what it hands on, and of what it keeps for the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from op_latencies import read_json

from layer_profiles.entries import Content, numbers
from paracosm.errors import InputError

__all__ = ["LayerSizes", "Sizes", "read_sizes"]

Ints = npt.NDArray[np.int64]

COLUMNS = ("params_bytes", "act_output_bytes", "act_mem_bytes")


@dataclass(frozen=True, eq=False)
class LayerSizes:
    """Bytes of the layers of a model on each of the ranks that split them.

    Attributes:
        parameters: of each layer.
        output: that each layer hands on, of one example.
        kept: that each layer keeps from its forward to its backward pass, of one example.
    """

    parameters: Ints
    output: Ints
    kept: Ints

    def __len__(self) -> int:
        return len(self.parameters)


@dataclass(frozen=True)
class Sizes:
    """What a file holds; `layers` finds an entry."""

    content: Mapping[str, Any]
    where: str

    def tensors(self, model: str) -> tuple[int, ...]:
        """Return by how many ranks the layers of a model are split, ascending.

        Raises:
            InputError: there is no such model, or the entry is damaged.
        """
        entry = Content(self.content, self.where).under("model", model)
        try:
            return tuple(sorted(map(int, entry.value)))
        except (TypeError, ValueError):
            raise InputError(f"{entry.where}: is not by numbers of ranks") from None

    def layers(self, model: str, tensor: int) -> LayerSizes:
        """Return the sizes of a model's layers where `tensor` ranks split each.

        Raises:
            InputError: there is no such entry, with what there is; or it is damaged.
        """
        entry = Content(self.content, self.where)
        entry = entry.under("model", model).under("tensor", str(tensor))
        rows = [
            [numbers([layer.under("size", name).value], 1, layer.where)[0] for name in COLUMNS]
            for layer in entry.layers()
        ]
        return LayerSizes(*np.array(rows, dtype=np.int64).T)


def read_sizes(path: Path) -> Sizes:
    """Read a file of sizes (JSON).

    Raises:
        InputError: it cannot be read.
    """
    return Sizes(read_json(path), str(path))

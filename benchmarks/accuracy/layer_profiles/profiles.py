"""Measured times of a model's layers, as Sailor publishes them: model, GPU, micro-batch, ranks that
split a layer, layer: seconds forward, backward, and of the optimizer's step.
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

__all__ = ["LayerTimes", "Profiles", "read_profiles"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """What the layers of a model take on a GPU, with one micro-batch size and degree of splitting.

    Attributes:
        forward, backward: seconds of each layer, on each of the ranks that split it, with the
            communication between them.
        update: seconds of the optimizer's step of all layers.
    """

    forward: Floats
    backward: Floats
    update: float

    def __len__(self) -> int:
        return len(self.forward)


@dataclass(frozen=True)
class Profiles:
    """What a file holds; `times` finds an entry."""

    content: Mapping[str, Any]
    where: str

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(self.content)

    def times(self, model: str, gpu: str, microbatch: int, tensor: int) -> LayerTimes:
        """Return the times of a model's layers.

        Args:
            model, gpu: as the file names them.
            microbatch: examples.
            tensor: ranks that split every layer.

        Raises:
            InputError: there is no such entry, with what there is; or it is damaged.
        """
        entry = Content(self.content, self.where)
        for kind, name in (
            ("model", model),
            ("GPU", gpu),
            ("micro-batch", str(microbatch)),
            ("tensor", str(tensor)),
        ):
            entry = entry.under(kind, name)
        rows = np.array(
            [numbers(layer.value, 3, layer.where) for layer in entry.layers()], dtype=np.float64
        )
        if not (rows[:, 2] == rows[0, 2]).all():
            raise InputError(f"{entry.where}: layers differ in the time of the optimizer's step")
        return LayerTimes(rows[:, 0], rows[:, 1], float(rows[0, 2]))


def read_profiles(path: Path) -> Profiles:
    """Read a file of profiles (JSON).

    Raises:
        InputError: it cannot be read.
    """
    return Profiles(read_json(path), str(path))

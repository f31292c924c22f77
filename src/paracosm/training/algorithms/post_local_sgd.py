"""Synchronous steps at first, local ones later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.training.algorithms.local_sgd import LocalSGD


@dataclass(frozen=True)
class PostLocalSGD(LocalSGD):
    """Local SGD with one step before each of the first `after` means, and `steps` from then on.

    Lin, Stich, Patel, Jaggi, "Don't Use Large Mini-batches, Use Local SGD", 2020, section 3: H = 1
    until t' and H = `steps` afterwards; they switch where the learning rate first falls.
    """

    name: ClassVar[str] = "post-local-sgd"
    after: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after < 1:
            raise InputError(
                f"post-local-sgd: after must be at least 1, got {self.after}: use local-sgd"
            )

    def steps_before(self, mean: int) -> int:
        return 1 if mean < self.after else self.steps

"""Random numbers of the ranks of a job, by occasion: the same whatever the size of the world."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from paracosm.rng import sequence
from paracosm.timing import Distribution
from paracosm.timing.distribution import inside

__all__ = ["Draws"]

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """A source of one uniform number for each rank on each occasion.

    The generator is counter-based (Philox; Salmon et al., "Parallel random numbers: as easy as 1,
    2, 3", 2011), so that an occasion needs no other one to have been drawn, and a rank's number is
    its place in the sequence of the occasion.

    Attributes:
        seed: of the run.
        source: what the numbers are for: two sources share none.
    """

    seed: int
    source: tuple[int, ...]

    def uniform(self, occasion: int, ranks: int) -> Array:
        """Return numbers in (0, 1) for ranks 0 to `ranks` - 1."""
        philox = np.random.Philox(counter=[0, occasion, 0, 0], key=self._key)
        return inside(np.random.Generator(philox).random(ranks))

    def of(self, distribution: Distribution, occasion: int, ranks: Ints) -> Array:
        """Return a draw of `distribution` for each of the `ranks`."""
        return distribution.from_uniform(self.uniform(occasion, int(ranks.max()) + 1)[ranks])

    @cached_property
    def _key(self) -> npt.NDArray[np.uint64]:
        return np.asarray(
            sequence(self.seed, *self.source).generate_state(2, np.uint64), dtype=np.uint64
        )

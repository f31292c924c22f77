"""Everything that a database or an exported file holds, or a part of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import IterationTiming, LinkTiming, OpTiming

__all__ = ["Added", "Timings"]


@dataclass(frozen=True, slots=True)
class Timings:
    """Sets of samples of all three kinds."""

    ops: tuple[OpTiming, ...] = ()
    links: tuple[LinkTiming, ...] = ()
    iterations: tuple[IterationTiming, ...] = ()

    def __len__(self) -> int:
        return len(self.ops) + len(self.links) + len(self.iterations)

    def only(self, environments: Collection[Environment]) -> Timings:
        """Return those of some environments."""
        return Timings(
            tuple(each for each in self.ops if each.environment in environments),
            tuple(each for each in self.links if each.environment in environments),
            tuple(each for each in self.iterations if each.environment in environments),
        )

    def by_environment(self) -> dict[Environment, Timings]:
        """Return the parts, in the order in which their environments appear."""
        found = dict.fromkeys(each.environment for each in self.everyone())
        return {environment: self.only((environment,)) for environment in found}

    def everyone(self) -> Iterator[OpTiming | LinkTiming | IterationTiming]:
        """Go through all of them, kind by kind."""
        yield from self.ops
        yield from self.links
        yield from self.iterations


@dataclass(frozen=True, slots=True)
class Added:
    """How many sets of samples were added, and how many had been there already."""

    new: int = 0
    known: int = 0

    def __add__(self, other: Added) -> Added:
        return Added(self.new + other.new, self.known + other.known)

"""Which trainings are measured, in which order, and where each is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shaped_network import Kind

Start = Literal["together", "staggered"]

ALONE = 0.2  # seconds of a step of one worker, about; staggered starts are spread over one
MORE = 0.018  # seconds by which each worker makes the steps of all longer, about
STEPS = 300  # of each worker in a long run

HIDDEN = 256  # units of both hidden layers
LARGER = 384  # of the larger network, of twice as many parameters
FASTER = 2.0  # by which links are faster for the larger network


@dataclass(frozen=True)
class Cell:
    """One training."""

    link: Kind
    workers: int
    algorithm: str = "asgd"
    lr: float = 0.1
    start: Start = "together"
    seed: int = 0
    steps: int = STEPS  # of each worker, about
    hidden: int = HIDDEN

    @property
    def model(self) -> str:
        return f"mlp(hidden={self.hidden}, layers=2)"

    @property
    def job(self) -> str:
        """Which job it is of: cells of one link and one model have the profile of one worker."""
        return self.link if self.hidden == HIDDEN else f"{self.link}-{self.hidden}"

    @property
    def name(self) -> str:
        """The folder in which it is kept."""
        algorithm = self.algorithm.replace("(slack=", "-").replace(")", "")
        parts = (self.job, algorithm, f"w{self.workers}", f"lr{self.lr:g}", self.start)
        return "_".join([*parts, f"s{self.seed}"])

    @property
    def seconds(self) -> float:
        """How long it is trained."""
        return float(round(self.steps * (ALONE + MORE * self.workers)))

    @property
    def stagger(self) -> float:
        """Seconds between the begins of two workers."""
        return ALONE / self.workers if self.start == "staggered" else 0.0


def plan(name: str) -> list[Cell]:
    """Return the cells of "quick" (minutes) or "full" (over an hour), the most telling first."""
    if name == "quick":
        sizes = (1, 2, 4, 8)
        return [Cell("fair", workers, seed=100, steps=120) for workers in sizes]
    return [*_throughput(), *_targets(), *_fifo(), *_designs(), *_learning_rates()]


def _throughput() -> list[Cell]:
    """Asynchronous, on the fair link: together and staggered, two seeds each."""
    cells = [Cell("fair", workers, seed=seed) for seed in (0, 1) for workers in (1, 2, 4, 8, 3, 6)]
    for seed in (0, 1):
        cells += [Cell("fair", w, start="staggered", seed=seed) for w in (2, 4, 8)]
    return cells


def _targets() -> list[Cell]:
    """Further seeds to five, or to twelve where they scatter most, and synchronous training."""
    cells = [Cell("fair", workers, seed=seed) for seed in (2, 3, 4) for workers in (2, 4, 8)]
    cells += [Cell("fair", w, seed=seed, steps=120) for seed in range(5, 12) for w in (4, 8)]
    for seed in range(5):
        cells += [Cell("fair", w, "ssgd", 0.4, seed=seed, steps=150) for w in (4, 8)]
    return cells


def _fifo() -> list[Cell]:
    starts: Sequence[Start] = ("together", "staggered")
    return [Cell("fifo", workers, start=start) for start in starts for workers in (2, 4, 8)]


def _designs() -> list[Cell]:
    """Designs to choose from: numbers of workers, algorithms, learning rates."""
    asynchronous = [
        *((2, "asgd", 0.2), (4, "asgd", 0.2), (8, "asgd", 0.2), (8, "asgd", 0.05)),
        *((4, "asgd", 0.4), (8, "asgd", 0.4)),
        *((4, "staleness-aware", 0.2), (8, "staleness-aware", 0.2), (8, "staleness-aware", 0.4)),
        *((4, "ssp(slack=3)", 0.1), (8, "ssp(slack=3)", 0.1), (8, "ssp(slack=3)", 0.2)),
    ]
    synchronous = [(2, "ssgd", 0.2), (8, "ssgd", 0.2)]
    return [
        Cell("fair", workers, algorithm, lr, steps=200)
        for workers, algorithm, lr in (*asynchronous, *synchronous)
    ]


def _learning_rates() -> list[Cell]:
    """Five seeds at a small and at a large learning rate, of both networks."""
    lengths = ((2, 0.2, 120), (4, 0.05, 180), (4, 0.2, 120), (8, 0.05, 140))
    cells = [
        Cell("fair", workers, lr=lr, seed=seed, steps=steps)
        for seed in range(1, 6)
        for workers, lr, steps in lengths
    ]
    return cells + [
        Cell("fair", 4, lr=lr, seed=seed, steps=steps, hidden=LARGER)
        for seed in range(5)
        for lr, steps in ((0.05, 160), (0.2, 110))
    ]

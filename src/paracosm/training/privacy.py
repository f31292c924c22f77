"""Differential privacy by clipping and noise, and accounting of the privacy loss.

Sums of clipped terms with Gaussian noise are released; the accountant of `dp-accounting` computes
the privacy loss of all of them, by Renyi differential privacy (Mironov, Talwar, Zhang, "Renyi
Differential Privacy of the Sampled Gaussian Mechanism", 2019). It counts gradients and changes that
went into updates: the parameters of every instant may be published. Where compressed messages carry
what earlier ones have left out (`Codec.depends_on_before`), an update shows gradients that were
dropped too: all count that were sent. A client's change is clipped with whatever it carries, of the
same client's data, and gives away nothing more.

Two sets of data are neighbours if one has an example more, or a client; how many examples each
shard has, and who takes part when, is taken for known.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import exp, inf
from typing import Any, Literal

import numpy as np

from paracosm.errors import InputError, require, unknown
from paracosm.expression import bind, parse_expression
from paracosm.units import format_number, parse_number

_UNITS = ("examples", "clients")
_DELTA = 1e-5
# Of an adaptive clip, as Andrew et al. recommend
_QUANTILE = 0.5
_FIRST_CLIP = 0.1
_CLIP_RATE = 0.2
_COUNT_NOISE = 0.05  # of the number of clients
_MOST = 1e9  # a norm or multiple of it; the accountant takes powers of the noise

_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)
"""Renyi orders among which the best bound is looked for; of whole ones the divergence is exact."""


@dataclass(frozen=True)
class Privacy:
    """The unit and mechanism of privacy.

    Attributes:
        unit: "examples": each example's gradient is clipped to the norm `clip`, and the sum over a
            minibatch gets noise (Abadi et al., "Deep Learning with Differential Privacy", 2016,
            algorithm 1). "clients": each client's change by local steps is clipped, and the
            server's sum gets noise (McMahan et al., "Learning Differentially Private Recurrent
            Language Models", 2018, algorithm 1).
        clip: the largest norm of a term; where it adapts, that of the first update.
        noise: the standard deviation of the noise in each coordinate of a sum, over `clip`; where
            that adapts, of what is released together (see `ClientNoise`).
        delta: at which epsilon is reported.
        quantile: of the norms of changes that `clip` follows; None where it stays.
    """

    unit: Literal["examples", "clients"]
    clip: float
    noise: float
    delta: float = _DELTA
    quantile: float | None = None

    def __post_init__(self) -> None:
        if self.quantile is not None and self.unit != "clients":
            raise InputError("privacy: clip=adaptive follows changes of clients: give a number")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise InputError(
                f"privacy: quantile must be above 0 and below 1, got {self.quantile:g}"
            )
        for name in ("clip", "noise"):
            if not 0 < getattr(self, name) <= _MOST:
                raise InputError(
                    f"privacy: {name} must be above 0 and at most {_MOST:g}, "
                    f"got {getattr(self, name):g}"
                )
        if not 0 < self.delta < 1:
            raise InputError(f"privacy: delta must be above 0 and below 1, got {self.delta:g}")

    def __str__(self) -> str:
        delta = "" if self.delta == _DELTA else f", delta={format_number(self.delta)}"
        clip, noise = format_number(self.clip), format_number(self.noise)
        if self.quantile is not None:
            clip = "adaptive"
            if self.quantile != _QUANTILE:
                delta = f", quantile={format_number(self.quantile)}{delta}"
        return f"{self.unit}(clip={clip}, noise={noise}{delta})"


def parse_privacy(text: str) -> Privacy:
    """Read `examples(clip=1, noise=1.1)`, `clients(clip=0.5, noise=1, delta=1e-6)` or
    `clients(clip=adaptive, noise=1, quantile=0.5)`.
    """
    unit, positional, named = parse_expression(text, "privacy")
    if unit not in _UNITS:
        raise unknown("unit of privacy", unit, _UNITS)
    named = bind(unit, (), named, ("clip", "noise", "delta", "quantile"))
    if positional or not {"clip", "noise"} <= named.keys():
        raise InputError(f"privacy: write {unit}(clip=1, noise=1.1, delta=1e-5); delta is optional")
    if named["clip"] == "adaptive":
        named = {"quantile": str(_QUANTILE), **named, "clip": str(_FIRST_CLIP)}
    elif "quantile" in named:
        raise InputError("privacy: quantile has no effect without clip=adaptive: leave it out")
    values = {name: parse_number(value) for name, value in named.items()}
    return Privacy(unit, **values)  # type: ignore[arg-type]  # one of the two


@dataclass(eq=False, slots=True)
class Draw:
    """Minibatches of one client that were drawn together.

    Attributes:
        client: whose.
        sizes: by their examples (of Poisson samples, on average), how many there are.
        charged: what an accountant has counted for them.
    """

    client: int
    sizes: Mapping[int, int]
    charged: int = 0


class Accountant:
    """Counts releases and computes the privacy loss.

    Everybody whose parts never meet in one release has a ledger of releases of their own, each by
    its sampling rate; the largest epsilon counts (parallel composition).
    """

    def __init__(self, privacy: Privacy) -> None:
        require("dp_accounting", "privacy", "the privacy of a training run")
        self._privacy = privacy
        self._ledgers: dict[int, Counter[float]] = defaultdict(Counter)

    def count(self, contributions: Sequence[Sequence[Draw]]) -> None:
        """Count what an update shows, as far as it was not counted before: the draws of each of its
        contributions.
        """
        raise NotImplementedError

    def epsilon(self) -> float:
        """Return epsilon at delta, of all counted releases."""
        return self._largest_epsilon(self._ledgers, self._privacy.noise)

    def describe(self) -> str:
        """Describe the result and its assumptions."""
        return self._described(self._ledgers, "a Poisson sample")

    def _described(self, ledgers: Mapping[int, Counter[float]], sampled: str | None) -> str:
        rates = [rate for ledger in ledgers.values() for rate in ledger]
        most = max((ledger.total() for ledger in ledgers.values()), default=0)
        share = f"{max(rates):.4g}" if rates else "0"
        drawn = "and who takes part is known"
        if sampled is not None:
            drawn = f"each of a share of {share} taken as {sampled}"
        return (
            f"epsilon {self.epsilon():.4g} at delta {format_number(self._privacy.delta)} for "
            f"{self._privacy.unit} added or removed: {most:,} releases about any of them, {drawn}"
        )

    def _largest_epsilon(self, ledgers: Mapping[int, Counter[float]], noise: float) -> float:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
        from dp_accounting.rdp import RdpAccountant

        largest = 0.0
        for ledger in _largest(ledgers):
            accountant = RdpAccountant(_ORDERS)
            for rate, releases in ledger:
                event = GaussianDpEvent(noise)
                accountant.compose(PoissonSampledDpEvent(rate, event), releases)
            largest = max(largest, float(accountant.get_epsilon(self._privacy.delta)))
        return largest


def _largest(ledgers: Mapping[int, Counter[float]]) -> list[tuple[tuple[float, int], ...]]:
    """Return the ledgers that others of the same single rate do not exceed."""
    most: dict[float, int] = {}
    mixed: set[tuple[tuple[float, int], ...]] = set()
    for ledger in ledgers.values():
        if len(ledger) == 1:
            ((rate, releases),) = ledger.items()
            most[rate] = max(most.get(rate, 0), releases)
        else:
            mixed.add(tuple(sorted(ledger.items())))
    return [((rate, releases),) for rate, releases in most.items()] + sorted(mixed)


class ExampleAccountant(Accountant):
    """Counts the minibatches whose noisy gradients went into updates: each is one release."""

    def __init__(
        self,
        privacy: Privacy,
        examples_of: Callable[[int], int],  # from a client to the size of its shard
        together: bool,  # whether all shards are the same examples
    ) -> None:
        super().__init__(privacy)
        self._examples_of = examples_of
        self._together = together

    def count(self, contributions: Sequence[Sequence[Draw]]) -> None:
        for draw in chain(*contributions):
            if not draw.charged:
                draw.charged = 1
                examples = self._examples_of(draw.client)
                ledger = self._ledgers[-1 if self._together else draw.client]
                for size, minibatches in draw.sizes.items():
                    ledger[size / examples] += minibatches


class ClientAccountant(Accountant):
    """Counts the updates that a client's change went into.

    A change that is in a sum k times counts as k^2 releases: the Renyi divergence of Gaussian noise
    grows with the square of what it hides.

    Where each round draws a fixed number of clients, all alike and with equal weights, who was
    drawn is not known either. One client more or less then moves a sum by up to two of its terms,
    since somebody else would have had the place: the sum is that of others, or with the probability
    of being drawn one at a distance of 2 clips. So its privacy loss is at most that of a Poisson
    sample of that probability under half the noise (Zhu, Dong, Wang, "Optimal Accounting of
    Differential Privacy via Characteristic Function", 2022: subset sampling). The smaller of both
    bounds is reported.
    """

    def __init__(
        self,
        privacy: Privacy,
        rate: float | None,  # the share of clients that each round draws; None if that hides nobody
    ) -> None:
        super().__init__(privacy)
        self._rate = rate
        self._rounds: Counter[float] = Counter()

    def count(self, contributions: Sequence[Sequence[Draw]]) -> None:
        last = [draws[-1] for draws in contributions if draws]
        times = Counter(draw.client for draw in last)
        if self._rate is not None and any(not draw.charged for draw in last):
            self._rounds[self._rate] += 1
        for draw in last:
            charge = times[draw.client]
            if charge > draw.charged:
                self._ledgers[draw.client][1.0] += charge - draw.charged
                draw.charged = charge

    def epsilon(self) -> float:
        return min(super().epsilon(), self._as_drawn())

    def describe(self) -> str:
        if self._as_drawn() < super().epsilon():
            return self._described({-1: self._rounds}, "a draw of a fixed number")
        return self._described(self._ledgers, None)

    def _as_drawn(self) -> float:
        if self._rate is None:
            return inf
        return self._largest_epsilon({-1: self._rounds}, self._privacy.noise / 2)


class ClientNoise:
    """Clips the changes that clients send, and adds noise to their mean.

    Where the clip C adapts, it follows a quantile q of the norms of the changes: of n clients, b
    of whom had no more than C, C <- C exp(-0.2 ((b + N(0, s^2)) / n - q)). The sum and the count
    are released together, with noise that hides a client as well as `noise` would in the sum alone:
    s = max(n / 20, noise), and in the sum (noise^-2 - (2 s)^-2)^(-1/2). Andrew, Thakkar, McMahan,
    Ramaswamy, "Differentially Private Learning with Adaptive Clipping", 2021, theorem 1, as
    TensorFlow Federated has it (there s = n / 20, and n must be above 10 times the noise).

    Attributes:
        clip: the largest norm of a change now.
    """

    def __init__(self, privacy: Privacy, rng: np.random.Generator) -> None:
        self.clip = privacy.clip
        self._quantile = privacy.quantile
        self._noise = privacy.noise
        self._rng = rng
        self._within = 0  # changes of the coming mean that the clip leaves as they are

    def factor(self, change: Any) -> float:
        """Return what clips a whole change: min(1, clip / norm)."""
        norm = float(change.norm())
        self._within += not norm > self.clip
        return self.clip / norm if norm > self.clip else 1.0

    def add(self, mean: Any, weights: list[float]) -> Any:
        """Return the weighted mean of clipped changes with noise, as by its largest weight."""
        import torch

        clients, noise = len(weights), self._noise
        of_count = max(_COUNT_NOISE * clients, noise)
        if self._quantile is not None:
            noise = (noise**-2 - (2 * of_count) ** -2) ** -0.5
        scale = noise * self.clip * max(weights) / sum(weights)
        drawn = self._rng.standard_normal(mean.shape, dtype=np.float32)
        private = mean + scale * torch.from_numpy(drawn)
        if self._quantile is not None:
            share = (self._within + of_count * self._rng.standard_normal()) / clients
            self.clip *= exp(-_CLIP_RATE * (share - self._quantile))
        self._within = 0
        return private

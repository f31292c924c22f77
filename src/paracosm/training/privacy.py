"""Differential privacy by clipping and noise, and accounting of the privacy loss.

Sums of clipped terms with Gaussian noise are released; the accountant of `dp-accounting` computes
the privacy loss of all of them, by Renyi differential privacy (Mironov, Talwar, Zhang, "Renyi
Differential Privacy of the Sampled Gaussian Mechanism", 2019). It counts gradients and changes that
went into updates: the parameters of every instant may be published. Where compressed messages carry
what earlier ones have left out (`Codec.depends_on_before`), an update shows gradients that were
dropped too: all count that were sent. A client's change is clipped with whatever it carries, of the
same client's data, and gives away nothing more.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np

from paracosm.errors import InputError, require, unknown
from paracosm.expression import bind, parse_expression
from paracosm.units import format_number, parse_number

_UNITS = ("examples", "clients")
_DELTA = 1e-5
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
        clip: the largest norm of a term.
        noise: the standard deviation of the noise in each coordinate of a sum, over `clip`.
        delta: at which epsilon is reported.
    """

    unit: Literal["examples", "clients"]
    clip: float
    noise: float
    delta: float = _DELTA

    def __post_init__(self) -> None:
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
        return f"{self.unit}(clip={clip}, noise={noise}{delta})"


def parse_privacy(text: str) -> Privacy:
    """Read `examples(clip=1, noise=1.1)` or `clients(clip=0.5, noise=1, delta=1e-6)`."""
    unit, positional, named = parse_expression(text, "privacy")
    if unit not in _UNITS:
        raise unknown("unit of privacy", unit, _UNITS)
    named = bind(unit, (), named, ("clip", "noise", "delta"))
    if positional or not {"clip", "noise"} <= named.keys():
        raise InputError(f"privacy: write {unit}(clip=1, noise=1.1, delta=1e-5); delta is optional")
    values = {name: parse_number(value) for name, value in named.items()}
    return Privacy(unit, **values)  # type: ignore[arg-type]  # one of the two


class Accountant:
    """Counts releases and computes the privacy loss.

    Everybody whose parts never meet in one release has a ledger of releases of their own; the
    largest epsilon counts (parallel composition).
    """

    def __init__(
        self,
        privacy: Privacy,
        # From a client and a number of its examples that went into an update to the share of all
        # that is in each of its releases, and how many these are
        releases: Callable[[int, int], tuple[float, int]],
        together: bool,  # whether the releases of all clients are about the same examples
        by_update: bool = False,  # whether an update is one release, whosever gradients it has
    ) -> None:
        require("dp_accounting", "privacy", "the privacy of a training run")
        self._privacy = privacy
        self._releases = releases
        self._together = together
        self._by_update = by_update
        self._ledgers: dict[int, Counter[float]] = defaultdict(Counter)

    def add(self, contributions: Iterable[tuple[int, int]]) -> None:
        """Count the contributions of an update, each a client and a number of examples."""
        for client, examples in islice(contributions, 1 if self._by_update else None):
            rate, count = self._releases(client, examples)
            self._ledgers[-1 if self._together else client][rate] += count

    def epsilon(self) -> float:
        """Return epsilon at delta, of all counted releases."""
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
        from dp_accounting.rdp import RdpAccountant

        found = 0.0
        for ledger in self._largest():
            accountant = RdpAccountant(_ORDERS)
            for rate, releases in ledger:
                event = GaussianDpEvent(self._privacy.noise)
                accountant.compose(PoissonSampledDpEvent(rate, event), releases)
            found = max(found, float(accountant.get_epsilon(self._privacy.delta)))
        return found

    def describe(self) -> str:
        """Describe the result and its assumptions."""
        rates = [rate for ledger in self._ledgers.values() for rate in ledger]
        most = max((ledger.total() for ledger in self._ledgers.values()), default=0)
        share = f"{max(rates):.4g}" if rates else "0"
        return (
            f"epsilon {self.epsilon():.4g} at delta {format_number(self._privacy.delta)} for "
            f"{self._privacy.unit}: {most:,} releases about any of them, each of a share of "
            f"{share} taken as a Poisson sample"
        )

    def _largest(self) -> list[tuple[tuple[float, int], ...]]:
        """Return the ledgers that others of the same single rate do not exceed."""
        most: dict[float, int] = {}
        mixed: set[tuple[tuple[float, int], ...]] = set()
        for ledger in self._ledgers.values():
            if len(ledger) == 1:
                ((rate, releases),) = ledger.items()
                most[rate] = max(most.get(rate, 0), releases)
            else:
                mixed.add(tuple(sorted(ledger.items())))
        return [((rate, releases),) for rate, releases in most.items()] + sorted(mixed)


def client_accountant(privacy: Privacy, rate: float | None) -> Accountant:
    """Return what counts the privacy of clients.

    Where each round draws a share `rate` of them, all clients are as likely in it (McMahan et al.
    2018, section 3); elsewhere a client is hidden by the noise of the updates that it went into,
    and by nothing else.
    """
    if rate is None:
        return Accountant(privacy, lambda client, examples: (1.0, 1), together=False)
    return Accountant(privacy, lambda client, examples: (rate, 1), together=True, by_update=True)


class ClientNoise:
    """Clips the changes that clients send, and adds noise to their mean."""

    def __init__(self, privacy: Privacy, rng: np.random.Generator) -> None:
        self._clip = privacy.clip
        self._noise = privacy.noise
        self._rng = rng

    def factor(self, change: Any) -> float:
        """Return what clips a whole change: min(1, clip / norm)."""
        norm = float(change.norm())
        return self._clip / norm if norm > self._clip else 1.0

    def add(self, mean: Any, weights: list[float]) -> Any:
        """Return the weighted mean of clipped changes with noise, as by its largest weight."""
        import torch

        scale = self._noise * self._clip * max(weights) / sum(weights)
        drawn = self._rng.standard_normal(mean.shape, dtype=np.float32)
        return mean + scale * torch.from_numpy(drawn)

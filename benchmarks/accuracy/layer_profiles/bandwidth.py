"""Links whose bandwidth depends on the size of the message, from polynomials fitted to measurements
as Sailor publishes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from op_latencies import read_json

from layer_profiles.entries import Content
from paracosm.cluster import Link
from paracosm.errors import InputError

__all__ = ["Bandwidth", "Network", "read_network"]

MEGABYTE, GIGABYTE = 1e6, 1e9


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidth in GB/s as a polynomial in log2 of the message's MB.

    Beyond the size at which the polynomial is largest, its largest value holds; below the size at
    which a smaller message would take longer, the time of that one does.

    Attributes:
        coefficients: of the highest power first.
    """

    coefficients: tuple[float, ...]

    def time(self, size: float) -> float:
        """Return the seconds of a message of `size` bytes, nothing for none."""
        if size <= 0:
            return 0.0
        least, most = self._range
        exponent = math.log2(size / MEGABYTE)
        held = min(max(exponent, least), most)
        bytes_sent = MEGABYTE * 2**least if exponent < least else size
        return bytes_sent / (GIGABYTE * float(np.polyval(self.coefficients, held)))

    def shared(self, by: int) -> Bandwidth:
        """Return the bandwidth that each of so many has of it."""
        return Bandwidth(tuple(coefficient / by for coefficient in self.coefficients))

    def all_reduce(self, ranks: int, size: float) -> float:
        """Return the seconds of a ring all-reduce: 2 (p - 1) messages of `size` / p bytes.

        Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
        Workstations", 2009, section 3.
        """
        return 2 * (ranks - 1) * self.time(size / ranks)

    def link_near(self, size: float) -> Link:
        """Return the link of constant bandwidth that agrees with this one near messages of `size`
        bytes: their time, and how it grows with the size.

        Raises:
            InputError: a size that is not above 0.
        """
        if not size > 0:
            raise InputError(f"bandwidth: give the size of a message, above 0, not {size}")
        step = 1e-4 * size
        slope = (self.time(size + step) - self.time(size - step)) / (2 * step)
        if slope <= 0:
            return Link(latency=self.time(size))
        return Link(bandwidth=1 / slope, latency=max(self.time(size) - size * slope, 0.0))

    @cached_property
    def _range(self) -> tuple[float, float]:
        """Exponents between which the bandwidth grows, and the time of a message as well."""
        growth = np.polyder(np.array(self.coefficients))
        tops = _real_roots(growth)
        most = max(tops) if tops and np.polyval(np.polyder(growth), max(tops)) < 0 else math.inf
        # d/dsize (size / bandwidth) = 0 where bandwidth = d bandwidth / d log2(size) / ln 2
        turns = _real_roots(np.polysub(np.array(self.coefficients), growth / math.log(2)))
        least = max((turn for turn in turns if turn < most), default=-math.inf)
        return least, most


@dataclass(frozen=True)
class Network:
    """What files hold: zone, GPU, GPUs that send at once; the same of the receiver: a bandwidth.

    `between` finds an entry.
    """

    content: Mapping[str, Any]
    where: str

    def between(
        self, sender: tuple[str, str], receiver: tuple[str, str], gpus: int = 1
    ) -> Bandwidth:
        """Return the bandwidth of GPUs of one node to as many of another.

        Args:
            sender, receiver: zone and GPU.
            gpus: how many send at once, each a message of the size in question; the bandwidth is
                that of all of them together.

        Raises:
            InputError: there is no such entry, with what there is; or it is damaged.
        """
        entry = Content(self.content, self.where)
        for zone, gpu in (sender, receiver):
            entry = entry.under("zone", zone).under("GPU", gpu).under("number of GPUs", str(gpus))
        try:
            coefficients = tuple(float(each) for each in entry.value[0])
        except (TypeError, ValueError, IndexError, KeyError):
            raise InputError(f"{entry.where}: holds no list of coefficients") from None
        at_one_megabyte = coefficients[-1] if coefficients else 0.0
        if not (all(map(math.isfinite, coefficients)) and at_one_megabyte > 0):
            raise InputError(f"{entry.where}: the bandwidth of 1 MB is not above 0")
        return Bandwidth(coefficients)


def read_network(path: Path, *more: Path) -> Network:
    """Read files of fitted bandwidths (JSON); what an earlier one has, a later one does not change.

    Raises:
        InputError: one of them cannot be read.
    """
    content = read_json(path)
    for each in more:
        content = _completed(content, read_json(each))
    return Network(content, str(path))


def _completed(content: Any, more: Any) -> Any:
    """Return nested mappings with the entries of `more` that they lack."""
    if not (isinstance(content, Mapping) and isinstance(more, Mapping)):
        return content
    both = {key: _completed(each, more.get(key)) for key, each in content.items()}
    return both | {key: each for key, each in more.items() if key not in content}


def _real_roots(polynomial: np.typing.NDArray[np.float64]) -> list[float]:
    roots = np.roots(polynomial)
    return [float(root.real) for root in roots if abs(root.imag) < 1e-9]

"""What the communication of one rank costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from paracosm.cluster.changes import Change
from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import collective_time
from paracosm.errors import InputError

__all__ = ["Costs"]


@dataclass(frozen=True, eq=False)
class Costs:
    """Times of messages and collectives of one rank, and of all that are placed like it.

    Attributes:
        cluster: where.
        all_reduce: the algorithm between data-parallel ranks.
        group: role to the ranks that it communicates with in it.
        changes: of collectives and messages ("send"), one after the other.
        met: kinds of all collectives that were asked for.
    """

    cluster: Cluster
    all_reduce: str = "auto"
    group: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    changes: Sequence[Change] = ()
    met: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str, int], float] = field(default_factory=dict, init=False)

    def of_tensor(self, collective: str, size: int) -> float:
        """Return the seconds of a collective between tensor-parallel ranks."""
        return self._collective("tensor", collective, size, "auto")

    def of_data(self, collective: str, size: int) -> float:
        """Return the seconds of a collective between data-parallel ranks."""
        return self._collective("data", collective, size, self.all_reduce)

    def of_message(self, role: str, size: int) -> tuple[float, float]:
        """Return for how many seconds a message in a role is sent, and how much later it arrives.

        Raises:
            InputError: nothing joins the two ranks, or a half-duplex link does.
        """
        source, target = (self.cluster.workers[rank] for rank in self.group[role])
        link = self.cluster.link(source, target)
        if link.duplex == "half":
            raise InputError(
                f"duplex: half of {source} and {target}: stages of a pipeline send both ways at "
                "once, so predict takes full-duplex links for pp"
            )
        whole = self._changed("send", link.transfer_time(size))
        later = min(link.propagation(size), whole)
        return whole - later, later

    def _collective(self, role: str, collective: str, size: int, algorithm: str) -> float:
        key = (role, collective, size)
        if key not in self._known:
            ranks = self.group[role]
            for change in self.changes:
                if collective in change.kinds and change.what == "algorithm":
                    algorithm = str(change.value)
            seconds = collective_time(self.cluster, ranks, collective, size, algorithm)
            self._known[key] = self._changed(collective, seconds)
        return self._known[key]

    def _changed(self, kind: str, seconds: float) -> float:
        """Return what a collective or message takes after the changes."""
        self.met.add(kind)
        for change in self.changes:
            if kind in change.kinds and change.what == "time":
                seconds = max(seconds * change.factor + float(change.added), 0.0)
        return seconds

"""Who did what, when: spans and counters by (node, resource), in virtual time."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Counter", "Span", "Timeline"]

# node, resource, name, begin, end, flow
Span = tuple[str, str, str, float, float, int]
# node, name, time, value
Counter = tuple[str, str, float, float]


class Timeline:
    """An append-only record of spans and counters; times in seconds of virtual time.

    A span says that a `resource` ("compute", "send", "receive", "wait") of a node was busy with
    something. The two spans of one message, on the sender's "send" and the receiver's "receive",
    share a `flow` of 0 or more; -1 means none.

    `spans` and `counters` are plain lists of tuples, in the order of recording. Code that records
    millions may bind `timeline.spans.append` and append tuples itself.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.counters: list[Counter] = []

    def span(
        self, node: str, resource: str, name: str, begin: float, end: float, flow: int = -1
    ) -> None:
        """Record that `resource` of `node` was busy with `name` from `begin` to `end`."""
        self.spans.append((node, resource, name, begin, end, flow))

    def counter(self, node: str, name: str, time: float, value: float) -> None:
        """Record that the quantity `name` of `node` has the `value` from `time` on."""
        self.counters.append((node, name, time, value))

    def save(self, path: str | Path) -> None:
        """Write everything to a Parquet file; `paracosm.timeline.storage` describes its columns."""
        from paracosm.timeline.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Timeline:
        """Return the timeline that `save` wrote, equal to the bit.

        Raises:
            InputError: there is no such file, or it is not a timeline; a missing column is named.
        """
        from paracosm.timeline.storage import load

        return load(path)

"""A claim of the paper, or of ours, with the number that came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Finding", "counts"]


@dataclass(frozen=True)
class Finding:
    """One claim.

    Attributes:
        where: figure or section of the paper; "ours" for what it does not ask.
        what: the claim.
        expected: what the paper has.
        found: what came out here.
        holds: whether it came out; None where the data at hand cannot tell.
    """

    where: str
    what: str
    expected: str
    found: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """Return it in a word or two."""
        return {True: "comes out", False: "does not", None: "not possible"}[self.holds]


def counts(findings: Sequence[Finding]) -> str:
    """Return how many come out: "12 come out, 3 do not; not possible here: 2"."""
    number = {each: sum(found.holds is each for found in findings) for each in (True, False, None)}
    return f"{number[True]} come out, {number[False]} do not; not possible here: {number[None]}"

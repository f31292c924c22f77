"""What workers, servers and peers say to one another."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["Answer", "Ask", "Tag"]


class Tag(StrEnum):
    """The kinds of messages, by which a receiver picks them."""

    PUSH = "push"
    ANSWER = "answer"
    ASK = "ask"
    MEAN = "mean"


class Answer(NamedTuple):
    """A server's parameters, on their way to a worker."""

    server: int
    parameters: Any
    version: int


class Ask(NamedTuple):
    """A peer's parameters, to be averaged with one's own."""

    peer: str
    parameters: Any

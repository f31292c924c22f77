"""What workers and servers of a run send each other."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from paracosm.training.store import Gradient


class Tag(StrEnum):
    """The kinds of messages, by which a receiver picks them."""

    PUSH = "push"
    ANSWER = "answer"
    ASK = "ask"
    MEAN = "mean"
    JOIN = "join"


class Push(NamedTuple):
    """What a worker sends to a server."""

    gradient: Gradient  # the newest that the worker has asked for
    payload: Any
    read_version: int
    second: Any


class Answer(NamedTuple):
    """A server's parameters, on their way to a worker."""

    server: int
    parameters: Any
    version: int
    second: Any
    clock: int


class Ask(NamedTuple):
    """A peer's parameters, to be averaged with one's own."""

    peer: str
    parameters: Any


class Lost(NamedTuple):
    """A note to the server: the client at a worker is lost, and sends nothing."""

    worker: str


def message_size(parameters: float, second: Any) -> float:
    """Return the bytes of a message of parameters and perhaps a second vector like them."""
    return parameters if second is None else 2 * parameters

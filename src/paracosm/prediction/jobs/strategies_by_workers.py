"""One strategy for several numbers of workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from paracosm.errors import InputError
from paracosm.jobs.strategies import Strategy, parse_strategy

ITERATIONS = 8
"""That workers go through where servers do not keep them together, and the text says nothing."""

BETWEEN_REPLICAS = ("sharding", "bucket", "first_bucket", "all_reduce", "prefetch")
"""What has no effect where there is one replica only."""


def strategies_by_workers(
    text: str,
    workers: Sequence[int] | None,
    servers: int | None = None,
    held: int | None = None,
) -> list[tuple[int, Strategy]]:
    """Return numbers of workers, each with the strategy that a text means for it.

    In a sweep from one replica on, that replica has nobody to share with: what concerns sharing is
    left out for it.

    Args:
        text: as `parse_strategy` reads it; without `dp`, what is left of the workers.
        workers: ascending; None for the one number that the text says.
        servers: parameter servers, where the text does not say.
        held: those that the cluster has, where nobody says.

    Raises:
        InputError: the text cannot be read, or does not fit a number; servers that have no effect.
    """
    if workers is None:
        strategy = _read(text, None, servers, held)
        return [(strategy.ranks, strategy)]
    largest = _read(text, workers[-1], servers, held)
    alone = largest.tensor * largest.pipeline
    found = []
    for number in workers:
        if number == alone and largest.data > 1 and not _says(text, "dp"):
            found.append((number, one_replica(largest)))
        else:
            found.append((number, _read(text, number, servers, held)))
    return found


def one_replica(strategy: Strategy) -> Strategy:
    """Return the strategy of a single replica, without what concerns sharing with others."""
    usual = {each.name: each.default for each in fields(Strategy)}
    left_out: dict[str, Any] = {name: usual[name] for name in BETWEEN_REPLICAS}
    return replace(strategy, data=1, **left_out)


def _read(text: str, workers: int | None, servers: int | None, held: int | None) -> Strategy:
    strategy = parse_strategy(text, workers)
    if strategy.servers and servers is None and held and not _says(text, "servers"):
        servers = held
    if servers is not None:
        if not strategy.servers:
            raise InputError(f'servers: no effect here, leave out: strategy "{text}" has none')
        if _says(text, "servers"):
            raise InputError("servers: the strategy says it already: leave out one of them")
        strategy = replace(strategy, servers=servers)
    if strategy.asynchronous and not _says(text, "iterations"):
        strategy = replace(strategy, iterations=ITERATIONS)
    return strategy


def _says(text: str, key: str) -> bool:
    return re.search(rf"(^|,)\s*{key}\s*=", text) is not None

"""Workers whose minibatches differ in size: `worker 3: 64`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from paracosm.cluster.changes import parse_places
from paracosm.errors import InputError


@dataclass(frozen=True)
class BatchOf:
    """The examples in a minibatch of some workers."""

    text: str  # as it was written
    first: int  # number of the first worker
    last: int
    batch: int

    def __str__(self) -> str:
        return self.text


def parse_batch_of(text: str) -> BatchOf:
    """Read "worker 3: 64" or "workers 4..7: 64", as changes of a cluster name workers.

    Raises:
        InputError: what is not understood.
    """
    who, _, size = (part.strip() for part in str(text).partition(":"))
    if not size.isdecimal() or not 0 < int(size) < 2**31:
        raise InputError(f'cannot read "{text}": write worker 3: 64, of a number of examples')
    subject, first, last = parse_places(who)
    if subject != "workers" or first is None:
        raise InputError(f'"{text}" says of no worker by its number: write worker 3: 64')
    return BatchOf(str(text), first, first if last is None else last, int(size))


def _read(value: Any) -> Any:
    parts = (value,) if isinstance(value, str | BatchOf) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(part if isinstance(part, BatchOf) else parse_batch_of(part) for part in parts)


BatchesOf = Annotated[
    tuple[BatchOf, ...],
    BeforeValidator(_read),
    PlainSerializer(lambda given: [str(each) for each in given]),
]
"""A field of a configuration."""


def batches_of(batch: int, different: Sequence[BatchOf], workers: int) -> list[int]:
    """Return the examples in a minibatch of each worker: `batch`, unless it is said otherwise.

    Raises:
        InputError: there is no such worker; a size is said twice, or is that of all.
    """
    found = [batch] * workers
    said: set[int] = set()
    for each in different:
        if each.last >= workers:
            raise InputError(
                f'batch_of "{each}": there are workers 0 to {workers - 1:,}, not {each.last:,}'
            )
        if each.batch == batch:
            raise InputError(f'batch_of "{each}": that is the batch of all: leave it out')
        own = range(each.first, each.last + 1)
        if not said.isdisjoint(own):
            raise InputError(f'batch_of "{each}": it is said twice of a worker')
        said.update(own)
        for worker in own:
            found[worker] = each.batch
    return found

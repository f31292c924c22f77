"""Random streams: the single scheme of keys. A seed defines any number of independent streams. Each
is keyed by its purpose and an index (of a worker, a link, ...), exactly as `SeedSequence.spawn`
would key it, so that another worker or purpose changes no other stream. The numbers of the purposes
define what a seed means and never change.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError, shown
from paracosm.units import WIDEST, whole


class TrainingStream(IntEnum):
    """Purposes of the random streams of a training run."""

    MODEL = 0
    SHARDS = 1
    BATCHES = 2
    COMPUTE = 3
    SERVER = 4
    NEIGHBOURS = 5
    DROPOUT = 6
    PICKS = 10
    AVAILABILITY = 11
    PARTICIPATION = 12
    SPEEDS = 13
    UPLINKS = 14
    DOWNLINKS = 15
    LOCAL_WORK = 16
    STRAGGLERS = 17
    COMPRESSION = 25
    NOISE = 35
    CLIENT_NOISE = 36
    LOST_MESSAGES = 40
    FAULTS = 41


class ServerStream(IntEnum):
    """Purposes of the random streams of simulated parameter servers, indexed by worker."""

    STEPS = 0
    SHARES = 1
    STARTS = 2


class EmulationStream(IntEnum):
    """Purposes of the random streams of emulated ranks."""

    SKEW = 0
    JITTER = 1
    LATE = 2


class RelaxationStream(IntEnum):
    """Purposes of the random streams of a relaxation."""

    TIMES = 1
    CHOICES = 2
    MESSAGES = 3
    FAULTS = 4
    SPEEDS = 5
    RIGHT_HAND_SIDE = 1001
    START = 1002


class SimulationStream(IntEnum):
    """Purposes of the random streams of a simulated job, indexed by rank (routing: by layer)."""

    TASKS = 20
    ROUTING = 21


class FailureStream(IntEnum):
    """Purposes of the random streams of failing nodes, indexed by node."""

    WORKERS = 40
    SERVERS = 41
    LIVES = 42


class PlanningStream(IntEnum):
    """Purposes of the random streams of a plan, apart from those of its training runs."""

    CURVATURE = 30


def sequence(seed: int | Sequence[int], *key: int) -> np.random.SeedSequence:
    """Return the seed sequence of the stream `key` (its purpose, then indices) of a seed.

    Raises:
        InputError: what is no seed; NumPy would take None for one that is never the same.
    """
    if not isinstance(seed, Sequence):
        seed = checked_seed(seed)
    return np.random.SeedSequence(seed, spawn_key=key)


def checked_seed(seed: object) -> int:
    """Return a seed of any type of whole numbers as an int; InputError for what is none, or has
    more bits than PyTorch takes.
    """
    number = whole(seed)
    if number is None or not 0 <= number <= WIDEST:
        raise InputError(
            f"a seed is a whole number from 0 on, not {shown(seed)}; {WIDEST} is the largest"
        )
    return number


def generator(seed: int | Sequence[int], *key: int) -> np.random.Generator:
    """Return the generator of the stream `key` of a seed."""
    return np.random.default_rng(sequence(seed, *key))


def integer_seed(seed: int | Sequence[int], *key: int) -> int:
    """Return 32 bits of the stream `key`, which seed a generator of another library."""
    return int(sequence(seed, *key).generate_state(1)[0])


def stream_keys(seed: int, purpose: int, count: int) -> NDArray[np.uint64]:
    """Return the keys of `count` streams for compiled loops, shape (count,).

    Key i is the first 64 bits of the stream (purpose, i); `timing.compiled.uniform` counts on from
    it.
    """
    keys = np.empty(count, np.uint64)
    for index in range(count):
        keys[index] = sequence(seed, purpose, index).generate_state(1, np.uint64)[0]
    return keys

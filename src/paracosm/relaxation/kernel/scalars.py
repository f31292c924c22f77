"""The names of the numbers that the loop keeps, and of its answers."""

# Numba takes module constants as they are; enumerations cost it types that do not unify.

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Rules"]

# Why the loop came back.
DETECTED = 0  # the stopping rule says converged; not confirmed yet
DIVERGED = 1  # the residual is too large, infinite or not a number
PAUSED = 2  # nothing more happens up to the time that was asked for
SLICE = 3  # as many relaxations as were asked for
CALL_ROWS = 4  # a Python function has to say which rows those who are due update next
CALL_VALUES = 5  # Python functions have to say new values, or durations
BAD_TIME = 6  # a duration is zero, negative or infinite
EXHAUSTED = 7  # a duration is not a number: a recording has come to its end, or a function's fault
BAD_ROWS = 9  # a compiled pattern function returned rows that are none
TOO_LATE = 10  # beyond the clock of the network
GROW = 8  # a processor's slot is too small for its rows
GO_ON = -1

# Who notices convergence.
IDEAL = 0  # an observer who sees the residual at every instant, at no cost
PROCESSOR = 1  # a processor that does nothing else (Algorithm 3)
LOCAL = 2  # the sum of local residuals, each contributed every k-th update (Algorithm 4)

# Which block a processor updates next.
FIXED, IN_TURN, AT_RANDOM = range(3)

# What happened besides relaxations.
FAULT, ROLLBACK, CHECKPOINT = range(3)

# What the loop does next.
START, NEXT, GATHER, READ, WRITE = range(5)

# The whole numbers of a run.
(
    STAGE,
    DUE,  # processors in `flight.due`
    POSITION,  # of them have begun their next update
    STARTING,  # they are everybody, and nobody has updated yet
    UPDATES,  # written, by all processors
    RELAXATIONS,
    SPANS,
    SAMPLES,
    MARKS,
    CHECKPOINTS,
    ROLLBACKS,
    STALEST,
    CULPRIT,  # the processor whose duration is wrong
    WITNESS,  # a row whose residual is too large
    ERROR_WITNESS,
    VERDICT,  # at this instant: the residual processor found it small enough, or 0 has updated
    COUNTERS,
) = range(17)

# The real numbers of a run.
(
    NOW,  # the newest instant, on the processors' clock
    SHIFT,  # what checkpoints and restores have cost; virtual time is NOW + SHIFT
    SQUARE,  # squared 2-norm of the residual
    KEPT,  # the same after the instant before
    SUM_AGAIN,  # below this square, sum it anew
    RAISE_AT,  # above this square, raise the limits below which it is computed anew
    FRESH_AGAIN,  # below this square, compute the residual anew
    NEXT_CHECKPOINT,  # infinite: none
    NEXT_SAMPLE,
    SAMPLE_EVERY,
    STALENESS,  # sum over all updates
    SEEN,  # norm that the residual processor saw at its last read
    ERROR,  # squared 2-norm of x - solution, where it is to be reached
    ERROR_AGAIN,  # below this, sum it anew
    LARGEST,  # square above which the iteration has diverged
    BAD,  # the duration that is wrong
    SLOWEST,  # duration between two barriers
    GAUGES,
) = range(18)


class Rules(NamedTuple):
    """What stays the same during a run."""

    method: int
    omega: float  # relaxation factor of local solves
    momentum: float
    at_start: bool  # read at the start of an update; otherwise at its completion
    after_copy: bool  # read when the first phase of an update, the copy, is complete
    barrier: float  # what a barrier costs, of a synchronous iteration; negative: asynchronous
    processors: int
    choice: int  # FIXED, IN_TURN or AT_RANDOM
    coordinates: int  # components of the block to choose at random; 0: all
    compiled_values: bool  # a compiled function of the user's says the new values
    compiled_rows: bool  # one says which rows
    compiled_time: bool  # one says how long
    python_rows: bool  # a Python function says which rows
    python_values: bool  # Python functions say values or durations
    distributed: bool  # what others wrote arrives in messages
    last_instant: float  # of the processors' clock that the network can count
    ticks: float  # ticks in a second; 0: time is continuous
    phases: int  # durations that make one update
    joint: bool  # all phases from one uniform number
    detect: int  # IDEAL, PROCESSOR or LOCAL
    every: int  # updates between two contributions to the sum of local residuals
    limit: float  # residual norm to reach; negative: never
    infinity: bool  # the norm is the largest component, not the Euclidean one
    error_limit: float  # norm of the error to reach; negative: never
    alpha: float  # roll back when the residual grew by more; 0: never
    interval: float  # time between checkpoints
    own_block: bool  # roll back blocks, not everything
    component: bool  # every processor watches its own rows
    cost: float  # seconds of a checkpoint
    restore: float  # seconds of a rollback
    bin_shift: int  # a bin of the staleness histogram is 2^shift wide

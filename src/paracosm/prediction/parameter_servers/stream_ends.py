"""When downlink streams end under HTTP/2's multiplexing (Li et al. 2020, section 3.2.2, table 1).

The streams of a step wait for their server in the order in which they were asked for. The first
turn of a stream sends a window of bytes at most; what is left goes to the end of the queue, and is
sent to its end in a second turn. The receiver then parses for alpha * size + beta (section 3.2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, cast

import numba
import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs import DOWNLINK, JobProfile

__all__ = ["EndErrors", "StreamModel", "Streams", "downlink_streams", "end_errors", "stream_ends"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_njit: Any = numba.njit


@dataclass(frozen=True, slots=True)
class StreamModel:
    """What decides when streams end.

    Attributes:
        bandwidth: bytes/s, of every server and of the worker.
        window: bytes of a stream's first turn; infinite without flow control.
        alpha: seconds a byte of parsing.
        beta: seconds of parsing any stream.
        burst: bytes that the link lets through at once after a pause (a token bucket, as shapers
            and clouds have them); as many come back in a second as `bandwidth` says.
    """

    bandwidth: float
    window: float = inf
    alpha: float = 0.0
    beta: float = 0.0
    burst: float = 0.0


@dataclass(frozen=True, slots=True)
class Streams:
    """Downlink streams of several steps, those of a step one after the other as they were begun.

    Attributes:
        first: those of step i are `first[i]` to `first[i + 1]`.
        server: of each stream.
        size: bytes.
        begin, end: seconds from the step's begin, as recorded.
    """

    first: Ints
    server: Ints
    size: Floats
    begin: Floats
    end: Floats


@dataclass(frozen=True, slots=True)
class EndErrors:
    """Relative errors of predicted ends, |predicted - recorded| / recorded, as in table 1.

    Attributes:
        streams: how many there were.
        average, median, percentile_95, maximum: of all of them.
    """

    streams: int
    average: float
    median: float
    percentile_95: float
    maximum: float


def downlink_streams(profile: JobProfile) -> Streams:
    """Return the downlink streams of a profile; those that a step did not trace are left out.

    Raises:
        InputError: it has none.
    """
    ops = np.flatnonzero(profile.resource == DOWNLINK)
    begin, end = profile.begin[:, ops], profile.end[:, ops]
    order = np.argsort(begin, axis=1, kind="stable")  # one begun at the same time: by op
    traced = np.take_along_axis(np.isfinite(begin) & np.isfinite(end) & (end > 0), order, axis=1)
    if not traced.any():
        raise InputError("the profile has no downlink stream: nothing tells how they are served")
    return Streams(
        first=np.concatenate([[0], np.cumsum(traced.sum(axis=1))]).astype(np.int64),
        server=profile.server[ops][order][traced],
        size=profile.size[ops][order][traced].astype(float),
        begin=np.take_along_axis(begin, order, axis=1)[traced],
        end=np.take_along_axis(end, order, axis=1)[traced],
    )


def stream_ends(streams: Streams, model: StreamModel) -> Floats:
    """Return when each stream ends, parsed: seconds from its step's begin.

    With several servers, those that send at a time share the worker's port equally.
    """
    return _last_bytes(streams, model) + model.alpha * streams.size + model.beta


def end_errors(streams: Streams, model: StreamModel) -> EndErrors:
    """Return how far a model is off the recorded ends."""
    off = np.abs(stream_ends(streams, model) - streams.end) / streams.end
    return EndErrors(
        streams=len(off),
        average=float(off.mean()),
        median=float(np.median(off)),
        percentile_95=float(np.percentile(off, 95)),
        maximum=float(off.max()),
    )


def _last_bytes(streams: Streams, model: StreamModel) -> Floats:
    last = np.empty(len(streams.size))
    servers = int(streams.server.max()) + 1
    _serve(
        streams.first,
        streams.server,
        streams.size,
        streams.begin,
        servers,
        model.bandwidth,
        model.window,
        model.burst,
        last,
    )
    return last


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba and keep the result on disk."""
    options = {"cache": True, "nogil": True, "error_model": "numpy"}
    return cast(Callable[..., Any], _njit(**options)(function))


@_compiled
def _serve(
    first: Any,
    server: Any,
    size: Any,
    begin: Any,
    servers: Any,
    bandwidth: Any,
    window: Any,
    burst: Any,
    last: Any,
) -> None:
    """Fill the instant of the last byte of every stream."""
    most = 0
    for step in range(first.size - 1):
        most = max(most, first[step + 1] - first[step])
    queue = np.empty((servers, 2 * most), np.int64)
    head, tail = np.empty(servers, np.int64), np.empty(servers, np.int64)
    sending = np.empty(servers, np.int64)  # a stream, or -1
    turn = np.empty(servers)  # bytes that are left of its turn
    for step in range(first.size - 1):
        head[:], tail[:], sending[:] = 0, 0, -1
        left = size[first[step] : first[step + 1]].copy()
        here, after, now, busy = first[step], first[step + 1], 0.0, 0
        nth, tokens = here, burst
        while busy or nth < after:
            # Who is done first, if nothing comes in between.
            done, soonest = -1, np.inf
            for each in range(servers):
                if sending[each] >= 0 and turn[each] < soonest:
                    done, soonest = each, turn[each]
            until = now + soonest * busy / bandwidth if busy else np.inf
            comes = nth < after and begin[nth] <= until
            if comes:
                until = max(begin[nth], now)
            for each in range(servers):
                if sending[each] >= 0:
                    turn[each] = max(turn[each] - (until - now) * bandwidth / max(busy, 1), 0.0)
            if not busy:
                tokens = min(burst, tokens + (until - now) * bandwidth)
            now = until
            if comes:
                at = server[nth]
                queue[at, tail[at]] = nth
                tail[at] += 1
                nth += 1
            else:
                at, stream = done, sending[done]
                sending[at] = -1
                busy -= 1
                if left[stream - here] > 0:
                    queue[at, tail[at]] = stream
                    tail[at] += 1
                else:
                    last[stream] = now
            if sending[at] < 0 and head[at] < tail[at]:
                stream = queue[at, head[at]]
                head[at] += 1
                second = left[stream - here] < size[stream]
                turn[at] = left[stream - here] if second else min(left[stream - here], window)
                left[stream - here] -= turn[at]
                at_once = min(turn[at], tokens)
                turn[at] -= at_once
                tokens -= at_once
                sending[at] = stream
                busy += 1

"""Goodput, window and parsing from the recorded ends of a profile's downlink streams.

HTTP/2 multiplexes them (Li et al. 2020, section 3.2.2, table 1): the streams of a step wait for
their server in the order in which they were asked for. The first turn of a stream sends a window of
bytes at most; what is left goes to the end of the queue, and is sent to its end in a second turn.
The receiver then parses for alpha * size + beta (section 3.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.compiled import compiled, shaped
from paracosm.errors import InputError
from paracosm.profiling.jobs import DOWNLINK, JobProfile
from paracosm.profiling.nodes.calibration import NodeCalibration, found_by

_OUTLIER = 0.02  # relative error beyond which a stream counts less than by its square
_SMALLEST = 1024.0  # bytes: no window that is worth a guess is below
_WINDOWS = 60  # that are tried
_SLOWER, _FASTER = 0.3, 2.0  # logarithms: bytes by time miss the bandwidth by no more
_BETTER = 0.95  # of the error without a window: more does not make one likely


@dataclass(frozen=True, slots=True)
class StreamFit:
    """The model that explains the recorded ends best."""

    model: StreamModel  # with an infinite window where none explains more than no window does
    errors: EndErrors  # of that model
    without: EndErrors  # of the best model without a window
    largest: float  # bytes of the largest stream; windows above it have no effect


def fit_streams(profile: JobProfile, *, bandwidth: float | None = None) -> StreamFit:
    """Return the model of a profile's downlink streams with the least errors of their ends.

    Errors are relative; those beyond 2 % count linearly (soft L1). A window is believed if it
    makes the average error at least a twentieth smaller. `bandwidth` is bytes/s of payload of the
    link, where it was measured; else it is fitted, too.

    Raises:
        InputError: there are no streams with bytes in them; or a bandwidth below 1.
    """
    if bandwidth is not None and not 1 <= bandwidth < inf:
        raise InputError(f"a bandwidth must be at least 1 B/s and finite, not {bandwidth:g}")
    streams = downlink_streams(profile)
    if not streams.size.any():
        raise InputError("no downlink stream of the profile has a byte: nothing to fit")
    fixed = bandwidth is not None
    start = StreamModel(_goodput(streams) if bandwidth is None else bandwidth)
    plain = _fitted(streams, start, fixed)
    windows = _windows(streams)
    windowed = plain
    if windows:
        tried = [_fitted(streams, replace(start, window=window), fixed) for window in windows]
        best = int(np.argmin([_cost(streams, model) for model in tried]))
        between = windows[max(best - 1, 0)], windows[min(best + 1, len(windows) - 1)]
        refined = _fitted(streams, tried[best], fixed, between)
        windowed = min(tried[best], refined, key=lambda model: _cost(streams, model))
    without, within = end_errors(streams, plain), end_errors(streams, windowed)
    chosen = windowed if within.average < _BETTER * without.average else plain
    return StreamFit(
        model=chosen,
        errors=end_errors(streams, chosen),
        without=without,
        largest=float(streams.size.max()),
    )


def calibration_of(fit: StreamFit, profile: str) -> NodeCalibration:
    """Return the calibration of the receiving node, from a fit to the profile of this name."""
    model, error = fit.model, fit.errors.average
    values: dict[str, tuple[float, float | None]] = {"bandwidth_in": (model.bandwidth, error)}
    values |= {name: (getattr(model, name), error) for name in ("burst", "alpha", "beta", "window")}
    return found_by("estimated", f"ends of the downlink streams of {profile}", values)


def _goodput(streams: Streams) -> float:
    rates = []
    for here, after in zip(streams.first, streams.first[1:], strict=False):
        size = streams.size[here:after].sum()
        took = streams.end[here:after].max(initial=0) - streams.begin[here:after].min(initial=inf)
        if size > 0 and took > 0:
            rates.append(size / took)
    if not rates:
        raise InputError("no step of the profile has downlink streams that take time")
    return float(np.median(rates))


def _windows(streams: Streams) -> list[float]:
    """Windows to try: sizes of streams, where the model jumps, and some between them."""
    sizes = np.unique(streams.size)
    sizes = sizes[sizes >= _SMALLEST]
    if not len(sizes):
        return []
    top = sizes[-1]
    between = np.geomspace(_SMALLEST, top, _WINDOWS // 2, endpoint=False)
    sizes_seen = sizes[:-1][:: max(len(sizes) * 2 // _WINDOWS, 1)]
    return [float(size) for size in np.union1d(between, sizes_seen)]


def _fitted(
    streams: Streams, start: StreamModel, fixed: bool, between: tuple[float, float] | None = None
) -> StreamModel:
    """Return the best alpha, beta, burst, bandwidth unless it is fixed, and window `between` two.

    What is searched are alpha, beta and burst as shares of the time of a step, and logarithms of
    bandwidth and window relative to those of `start`.
    """
    from scipy.optimize import least_squares

    unit, size = float(streams.end.mean()), float(streams.size.mean())
    shares = (start.alpha * size / unit, start.beta / unit, start.burst / start.bandwidth / unit)
    begin = [max(share, 1e-6) for share in shares]
    lowest, highest = [0.0] * 3, [inf] * 3
    if not fixed:
        begin, lowest, highest = [*begin, 0.0], [*lowest, -_SLOWER], [*highest, _FASTER]
    if between is not None and between[0] < between[1]:
        low, high = np.log(np.array(between) / start.window)
        begin, lowest, highest = [*begin, 0.0], [*lowest, low - 1e-9], [*highest, high + 1e-9]
    windowed = len(begin) > (3 if fixed else 4)

    def model(found: Floats) -> StreamModel:
        return StreamModel(
            bandwidth=start.bandwidth * (1.0 if fixed else float(np.exp(found[3]))),
            window=start.window * (float(np.exp(found[-1])) if windowed else 1.0),
            alpha=float(found[0]) * unit / size,
            beta=float(found[1]) * unit,
            burst=float(found[2]) * unit * start.bandwidth,
        )

    def off(found: Floats) -> Floats:
        return stream_ends(streams, model(found)) / streams.end - 1

    solution = least_squares(
        off,
        begin,
        bounds=(lowest, highest),
        x_scale=[0.01] * len(begin),
        loss="soft_l1",
        f_scale=_OUTLIER,
        diff_step=1e-6,
        max_nfev=30,
    )
    return model(solution.x)


def _cost(streams: Streams, model: StreamModel) -> float:
    off = (stream_ends(streams, model) / streams.end - 1) / _OUTLIER
    return float((np.sqrt(1 + off * off) - 1).mean())


@dataclass(frozen=True, slots=True)
class StreamModel:
    """What decides when streams end."""

    bandwidth: float  # bytes/s, of every server and of the worker
    window: float = inf  # bytes of a stream's first turn; infinite without flow control
    alpha: float = 0.0  # seconds a byte of parsing
    beta: float = 0.0  # seconds of parsing any stream
    # Bytes that the link lets through at once after a pause (a token bucket, as shapers and clouds
    # have them); as many come back in a second as `bandwidth` says.
    burst: float = 0.0


@dataclass(frozen=True, slots=True)
class Streams:
    """Downlink streams of several steps, those of a step one after the other as they were begun."""

    first: Ints  # those of step i are `first[i]` to `first[i + 1]`
    server: Ints
    size: Floats  # bytes
    begin: Floats  # seconds from the step's begin, as recorded
    end: Floats  # the same


@dataclass(frozen=True, slots=True)
class EndErrors:
    """Relative errors of predicted ends, |predicted - recorded| / recorded, as in table 1."""

    streams: int
    average: float
    median: float
    percentile_95: float
    maximum: float


def downlink_streams(profile: JobProfile) -> Streams:
    """Those that a step did not trace are left out."""
    ops = np.flatnonzero(profile.resource == DOWNLINK)
    begin, end = profile.begin[:, ops], profile.end[:, ops]
    order = np.argsort(begin, axis=1, kind="stable")  # one begun at the same time: by op
    traced = np.take_along_axis(np.isfinite(begin) & np.isfinite(end) & (end > 0), order, axis=1)
    if not traced.any():
        raise InputError("the profile has no downlink stream to fit")
    return Streams(
        first=np.concatenate([[0], np.cumsum(traced.sum(axis=1))]).astype(np.int64),
        server=profile.server[ops][order][traced],
        size=profile.size[ops][order][traced].astype(float),
        begin=np.take_along_axis(begin, order, axis=1)[traced],
        end=np.take_along_axis(end, order, axis=1)[traced],
    )


def stream_ends(streams: Streams, model: StreamModel) -> Floats:
    """Seconds from the steps' begins; servers that send at a time share the worker's port."""
    last = np.empty(len(streams.size))
    servers = int(streams.server.max()) + 1
    of_streams = (streams.first, streams.server, streams.size, streams.begin, servers)
    _serve(*of_streams, model.bandwidth, model.window, model.burst, last)
    return last + model.alpha * streams.size + model.beta


def end_errors(streams: Streams, model: StreamModel) -> EndErrors:
    off = np.abs(stream_ends(streams, model) - streams.end) / streams.end
    return EndErrors(
        streams=len(off),
        average=float(off.mean()),
        median=float(np.median(off)),
        percentile_95=float(np.percentile(off, 95)),
        maximum=float(off.max()),
    )


@shaped("steps+1: first; n: server size begin last")
@compiled
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

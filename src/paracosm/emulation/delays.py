"""How much added delay hides under computing: figure 4 of the paper, by a fit.

The paper (section 3.3) adds a delay to every all-reduce: above some delay the iteration time grows
in proportion to it, below it grows less, since the delay hides under the backward pass. A line with
one knee is fitted to the medians: its slope is how many delays of an iteration one comm worker
cannot hide. All delays share the same measured computing, so nothing else differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.emulation.records import COLLECTIVES
from paracosm.errors import InputError, unknown
from paracosm.quantities import read_duration
from paracosm.units import format_duration

if TYPE_CHECKING:  # not loaded in the process of a real rank
    from paracosm.arrays import Floats
    from paracosm.results.summaries import EmulationSummary

FEWEST_DELAYS = 3
MOST_DELAYS = 1000  # each of which is a run
FEWEST_FOR_KNEE = 5  # a line with a knee has four numbers of its own
HIDDEN = 0.5  # of a delay per iteration: a line less steep shows none that is exposed
BEND = 0.05  # delays per iteration and delay: a line bends by more, or not

_FORM = re.compile(r"(?P<kind>\S+)\s+(?P<first>[^.].*?)\.\.(?P<last>.+?)/(?P<count>\d{1,9})")
_EXAMPLE = 'write "all_reduce 0ms..8ms/9" for nine delays from 0 ms to 8 ms'


@dataclass(frozen=True)
class Delays:
    kind: str  # of the collectives that are delayed, one of `COLLECTIVES`
    delays: tuple[float, ...]  # rising, seconds; the first is 0, the unchanged job
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Knee:
    knee: float | None  # that delay, seconds; None where all delays cost alike
    slope: float  # seconds per iteration and second of delay, beyond the knee if any
    flat_slope: float | None  # the same below the knee; None without a knee
    base: float  # iteration time without any delay, as fitted, seconds
    reason: str = ""  # why there is no knee; empty where there is one


def parse_delays(text: str) -> Delays:
    """Read "all_reduce 0ms..8ms/9": a kind, first and last delay, and their number.

    If the first is not 0, a run without any delay is added.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise InputError(f'delays: cannot read "{text}": {_EXAMPLE}')
    if match["kind"] not in COLLECTIVES:
        raise unknown("collective", match["kind"], COLLECTIVES)
    first, last = (_delay(match[which].strip(), text) for which in ("first", "last"))
    count = int(match["count"])
    if not first < last < np.inf:
        raise InputError(
            f'delays: the last delay of "{text}" must be finite and above the first: {_EXAMPLE}'
        )
    if count < FEWEST_DELAYS:
        raise InputError(
            f'delays: "{text}" has {count}: give at least {FEWEST_DELAYS}, or {FEWEST_FOR_KNEE} to '
            "find a knee"
        )
    if count > MOST_DELAYS:
        raise InputError(f'delays: "{text}" has {count:,}: give {MOST_DELAYS:,} at most')
    # Rounded, so that a delay of 3 ms is written so.
    steps = np.linspace(first, last, count).tolist()
    delays = tuple(float(f"{step:.12g}") for step in steps)
    return Delays(match["kind"], delays if first == 0 else (0.0, *delays), text)


def summarise_delays(
    kind: str, delays: Sequence[float], summaries: Sequence[EmulationSummary]
) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    listed: list[Mapping[str, Any]] = [
        {
            "delay": delay,
            "status": summary.status,
            "iteration_time": summary.iteration_time,
            "breakdown": summary.breakdown,
        }
        for delay, summary in zip(delays, summaries, strict=True)
    ]
    known = [
        (entry["delay"], entry["iteration_time"]) for entry in listed if entry["iteration_time"]
    ]
    if len(known) < FEWEST_DELAYS:
        reason = f"only {len(known)} of {len(listed)} runs have iteration times"
        return listed, {"kind": kind, "knee": None, "reason": reason}
    knee = find_knee(
        np.array([delay for delay, _ in known]),
        np.array([time["median"] for _, time in known]),
    )
    counts = [
        summary.collectives.get(kind, {}).get("per_iteration", {}).get("count", 0.0)
        for summary in summaries
        if summary.iteration_time
    ]
    per_iteration = float(np.median(counts))
    return listed, {
        "kind": kind,
        **asdict(knee),
        "per_iteration": per_iteration,
        "sentence": _sentence(kind, knee, per_iteration),
    }


def _delay(text: str, whole: str) -> float:
    try:
        return read_duration(text)
    except InputError as error:
        raise InputError(f'delays "{whole}": {error}') from None


@np.errstate(over="ignore")  # of delays whose squares are infinite
def find_knee(delays: Floats, medians: Floats) -> Knee:
    """Return the knee of iteration times against three or more rising delays, in seconds.

    On either side of the knee, or on it, lie at least two points.
    """
    if len(delays) >= FEWEST_FOR_KNEE:
        (base, before, bend), knee, _ = min(_candidates(delays, medians), key=lambda fit: fit[2])
        if bend > BEND:
            return Knee(knee, before + bend, before, base)
    (base, slope), _ = _solved([np.ones_like(delays), delays], medians)
    alike = f"all delays up to {format_duration(float(delays[-1]))}"
    reason = f"{alike} cost alike, so that none hides" if slope >= HIDDEN else f"{alike} hide"
    if len(delays) < FEWEST_FOR_KNEE:
        reason = f"{len(delays)} delays are too few for a knee"
    return Knee(None, slope, None, base, reason)


def _sentence(kind: str, knee: Knee, per_iteration: float) -> str:
    of = f" ({per_iteration:.4g} {kind} an iteration)" if per_iteration else ""
    if knee.knee is None:
        return (
            f"No knee: {knee.reason}; an iteration takes {knee.slope:.2f} times the delay "
            f"longer{of}."
        )
    return (
        f"Up to {format_duration(float(f'{knee.knee:.3g}'))} the delay of each {kind} hides under "
        f"computing: an iteration takes {knee.flat_slope:.2f} times the delay longer, beyond "
        f"{knee.slope:.2f} times{of}."
    )


Fit = tuple[list[float], float, float]
"""Base, first slope and bend; the knee; the sum of squared residuals."""


def _candidates(x: Floats, y: Floats) -> Iterator[Fit]:
    """Yield the best lines with the knee at any inner point or between two."""
    one = np.ones_like(x)
    for knee in x[1:-1].tolist():
        coefficients, left = _solved([one, x, np.maximum(x - knee, 0.0)], y)
        yield coefficients, knee, left
    for place in range(2, len(x) - 1):
        low, high = slice(None, place), slice(place, None)
        (base, before), left = _solved([one[low], x[low]], y[low])
        (other, after), right = _solved([one[high], x[high]], y[high])
        if before != after and x[place - 1] < (base - other) / (after - before) < x[place]:
            yield [base, before, after - before], (base - other) / (after - before), left + right


def _solved(columns: list[Floats], y: Floats) -> tuple[list[float], float]:
    """Return the least-squares weights of the columns, and the sum of squared residuals."""
    matrix = np.column_stack(columns)
    weights = np.linalg.lstsq(matrix, y, rcond=None)[0]
    left = matrix @ weights - y
    return weights.tolist(), float(left @ left)

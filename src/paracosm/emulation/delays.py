"""How much added delay hides under computing: figure 4 of the paper, read by a fit.

The paper (section 3.3) adds a delay to every all-reduce and finds the iteration time to grow in
proportion to it above some delay, and less below, where the delay hides under the backward pass. A
line with one knee is fitted to the medians: its slope is how many delays of an iteration one comm
worker cannot hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.emulation.records import COLLECTIVES
from paracosm.errors import InputError, unknown
from paracosm.units import format_duration, parse_duration, parse_number

if TYPE_CHECKING:  # not loaded in the process of a real rank
    from paracosm.results.summaries import EmulationSummary
    from paracosm.timeline.analysis import Floats

FEWEST_DELAYS = 3
FEWEST_FOR_KNEE = 5  # a line with a knee has four numbers of its own
LEAST_ERROR = 1e-4  # of a median: no clock and no scheduler is better
HIDDEN = 0.5  # of a delay per iteration: a line less steep shows none that is exposed
UNKNOWN = 0.25  # of a slope: an error beyond says that it is not known
DRAWS = 200  # of the bootstrap
SEED = 4

_FORM = re.compile(r"(?P<kind>\S+)\s+(?P<first>[^.].*?)\.\.(?P<last>.+?)/(?P<count>\d+)")
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
    low: float | None  # the knee's 90 % interval; None without a knee
    high: float | None
    slope: float  # seconds per iteration and second of delay, beyond the knee if any
    slope_error: float  # its standard error
    flat_slope: float | None  # the same below the knee; None without a knee
    base: float  # iteration time without any delay, as fitted, seconds
    reason: str = ""  # why there is no knee; empty where there is one


def parse_delays(text: str) -> Delays:
    """Read "all_reduce 0ms..8ms/9": a kind, the first and the last delay, how many.

    Where the first is not 0, the run without any delay is one more.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise InputError(f'delays: cannot read "{text}": {_EXAMPLE}')
    if found["kind"] not in COLLECTIVES:
        raise unknown("collective", found["kind"], COLLECTIVES)
    first, last = (_delay(found[which].strip(), text) for which in ("first", "last"))
    count = int(found["count"])
    if not first < last < np.inf:
        raise InputError(
            f'delays: the last delay of "{text}" must be finite and above the first: {_EXAMPLE}'
        )
    if count < FEWEST_DELAYS:
        raise InputError(
            f'delays: "{text}" are {count}: {FEWEST_DELAYS} at least, and {FEWEST_FOR_KNEE} to '
            "find a knee"
        )
    # Rounded, so that a delay of 3 ms is written so.
    steps = np.linspace(first, last, count).tolist()
    delays = tuple(float(f"{each:.12g}") for each in steps)
    return Delays(found["kind"], delays if first == 0 else (0.0, *delays), text)


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
    known = [(each["delay"], each["iteration_time"]) for each in listed if each["iteration_time"]]
    if len(known) < FEWEST_DELAYS:
        reason = f"only {len(known)} of {len(listed)} runs have iteration times"
        return listed, {"kind": kind, "knee": None, "reason": reason}
    knee = find_knee(
        np.array([delay for delay, _ in known]),
        np.array([time["median"] for _, time in known]),
        np.array([time["error"] for _, time in known]),
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
    seconds = parse_duration(text)
    if 0 < seconds < np.inf and is_plain(text):
        raise InputError(f'delays: {text} has no unit in "{whole}": write {text}ms or {text}us')
    return seconds


def is_plain(text: str) -> bool:
    """Whether a duration is a number without a unit, and not 0."""
    try:
        return parse_number(text) != 0
    except InputError:
        return False


def find_knee(delays: Floats, medians: Floats, errors: Floats) -> Knee:
    """Return the knee of iteration times (medians, standard errors) against three delays or more.

    All in seconds, shape (n,); delays rise.
    """
    errors = np.maximum(errors, LEAST_ERROR * medians)
    # A delay that happened to scatter little is not to decide everything.
    errors = np.maximum(errors, 0.5 * np.median(errors))
    if len(delays) < FEWEST_FOR_KNEE:
        return _straight(delays, medians, errors, f"{len(delays)} delays are too few for a knee")
    fit = fit_piecewise_linear(delays, medians, errors)
    if line_suffices(fit, delays, medians, errors):
        return _straight(delays, medians, errors, "")
    scale = _scale(fit.chi_squared, len(delays) - 4)
    shifts = np.random.default_rng(SEED).standard_normal((DRAWS, len(delays)))
    drawn = [
        fit_piecewise_linear(delays, medians + scale * errors * each, errors) for each in shifts
    ]
    low, high = np.quantile([each.knee for each in drawn], [0.05, 0.95]).tolist()
    interval = min(low, fit.knee), max(high, fit.knee)
    slope_error = float(np.std([each.after for each in drawn]))
    return Knee(fit.knee, *interval, fit.after, slope_error, fit.before, fit.base)


def _straight(delays: Floats, medians: Floats, errors: Floats, reason: str) -> Knee:
    base, slope, error, chi_squared = fit_line(delays, medians, errors)
    error *= _scale(chi_squared, len(delays) - 2)
    alike = f"all delays up to {format_duration(float(delays[-1]))}"
    if error > UNKNOWN * max(1.0, slope):
        said = "iteration times scatter too much from run to run"
    elif slope < HIDDEN:
        said = f"{alike} hide"
    else:
        said = f"{alike} cost alike, so that none hides"
    return Knee(None, None, None, slope, error, None, base, reason or said)


def _scale(chi_squared: float, free: int) -> float:
    """Return how much larger errors are than the iterations of each run let them seem.

    Runs differ by more than their iterations do: it is what the fit leaves over (Birge ratio).
    """
    return max(1.0, float(np.sqrt(chi_squared / max(free, 1))))


def _sentence(kind: str, knee: Knee, per_iteration: float) -> str:
    of = f" ({per_iteration:.4g} {kind} an iteration)" if per_iteration else ""
    if knee.knee is None or knee.low is None or knee.high is None:
        return (
            f"No knee: {knee.reason}; an iteration takes {knee.slope:.2f} ± {knee.slope_error:.2f} "
            f"times the delay longer{of}."
        )
    interval = f"{format_duration(_digits(knee.low))} to {format_duration(_digits(knee.high))}"
    return (
        f"Up to {format_duration(_digits(knee.knee))} ({interval}) the delay of each {kind} hides "
        f"under computing: an iteration takes {knee.flat_slope:.2f} times the delay longer, beyond "
        f"{knee.slope:.2f} times{of}."
    )


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


LEVEL = 0.05  # chance of seeing a knee where there is none
LEAST_CHI_SQUARED = 0.1  # per degree of freedom: what is left of a fit is never less


@dataclass(frozen=True)
class PiecewiseLinear:
    knee: float  # where it is
    base: float  # y at x = 0
    before: float  # the slopes
    after: float
    chi_squared: float  # the squares of what is left of the points, in units of their errors


def fit_piecewise_linear(x: Floats, y: Floats, errors: Floats) -> PiecewiseLinear:
    """Return the line with a knee that is nearest to five or more points, all of shape (n,).

    At least two points lie on either side of the knee, or on it. `x` rises.
    """
    return min(_candidates(x, y, errors), key=lambda fit: fit.chi_squared)


def fit_line(x: Floats, y: Floats, errors: Floats) -> tuple[float, float, float, float]:
    """Return base, slope, the slope's standard error and chi squared of the best straight line."""
    (base, slope), chi_squared = _solved([np.ones_like(x), x], y, errors)
    weight = errors**-2.0
    middle = (weight * x).sum() / weight.sum()
    error = (weight * (x - middle) ** 2).sum() ** -0.5
    return base, slope, float(error), chi_squared


def line_suffices(fit: PiecewiseLinear, x: Floats, y: Floats, errors: Floats) -> bool:
    """Whether a straight line is as good, or the knee bends down.

    The F test of two numbers more (slope and knee): the chance that points of a straight line gain
    so much is (chi_2 / chi_1)^(d / 2) with d = n - 4 degrees of freedom left, for each of the n - 3
    places that the knee was sought at (Bonferroni).
    """
    if fit.after <= fit.before:
        return True
    *_, straight = fit_line(x, y, errors)
    free = len(x) - 4
    least = LEAST_CHI_SQUARED * free
    ratio = max(fit.chi_squared, least) / max(straight, least)
    return bool((len(x) - 3) * ratio ** (free / 2) > LEVEL)


def _candidates(x: Floats, y: Floats, errors: Floats) -> Iterator[PiecewiseLinear]:
    """Yield the best lines with the knee at or between any two points.

    Between two neighbouring points the best knee is where the best lines through the points on
    either side meet, if they meet there; else it is one of the two. So one of these has the least
    squares.
    """
    one = np.ones_like(x)
    for knee in x[1:-1].tolist():
        (base, before, bend), left = _solved([one, x, np.maximum(x - knee, 0.0)], y, errors)
        yield PiecewiseLinear(knee, base, before, before + bend, left)
    for place in range(2, len(x) - 1):
        low, high = slice(None, place), slice(place, None)
        (base, before), left = _solved([one[low], x[low]], y[low], errors[low])
        (other, after), right = _solved([one[high], x[high]], y[high], errors[high])
        if before != after:
            knee = (base - other) / (after - before)
            if x[place - 1] < knee < x[place]:
                yield PiecewiseLinear(knee, base, before, after, left + right)


def _solved(columns: list[Floats], y: Floats, errors: Floats) -> tuple[list[float], float]:
    """Return the weights of columns whose sum is nearest to `y`, and chi squared."""
    matrix = np.column_stack(columns)
    weights = np.linalg.lstsq(matrix / errors[:, None], y / errors, rcond=None)[0]
    left = (matrix @ weights - y) / errors
    return weights.tolist(), float(left @ left)

"""Charts of several runs against what they vary: final loss, time to a goal, throughput.

The argument with the most values is the axis, algorithms differ in hue and numbers of workers in
shade and symbol; what else is varied makes small multiples, all with the same axes. Seeds are a
median with the range around it. A run that never gets there counts as later than all that do:
where most of a design's seeds are such runs, a cross stands at the upper edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.report.chart import UNITS
from paracosm.results.chart import NO_RUN, Axis, Chart, Curve, Dots, Floats, Mark, Symbol
from paracosm.results.charts import band, is_wide, shade_of, symbol_of
from paracosm.results.comparison import argument, design_name, design_of
from paracosm.results.view import Quantity, Trial, Trials
from paracosm.units import parse_bandwidth, parse_duration, parse_number, parse_size

PANELS = 8  # small multiples of one quantity
EDGE = 0.08  # of an axis, beyond the largest value, where those stand that never came

Values = Sequence[float | None]


@dataclass(frozen=True)
class Scale:
    """The argument that is the axis, and where on it each of its values stands."""

    argument: str
    axis: Axis
    places: Mapping[Any, float]


def sweep_charts(trials: Trials, quantities: Sequence[Quantity]) -> list[Chart]:
    """Return the charts of what several runs vary; none where nothing but the seed differs."""
    variables = {n: v for n, v in trials.variables.items() if n != "seed" and len(v) > 1}
    scale = _scale(variables)
    if scale is None:
        return []
    others = [name for name in variables if name != scale.argument]
    hue = next((name for name in ("algorithm", *_categories(variables)) if name in others), None)
    shade = "workers" if "workers" in others else None
    roles = (scale.argument, hue, shade, "seed")
    panels: dict[tuple[tuple[str, Any], ...], list[Trial]] = {}
    for trial in trials.runs:
        panel = tuple((name, value) for name, value in trial.varied.items() if name not in roles)
        panels.setdefault(panel, []).append(trial)
    charts = []
    for quantity in quantities:
        heights = _heights(quantity, trials)
        if heights is None:
            continue
        axis, edge = heights
        for number, (panel, shown) in enumerate(list(panels.items())[:PANELS], start=1):
            panel_name = f": {design_name(panel)}" if panel else ""
            charts.append(
                Chart(
                    name=f"{quantity.name}_{number}" if len(panels) > 1 else quantity.name,
                    title=f"{quantity.title}{panel_name}",
                    x=axis if scale.axis.names else scale.axis,
                    y=scale.axis if scale.axis.names else axis,
                    marks=tuple(_marks(shown, trials, quantity, scale, (hue, shade), edge)),
                    caption=_caption(shown, quantity, scale, len(panels) - PANELS),
                    height=110 + 36 * len(scale.axis.names) if scale.axis.names else 300,
                )
            )
    return charts


def _heights(quantity: Quantity, trials: Trials) -> tuple[Axis, float] | None:
    """Return the axis of all values, and where on it those stand that have none."""
    values = [quantity.value(trial) for trial in trials.runs]
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return None
    low, high = min(known), max(known)
    log = low > 0 and is_wide(known)
    margin = (high / low) ** EDGE if log else EDGE * (high or 1.0)
    edge = high * margin if log else high + margin
    top = edge if len(known) < len(values) else high
    limits = (low / margin, top * margin) if log else (min(0.0, low), top + margin)
    title, unit = quantity.title.lower(), quantity.unit
    if unit in UNITS:
        axis = Axis(title, unit, log, "time" if unit == "s" else title, limits=limits)
    else:
        label = {"%": title, "J": f"{title} (J)"}.get(unit, unit)
        axis = Axis(label, log=log, switch=label, percent=unit == "%", limits=limits)
    return axis, edge


def _caption(shown: Sequence[Trial], quantity: Quantity, scale: Scale, panels_left_out: int) -> str:
    sentences = []
    designs = Counter(design_of(trial.varied) for trial in shown)
    if max(designs.values()) > 1:
        bands = "" if scale.axis.names else ", with bands from the lowest to the highest"
        sentences.append(f"Medians over {max(designs.values())} seeds{bands}.")
    lost = [t for t in shown if quantity.value(t) is None or t.failure is not None]
    if lost and quantity.marks_failures:
        why = Counter(trial.failure or trial.summary.status for trial in lost)
        reasons = ", ".join(
            f"{count:,} {word if word != 'done' else 'too slow'}" for word, count in why.items()
        )
        many = f"{len(lost):,} of {len(shown):,} runs"
        sentences.append(f"Crosses: {many} {quantity.missing} ({reasons}).")
    if away := [trial for trial in shown if scale.argument not in trial.varied]:
        sentences.append(f"Not shown: {len(away):,} to which {scale.argument} makes no difference.")
    if panels_left_out > 0:
        sentences.append(f"{panels_left_out:,} more combinations are not shown.")
    return " ".join(sentences)


def _scale(variables: Mapping[str, Sequence[Any]]) -> Scale | None:
    """Return the axis: the argument with most values, the number of workers as a last resort."""
    numbers = {n: known for n, values in variables.items() if (known := as_numbers(values))}
    others = [name for name in numbers if name != "workers"] or [*numbers] or [*variables]
    if not others:
        return None
    name = max(others, key=lambda name: len(variables[name]))
    if name not in numbers:
        axis = Axis("", names=tuple(argument(name, value) for value in variables[name]))
        return Scale(name, axis, {v: float(place) for place, v in enumerate(variables[name])})
    unit, places = numbers[name]
    words = name.replace("_", " ")
    finite = [place for place in places.values() if isfinite(place)]
    log = min(finite) > 0 and is_wide(finite)
    return Scale(name, Axis(words, unit, log, words), places)


def as_numbers(values: Sequence[Any]) -> tuple[str, dict[Any, float]] | None:
    """Return the unit of values that are all numbers, or all with a unit, and each as a number.

    None where they are not. Infinite values have no place on an axis.
    """
    if any(isinstance(value, bool) for value in values):
        return None
    for unit, parse in _PARSERS.items():
        try:
            numbers = {value: parse(value) for value in values}
        except InputError:
            continue
        several = len({number for number in numbers.values() if isfinite(number)}) > 1
        return (unit, numbers) if several else None
    return None


_PARSERS: Mapping[str, Callable[[Any], float]] = {
    "": lambda value: parse_number(value),
    "s": lambda value: parse_duration(value),
    "B/s": lambda value: parse_bandwidth(value),
    "B": lambda value: parse_size(value),
}


def _categories(variables: Mapping[str, Sequence[Any]]) -> list[str]:
    names = [name for name, values in variables.items() if as_numbers(values) is None]
    return sorted(names, key=lambda name: -len(variables[name]))


def _marks(
    shown: Sequence[Trial],
    trials: Trials,
    quantity: Quantity,
    scale: Scale,
    roles: tuple[str | None, str | None],
    edge: float,
) -> list[Mark]:
    """Return bands behind lines behind crosses; a line for each hue and shade."""
    hue, shade = roles
    hues: list[Any] = trials.variables.get(hue, [None]) if hue else [None]
    shades = sorted(trials.variables.get(shade, [None])) if shade else [None]
    bands: list[Mark] = []
    lines: list[Mark] = []
    crosses: list[Mark] = []
    for color, kind in enumerate(hues):
        for rank, workers in enumerate(shades):
            chosen = {hue: kind, shade: workers}
            group = [t for t in shown if all(t.varied.get(n) == v for n, v in chosen.items() if n)]
            named = [(n, v) for n, v in chosen.items() if n and v is not None]
            series = design_name(named) or quantity.title.lower()
            points = [
                _Point(place, there, quantity, f"{series}, {argument(scale.argument, value)}")
                for value, place in sorted(scale.places.items(), key=lambda item: item[1])
                if (there := [t for t in group if t.varied.get(scale.argument) == value])
                and isfinite(place)
            ]
            style = (color, shade_of(rank, len(shades)))
            known = [point for point in points if isfinite(point.median)]
            lost = [point for point in points if not isfinite(point.median)]
            failed = [p for p in known if quantity.marks_failures and p.is_failure]
            if len(known) > 1 and not scale.axis.names:
                bands += _band(known, series, style)
                x, y = (np.array([(p.x, p.median)[axis] for p in known]) for axis in (0, 1))
                lines.append(Curve(x, y, NO_RUN, series, False, *style))
            lines += _dots(known, series, symbol_of(rank, len(shades)), style, edge, scale)
            crosses += _dots(failed, "at chance", "cross", style, edge, scale)
            crosses += _dots(lost, "never", "cross", style, edge, scale)
    return [*bands, *lines, *crosses]


class _Point:
    """The runs of a line with one value of the argument: their seeds."""

    def __init__(self, x: float, trials: Sequence[Trial], quantity: Quantity, name: str) -> None:
        values = [quantity.value(trial) for trial in trials]
        self.x = x
        self.known = [value for value in values if value is not None and isfinite(value)]
        self.median = median([*self.known, *[inf] * (len(values) - len(self.known))])
        failures = Counter(trial.failure for trial in trials if trial.failure is not None)
        self.is_failure = 2 * failures.total() > len(trials)
        parts = [f"{name}: {quantity.write(self.median) if isfinite(self.median) else 'never'}"]
        if len(trials) > 1:
            parts.append(f", median of {len(trials)} seeds")
        if len(self.known) > 1:
            low, high = map(quantity.write, (min(self.known), max(self.known)))
            if high.endswith(unit := f" {quantity.unit}"):
                low = low.removesuffix(unit)
            parts.append(f" ({low} to {high})")
        if missing := len(trials) - len(self.known):
            parts.append(f"; {missing} of {len(trials)} never")
        parts += [f"; {count} {why}" for why, count in failures.items()]
        self.label = "".join(parts)


def _band(points: Sequence[_Point], series: str, style: tuple[int, float]) -> list[Mark]:
    if all(len(point.known) < 2 for point in points):
        return []
    x: Floats = np.array([point.x for point in points])
    low, high = (np.array([end(point.known) for point in points]) for end in (min, max))
    color, shade = style
    labels = [point.label for point in points]
    return [band(x, low, high, labels, NO_RUN, series, color, shade)]


def _dots(
    points: Sequence[_Point],
    series: str,
    symbol: Symbol,
    style: tuple[int, float],
    edge: float,
    scale: Scale,
) -> list[Mark]:
    """Return points, those without a value at the edge; names stand on the vertical axis."""
    if not points:
        return []
    x = np.array([point.x for point in points])
    y = np.array([min(point.median, edge) for point in points])
    labels = tuple(point.label for point in points)
    at = (y, x) if scale.axis.names else (x, y)
    return [Dots(*at, labels, NO_RUN, series, symbol, *style)]

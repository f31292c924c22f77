"""Charts of trainings against what they vary: final loss, time and updates to a goal, throughput.

The argument with the most values is the axis, algorithms differ in hue and numbers of workers in
shade; what else is varied makes small multiples, all with the same axes. Seeds are a median with
the range around it. A run that never gets there counts as later than all that do: where most of a
design's seeds are such runs, a cross stands at the upper edge.
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
from paracosm.report.chart import WIDE, shade_of, size_unit, time_unit
from paracosm.report.sweeps import (
    Trial,
    Trials,
    argument,
    design_name,
    design_of,
    runs_side_by_side,
)
from paracosm.results.chart import NO_RUN, Area, Axis, Chart, Curve, Dots, Floats, Mark
from paracosm.results.view import Run
from paracosm.units import (
    format_duration,
    format_energy,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_number,
    parse_size,
)

PANELS = 8  # small multiples of one metric
EDGE = 0.08  # of an axis, beyond the largest value, where those stand that never came

Place = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Metric:
    """What is drawn of each trial."""

    name: str
    title: str
    label: str  # of the axis, with its unit
    value: Callable[[Trial], float | None]
    write: Callable[[float], str]
    missing: str = "never get there"  # what became of trials without a value


UNITS: Mapping[str, tuple[Callable[[float], tuple[float, str]], Callable[[float], str]]] = {
    "s": (time_unit, format_duration),
    "B": (size_unit, format_size),
    "%": (lambda _: (100.0, "%"), "{:.1%}".format),
    "J": (lambda _: (1.0, "J"), format_energy),
}
"""Unit of a quantity -> the one that suits the largest of several, and how one is written."""


@dataclass(frozen=True)
class Quantity:
    """What is drawn of runs side by side, read from their summaries in SI units."""

    name: str  # of the chart
    title: str
    value: Callable[[Any], float | None]  # of a summary; None where it has none
    unit: str  # "s", "B", "%", or what is counted

    def metric(self, runs: Sequence[Run]) -> Metric | None:
        """Return the metric in the unit that suits the runs; None where none has a value."""
        known = [found for run in runs if (found := self.value(run.numbers)) is not None]
        if not known:
            return None
        unit_of, write = UNITS.get(
            self.unit, (lambda _: (1.0, self.unit), f"{{:,.4g}} {self.unit}".format)
        )
        factor, label = unit_of(max(known))
        named = f"{self.title.lower()} ({label})" if self.unit in UNITS else label

        def value(trial: Trial) -> float | None:
            found = None if trial.failure else self.value(trial.summary)
            return None if found is None else found * factor

        return Metric(
            *(self.name, self.title, named, value),
            lambda scaled: write(scaled / factor),
            "have none",
        )


def side_by_side(runs: Sequence[Run], quantities: Sequence[Quantity]) -> list[Chart]:
    """Return charts of several runs against what they vary, one for each quantity they have."""
    metrics = [found for each in quantities if (found := each.metric(runs)) is not None]
    return sweep_charts(runs_side_by_side(runs), metrics)


@dataclass(frozen=True)
class Scale:
    """The argument that is the axis, and where on it each of its values stands."""

    argument: str
    axis: Axis
    places: Mapping[Any, float]


def sweep_charts(trials: Trials, metrics: Sequence[Metric]) -> list[Chart]:
    """Return the charts of what several runs vary; none where nothing but the seed differs."""
    variables = {n: v for n, v in trials.variables.items() if n != "seed" and len(v) > 1}
    scale = _scale(variables)
    if scale is None:
        return []
    others = [name for name in variables if name != scale.argument]
    hue = next((name for name in ("algorithm", *_categories(variables)) if name in others), None)
    shade = "workers" if "workers" in others else None
    roles = (scale.argument, hue, shade, "seed")
    panels = list(dict.fromkeys(_panel(trial, roles) for trial in trials.runs))
    charts = []
    for metric in metrics:
        heights = _heights(metric, trials)
        if heights is None:
            continue
        axis, edge = heights
        for number, panel in enumerate(panels[:PANELS]):
            own = [trial for trial in trials.runs if _panel(trial, roles) == panel]
            named = f": {design_name(panel)}" if panel else ""
            charts.append(
                Chart(
                    name=f"{metric.name}_{number + 1}" if len(panels) > 1 else metric.name,
                    title=f"{metric.title}{named}",
                    x=axis if scale.axis.names else scale.axis,
                    y=scale.axis if scale.axis.names else axis,
                    marks=tuple(_marks(own, trials, metric, scale, (hue, shade), edge)),
                    caption=_caption(own, metric, scale, len(panels) - PANELS),
                    height=110 + 36 * len(scale.axis.names) if scale.axis.names else 300,
                )
            )
    return charts


def _heights(metric: Metric, trials: Trials) -> tuple[Axis, float] | None:
    """Return the axis of all values, and where on it those stand that have none."""
    values = [metric.value(trial) for trial in trials.runs]
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return None
    low, high = min(known), max(known)
    switch = metric.label.split(" (")[0]
    if low > 0 and high >= WIDE * low:
        margin = (high / low) ** EDGE
        edge = high * margin
        limits = (low / margin, (edge if len(known) < len(values) else high) * margin)
        return Axis(metric.label, log=True, switch=switch, limits=limits), edge
    margin = EDGE * (high or 1.0)
    edge = high + margin
    limits = (min(0.0, low), (edge if len(known) < len(values) else high) + margin)
    return Axis(metric.label, switch=switch, limits=limits), edge


def _caption(own: Sequence[Trial], metric: Metric, scale: Scale, panels_left_out: int) -> str:
    said = []
    designs = Counter(design_of(trial.varied) for trial in own)
    if max(designs.values()) > 1:
        band = "" if scale.axis.names else ", with bands from the lowest to the highest"
        said.append(f"Medians over {max(designs.values())} seeds{band}.")
    lost = [trial for trial in own if metric.value(trial) is None or trial.failure is not None]
    if lost and metric.name != "throughput":
        what = "learn nothing" if metric.name == "final_loss" else metric.missing
        why = Counter(trial.failure or trial.summary.status for trial in lost)
        reasons = ", ".join(
            f"{count:,} {word if word != 'done' else 'too slow'}" for word, count in why.items()
        )
        said.append(f"Crosses: {len(lost):,} of {len(own):,} runs {what} ({reasons}).")
    if away := [trial for trial in own if scale.argument not in trial.varied]:
        said.append(f"Not shown: {len(away):,} to which {scale.argument} makes no difference.")
    if panels_left_out > 0:
        said.append(f"{panels_left_out:,} more combinations are not shown.")
    return " ".join(said)


def _scale(variables: Mapping[str, Sequence[Any]]) -> Scale | None:
    """Return the axis: the quantity with most values, the number of workers as a last resort."""
    quantities = {n: found for n, values in variables.items() if (found := quantity(values))}
    others = [name for name in quantities if name != "workers"]
    if others:
        name = max(others, key=lambda each: len(variables[each]))
    elif "workers" in quantities:
        name = "workers"
    elif variables:
        name = max(variables, key=lambda each: len(variables[each]))
        named = tuple(argument(name, value) for value in variables[name])
        axis = Axis("", names=named)
        return Scale(name, axis, {v: float(place) for place, v in enumerate(variables[name])})
    else:
        return None
    unit, places = quantities[name]
    words = name.replace("_", " ")
    known = [place for place in places.values() if isfinite(place)]
    log = min(known) > 0 and max(known) >= WIDE * min(known)
    label = f"{words} ({unit})" if unit else words
    return Scale(name, Axis(label, log=log, switch=words), places)


def quantity(values: Sequence[Any]) -> tuple[str, dict[Any, float]] | None:
    """Return the unit of values that are all numbers, or all with a unit, and each as a number.

    None where they are not. Infinite values have no place on an axis.
    """
    if any(isinstance(value, bool) for value in values):
        return None
    for parse, unit_of in _QUANTITIES:
        try:
            numbers = {value: parse(value) for value in values}
        except InputError:
            continue
        known = [number for number in numbers.values() if isfinite(number)]
        if len(set(known)) < 2:
            return None
        factor, unit = unit_of(max(known))
        return unit, {value: number * factor for value, number in numbers.items()}
    return None


def _rate_unit(largest: float) -> tuple[float, str]:
    for power, unit in ((9, "Gbit/s"), (6, "Mbit/s"), (3, "kbit/s")):
        if 8 * largest >= 10**power:
            return 8 * 10.0**-power, unit
    return 8.0, "bit/s"


_QUANTITIES: tuple[tuple[Callable[[Any], float], Callable[[float], tuple[float, str]]], ...] = (
    (lambda value: parse_number(value), lambda largest: (1.0, "")),
    (lambda value: parse_duration(value), time_unit),
    (lambda value: parse_bandwidth(value), _rate_unit),
    (lambda value: parse_size(value), size_unit),
)


def _categories(variables: Mapping[str, Sequence[Any]]) -> list[str]:
    found = [name for name, values in variables.items() if quantity(values) is None]
    return sorted(found, key=lambda name: -len(variables[name]))


def _panel(trial: Trial, roles: Sequence[str | None]) -> Place:
    return tuple((name, value) for name, value in trial.varied.items() if name not in roles)


def _marks(
    own: Sequence[Trial],
    trials: Trials,
    metric: Metric,
    scale: Scale,
    roles: tuple[str | None, str | None],
    edge: float,
) -> list[Mark]:
    hue, shade = roles
    variables = trials.variables
    hues: list[Any] = variables.get(hue, [None]) if hue else [None]
    shades = sorted(variables.get(shade, [None])) if shade else [None]
    bands: list[Mark] = []
    lines: list[Mark] = []
    crosses: list[Mark] = []
    for color, kind in enumerate(hues):
        for rank, workers in enumerate(shades):
            chosen = {hue: kind, shade: workers}
            group = [
                each for each in own if all(each.varied.get(n) == v for n, v in chosen.items() if n)
            ]
            named = [(n, v) for n, v in chosen.items() if n and v is not None]
            series = design_name(named) or metric.label
            points = [
                _Point(place, there)
                for value, place in sorted(scale.places.items(), key=lambda each: each[1])
                if (there := [e for e in group if e.varied.get(scale.argument) == value])
                and isfinite(place)
            ]
            style = (color, shade_of(rank, len(shades)))
            known = [point for point in points if isfinite(point.median(metric))]
            lost = [point for point in points if not isfinite(point.median(metric))]
            bands += _band(known, metric, series, style, scale)
            lines += _line(known, metric, series, style, scale)
            crosses += _crosses(known, lost, metric, (series, *style), edge, scale)
    return [*bands, *lines, *crosses]


@dataclass(frozen=True)
class _Point:
    x: float
    trials: Sequence[Trial]

    def values(self, metric: Metric) -> list[float]:
        found = (metric.value(trial) for trial in self.trials)
        return [inf if value is None or not isfinite(value) else value for value in found]

    def median(self, metric: Metric) -> float:
        return median(self.values(metric))

    def known(self, metric: Metric) -> list[float]:
        return [value for value in self.values(metric) if isfinite(value)]

    def failures(self) -> Counter[str]:
        return Counter(trial.failure for trial in self.trials if trial.failure is not None)

    def label(self, metric: Metric, series: str, argument_name: str) -> str:
        """Describe the point: what it is of, its median and range, what became of the rest."""
        value = self.trials[0].varied[argument_name]
        parts = [f"{series}, {argument(argument_name, value)}: "]
        known, middle = self.known(metric), self.median(metric)
        parts.append(metric.write(middle) if isfinite(middle) else "never")
        if len(self.trials) > 1:
            parts.append(f", median of {len(self.trials)} seeds")
        if len(known) > 1:
            parts.append(f" ({metric.write(min(known))} to {metric.write(max(known))})")
        if missing := len(self.trials) - len(known):
            parts.append(f"; {missing} of {len(self.trials)} never")
        parts += [f"; {count} {why}" for why, count in self.failures().items()]
        return "".join(parts)


Style = tuple[int, float]


def _band(
    points: Sequence[_Point], metric: Metric, series: str, style: Style, scale: Scale
) -> list[Mark]:
    if len(points) < 2 or scale.axis.names or all(len(each.known(metric)) < 2 for each in points):
        return []
    x = np.array([point.x for point in points])
    low = np.array([min(point.known(metric)) for point in points])
    high = np.array([max(point.known(metric)) for point in points])
    outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
    labels = [point.label(metric, series, scale.argument) for point in points]
    return [Area(*outline, (*labels, *labels[::-1]), NO_RUN, series, *style)]


def _line(
    points: Sequence[_Point], metric: Metric, series: str, style: Style, scale: Scale
) -> list[Mark]:
    if not points:
        return []
    x = np.array([point.x for point in points])
    y = np.array([point.median(metric) for point in points])
    labels = tuple(point.label(metric, series, scale.argument) for point in points)
    color, shade = style
    marks: list[Mark] = [Dots(*_turned(x, y, scale), labels, NO_RUN, series, "dot", color, shade)]
    if len(points) > 1 and not scale.axis.names:
        marks.insert(0, Curve(x, y, NO_RUN, series, False, color, shade))
    return marks


def _crosses(
    known: Sequence[_Point],
    lost: Sequence[_Point],
    metric: Metric,
    named: tuple[str, int, float],
    edge: float,
    scale: Scale,
) -> list[Mark]:
    series, color, shade = named
    marks: list[Mark] = []
    is_loss = metric.name == "final_loss"
    idle = [each for each in known if is_loss and 2 * each.failures().total() > len(each.trials)]
    for why, points in (("at chance", idle), ("diverged" if is_loss else "never", lost)):
        if points:
            x = np.array([point.x for point in points])
            y = np.array([min(point.median(metric), edge) for point in points])
            labels = tuple(point.label(metric, series, scale.argument) for point in points)
            at = _turned(x, y, scale)
            marks.append(Dots(*at, labels, NO_RUN, why, "cross", color, shade))
    return marks


def _turned(x: Floats, y: Floats, scale: Scale) -> tuple[Floats, Floats]:
    """Return points as they are drawn: names stand on the vertical axis."""
    return (y, x) if scale.axis.names else (x, y)

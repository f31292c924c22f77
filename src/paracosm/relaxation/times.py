"""Durations of updates: the update-time function of the paper."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError, unknown
from paracosm.relaxation.threads.measurement import Case, Measurement, load_measurement, phases
from paracosm.timing import Constant, Distribution, Empirical, parse_distribution
from paracosm.timing.fit import best_fit
from paracosm.timing.fit import fit as fit_family
from paracosm.units import parse_whole

PHASES = ("copy", "compute", "update")

TimeFunction = Callable[[int, int, float], float]
"""(processor, number of its update, uniform random number in (0, 1)) -> seconds."""

Phases = tuple[Distribution, ...]


@dataclass(frozen=True)
class Times:
    """Durations of updates, by processor and phase."""

    # for each processor, or one for all: of an update, or of copy, compute, update
    updates: tuple[Phases, ...]
    # the phases of one update are drawn from one uniform number, as they were measured
    joint: bool = False
    residual: Phases | None = None  # of the residual processor, where it was measured or given
    function: TimeFunction | None = None  # a function of the user's in place of distributions
    source: str = "assumed"  # how these durations are known, for the record
    caution: str = ""  # a caveat; empty without one
    time_slice: float = 0.0  # seconds that measured threads kept their core, on average; 0: unknown
    load: int = 0  # foreign threads that wanted a core as well

    @property
    def phases(self) -> int:
        """How many phases an update has: 1 or 3."""
        return len(self.updates[0]) if self.updates else 1

    def of(self, processor: int) -> Phases:
        """Return the phases of one processor."""
        return self.updates[processor if len(self.updates) > 1 else 0]

    def mean(self, processors: int) -> float:
        """Return the mean duration of an update over all processors, in seconds; 0 if unknown."""
        if not self.updates:
            return 0.0
        means = [sum(phase.mean() for phase in self.of(who)) for who in range(processors)]
        return sum(means) / processors

    @property
    def processors(self) -> int | None:
        """For how many processors they are; None where all have the same."""
        return len(self.updates) if len(self.updates) > 1 else None

    def as_written(self) -> Any:
        """Return what `parse_times` reads back: a text, a list or a mapping of them."""
        if not self.updates:
            return self.source
        if self.phases == 3:
            said = {name: str(part) for name, part in zip(PHASES, self.updates[0], strict=True)}
            return {**said, "joint": True} if self.joint else said
        written = [str(update[0]) for update in self.updates]
        return written if len(written) > 1 else written[0]

    def on(self, speeds: Sequence[float], on_core: bool = False) -> "Times":
        """Return the times on processors of these relative speeds, which divide the durations.

        With `on_core`, of measured iterations only those that kept their core.
        """
        if len(self.updates) not in (0, 1, len(speeds)):
            raise InputError(
                f"time: {len(self.updates)} distributions for {len(speeds)} processors: "
                "give one for all, or one for each"
            )
        if all(speed == 1.0 for speed in speeds):
            return self
        if self.function is not None:
            raise InputError("time: speeds have no effect on a function: leave them out")
        updates = tuple(
            tuple(phase.scaled(speed) for phase in self.of(who)) for who, speed in enumerate(speeds)
        )
        return replace(self, updates=updates, source=f"{self.source}, at given speeds")


@dataclass(frozen=True)
class MeasuredTimes:
    """Times in a file that `paracosm relax measure` wrote: which, depends on the processors."""

    text: str  # path and options: "measured.json(variant=race, threads=2)"
    processors: ClassVar[int | None] = None

    def as_written(self) -> str:
        """Return what `parse_times` reads back."""
        return self.text

    def on(self, speeds: Sequence[float], on_core: bool = False) -> Times:
        return times_from_file(self.text, len(speeds), on_core).on(speeds)


def parse_times(value: Any) -> Times | MeasuredTimes:
    """Parse times of updates.

    Args:
        value: a distribution, or its string, for all processors; a sequence of them, one for each,
            or "normal(10, 1); normal(20, 1)"; a mapping with distributions for copy, compute and
            update, and `joint`, or "copy=2ms, compute=10ms, update=1ms"; a function
            (`TimeFunction`); a file that `paracosm relax measure` wrote, as a path, or with
            options: "measured.json(variant=race, threads=2)"; or Times.
    """
    value = _read_spelling(value)
    if isinstance(value, Times | MeasuredTimes):
        return value
    if _is_file(value):
        return MeasuredTimes(str(value))
    if isinstance(value, Mapping) and set(value) & {*PHASES, "joint"}:
        return _from_phases(value)
    if callable(value) and not isinstance(value, Distribution):
        return Times((), function=value, source="a function of the user's")
    if isinstance(value, Sequence) and not isinstance(value, str):
        parsed = [parse_distribution(part) for part in value]
        if not parsed:
            raise InputError("time: an empty list: give one distribution for each processor")
        listed = ", ".join(_short(part) for part in parsed[:3]) + (
            ", ..." if len(parsed) > 3 else ""
        )
        return Times(tuple((part,) for part in parsed), source=f"one each: {listed}")
    distribution = parse_distribution(value)
    return Times(((distribution,),), source=_short(distribution))


def _read_spelling(value: Any) -> Any:
    """Return the list ("a; b") or mapping ("copy=2, ...") that a text spells, or the value."""
    if not isinstance(value, str):
        return value
    if ";" in value:
        return [part.strip() for part in value.split(";")]
    starts = list(_PHASE.finditer(value))
    if not starts or starts[0].start() != 0:
        return value
    ends = [match.start() for match in starts[1:]] + [len(value)]
    phases: dict[str, Any] = {}
    for match, end in zip(starts, ends, strict=True):
        if match[1] in phases:
            raise InputError(f"time: {match[1]} is given twice")
        phases[match[1]] = value[match.end() : end].strip().rstrip(",").strip()
    return phases


_PHASE = re.compile(r"(?:(?<=,)|^)\s*(copy|compute|update|joint)\s*=")


def _short(distribution: Distribution) -> str:
    samples = getattr(distribution, "samples", ())
    if len(samples) > 10:
        return f"{distribution.name} of {len(samples):,} samples"
    return str(distribution)


def _is_file(value: Any) -> bool:
    if isinstance(value, Path):
        return True
    if not isinstance(value, str):
        return False
    return value.split("(", 1)[0].strip().endswith(".json")


def _from_phases(value: Mapping[str, Any]) -> Times:
    unknown_keys = set(value) - {*PHASES, "joint"}
    if unknown_keys or not set(value) >= set(PHASES):
        raise InputError(
            "time: write copy, compute and update, and joint: true if they go together"
        )
    phases = tuple(parse_distribution(value[phase]) for phase in PHASES)
    joint = {"true": True, "false": False}.get(str(value.get("joint", False)).lower())
    if joint is None:
        raise InputError(f"time: joint is true or false, not {value['joint']}")
    source = ", ".join(
        f"{name} {_short(phase)}" for name, phase in zip(PHASES, phases, strict=True)
    )
    return Times((phases,), joint, source=source)


FITS = ("joint", "empirical", "kernel_density", "log_kernel_density", "lognormal", "gamma", "best")
_OPTIONS = ("variant", "threads", "fit")
CROWDED = 0.95  # share of a run on a core, below which threads waited for one another


def times_from_file(spec: str, processors: int, on_core: bool = False) -> Times:
    """Return the times that a measured file says.

    Args:
        spec: the file's path, or with options, "measured.json(variant=race, threads=2, fit=gamma)".
            Without a variant the first that was measured is taken, without a number of threads the
            one nearest to `processors`. `fit` is "joint" (samples, the phases of one iteration
            drawn together; the default), "empirical" (samples, each phase on its own), a family
            of distributions, or "best", the family that fits each phase best.
        processors: how many are simulated. Each gets the durations of its own thread if as many
            were measured; else all get those of all threads.
        on_core: only iterations that kept their core, where the cores are simulated.
    """

    path, options = _parsed(spec)
    measurement = load_measurement(path)
    case = _case(measurement, path, options, processors)
    fit = options.get("fit", "joint")
    if fit not in FITS:
        raise unknown("fit", fit, FITS)
    measured = phases(measurement, case.variant, case.threads)
    measured = measured.on_core() if on_core else measured
    groups = measured.workers if case.threads == processors else (measured.pooled,)
    residual = _fitted(measured.residual, fit) if len(measured.residual) else None
    return Times(
        tuple(_fitted(rows, fit) for rows in groups),
        joint=fit == "joint",
        residual=residual,
        source=f"measured: {path.name}, {case.variant} with {case.threads} threads, {fit}",
        caution=_caution(case, processors, on_core),
        time_slice=float(np.mean(case.interruptions.slices or (0.0,))),
        load=round(case.interruptions.load),
    )


def _caution(case: Case, processors: int, on_core: bool) -> str:
    """Return a caveat on drawing these durations independently for so many processors."""
    cautions = []
    if case.interruptions.share < CROWDED and not on_core:
        cautions.append(
            f"the measured threads had a core for only {case.interruptions.share:.0%} of the "
            "time, so durations are not independent: give cores, and time_slice: measured"
        )
    if case.threads != processors:
        cautions.append(
            f"measured with {case.threads} threads, whose blocks are of another size than those of "
            f"{processors} processors"
        )
    return "; ".join(cautions)


def _parsed(spec: str) -> tuple[Path, Mapping[str, str]]:
    name, bracket, rest = spec.partition("(")
    if not bracket:
        return Path(spec.strip()), {}
    if not rest.rstrip().endswith(")"):
        raise InputError(f'time: "{spec}" has no closing bracket')
    options = {}
    for part in filter(None, re.split(r"\s*,\s*", rest.rstrip()[:-1].strip())):
        key, equals, value = (text.strip() for text in part.partition("="))
        if key not in _OPTIONS:
            raise unknown("option of a measured file", key, _OPTIONS)
        if not equals or not value:
            raise InputError(f'time: write "{key}=..." in "{spec}"')
        options[key] = value
    return Path(name.strip()), options


def _case(
    measurement: Measurement, path: Path, options: Mapping[str, str], processors: int
) -> Case:
    if not measurement.cases:
        raise InputError(f"{path}: it has no measurements")
    variant = options.get("variant", measurement.cases[0].variant)
    counts = [case.threads for case in measurement.cases if case.variant == variant]
    if not counts:
        raise unknown("measured variant", variant, {case.variant for case in measurement.cases})
    wanted = options.get("threads")
    if wanted is None:
        return measurement.case(variant, min(counts, key=lambda count: abs(count - processors)))
    threads = parse_whole(wanted)
    if threads is None:
        raise InputError(f"time: threads={wanted} is not a number of threads")
    return measurement.case(variant, threads)


def _fitted(rows: Floats, fit: str) -> tuple[Distribution, ...]:
    if fit in ("joint", "empirical"):
        return tuple(Empirical(tuple(column.tolist())) for column in rows.T)
    return tuple(_of_family(column, fit) for column in rows.T)


def _of_family(samples: Floats, fit: str) -> Distribution:
    if samples.min() == samples.max():
        return Constant(float(samples[0]))
    return best_fit(samples).distribution if fit == "best" else fit_family(samples, fit)

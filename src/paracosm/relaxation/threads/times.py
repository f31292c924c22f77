"""A measured file as the durations of simulated processors: what `--time measured.json` means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError, unknown
from paracosm.relaxation.threads.measured_file import load_measurement
from paracosm.relaxation.threads.measurement import Case, Measurement, phases

if TYPE_CHECKING:
    from paracosm.relaxation.times import Times
    from paracosm.timing import Distribution

__all__ = ["CROWDED", "FITS", "times_from_file"]

FITS = (
    "joint",
    "empirical",
    "kernel_density",
    "log_kernel_density",
    "lognormal",
    "gamma",
    "best",
)
_OPTIONS = ("variant", "threads", "fit")
CROWDED = 0.95  # share of a run on a core, below which threads waited for one another


def times_from_file(spec: str, processors: int) -> Times:
    """Return the times that a measured file says.

    Args:
        spec: the file's path, or with options, "measured.json(variant=race, threads=2, fit=gamma)".
            Without a variant the first that was measured is taken, without a number of threads the
            one nearest to `processors`. `fit` is "joint" (samples, the phases of one iteration
            drawn together; the default), "empirical" (samples, each phase on its own), a family
            of distributions, or "best", the family that fits each phase best.
        processors: how many are simulated. Each gets the durations of its own thread if as many
            were measured; else all get those of all threads.

    Raises:
        InputError: the file cannot be read, an unknown option, what was not measured.
    """
    from paracosm.relaxation.times import Times

    path, options = _parsed(spec)
    measurement = load_measurement(path)
    case = _case(measurement, path, options, processors)
    fit = options.get("fit", "joint")
    if fit not in FITS:
        raise unknown("fit", fit, FITS)
    measured = phases(measurement, case.variant, case.threads)
    groups = measured.workers if case.threads == processors else (measured.pooled,)
    residual = _fitted(measured.residual, fit) if len(measured.residual) else None
    return Times(
        tuple(_fitted(rows, fit) for rows in groups),
        joint=fit == "joint",
        residual=residual,
        source=f"measured: {path.name}, {case.variant} with {case.threads} threads, {fit}",
        caution=_caution(case, processors),
    )


def _caution(case: Case, processors: int) -> str:
    """Say what speaks against drawing these durations independently, for so many processors."""
    cautions = []
    if case.interruptions.share < CROWDED:
        cautions.append(
            f"the measured threads had a core for {case.interruptions.share:.0%} of the time only, "
            "so their durations depend on each other and independent draws are wrong: replay the "
            "run, or use the run queue"
        )
    if case.threads != processors:
        cautions.append(
            f"measured with {case.threads} threads, whose blocks are of another size than those of "
            f"{processors} processors"
        )
    return "; ".join(cautions)


def _parsed(spec: str) -> tuple[Path, Mapping[str, str]]:
    """Split "file(option=value, ...)"."""
    name, bracket, rest = spec.partition("(")
    if not bracket:
        return Path(spec.strip()), {}
    if not rest.rstrip().endswith(")"):
        raise InputError(f'time: "{spec}" has no closing bracket')
    options = {}
    for part in filter(None, re.split(r"\s*,\s*", rest.rstrip()[:-1].strip())):
        key, equals, value = (piece.strip() for piece in part.partition("="))
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
        raise InputError(f"{path}: nothing was measured")
    variant = options.get("variant", measurement.cases[0].variant)
    counts = [case.threads for case in measurement.cases if case.variant == variant]
    if not counts:
        raise unknown("measured variant", variant, {case.variant for case in measurement.cases})
    wanted = options.get("threads")
    if wanted is None:
        return measurement.case(variant, min(counts, key=lambda count: abs(count - processors)))
    if not wanted.isdecimal():
        raise InputError(f"time: threads={wanted} is no number of threads")
    return measurement.case(variant, int(wanted))


def _fitted(rows: NDArray[np.float64], fit: str) -> tuple[Distribution, ...]:
    """Return a distribution for each column."""
    from paracosm.timing import Empirical

    if fit in ("joint", "empirical"):
        return tuple(Empirical(tuple(column.tolist())) for column in rows.T)
    return tuple(_of_family(column, fit) for column in rows.T)


def _of_family(samples: NDArray[np.float64], fit: str) -> Distribution:
    from paracosm.timing import Constant
    from paracosm.timing.fit import best_fit
    from paracosm.timing.fit import fit as fit_family

    if samples.min() == samples.max():
        return Constant(float(samples[0]))
    return best_fit(samples).distribution if fit == "best" else fit_family(samples, fit)

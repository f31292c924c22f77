"""What designs are worth: estimators trained on each, tried on ops of a real model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.estimators import fit_estimators
from paracosm.profiling.samples import OpTiming, at_one_speed, usual_probe


@dataclass(frozen=True, slots=True)
class DesignError:
    """How far the estimates of one design are off for one op type."""

    design: str
    op: str  # op type, or "all"
    ops: int  # how many ops it was tried on
    trained: int  # how many timings the estimators saw
    mean: float  # mean of the relative errors, signs dropped
    weighted: float  # the same, each op weighted by the time it takes
    total: float  # relative error of the sum over the ops


def compare_designs(
    designs: Mapping[str, Sequence[OpTiming]], held_out: Sequence[OpTiming], cache: str = "cold"
) -> list[DesignError]:
    """Fit estimators on each design's timings, and try them on `held_out` ones.

    Ops that are held out are taken out of the designs first, and op types that some design has no
    timing of are not tried: neither a look-up nor a guess across op types is what is compared.

    Returns:
        For each design the errors of each op type, by name, and of all together, "all".

    Raises:
        InputError: nothing is left to try.
    """
    usual = usual_probe(held_out)
    tested = at_one_speed([timing for timing in held_out if timing.cache == cache], usual)
    known = {(timing.op.name, timing.op.arguments) for timing in tested}
    training = {
        name: at_one_speed(
            [t for t in own if t.cache == cache and (t.op.name, t.op.arguments) not in known], usual
        )
        for name, own in designs.items()
    }
    types = set[str].intersection(*({t.op.name for t in own} for own in training.values()))
    tested = [timing for timing in tested if timing.op.name in types]
    if not tested:
        raise InputError(f"no {cache} timing is held out of an op type that all designs have")
    real = np.array([timing.duration for timing in tested])
    names = np.array([timing.op.name for timing in tested])
    found = []
    for design, own in training.items():
        own = [timing for timing in own if timing.op.name in types]
        estimators = fit_estimators(own)
        told = np.array([estimators.estimate(timing.op).duration for timing in tested])
        trained = np.array([timing.op.name for timing in own])
        for op in [*sorted(types & set(names)), "all"]:
            chosen = np.ones(len(real), dtype=bool) if op == "all" else names == op
            seen = len(own) if op == "all" else int((trained == op).sum())
            found.append(DesignError(design, op, *_errors(real[chosen], told[chosen], seen)))
    return found


def _errors(
    real: npt.NDArray[np.float64], told: npt.NDArray[np.float64], trained: int
) -> tuple[int, int, float, float, float]:
    off = np.abs(told - real)
    mean = float((off / real).mean())
    return (
        len(real),
        trained,
        mean,
        float(off.sum() / real.sum()),
        float(told.sum() / real.sum()) - 1,
    )


def write_errors(errors: Sequence[DesignError]) -> str:
    """Return a table: a row for each op type, and for each design mean and weighted error."""
    designs = list(dict.fromkeys(error.design for error in errors))
    ops = list(dict.fromkeys(error.op for error in errors))
    cells = {(error.design, error.op): error for error in errors}
    wide = max(map(len, [*ops, "op"]))
    lines = [f"{'op':{wide}}{'ops':>6}" + "".join(f"{name:>22}" for name in designs)]
    lines += [f"{'':{wide}}{'':>6}" + "".join(f"{'mean':>12}{'weighted':>10}" for _ in designs)]
    for op in ops:
        row = [cells[design, op] for design in designs]
        numbers = "".join(f"{error.mean:>12.1%}{error.weighted:>10.1%}" for error in row)
        lines.append(f"{op:{wide}}{row[0].ops:>6}{numbers}")
    return "\n".join(lines)

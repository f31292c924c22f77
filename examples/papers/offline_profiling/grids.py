"""Op grids: the paper's 16 values per argument beside a model-like design of the same size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conv import Fit, fit_line
from design_errors import DesignError, compare_designs
from designs import Design, design
from families import FAMILIES
from kept import Kept, Progress, complete
from plan import GRIDS, Plan

from paracosm.graphs import Op
from paracosm.profiling import OpTiming, Settings, profile

__all__ = ["Grids", "Line", "compare", "lines_of", "measure_grids"]

Key = tuple[str, str]
"""Name and arguments of an op."""

SOURCE = "paper grids"
LEAST = 5  # values on a line through which a straight one is drawn


@dataclass(frozen=True)
class Grids:
    """Timings of grids, with cold data.

    Attributes:
        paper: one argument at a time.
        model_like: as many points, at values that models have.
        rest: the models' other op types, at model-like points.
        points: of the paper's design.
    """

    paper: list[OpTiming]
    model_like: list[OpTiming]
    rest: list[OpTiming]
    points: Design

    @property
    def all(self) -> list[OpTiming]:
        """Every timing once, whichever grids it is in."""
        every = (*self.paper, *self.model_like, *self.rest)
        return list({timing.key: timing for timing in every}.values())


@dataclass(frozen=True)
class Line:
    """One op along one argument, the others at their base.

    Attributes:
        op, argument: which.
        values: of the argument.
        by_value: the line of the time against the value.
        by_work: the same against the work of the op: flops, or bytes where it has none.
    """

    op: str
    argument: str
    values: tuple[int, ...]
    by_value: Fit
    by_work: Fit


def measure_grids(kept: Kept, plan: Plan, types: set[str]) -> Grids:
    """Time the grids.

    Args:
        types: names of the ops that models call.
    """
    families = [FAMILIES[name] for name in plan.families]
    others = [
        each for name, each in FAMILIES.items() if each.op in types and name not in plan.families
    ]
    paper = design("paper", families, plan.values, limits=plan.limits)
    like = design("model-like", families, plan.values, limits=plan.limits)
    rest = design("model-like", others, plan.rest, limits=plan.rest_limits)
    # Together, so that all meet the same machine, and each op as often as every other.
    ops = list(dict.fromkeys((*paper.ops, *like.ops, *rest.ops)))
    timings = _timed(kept, ops, GRIDS * plan.budget)
    of_paper, of_like, of_rest = (
        [timings[key] for op in each.ops if (key := _key(op)) in timings]
        for each in (paper, like, rest)
    )
    return Grids(of_paper, of_like, of_rest, paper)


def _timed(kept: Kept, ops: Sequence[Op], budget: float) -> dict[Key, OpTiming]:
    """Return the timings of ops; time those that no earlier run did."""

    def work(progress: Progress) -> dict[str, int]:
        before = _known(kept)
        missing = [op for op in ops if _key(op) not in before]
        share = len(missing) / len(ops)
        settings = Settings(budget=share * budget, caches=("cold",))
        if missing:
            complete(profile(missing, settings, SOURCE, kept.database.add, progress))
        return {"ops": len(ops), "of_an_earlier_run": len(ops) - len(missing)}

    kept.part("grids", work)
    return _known(kept)


def _known(kept: Kept) -> dict[Key, OpTiming]:
    """Return what there is of the grids in the database."""
    found = kept.database.timings(kept.environment, cache="cold")
    return {_key(timing.op): timing for timing in found if timing.source == SOURCE}


def _key(op: Op) -> Key:
    return op.name, op.arguments


def lines_of(grids: Grids) -> list[Line]:
    """Return the lines of the paper's design along which at least five values were timed."""
    known = {_key(each.op): each.duration for each in grids.paper}
    timed = [
        (family, point, op, known[_key(op)])
        for op, (family, point) in zip(grids.points.ops, grids.points.points, strict=True)
        if _key(op) in known
    ]
    lines = []
    for name in dict.fromkeys(family for family, *_ in timed):
        base = {argument.name: argument.base for argument in FAMILIES[name].arguments}
        for argument in base:
            along = sorted(
                (point[argument], op.flops or op.bytes_read + op.bytes_written, seconds)
                for family, point, op, seconds in timed
                if family == name and all(point[o] == base[o] for o in base if o != argument)
            )
            if len(along) >= LEAST:
                values, work, seconds = zip(*along, strict=True)
                lines.append(
                    Line(name, argument, values, fit_line(values, seconds), fit_line(work, seconds))
                )
    return lines


def compare(kept: Kept, grids: Grids, models: Sequence[OpTiming]) -> list[DesignError]:
    """Return the errors of both designs on the models' ops."""
    held_out = list({(t.op, t.cache): t for t in models}.values())
    designs = {"paper": grids.paper, "model-like": grids.model_like}

    def work(_: Progress) -> dict[str, list[dict[str, object]]]:
        errors = compare_designs(designs, held_out)
        return {"errors": [{n: getattr(e, n) for n in e.__slots__} for e in errors]}

    stored = kept.part("comparing designs", work)
    return [DesignError(**each) for each in stored["errors"]]

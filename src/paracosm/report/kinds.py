"""Which module shows which kind of run."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.errors import InputError
from paracosm.report import emulate, predict, relax, train
from paracosm.report.run import Run
from paracosm.report.section import Section

__all__ = ["sections"]

KINDS = {
    "train": train.sections,
    "relax": relax.sections,
    "predict": predict.sections,
    "emulate": emulate.sections,
}


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return the sections of charts of runs of one kind; none for a kind without charts.

    Raises:
        InputError: the runs are of different kinds.
    """
    kinds = sorted({str(run.folder.kind) for run in runs})
    if len(kinds) > 1:
        raise InputError(f"runs of different kinds do not compare: {', '.join(kinds)}")
    show = KINDS.get(kinds[0])
    return show(runs) if show else []

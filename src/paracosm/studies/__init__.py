"""Studies, the runs that they describe, and the folders that runs write."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from
from paracosm.results.kind import Hooks, Outcome

if TYPE_CHECKING:
    from paracosm.studies.kinds import KINDS
    from paracosm.studies.run import (
        FailedPoint,
        SweepRow,
        finished_runs_in,
        read_sweep,
        run_point,
        run_sweep,
        runs_in,
    )
    from paracosm.studies.run_folder import RunFolder
    from paracosm.studies.study import Point, Study, load_study

__all__ = [
    "KINDS",
    "FailedPoint",
    "Hooks",
    "Outcome",
    "Point",
    "RunFolder",
    "Study",
    "SweepRow",
    "finished_runs_in",
    "load_study",
    "read_sweep",
    "run_point",
    "run_sweep",
    "runs_in",
]

__getattr__ = exported_from(
    __name__,
    {
        "kinds": ("KINDS",),
        "run": (
            *("FailedPoint", "SweepRow", "finished_runs_in", "read_sweep"),
            *("run_point", "run_sweep", "runs_in"),
        ),
        "run_folder": ("RunFolder",),
        "study": ("Point", "Study", "load_study"),
    },
)

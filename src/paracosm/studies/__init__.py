"""Studies, the runs that they describe, and the folders that runs write."""

from paracosm.results.kind import Hooks, Outcome
from paracosm.results.metrics import Series
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
    "Series",
    "Study",
    "SweepRow",
    "finished_runs_in",
    "load_study",
    "read_sweep",
    "run_point",
    "run_sweep",
    "runs_in",
]

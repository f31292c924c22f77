"""Studies, what they run, and what they leave behind: the run folder."""

from paracosm.study.run import run_point
from paracosm.study.run_folder import RunFolder
from paracosm.study.series import Series
from paracosm.study.study import Point, Study, load_study
from paracosm.study.sweep import run_sweep

__all__ = ["Point", "RunFolder", "Series", "Study", "load_study", "run_point", "run_sweep"]

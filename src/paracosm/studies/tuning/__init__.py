"""Tuning of a study: the search for the arguments with which a number of its summary is best."""

from paracosm.studies.tuning.config import TuneConfig
from paracosm.studies.tuning.search import Tuning, tune

__all__ = ["TuneConfig", "Tuning", "tune"]

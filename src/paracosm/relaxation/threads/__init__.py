"""Real parallel runs on this machine: threads that relax, measured phase by phase."""

from paracosm.relaxation.threads.measure import measure
from paracosm.relaxation.threads.measurement import Case, Measurement, phases
from paracosm.relaxation.threads.run import Limits, run_threads

__all__ = ["Case", "Limits", "Measurement", "measure", "phases", "run_threads"]

"""Real parallel runs on this machine: threads that relax, measured phase by phase."""

from paracosm.relaxation.threads.measure import measure
from paracosm.relaxation.threads.measurement import (
    Case,
    Measurement,
    Phases,
    Recording,
    load_measurement,
    phases,
)
from paracosm.relaxation.threads.run import VARIANTS, Limits, Run, run_threads

__all__ = [
    "VARIANTS",
    "Case",
    "Limits",
    "Measurement",
    "Phases",
    "Recording",
    "Run",
    "load_measurement",
    "measure",
    "phases",
    "run_threads",
]

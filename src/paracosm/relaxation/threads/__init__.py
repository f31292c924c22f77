"""Real parallel runs on this machine: threads that relax, measured phase by phase."""

from paracosm.relaxation.threads.figures import draw_figures
from paracosm.relaxation.threads.measure import measure
from paracosm.relaxation.threads.measured_file import load_measurement
from paracosm.relaxation.threads.measurement import Case, Measurement, Phases, phases
from paracosm.relaxation.threads.recording import Recording
from paracosm.relaxation.threads.run import VARIANTS, Limits, Run, run_threads
from paracosm.relaxation.threads.tables import render_table1, render_table3, table1, table3

__all__ = [
    "VARIANTS",
    "Case",
    "Limits",
    "Measurement",
    "Phases",
    "Recording",
    "Run",
    "draw_figures",
    "load_measurement",
    "measure",
    "phases",
    "render_table1",
    "render_table3",
    "run_threads",
    "table1",
    "table3",
]

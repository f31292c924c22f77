"""Real parallel runs on this machine: threads that relax, measured phase by phase."""

from paracosm.relaxation.threads.figures import (
    draw_figures,
    render_table1,
    render_table3,
    table1,
    table3,
)
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

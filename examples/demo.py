"""What `make demo` shows: where asynchronous SGD breaks, and what repairs it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from paracosm.cli import main
from paracosm.studies import load_study

STUDY = Path(__file__).with_name("demo.yaml")
OUT = Path("runs/demo")
SWEEP = OUT / "sweep.json"
GUESSING = 2.303  # ln 10: the loss of a model that has learnt nothing about ten classes


def final_losses(algorithm: str) -> dict[int, float]:
    """Return the final training loss of the demo's runs of `algorithm`, by number of workers."""
    return {
        row["workers"]: math.inf if row["final_loss"] is None else row["final_loss"]
        for row in json.loads(SWEEP.read_text())
        if row["algorithm"] == algorithm
    }


def in_words(losses: dict[int, float]) -> str:
    return ", ".join(f"{loss:.3f} with {workers}" for workers, loss in losses.items())


def is_complete() -> bool:
    points = load_study(STUDY).points(str(STUDY))
    return SWEEP.is_file() and len(json.loads(SWEEP.read_text())) == len(points)


jobs = str(min(4, os.cpu_count() or 1))
code = main(["train", str(STUDY), "--out", str(OUT), "--jobs", jobs])
# A run whose loss explodes makes the code 1, and is what the demo is about; a missing run is not.
if code == 2 or not is_complete():
    raise SystemExit(code)

print(f"""
Final training loss (a model that only guesses has {GUESSING}):
  synchronous             {in_words(final_losses("ssgd"))} workers
  asynchronous            {in_words(final_losses("asgd"))} workers
  asynchronous, repaired  {in_words(final_losses("staleness-aware"))} workers
""")
broken = [workers for workers, loss in final_losses("asgd").items() if not loss < GUESSING / 2]
if broken:
    many = " and ".join(map(str, broken))
    print(
        f"Plain asynchronous SGD does not learn with {many} workers: by the time that a gradient\n"
        "arrives, the parameters it was computed from are too old. Dividing the step by the\n"
        "gradient's staleness (staleness-aware) repairs it.",
    )
print(f"Open {OUT / 'report.html'} in a browser.")
print("To use the command `paracosm` in this shell: source .venv/bin/activate")

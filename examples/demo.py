"""What `make demo` shows: where asynchronous SGD breaks, and what repairs it."""

from __future__ import annotations

import os
from pathlib import Path

from paracosm.cli import main
from paracosm.study import RunFolder

STUDY = Path(__file__).with_name("demo.yaml")
OUT = Path("runs/demo")
GUESSING = 2.303  # ln 10: the loss of a model that has learnt nothing about ten classes


def final_losses(algorithm: str) -> dict[int, float]:
    """Return the final training loss of the demo's runs of `algorithm`, by number of workers."""
    runs = [RunFolder.open(folder) for folder in sorted(OUT.iterdir()) if folder.is_dir()]
    summaries = [run.summary for run in runs if run.summary is not None]
    found = {s["workers"]: s["final_loss"] for s in summaries if s["algorithm"] == algorithm}
    return dict(sorted(found.items()))


def in_words(losses: dict[int, float]) -> str:
    return ", ".join(f"{loss:.3f} with {workers}" for workers, loss in losses.items())


jobs = str(min(4, os.cpu_count() or 1))
main(["train", str(STUDY), "--out", str(OUT), "--jobs", jobs])

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

"""Figure 4: iteration time against a delay added to every all-reduce, by one command."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs import JobError
from tables import Table, milliseconds

__all__ = ["COMMAND", "measure_figure4", "tables_of"]

Say = Callable[[str], None]

COMMAND = (
    *("emulate", "--delays", "all_reduce 0ms..8ms/9", "--world-size", "8"),
    # As measured: transfers take turns.
    *("--latency", "50us", "--bandwidth", "10Gbit/s", "--sharing", "serial"),
)
LIMIT = 600.0  # seconds
_PARACOSM = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"


def measure_figure4(quick: bool, say: Say) -> dict[str, Any]:
    """Run the command, and return what its summary says.

    Raises:
        JobError: it failed.
    """
    iterations = "20" if quick else "60"
    train = str(Path(__file__).with_name("train.py"))
    with tempfile.TemporaryDirectory(prefix="neuronabox-") as folder:
        out = Path(folder) / "run"
        command = [*COMMAND, "--out", str(out), train, "--iterations", iterations]
        say("paracosm " + " ".join([*COMMAND, "train.py", "--iterations", iterations]))
        done = subprocess.run(
            [sys.executable, "-c", _PARACOSM, *command],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode:
            raise JobError(f"paracosm emulate ended with {done.returncode}: {done.stderr.strip()}")
        summary = json.loads((out / "summary.json").read_text())
    return {"delays": summary["delays"], "knee": summary["knee"], "iterations": int(iterations)}


def tables_of(measured: Mapping[str, Any]) -> list[Table]:
    """Return iteration times by delay, and what the knee says."""
    rows = [
        [
            f"{1e3 * row['delay']:g}",
            milliseconds(row["iteration_time"]["median"]),
            milliseconds(row["breakdown"]["exposed_communication"]),
            milliseconds(row["breakdown"]["compute"]),
        ]
        for row in measured["delays"]
        if row["iteration_time"]
    ]
    return [
        Table(
            "An added delay in every all-reduce, eight ranks (milliseconds)",
            ("delay", "iteration", "exposed communication", "compute"),
            rows,
            measured["knee"].get("sentence", measured["knee"].get("reason", "")),
        )
    ]

"""The figures of `docs/performance.md`, stored by the benchmarks that measure them.

STORE_RESULTS=1 python benchmarks/engine.py && python docs/made_tables.py
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from paracosm.studies.run_folder import describe_environment

FILE = Path(__file__).parent / "results" / "performance.json"


def store_result(what: str, measured: str, file: Path = FILE) -> None:
    """Store what a benchmark has measured: the row about `what`."""
    command = f"`benchmarks/{Path(sys.argv[0]).name}`"
    store_row(file, "what", {"what": what, "measured": measured, "command": command})


def store_row(file: Path, key: str, row: Mapping[str, str]) -> None:
    """Replace the row of a file with the same `key`, or add it, with today's date and this machine.

    Without STORE_RESULTS in the environment nothing is stored: a short run is no result.
    """
    if not os.environ.get("STORE_RESULTS"):
        return
    stored = json.loads(file.read_text())
    here = describe_environment()
    dated = {
        **row,
        "date": f"{datetime.now().astimezone():%Y-%m-%d}",
        "machine": f"{here['processor']}, {here['cores']} cores",
    }
    places = [place for place, each in enumerate(stored["rows"]) if each[key] == row[key]]
    if places:
        stored["rows"][places[0]] = dated
    else:
        stored["rows"].append(dated)
    file.write_text(f"{json.dumps(stored, indent=2)}\n")

"""Running scripts in processes of their own."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paracosm.emulation.records import Record

SCRIPTS = Path(__file__).parent.parent / "scripts"
LIMIT = 120  # seconds


@dataclass(frozen=True)
class Ran:
    """What a process came to."""

    exit_code: int
    out: str
    err: str
    records: list[Record]

    def of(self, kind: type[Record]) -> list[Any]:
        """Return the records of a kind."""
        return [record for record in self.records if type(record) is kind]

    @property
    def loss(self) -> float:
        """The final loss that it printed."""
        assert "final loss" in self.out, self.err
        return float(self.out.split("final loss ")[1].split()[0])


def environment(**changes: str) -> dict[str, str]:
    """Return an environment in which nothing is said of ranks or of Paracosm."""
    said = ("PARACOSM_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "MASTER_", "TORCHELASTIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(said)}
    return kept | changes


def start(command: list[str], **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with changes of the environment."""
    return subprocess.run(
        command,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

"""What a process of an emulated job is told when it starts, through its environment."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paracosm.emulation.config import EmulateConfig

__all__ = ["VARIABLE", "Setting"]

VARIABLE = "PARACOSM_EMULATION"
"""Environment variable that holds a `Setting`."""


@dataclass(frozen=True)
class Setting:
    """The setting of one real rank, or of the emulator (rank -1).

    Attributes:
        config: what is emulated.
        seed: of everything that is random.
        rank: of this process; -1 for the emulator.
        records: file that it writes its records to.
        plan: file to write the plan to, in backend mode; None for no plan.
    """

    config: EmulateConfig
    seed: int
    rank: int
    records: Path
    plan: Path | None = None

    def to_text(self) -> str:
        """Return the value of the environment variable."""
        asked: dict[str, Any] = self.config.model_dump(
            mode="json", exclude=self.config.without_effect()
        )
        return json.dumps(
            {
                "config": asked,
                "seed": self.seed,
                "rank": self.rank,
                "records": str(self.records),
                "plan": None if self.plan is None else str(self.plan),
            }
        )

    @classmethod
    def from_environment(cls) -> Setting:
        """Return the setting of this process."""
        told = json.loads(os.environ[VARIABLE])
        return cls(
            EmulateConfig.model_validate(told["config"]),
            told["seed"],
            told["rank"],
            Path(told["records"]),
            None if told["plan"] is None else Path(told["plan"]),
        )

"""What failures cost a job, as shares of its workers' time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paracosm.results import FailureSummary


@dataclass
class FailureCosts:
    """What happened to a job of so many workers; times in any one unit.

    Attributes:
        stops, failures, absences: how often the whole job stopped, a single worker failed, and one
            went by itself.
        checkpoints: that were saved.
        saving, stopped, lost: time of the whole job: spent on checkpoints, until restarts were
            over, and of work that was lost with them.
        abandoned, away: time of single workers, summed: of work that came to nothing, and until
            they were back.
        kept, undone: steps that last, and that a restart has undone.
    """

    workers: int
    stops: int = 0
    failures: int = 0
    absences: int = 0
    checkpoints: int = 0
    saving: float = 0
    stopped: float = 0
    lost: float = 0
    abandoned: float = 0
    away: float = 0
    kept: int = 0
    undone: int = 0

    def summary(self, total: float, second: float = 1.0, **facts: Any) -> FailureSummary:
        """Return the summary of a job that took `total`, where a `second` is so many units.

        Args:
            facts: the other fields of the summary.
        """
        workers = self.workers
        running = total - self.saving - self.stopped
        total = max(total, 1e-12 * second)
        saving, stopped = self.saving / total, self.stopped / total
        lost = self.lost / total + self.abandoned / total / workers
        restarting = stopped + self.away / total / workers
        made = self.kept + self.undone
        return FailureSummary(
            stops=self.stops,
            failures=self.failures,
            absences=self.absences,
            checkpoints=self.checkpoints,
            effective=max(0.0, 1 - saving - lost - restarting),
            lost=lost,
            saving=saving,
            restarting=restarting,
            waiting=stopped * (workers - 1) / workers,
            throughput=made / running * second if running > 0 else 0.0,
            goodput=self.kept / total * second,
            **facts,
        )

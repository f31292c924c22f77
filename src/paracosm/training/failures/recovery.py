"""The failures in a run on the engine, and the recovery from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from pydantic import Field

from paracosm.errors import InputError
from paracosm.faults.fault import Fault, Faults, OnNode
from paracosm.faults.models import Lose, Slow, Stop
from paracosm.faults.node_failures import FailureFields, Mtbf
from paracosm.faults.strikes import check_strikes
from paracosm.quantities import Duration
from paracosm.results import FailureSummary
from paracosm.training.availability import Presence

Recovery = Literal["restart", "rejoin", "elastic"]
"""What is done when a worker fails.

restart: the whole job goes back to its newest checkpoint, and everybody begins anew.
rejoin: the others go on as far as the algorithm lets them, and else wait for it; once it is back,
    it reads the parameters as they are by then.
elastic: updates do without those that are away; one that is back takes part from the next on.
"""

SYNCHRONOUS: tuple[Recovery, ...] = ("restart", "rejoin", "elastic")
"""Those of an algorithm whose updates wait for all workers."""


@dataclass(frozen=True)
class Failures:
    """The failures and recovery of one run; times in seconds."""

    nodes: Mtbf  # between random failures of one node; infinite where none fails so
    restart: float  # from such a failure until its node, or the job, begins a step
    faults: tuple[Fault, ...]
    recovery: Recovery
    interval: float | None  # of work between two checkpoints; None: there are none
    cost: float  # that a checkpoint takes
    resend_after: float | None  # until a message that was lost is sent again; None: never is
    in_step: bool  # whether a checkpoint waits until all servers are at one version
    job_mtbf: float  # between random failures that stop the whole job
    availability: Presence | None  # when workers are there; None: always

    def __str__(self) -> str:
        said = [str(fault) for fault in self.faults]
        if self.availability is not None:
            said.insert(0, f"workers there {self.availability}")
        if self.nodes != Mtbf():
            said.insert(0, str(self.nodes))
        return ", ".join([*said, f"recovery: {self.recovery}"])


class FaultFields(FailureFields):
    """The fields of a configuration that say what fails while single steps are simulated."""

    fault: Faults = Field(
        (),
        description='what goes wrong: "stop(30s) on worker 3 at 10s", "slow(3x, 4s) on worker 2 at '
        '5s", "lose(1%)", several separated by ;',
    )
    recovery: Recovery | None = Field(
        None,
        description=(
            "after a worker fails: restart the job from a checkpoint (restart), wait for "
            "it to rejoin (rejoin), update without it (elastic)"
        ),
    )
    resend_after: Duration | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="time until a lost message is sent again (default: never)",
    )

    @property
    def worker_availability(self) -> Presence | None:
        """The availability of workers that come and go; None if they stay."""
        return None

    @property
    def fails(self) -> bool:
        """Whether any node may fail or leave."""
        return bool(self.mtbf or self.fault or self.worker_availability)

    def own_recovery(self, recoveries: Sequence[Recovery]) -> Recovery:
        """Return the configured or default recovery; elastic, if possible, where workers leave."""
        if not recoveries:
            return self.recovery or "rejoin"
        return self.recovery or recoveries[-1 if self.worker_availability else 0]

    def failures(
        self, recoveries: Sequence[Recovery], workers: int, servers: int
    ) -> Failures | None:
        """Return the failures of a run of so many nodes; None where nothing fails.

        Args:
            recoveries: those that the algorithm supports, the default first.

        Raises:
            InputError: the run does not support a fault, or a cost is missing.
        """
        if not self.fails:
            return None
        for fault in self.fault:
            check_strikes(fault, workers, servers)
        recovery = self.own_recovery(recoveries)
        restarts = recovery == "restart"
        of_job = self.job_failures(workers, servers, stops_together=restarts)
        random = inf if of_job is None else of_job.mtbf
        interval = None
        if self._stops_job(recovery, bool(servers)):
            for fault in self.fault:
                if isinstance(fault.model, Stop) and fault.model.duration == inf:
                    raise InputError(
                        f'fault "{fault}": the job waits for its node, which never returns: '
                        "write stop(30s)"
                    )
            interval = self.checkpoint_interval(random)
        return Failures(
            nodes=self.mtbf or Mtbf(),
            restart=0.0 if of_job is None else of_job.restart,
            faults=self.fault,
            recovery=recovery,
            interval=interval,
            cost=self.checkpoint_cost or 0.0,
            resend_after=self.resend_after,
            in_step="restart" in recoveries,
            job_mtbf=random,
            availability=self.worker_availability,
        )

    def check_survival(
        self, algorithm: str, recoveries: Sequence[Recovery], in_checkpoints: bool
    ) -> None:
        """Raise InputError for failures that an algorithm cannot stand."""
        if self.worker_fails and not recoveries:
            raise InputError(
                f"{algorithm} cannot continue after a worker fails, since state of workers and "
                "server would be lost: use only slow nodes and lost messages"
            )
        restarts = self.own_recovery(recoveries) == "restart" and self.worker_fails
        if restarts and self.worker_availability is not None:
            raise InputError(
                f"availability: {algorithm} would restart whenever a worker leaves: choose one "
                "whose recovery is rejoin or elastic, such as asgd or ssgd, or leave availability "
                "out"
            )
        if not in_checkpoints and (restarts or self._server_fails()):
            raise InputError(
                f"{algorithm} cannot restart from a checkpoint of the parameters, since its "
                "servers keep other state: let no server fail"
            )

    def idle_faults(self, recoveries: Sequence[Recovery], has_servers: bool) -> dict[str, set[str]]:
        """Return fields without effect on a run on the engine, by reason.

        Args:
            recoveries: as in `failures`.
        """
        idle: dict[str, set[str]] = {}
        costs = {"checkpoint_cost", "checkpoint_every"}
        if not any(isinstance(fault.model, Lose) for fault in self.fault):
            idle["no message is lost: give --fault lose(1%)"] = {"resend_after"}
        if self.mtbf is None:
            idle["no node fails at random: give --mtbf"] = {"restart_cost"}
        if not self.worker_fails:
            idle["no worker fails or goes: give --mtbf, --fault or --availability"] = {"recovery"}
        if not self._stops_job(self.own_recovery(recoveries), has_servers):
            if self.mtbf is not None and self.restart_cost is None:
                costs.remove("checkpoint_cost")  # it stands for the restart's
            idle["nothing restarts the job from a checkpoint"] = costs
        return idle

    @property
    def worker_fails(self) -> bool:
        """Whether any worker may stop."""
        leave = self.worker_availability is not None
        return (
            leave
            or (self.mtbf is not None and self.mtbf.worker != inf)
            or any(
                fault.where is None
                or (isinstance(fault.where, OnNode) and fault.where.kind == "worker")
                for fault in self.fault
                if isinstance(fault.model, Stop)
            )
        )

    def _stops_job(self, recovery: Recovery, has_servers: bool) -> bool:
        """Whether something restarts the whole job from a checkpoint."""
        return (has_servers and self._server_fails()) or (
            recovery == "restart" and self.worker_fails
        )

    def _server_fails(self) -> bool:
        return (self.mtbf is not None and self.mtbf.server != inf) or any(
            isinstance(fault.where, OnNode) and fault.where.kind == "server"
            for fault in self.fault
            if isinstance(fault.model, Stop)
        )

    def slows_servers(self) -> list[Fault]:
        """Return the faults that make servers compute more slowly."""
        return [
            fault
            for fault in self.fault
            if isinstance(fault.model, Slow)
            and isinstance(fault.where, OnNode)
            and fault.where.kind == "server"
        ]


@dataclass
class FailureCosts:
    """Failures and their cost to a job; times in any one unit.

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

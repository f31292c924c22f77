"""What an algorithm is: what each worker does and, where there are servers, what a server does.

An algorithm is a frozen dataclass whose fields are its parameters and whose coroutines are written
as one would explain them: `await me.compute_gradient()`, `me.push(...)`, `await me.pull()` at a
worker; `await server.receive()`, `await server.apply(...)`, `server.answer(...)` at a server. The
run's end, metrics, random streams and the difference between one and several servers are the roles'
concern (`paracosm.training.roles`), so the coroutines loop for ever. All values that they handle
are arrays with arithmetic (PyTorch vectors; vectors of length zero in timing-only mode). What an
update makes of gradients is said once (`weight`, `direction`), for servers and for schedules.

Adding one: write the class, list it in `registry.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.models import Optimizer
from paracosm.simulation.schedule import Rule as ScheduleRule
from paracosm.training.failures import Recovery
from paracosm.training.roles import ParameterServer, Topology, TrainingWorker
from paracosm.training.store import Rule


@dataclass(frozen=True)
class Algorithm:
    """Base of all algorithms: gradients go to parameter servers, fresh parameters come back."""

    name: ClassVar[str]
    topologies: ClassVar[tuple[Topology, ...]] = ("server",)
    # What may be done when a worker fails, the first by itself; see `recoveries_on`
    recoveries: ClassVar[tuple[Recovery, ...]] = ("rejoin",)
    in_checkpoints: ClassVar[bool] = (
        True  # whether a checkpoint of the stores has all that it needs
    )
    compensates: ClassVar[bool] = False  # whether `direction` looks at what has moved

    def outer(self) -> Rule | None:
        """Return a new rule that steps against the mean pseudo-gradient of workers' local steps.

        The optimizer of the run is then the one of these steps. None where workers send gradients:
        then it makes the step at the servers.
        """
        return None

    @property
    def fragments(self) -> int:
        """Into how many parts workers divide the parameters, to exchange each by itself."""
        return 1

    @property
    def interrupts(self) -> bool:
        """Whether workers may have to abandon a gradient before it is done."""
        return False

    @property
    def counts_examples(self) -> bool:
        """Whether how long a worker computes depends on how many examples its client has."""
        return False

    async def work(self, me: TrainingWorker) -> None:
        """What a worker does: compute a gradient, push it, pull the parameters, again."""
        while True:
            me.push(await me.compute_gradient())
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        """What a parameter server does; only where the topology is "server"."""
        raise TypeError(f"{self.name} has no parameter server")

    async def listen(self, me: TrainingWorker) -> None:
        """What a worker does beside its work when others speak to it; only among "peers"."""

    def check(self, workers: int, servers: int) -> None:
        """Raise InputError if it makes no sense with so many workers or servers."""

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Raise InputError if its formula is not one for steps of that optimizer."""

    def weight(self, staleness: int, workers: int) -> float:
        """Return the factor, above 0, of the step by a gradient that is `staleness` updates old."""
        return 1.0

    def direction(self, gradient: Any, moved: Any) -> Any:
        """Return the vector to step against.

        `moved` are the parameters as they are less those that the gradient was computed from; None
        unless the algorithm `compensates`.
        """
        return gradient

    def gradients_per_update(self, workers: int) -> int:
        """Return how many gradients go into one update."""
        return 1

    def rule(self, workers: int) -> ScheduleRule | None:
        """Return what servers do with what arrives, where a rule without values can say it.

        Such a schedule can be generated without running `work` and `serve`, many times faster.
        """
        return None

    def recoveries_on(self, topology: Topology) -> tuple[Recovery, ...]:
        """Return what may be done when a worker fails; the first is, where nobody asks for another.

        Without servers nobody can go on without a worker, unless the algorithm says so.
        """
        can_go_on = topology == "server" or "restart" in self.recoveries
        return self.recoveries if can_go_on else ("restart",)

    def topology_for(self, wanted: Topology | None) -> Topology:
        """Return `wanted`, or the algorithm's own topology when nothing is wanted."""
        if wanted is not None and wanted not in self.topologies:
            raise InputError(
                f'{self.name} does not run on topology "{wanted}": '
                f"use {' or '.join(self.topologies)}"
            )
        return wanted or self.topologies[0]

    def __str__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(changed)})" if changed else self.name

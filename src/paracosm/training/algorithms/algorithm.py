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
from paracosm.simulation.schedule import Rule
from paracosm.training.failures import Recovery
from paracosm.training.roles import ParameterServer, Topology, TrainingWorker


@dataclass(frozen=True)
class Algorithm:
    """Base of all algorithms: gradients go to parameter servers, fresh parameters come back."""

    name: ClassVar[str]
    topologies: ClassVar[tuple[Topology, ...]] = ("server",)
    # What may be done when a worker fails, in the first place the first; see `recoveries_on`
    recoveries: ClassVar[tuple[Recovery, ...]] = ("rejoin",)
    compensates: ClassVar[bool] = False  # whether `direction` looks at what has moved

    @property
    def server_step(self) -> float | None:
        """What servers multiply a mean by where workers send what their own steps changed.

        None where they send gradients: then the optimizer, at the servers, makes the step.
        """
        return None

    @property
    def interrupts(self) -> bool:
        """Whether workers may have to abandon a gradient before it is done."""
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

    def rule(self, workers: int) -> Rule | None:
        """Return what servers do with what arrives, where a rule without values can say it.

        Such a schedule can be generated without running `work` and `serve`, many times faster.
        """
        return None

    def recoveries_on(self, topology: Topology) -> tuple[Recovery, ...]:
        """Return what may be done when a worker fails; the first is, where nobody asks for another.

        Without servers nobody can go on without a worker, unless the algorithm says so.
        """
        can_go_on = topology == "server" or self.recoveries[0] == "restart"
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

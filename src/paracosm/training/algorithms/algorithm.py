"""What an algorithm is: what each worker does and, where there are servers, what a server does.

An algorithm is a frozen dataclass whose fields are its parameters and whose coroutines are written
as one would explain them: `await me.compute_gradient()`, `me.push(...)`, `await me.pull()` at a
worker; `await server.receive()`, `await server.apply(...)`, `server.answer(...)` at a server. The
run's end, metrics, random streams and the difference between one and several servers are the
concern of `worker.py` and `server.py`, so the coroutines loop for ever. All values that they handle
are arrays with arithmetic (PyTorch vectors; vectors of length zero in timing-only mode). What an
update makes of gradients is said once (`weight`, `direction`), for servers and for schedules.

Adding one: write the class. It is named as `file.py:Class` or `package.module:Class`, as
`file.py:Class(key=value)` with parameters; those that are Paracosm's own are in `registry.py`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.factory import named_function
from paracosm.models.optimizers import Optimizer
from paracosm.simulation.schedule import Rule as ScheduleRule
from paracosm.training.failures import SYNCHRONOUS, Recovery
from paracosm.training.named import write_named
from paracosm.training.server import ParameterServer
from paracosm.training.store import Direction, Rule
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class Algorithm:
    """Base of all algorithms: gradients go to parameter servers, fresh parameters come back."""

    name: ClassVar[str]  # in messages; by default that of the class
    topologies: ClassVar[tuple[Topology, ...]] = ("server",)
    has_rounds: ClassVar[bool] = False  # whether servers wait for all workers, by `receive_all`
    # What may be done when a worker fails, the first by itself; None: see `recoveries_on`
    recoveries: ClassVar[tuple[Recovery, ...] | None] = None
    in_checkpoints: ClassVar[bool] = True  # whether checkpoints of the stores have all it needs
    compensates: ClassVar[bool] = False  # whether `direction` looks at what has moved
    sends_parameters: ClassVar[bool] = False  # whether workers send what they have, not changes

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

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
    def sums(self) -> bool:
        """Whether an update is by the sum of gradients and not by their mean."""
        return False

    @property
    def pushes_only_changes(self) -> bool:
        """Whether servers learn nothing of clients but changes by local steps, which are averaged.

        Then clipping and noise hide who took part.
        """
        return self.outer() is not None

    @property
    def lets_clients_change(self) -> bool:
        """Whether at each answer another client may take a worker's place.

        So where nothing stays at the worker, nor at servers of whom they have answered.
        """
        return True

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
        interrupts = self.interrupts
        while True:
            if not interrupts:
                me.push(await me.compute_gradient())
            elif (gradient := await me.compute_gradient_unless_answered()) is not None:
                me.push(gradient)
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

    def compensation(self) -> Direction:
        """Return `direction` for one store, with a state of its own where it has any."""
        return self.direction

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

        Servers go on without a worker, in rounds as a run asks for it. Without servers nobody does,
        unless an algorithm says so.
        """
        if self.recoveries is not None:
            return self.recoveries
        if topology != "server":
            return ("restart",)
        return SYNCHRONOUS if self.has_rounds else ("rejoin",)

    def topology_for(self, wanted: Topology | None) -> Topology:
        """Return `wanted`, or the algorithm's own topology when nothing is wanted."""
        if wanted is not None and wanted not in self.topologies:
            raise InputError(
                f'{self.name} does not run on topology "{wanted}": '
                f"use {' or '.join(self.topologies)}"
            )
        return wanted or self.topologies[0]

    @classmethod
    def reference(cls) -> str:
        """Return how the algorithm is named where one is asked for.

        Paracosm's own by their names; others as `file.py:Class`, where the file lies in the current
        folder or below it by a relative path, or as `package.module:Class`.
        """
        module = cls.__module__
        if module.startswith(f"{__package__}."):
            return cls.name
        if module == "__main__":
            module = getattr(sys.modules[module], "__file__", module)
        if module.endswith(".py"):
            path = Path(module).resolve()
            folder = Path.cwd()
            module = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
        return f"{module}:{cls.__qualname__}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Let the user's own, out of a file, be sent to processes that have not read it."""
        if not type(self).__module__.endswith(".py"):
            return super().__reduce__()
        arguments = {field.name: getattr(self, field.name) for field in fields(self)}
        return _made, (self.reference(), arguments)

    def __str__(self) -> str:
        return write_named(self, self.reference())


def named_algorithm(reference: str) -> type[Algorithm]:
    """Return the class that `file.py:Class` or `package.module:Class` names."""
    found: Callable[..., Any] = named_function("algorithm", reference)
    if not isinstance(found, type) or not issubclass(found, Algorithm) or found is Algorithm:
        what = "a class" if isinstance(found, type) else "a function"
        raise InputError(
            f'algorithm "{reference}": {found.__name__} is {what}, not a subclass of '
            "paracosm.training.Algorithm"
        )
    return found


def _made(reference: str, arguments: dict[str, Any]) -> Algorithm:
    return named_algorithm(reference)(**arguments)

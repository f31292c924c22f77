"""The interface of algorithms: what each worker does and, with servers, what a server does. An
algorithm is a frozen dataclass whose fields are its parameters and whose coroutines read like
pseudocode: `await me.compute_gradient()`, `me.push(...)`, `await me.pull()` at a worker; `await
server.receive()`, `await server.apply(...)`, `server.answer(...)` at a server. `worker.py` and
`server.py` handle the run's end, metrics, random streams and the number of servers, so the
coroutines loop forever. All values are arrays with arithmetic (PyTorch vectors; vectors of length
zero in timing-only mode). `weight` and `direction` define how an update uses gradients, for servers
and for schedules. To add an algorithm, write the class and name it as `file.py:Class` or
`package.module:Class`, with parameters as `file.py:Class(key=value)`; the built-in ones are in
`registry.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, PositiveInt

from paracosm.errors import InputError
from paracosm.factory import named_function, reference_to
from paracosm.models.optimizers import Optimizer
from paracosm.simulation.rules import Rule as ScheduleRule
from paracosm.training.failures.recovery import SYNCHRONOUS, Recovery
from paracosm.training.named import write_named
from paracosm.training.numerics.store import Direction, Rule
from paracosm.training.run_state import Topology
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker
from paracosm.validation import validated


@dataclass(frozen=True)
class Algorithm:
    """Base of all algorithms: gradients go to parameter servers, fresh parameters come back."""

    name: ClassVar[str]  # in messages; by default that of the class
    topologies: ClassVar[tuple[Topology, ...]] = ("server",)
    has_rounds: ClassVar[bool] = False  # whether servers wait for all workers, by `receive_all`
    # possible recoveries after a worker fails, the default first; None: see `recoveries_on`
    recoveries: ClassVar[tuple[Recovery, ...] | None] = None
    in_checkpoints: ClassVar[bool] = True  # whether checkpoints of the stores are sufficient
    compensates: ClassVar[bool] = False  # whether `direction` uses the change since the read
    sends_parameters: ClassVar[bool] = False  # whether workers send parameters, not changes
    decides_by_losses: ClassVar[bool] = False  # whether what workers do depends on losses

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        for name in vars(cls):
            is_method = callable(getattr(Algorithm, name, None)) and not name.startswith("_")
            if is_method and not callable(getattr(cls, name)):
                raise InputError(f"{cls.name}: {name} is a method, not {getattr(cls, name)!r}")

    def outer(self) -> Rule | None:
        """Return a new rule that steps against the mean pseudo-gradient of workers' local steps.
        The run's optimizer then makes the local steps. None where workers send gradients: then it
        makes the step at the servers.
        """
        return None

    def stepper(self, lr: float) -> Rule | None:
        """Return a new rule that makes the steps in place of the run's optimizer, with the same
        learning rate; None where the optimizer makes them.
        """
        return None

    @property
    def fragments(self) -> int:
        """Number of parts of the parameters that are exchanged separately."""
        return 1

    @property
    def sums(self) -> bool:
        """Whether an update uses the sum of gradients instead of their mean."""
        return False

    @property
    def pushes_only_changes(self) -> bool:
        """Whether servers receive only averaged changes by local steps from clients, so that
        clipping and noise hide participation.
        """
        return self.outer() is not None

    @property
    def lets_clients_change(self) -> bool:
        """Whether clients may change at each answer: no state about a worker's client is kept."""
        return True

    @property
    def interrupts(self) -> bool:
        """Whether workers may abandon an unfinished gradient."""
        return False

    @property
    def takes_first(self) -> bool:
        """Whether a round ends with the first workers that have done their part."""
        return False

    @property
    def counts_examples(self) -> bool:
        """Whether a worker's computing time depends on its client's number of examples."""
        return False

    async def work(self, me: TrainingWorker) -> None:
        """Run a worker: compute a gradient, push it, pull the parameters, repeat."""
        interrupts = self.interrupts
        while True:
            if not interrupts:
                me.push(await me.compute_gradient())
            elif (gradient := await me.compute_gradient_unless_answered()) is not None:
                me.push(gradient)
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        """Run a parameter server; only with the topology "server".

        In rounds it updates by what all workers have sent, and answers all.
        """
        if not self.has_rounds:
            raise InputError(f"{self.name}: define serve, or set has_rounds")
        while True:
            await server.apply(await server.receive_all())
            server.answer(*server.workers)

    async def listen(self, me: TrainingWorker) -> None:
        """Answer messages of other workers; only with the topology "peers"."""

    def check(self, workers: int, servers: int) -> None:
        """Raise InputError unless it supports these numbers of workers and servers."""

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Raise InputError unless its formula allows steps of that optimizer."""

    def weight(self, staleness: int, workers: int) -> float:
        """Return the factor, above 0, of the step by a gradient that is `staleness` updates old."""
        return 1.0

    def direction(self, gradient: Any, moved: Any) -> Any:
        """Return the vector to step against.

        `moved` is the change of the parameters since the gradient's read; None unless the algorithm
        `compensates`.
        """
        return gradient

    def compensation(self) -> Direction:
        """Return `direction` for one store, with its own state if any."""
        return self.direction

    def gradients_per_update(self, workers: int) -> int:
        """Return the number of gradients per update."""
        return 1

    def rule(self, workers: int) -> ScheduleRule | None:
        """Return the servers' rule, if it does not depend on values; None otherwise. Such a
        schedule is generated without running `work` and `serve`, many times faster.
        """
        return None

    def recoveries_on(self, topology: Topology) -> tuple[Recovery, ...]:
        """Return the possible recoveries after a worker fails, the default first. Servers continue
        without a worker, in rounds if the run configures it. Without servers the others stop,
        unless an algorithm overrides this.
        """
        if self.recoveries is not None:
            return self.recoveries
        if topology != "server":
            return ("restart",)
        return SYNCHRONOUS if self.has_rounds else ("rejoin",)

    def topology_for(self, wanted: Topology | None) -> Topology:
        """Return `wanted`, or the algorithm's default topology."""
        if wanted is not None and wanted not in self.topologies:
            raise InputError(
                f'{self.name} does not run on topology "{wanted}": '
                f"use {' or '.join(self.topologies)}"
            )
        return wanted or self.topologies[0]

    @classmethod
    def reference(cls) -> str:
        """Return the name by which the algorithm is selected: the built-in name, or
        `file.py:Class`, where the file lies in the current folder or below it by a relative path,
        or as `package.module:Class`.
        """
        return cls.name if cls.__module__.startswith(f"{__package__}.") else reference_to(cls)

    def __str__(self) -> str:
        return write_named(self, self.reference())


def named_algorithm(reference: str) -> type[Algorithm]:
    """Return the class that `file.py:Class` or `package.module:Class` names."""
    function: Callable[..., Any] = named_function("algorithm", reference)
    if (
        not isinstance(function, type)
        or not issubclass(function, Algorithm)
        or function is Algorithm
    ):
        category = "a class" if isinstance(function, type) else "a function"
        raise InputError(
            f'algorithm "{reference}": {function.__name__} is {category}, not a subclass of '
            "paracosm.training.Algorithm"
        )
    return function


class _Own(BaseModel):
    """What a run relies on in an algorithm, and a class of the user's own may override."""

    model_config = ConfigDict(strict=True, defer_build=True)
    name: str
    topologies: tuple[Topology, ...] = Field(min_length=1)
    has_rounds: bool
    recoveries: tuple[Recovery, ...] | None
    in_checkpoints: bool
    compensates: bool
    sends_parameters: bool
    decides_by_losses: bool
    fragments: PositiveInt
    sums: bool
    pushes_only_changes: bool
    lets_clients_change: bool
    interrupts: bool
    takes_first: bool
    counts_examples: bool
    gradients_per_update: PositiveInt
    rule: InstanceOf[ScheduleRule] | None
    outer: Callable[..., Any] | None
    stepper: Callable[..., Any] | None
    compensation: Callable[..., Any]
    recoveries_on: tuple[Recovery, ...]
    written: str


def check_own(algorithm: Algorithm) -> None:
    """Raise InputError where an attribute, or what a method returns, is of another kind."""
    methods = {
        "gradients_per_update": algorithm.gradients_per_update(1),
        "rule": algorithm.rule(1),
        "outer": algorithm.outer(),
        "stepper": algorithm.stepper(1.0),
        "compensation": algorithm.compensation(),
        "recoveries_on": algorithm.recoveries_on("server"),
        "written": algorithm.__str__(),  # not by `str`, which raises a TypeError of its own
    }
    values = {key: getattr(algorithm, key) for key in _Own.model_fields if key not in methods}
    validated(_Own, values | methods, f'algorithm "{algorithm.reference()}"')

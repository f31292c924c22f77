"""What the nodes of a job need to know of its failures, and what they count of them."""

from collections.abc import Callable, Sequence

from paracosm.engine import Worker
from paracosm.faults.models import Lose, Slow
from paracosm.faults.strikes import Periods
from paracosm.rng import TrainingStream, generator
from paracosm.training.failures.failure_queue import Clock, strikes_of
from paracosm.training.failures.recovery import FailureCosts, Failures
from paracosm.training.numerics.store import Store


class Conditions:
    """Slow periods and lost messages of a job's nodes, from life to life.

    Attributes:
        elastic: whether updates do without workers that are away.
        resend_after: seconds; None: lost messages are never sent again.
        stores: of the job.
        is_back: called when a worker continues, with its name and since when it was away, on the
            engine's clock.
        resent, lost_messages: how many.
        requested, gradients: how many examples and gradients workers have begun to compute.
        dropped_examples: of gradients that a rule has dropped.
        lost_examples: of gradients that came to nothing.
    """

    stores: Sequence[Store]
    is_back: Callable[[str, float], None]

    def __init__(
        self,
        failures: Failures,
        clock: Clock,
        costs: FailureCosts,
        nodes: Sequence[str],  # names of all
        workers: Sequence[str],  # those that faults can meet
        servers: Sequence[str],
        seed: int,
    ) -> None:
        self.elastic = failures.recovery == "elastic"
        self.resend_after = failures.resend_after
        self.resent = self.lost_messages = self.requested = self.gradients = 0
        self.dropped_examples = self.lost_examples = 0
        self._clock = clock
        self._costs = costs
        self._chances = {
            name: generator(seed, TrainingStream.LOST_MESSAGES, number)
            for number, name in enumerate(nodes)
        }
        self._slow, self._losses = (
            Periods(strikes_of(kind, failures, workers, servers, seed)) for kind in (Slow, Lose)
        )

    def stretched(self, node: Worker, work: float) -> float:
        """Return the seconds that `work` takes on a node that begins to compute now."""
        return self._slow.stretched(node.name, self._clock.virtual(node.sim.now), work)

    def loses(self, source: Worker, target: Worker) -> bool:
        """Whether a message sent now will be lost."""
        now = self._clock.virtual(source.sim.now)
        faults = self._losses.at(now, source.name, target.name, "")
        if not faults or source.ports is target.ports:
            return False
        arrives = 1.0
        for fault in faults:
            assert isinstance(fault.model, Lose)
            arrives *= 1 - fault.model.percent / 100
        is_lost = bool(self._chances[source.name].random() >= arrives)
        self.lost_messages += is_lost
        return is_lost

    def request(self, sizes: Sequence[int]) -> None:
        """Count gradients that a worker begins to compute, by the examples of each."""
        self.requested += sum(sizes)
        self.gradients += len(sizes)

    def discard(self, examples: int, seconds: float) -> None:
        """Count work lost with the failure of one worker."""
        self.lost_examples += examples
        self._costs.abandoned += seconds

    def has_updated(self) -> None:
        """Note that the job makes progress."""
        self._slow.has_advanced()
        self._losses.has_advanced()

    def virtual(self, engine: float) -> float:
        """Return the virtual time of an instant on the engine's clock."""
        return self._clock.virtual(engine)

    def count_slowdowns(self, now: float) -> None:
        """Count the slow periods that have begun, looked at or not."""
        self._slow.at(now)

    @property
    def slowdowns(self) -> int:
        """How many slow periods have begun."""
        return self._slow.begun

    @property
    def lost_gradients(self) -> int:
        """How many gradients came to nothing, of mean size."""
        return round(self.lost_examples * self.gradients / max(1, self.requested))

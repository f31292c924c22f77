"""Workers that are drawn to a centre, and draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.named import at_least, below_1
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class EASGD(Algorithm):
    """theta_i <- theta_i - eta g_i(theta_i), and at every `period`th step
    d = a (theta_i - centre), theta_i <- theta_i - eta g_i(theta_i) - d, centre <- centre + d.

    So a gradient is one at the parameters of before the elastic move. The move before the first
    step, when all are equal, is left out. a is `elasticity`, or 0.9 / W when it is 0. An update, in
    the count of the run, is one move of the centre, which is also what is evaluated. Zhang,
    Choromanska, LeCun, "Deep Learning with Elastic Averaging SGD", 2015, algorithm 1 (asynchronous
    EASGD).
    """

    name: ClassVar[str] = "easgd"
    sends_parameters: ClassVar[bool] = True
    period: int = 4
    elasticity: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 1, "period")
        below_1(self, "elasticity")

    def _pull(self, workers: int) -> float:
        return self.elasticity or 0.9 / workers

    def gradients_per_update(self, workers: int) -> int:
        return self.period

    @property
    def lets_clients_change(self) -> bool:
        return False

    async def work(self, me: TrainingWorker) -> None:
        elasticity = self._pull(me.workers)
        mine = (await me.local_steps(self.period)).result().parameters
        while True:
            me.push(mine)
            centre = await me.pull()
            me.parameters = mine
            stepped = (await me.local_steps(1, of=self.period)).result().parameters
            me.parameters = mine = stepped - elasticity * (mine - centre)
            if self.period > 1:
                rest = await me.local_steps(self.period - 1, of=self.period)
                mine = rest.result().parameters

    async def serve(self, server: ParameterServer) -> None:
        elasticity = self._pull(len(server.workers))
        while True:
            push = await server.receive()
            centre = server.parameters
            await server.replace([push], centre + elasticity * (push.value - centre))
            server.answer(push.worker, parameters=centre)

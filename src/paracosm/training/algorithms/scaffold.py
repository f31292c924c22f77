"""Rounds of local training, corrected for what each client's data are off by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.models import Optimizer
from paracosm.training.algorithms.fedavg import FedAvg
from paracosm.training.failures import Recovery
from paracosm.training.named import above_0
from paracosm.training.rules import SGD, outer_rule
from paracosm.training.server import ParameterServer
from paracosm.training.store import Rule
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """Clients: K times y <- y - eta (g(y) - c_k + c), from y = theta on;
    c_k' = c_k - c + (theta - y) / (K eta).
    Server: theta <- theta - server_lr mean_k (theta - y_k), c <- c + sum_k (c_k' - c_k) / N.

    K is `steps`, or of `epochs` as in FedAvg. Each of N clients keeps a control variate c_k, the
    server keeps c; all begin as 0. Parameters and control variates travel both ways, so messages
    are twice as large. Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
    Learning", 2020, algorithm 1 with option II.
    """

    name: ClassVar[str] = "scaffold"
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ()
    in_checkpoints: ClassVar[bool] = False
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        above_0(self, "server_lr")

    @property
    def pushes_only_changes(self) -> bool:
        return False  # but control variates too

    def check_optimizer(self, optimizer: Optimizer) -> None:
        if optimizer != SGD:
            raise InputError(
                f"optimizer: the control variates of scaffold are means of gradients where local "
                f"steps are those of sgd, not of {optimizer}: leave it out"
            )

    def outer(self) -> Rule:
        return outer_rule(SGD, self.server_lr)

    async def work(self, me: TrainingWorker) -> None:
        zero = 0.0 * me.parameters
        while True:
            control = zero if me.beside is None else me.beside
            own = me.kept.get("control", zero)
            local = await me.local_steps(self.count(me), keep_state=False, shift=control - own)
            made = local.result()
            fresh = own - control + (local.parameters - made.parameters) / made.lr
            me.kept["control"] = fresh
            me.push(local, beside=fresh - own)
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        control = 0.0 * server.parameters
        while True:
            pushes = await server.receive_all()
            await server.apply(pushes)
            control = control + sum(push.beside for push in pushes) / server.clients
            server.answer(*server.workers, beside=control)

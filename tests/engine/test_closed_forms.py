"""Parameter-server loops whose times can be written down: one server, serialised ports.

Compute takes c, a transfer L in either direction, there are W workers.
"""

from __future__ import annotations

import pytest

from paracosm.engine import Simulator, Worker


class Server(Worker):
    """Answers after every message (asynchronous), or after one of each worker (synchronous)."""

    def __init__(self, workers: list[str], rounds: int, transfer: float, synchronous: bool) -> None:
        self.workers = workers
        self.rounds = rounds
        self.transfer = transfer
        self.synchronous = synchronous

    async def run(self) -> None:
        for _ in range(self.rounds):
            if self.synchronous:
                for _ in self.workers:
                    await self.recv()
                for worker in self.workers:
                    self.send(worker, delay=self.transfer)
            else:
                for _ in self.workers:
                    self.send(await self.recv(), delay=self.transfer)


class Client(Worker):
    def __init__(self, rounds: int, compute: float, transfer: float) -> None:
        self.rounds = rounds
        self.duration = compute
        self.transfer = transfer

    async def run(self) -> None:
        for _ in range(self.rounds):
            await self.compute(self.duration)
            self.send("server", self.name, delay=self.transfer)
            await self.recv()


def run(W: int, n: int, c: float, L: float, *, synchronous: bool) -> Simulator:
    sim = Simulator()
    names = [f"worker{index}" for index in range(W)]
    sim.add_worker("server", Server, names, n, L, synchronous)
    for name in names:
        sim.add_worker(name, Client, n, c, L)
    sim.start()
    return sim


@pytest.mark.parametrize(
    ("W", "n", "c", "L"),
    [(1, 7, 1.0, 0.5), (4, 10, 0.7, 0.11), (16, 5, 1.0, 0.3), (3, 4, 0.0, 1.0)],
)
def test_rounds_of_synchronous_exchange(W: int, n: int, c: float, L: float) -> None:
    """n (c + (W+1) L) + (W-1) L.

    The first round: all push at c, the last push is there after W transfers, the last answer after
    W more. From then on the rounds overlap: the k-th worker gets its answer k transfers after the
    first, computes, and its push falls into its own slot at the server, so that a round costs
    c + (W+1) L; only the last one also pays for its (W-1) further answers.
    """
    sim = run(W, n, c, L, synchronous=True)
    assert sim.now == pytest.approx(n * (c + (W + 1) * L) + (W - 1) * L, rel=1e-12)


@pytest.mark.parametrize(
    ("W", "c", "L"), [(2, 1.0, 0.1), (8, 1.0, 0.05), (8, 1.0, 0.4), (32, 1.0, 0.02)]
)
def test_throughput_of_asynchronous_exchange(W: int, c: float, L: float) -> None:
    """min(W / (c + 2 L), 1 / L): the workers are the limit, or the server's ports are."""
    n = 200
    sim = run(W, n, c, L, synchronous=False)
    assert W * n / sim.now == pytest.approx(min(W / (c + 2 * L), 1 / L), rel=0.05)


def test_utilisation_of_what_is_the_bottleneck() -> None:
    sim = run(8, 50, 1.0, 0.4, synchronous=False)
    server, worker = sim.workers["server"], sim.workers["worker3"]
    assert server.ports.receive.busy_time / sim.now > 0.95
    assert worker.compute_time == pytest.approx(50.0)
    assert worker.ports.send.busy_time == pytest.approx(50 * 0.4)

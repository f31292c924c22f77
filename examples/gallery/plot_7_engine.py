"""
A simulated computer is a coroutine
===================================

The engine below `paracosm train`: workers that send, receive and compute in virtual time, over links
with latency and bandwidth. Here a ring all-reduce is written by hand, and agrees with its formula.
"""

import matplotlib.pyplot as plt

from paracosm.cluster import Link, switch
from paracosm.engine import Simulator, Worker

SIZE, LINK = 100e6, Link(bandwidth=1.25e9, latency=20e-6)


class Rank(Worker):
    """Rank i of a ring: W - 1 steps reduce, W - 1 gather, each with a W-th of the data."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    async def run(self) -> None:
        following = f"worker{(self.rank + 1) % self.world}"
        for _ in range(2 * (self.world - 1)):
            self.send(following, "segment", size=SIZE / self.world)
            await self.recv()


def simulated(world: int) -> float:
    sim = Simulator(network=switch(workers=world, link=LINK))
    for rank in range(world):
        sim.add_worker(f"worker{rank}", Rank, rank, world)
    sim.start()
    return sim.now


worlds = [2, 4, 8, 16, 32, 64]
times = [simulated(world) for world in worlds]
closed = [2 * (w - 1) * (LINK.latency + SIZE / w / LINK.bandwidth) for w in worlds]

fig, axis = plt.subplots(figsize=(7, 4))
axis.plot(worlds, times, "o", label="simulated")
axis.plot(worlds, closed, label="2 (W - 1) (latency + size / (W bandwidth))")
axis.set(
    xscale="log",
    xticks=worlds,
    xticklabels=worlds,
    xlabel="ranks",
    ylabel="all-reduce of 100 MB (s)",
    ylim=(0, None),
)
axis.minorticks_off()
axis.legend()
fig.tight_layout()
plt.show()

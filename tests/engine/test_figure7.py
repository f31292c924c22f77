"""Figure 7 of the paper.

Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect".
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from paracosm.engine import Simulator, State, Worker

EXAMPLE = Path(__file__).parents[2] / "examples" / "ping_pong.py"

AS_PRINTED = """
class Ping(Worker):  # Define a worker inheriting Worker
    async def run(self):
        data = 'dummy'
        for i in range(3):
            self.send('pong', data, delay=0.1)  # send data
            data = await self.recv()  # recv data

class Pong(Worker):  # Define another worker inheriting Worker
    async def run(self):
        for i in range(3):
            data = await self.recv()  # recv data
            self.send('ping', data, delay=0.1)  # send data

sim = Simulator(log=True)  # create a Simulator
sim.addWorker('ping', Ping)  # create Ping Worker, named 'ping'
sim.addWorker('pong', Pong)  # create Pong Worker, named 'pong'
sim.start()  # start the simulation
"""


def test_the_program_as_printed_ends_at_0_6(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec("from paracosm.engine import Simulator, Worker\n" + AS_PRINTED, names)
    assert names["sim"].now == pytest.approx(0.6, abs=1e-12)
    assert len(capsys.readouterr().out.splitlines()) >= 6


def test_the_example_is_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(EXAMPLE))
    assert names["sim"].now == pytest.approx(0.6, abs=1e-12)
    assert "gets 'dummy' from pong" in capsys.readouterr().out


def test_messages_arrive_every_tenth_of_a_second() -> None:
    arrivals: list[tuple[str, float]] = []

    class Ping(Worker):
        async def run(self) -> None:
            for _ in range(3):
                self.send("pong", "dummy", delay=0.1)
                await self.recv()
                arrivals.append((self.name, self.sim.now))

    class Pong(Worker):
        async def run(self) -> None:
            for _ in range(3):
                data = await self.recv()
                arrivals.append((self.name, self.sim.now))
                self.send("ping", data, delay=0.1)

    sim = Simulator()
    ping = sim.add_worker("ping", Ping)
    pong = sim.add_worker("pong", Pong)
    assert ping.state is State.INITIAL
    sim.start()
    assert [name for name, _ in arrivals] == ["pong", "ping"] * 3
    assert [time for _, time in arrivals] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert ping.state is pong.state is State.DONE

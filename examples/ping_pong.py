"""Two workers play ping-pong: figure 7 of the paper, as printed, but for the import.

Duo Zhang, Yusuke Tanimura, Hidemoto Nakada, "A Hybrid Simulator to Analyze Gradient Staleness
Effect".
"""

from paracosm.engine import Simulator, Worker


class Ping(Worker):  # Define a worker inheriting Worker
    async def run(self):
        data = "dummy"
        for i in range(3):
            self.send("pong", data, delay=0.1)  # send data
            data = await self.recv()  # recv data


class Pong(Worker):  # Define another worker inheriting Worker
    async def run(self):
        for i in range(3):
            data = await self.recv()  # recv data
            self.send("ping", data, delay=0.1)  # send data


sim = Simulator(log=True)  # create a Simulator
sim.addWorker("ping", Ping)  # create Ping Worker, named 'ping'
sim.addWorker("pong", Pong)  # create Pong Worker, named 'pong'
sim.start()  # start the simulation

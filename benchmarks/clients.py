"""Memory and speed of training with many clients, of whom few take part at a time.

    python benchmarks/clients.py [--clients 100000] [--active 100] [--rounds 200] [--data]

With --data each client has 220 images of 28x28 of its own, made when it is drawn: of 100,000
clients 69 GB.
Each row is a process of its own: synchronous rounds, and buffers of ten changes, on the digits;
with everything that clients can have (availability, dropouts, time-outs, speeds and lines of their
own, a link of the server that they share), and without. Seconds are the processor's; peak memory
counts the libraries too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

EVERYTHING = {
    "availability": "onoff(exponential(10min), exponential(20min))",
    "dropout": 0.05,
    "client_speed": "lognormal(1, 0.5)",
    "client_uplink": "lognormal(10Mbit/s, 1)",
    "client_downlink": "lognormal(50Mbit/s, 1)",
    "bandwidth": "1Gbit/s",
}


class Images:
    """What each client has: noise around the mean of its label, and labels of two classes."""

    classes = 10

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, client: int) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(client)
        y = rng.choice(10, 2, replace=False)[rng.integers(0, 2, 220)]
        x = rng.normal(0, 1, (220, 1, 28, 28)).astype(np.float32)
        x[:, 0, 0] += 3 * (np.arange(28) == y[:, None])
        return x[:200], y[:200], x[200:], y[200:]


def load(clients: int) -> Images:
    return Images(clients)


def measure(
    clients: int, active: int, rounds: int, algorithm: str, everything: bool, own_data: bool
) -> None:
    """Run once and print what it took as JSON."""
    from paracosm.training import TrainConfig, train

    arguments = {
        "algorithm": algorithm,
        "clients": clients,
        "workers": active,
        **({"data": f"{__file__}:load"} if own_data else {"shards": "bootstrap(50)"}),
        "compute": "lognormal(1s, 0.3)",
        # As many changes in both kinds of run
        "updates": rounds if algorithm == "ssgd" else rounds * active // 10,
        "timeline": False,
        **(EVERYTHING if everything else {}),
        **({"round_timeout": "20s"} if everything and algorithm == "ssgd" else {}),
    }
    start = time.process_time()
    summary = train(TrainConfig.model_validate(arguments)).summary
    seconds = time.process_time() - start
    assert summary.clients is not None
    print(
        json.dumps(
            {
                "seconds": seconds,
                "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
                "took_part": summary.clients.took_part,
                "participations": summary.clients.participations,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--data", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("ALGORITHM", "EVERYTHING"))
    given = parser.parse_args()
    if given.one:
        algorithm, everything = given.one
        own = (given.clients, given.active, given.rounds)
        measure(*own, algorithm, everything == "yes", given.data)
        return
    print(f"{given.clients} clients, {given.active} at a time, {given.rounds} rounds' worth")
    print(f"{'algorithm':20}{'everything':>11}{'took part':>11}{'s':>7}{'rounds/s':>10}{'MB':>7}")
    for algorithm in ("ssgd", "fedbuff(buffer=10)"):
        for everything in ("no", "yes"):
            command = [sys.executable, __file__, "--one", algorithm, everything]
            command += ["--data"] if given.data else []
            for name in ("clients", "active", "rounds"):
                command += [f"--{name}", str(getattr(given, name))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            rate = found["participations"] / given.active / found["seconds"]
            print(
                f"{algorithm:20}{everything:>11}{found['took_part']:>11}{found['seconds']:7.1f}"
                f"{rate:10.1f}{found['megabytes']:7.0f}"
            )


if __name__ == "__main__":
    main()

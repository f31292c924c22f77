"""Rounds of FedAvg beside Flower's simulation and beside a plain loop, with the same minibatches.

    python benchmarks/flower.py [--model cnn] [--clients 64] [--rounds 8] [--environment FOLDER]

Each runs in a process of its own, on all cores that it may use. Prints the median time of a round
after the first, the peak memory (proportional set size of the process and its children, PyTorch
included), and the training loss at the end, which has to be the same. Flower 1.41 is no dependency:
it is installed into FOLDER the first time, an environment of its own that borrows PyTorch from this
one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

FLOWER = "flwr[simulation]==1.41.0"
AGAINST_FLOWER = (
    "federated averaging, 64 clients, five steps each, against Flower 1.41's simulation on Ray: "
    "a round, memory"
)
SEED, BATCH, LR, STEPS = 0, 32, 0.1, 5


def mlp() -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> Any:
    """Return two convolutions and a linear layer for the digits: 6 thousand parameters."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten()),
        nn.Linear(256, 10),
    )


MODELS = {"mlp": mlp, "cnn": cnn}


def prepare(path: Path, model: str, clients: int, rounds: int) -> None:
    """Write what all of them compute: data, the initial model, and each client's minibatches."""
    import numpy as np

    from paracosm.models import load_data
    from paracosm.models.build import build_model
    from paracosm.models.shards import BatchSampler
    from paracosm.rng import TrainingStream, generator, integer_seed

    data = load_data("digits")
    drawn = integer_seed(SEED, TrainingStream.MODEL)
    module = build_model(f"{__file__}:{model}", data, drawn).module
    examples = np.arange(len(data.train_x))
    batches = np.empty((clients, rounds, STEPS, BATCH), np.int64)
    for client in range(clients):
        sampler = BatchSampler(examples, BATCH, generator(SEED, TrainingStream.BATCHES, client))
        batches[client] = [[sampler.next() for _ in range(STEPS)] for _ in range(rounds)]
    initial = {f"initial{i}": p.detach().numpy() for i, p in enumerate(module.parameters())}
    np.savez(path, model=model, x=data.train_x, y=data.train_y, batches=batches, **initial)


class Task:
    """The same as one reads it, and a client's local steps in plain PyTorch."""

    def __init__(self, path: str) -> None:
        import numpy as np
        import torch

        torch.set_num_threads(1)
        stored = np.load(path)
        self.x, self.y = torch.from_numpy(stored["x"]), torch.from_numpy(stored["y"])
        self.batches = stored["batches"]
        self.module = MODELS[str(stored["model"])]()
        with torch.no_grad():
            for i, parameter in enumerate(self.module.parameters()):
                parameter.copy_(torch.from_numpy(stored[f"initial{i}"]))

    def train(self, client: int, number: int) -> None:
        """Make the local steps of a client in a round, from the parameters that the module has."""
        import torch
        from torch.nn.functional import cross_entropy

        optimizer = torch.optim.SGD(self.module.parameters(), LR)
        for batch in torch.from_numpy(self.batches[client, number]):
            optimizer.zero_grad()
            cross_entropy(self.module(self.x[batch]), self.y[batch]).backward()
            optimizer.step()

    def loss(self) -> float:
        import torch
        from torch.nn.functional import cross_entropy

        with torch.no_grad():
            return float(cross_entropy(self.module(self.x), self.y))


@cache
def task(path: str) -> Task:
    return Task(path)


def run_loop(path: str) -> tuple[list[float], float]:
    """Return when rounds ended, from the begin on, and the last loss: of a loop over clients."""
    import torch

    job, instants = task(path), [perf_counter()]
    clients, rounds = job.batches.shape[:2]
    for number in range(rounds):
        start = [p.detach().clone() for p in job.module.parameters()]
        total = [torch.zeros_like(p) for p in start]
        for client in range(clients):
            for parameter, values in zip(job.module.parameters(), start, strict=True):
                parameter.data.copy_(values)
            job.train(client, number)
            for each, parameter in zip(total, job.module.parameters(), strict=True):
                each += parameter.detach()
        for parameter, each in zip(job.module.parameters(), total, strict=True):
            parameter.data.copy_(each / clients)
        instants.append(perf_counter())
    return instants, job.loss()


def run_paracosm(path: str) -> tuple[list[float], float]:
    import numpy as np

    from paracosm.training import TrainConfig, train

    stored = np.load(path)
    clients, rounds = stored["batches"].shape[:2]
    config = TrainConfig(
        model=f"{__file__}:{stored['model']}",
        algorithm=f"fedavg(steps={STEPS})",
        workers=clients,
        updates=rounds,
        evaluate_every=rounds,
        batch=BATCH,
        lr=LR,
        timeline=False,
    )
    instants = [perf_counter()]
    result = train(config, SEED, progress=lambda updates, now: instants.append(perf_counter()))
    assert result.summary.final_loss is not None
    return instants, result.summary.final_loss


def run_flower(path: str) -> tuple[list[float], float]:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client_app, server_app = ClientApp(), ServerApp()
    job = task(path)
    clients, rounds = job.batches.shape[:2]
    instants: list[float] = []

    here = str(Path(__file__).parent)

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        sys.path.insert(0, here)  # of an actor of Ray's, which has this function alone
        own = import_module("flower").task(path)
        sys.path.remove(here)
        own.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        number = int(message.content["config"]["server-round"]) - 1
        own.train(int(context.node_config["partition-id"]), number)
        content = {
            "arrays": ArrayRecord(own.module.state_dict()),
            "metrics": MetricRecord({"num-examples": len(own.x)}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        instants.append(perf_counter())
        job.module.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"loss": job.loss() if number == rounds else 0.0})

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        # Of the first round Flower samples from those that have registered so far.
        everybody = {"min_available_nodes": clients, "min_train_nodes": clients}
        FedAvg(fraction_evaluate=0.0, **everybody).start(
            grid=grid,
            initial_arrays=ArrayRecord(job.module.state_dict()),
            num_rounds=rounds,
            timeout=3600,
            evaluate_fn=evaluate,
        )

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=clients,
        backend_config={
            "init_args": {"num_cpus": cores, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return instants, job.loss()


RUNS: dict[str, Callable[[str], tuple[list[float], float]]] = {
    "paracosm": run_paracosm,
    "plain loop": run_loop,
    "flower": run_flower,
}


def environment(folder: Path) -> Path:
    """Return the Python that has Flower; install it if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {FLOWER} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    has_it = subprocess.run([python, "-c", "import flwr, ray"], capture_output=True, check=False)
    if has_it.returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLOWER], check=True)
    import torch

    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "borrowed.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return python


class PeakMemory(threading.Thread):
    """The most that a process and its children have had at a time, in bytes."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._process = process
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            self.peak = max(self.peak, sum(map(self._size, self._family())))
            sleep(0.2)

    def _family(self) -> set[int]:
        parents: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat[1])
        family = {self._process}
        while more := {each for each, of in parents.items() if of in family} - family:
            family |= more
        return family

    def _size(self, process: int) -> int:
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            return 0
        return next(
            (1024 * int(line.split()[1]) for line in text.splitlines() if "Pss:" in line), 0
        )


def measure(name: str, python: Path, path: Path) -> dict[str, Any]:
    """Run one of them in a process of its own."""
    command = [str(python), __file__, "--run", name, "--task", str(path)]
    # PyTorch would load the back ends of this environment into that of Flower.
    settings = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=settings)
    memory = PeakMemory(process.pid)
    memory.start()
    printed, said = process.communicate()
    memory.ended.set()
    memory.join()
    if process.returncode:
        raise SystemExit(f"{name} failed:\n{said[-3000:]}")
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    for line in said.splitlines():
        if "failures" in line and " 0 failures" not in line:
            print(f"  {name}: {line[line.index('Received') :]}")
    return {**found, "memory": memory.peak}


def _compared(ours: dict[str, Any], flowers: dict[str, Any]) -> str:
    memory = " against ".join(f"{each['memory'] / 2**20:,.0f}" for each in (ours, flowers))
    return f"{flowers['round'] / ours['round']:.1f} times as fast, {memory} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    folder = Path("~/.cache/paracosm/flower").expanduser()
    parser.add_argument("--environment", type=Path, default=folder, help="of Flower's own")
    parser.add_argument("--without-flower", action="store_true")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        instants, loss = RUNS[arguments.run](arguments.task)
        rounds = [end - begin for begin, end in pairwise(instants)]
        print(json.dumps({"round": statistics.median(rounds[1:]), "loss": loss}))
        return
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "task.npz"
        prepare(path, arguments.model, arguments.clients, arguments.rounds)
        pythons = {"paracosm": Path(sys.executable), "plain loop": Path(sys.executable)}
        if not arguments.without_flower:
            pythons["flower"] = environment(arguments.environment)
        what = f"{arguments.clients} clients, {STEPS} local steps of {BATCH} examples"
        print(f"FedAvg of the {arguments.model}, {what}")
        own, losses = 0.0, []
        found_by: dict[str, dict[str, Any]] = {}
        for name, python in pythons.items():
            found = found_by[name] = measure(name, python, path)
            own = own or found["round"]
            losses.append(found["loss"])
            print(
                f"  {name:10} {1e3 * found['round']:9.1f} ms a round  x{found['round'] / own:6.2f}"
                f"  {found['memory'] / 2**20:6.0f} MiB  loss {found['loss']:.6f}",
                flush=True,
            )
        from stored_results import store_result  # Flower's own environment has no Paracosm

        if "flower" in pythons and (arguments.model, arguments.clients) == ("mlp", 64):
            store_result(AGAINST_FLOWER, _compared(found_by["paracosm"], found_by["flower"]))
        if max(losses) - min(losses) > 1e-4:
            raise SystemExit("the losses are not the same")


if __name__ == "__main__":
    main()

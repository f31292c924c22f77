"""Studies written as Flower apps: what their clients and Flower's strategies come to, against runs
of `train` with the same seed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from paracosm.errors import InputError
from paracosm.training import Metrics, TrainConfig, train
from paracosm.training.flower import export
from paracosm.validation import validated

HOSPITALS = Path(__file__).parents[2] / "examples" / "federated" / "hospitals.py"
COMMON = {"compute": "1ms", "updates": 4, "evaluate_every": 1, "batch": 16, "lr": 0.1}
STUDIES: dict[str, dict[str, Any]] = {
    "fedavg(steps=3)": {"clients": 7, "workers": 3, "shards": "dirichlet(0.5)"},
    "fedprox(epochs=1, mu=0.5)": {
        "clients": 6,
        "workers": 2,
        "shards": "sizes(0.8)",
        "sampling": "by-size",
        "clip": 0.5,
        "lr_schedule": "cosine",
        "warmup": "2 updates",
    },
    "fedavgm(steps=uniform(1, 4), momentum=0.8, server_lr=0.5)": {
        "clients": 12,
        "workers": 4,
        "data": f"{HOSPITALS}:load",
        "batch": 10,
        "batch_of": ["client 3: 4"],
    },
    "fedyogi(steps=2, server_lr=0.05, tau=0.01)": {
        "workers": 3,
        "shards": "iid",
        "optimizer": "sgd(momentum=0.5)",
        "batch": "all",
        "lr_scaling": "sqrt",
    },
}
SEED = 3

State = dict[str, Any]
Rule = Callable[[State, State], State]
"""From parameters and the mean of what clients made of them to the next parameters."""


@pytest.mark.parametrize("algorithm", STUDIES)
def test_clients_of_the_app_reach_the_losses_of_train(algorithm: str, tmp_path: Path) -> None:
    config, expected = _run(algorithm)
    export(config, SEED, tmp_path / "app")
    task = _module(tmp_path / "app" / "paracosm_study" / "task.py")

    assert _losses(task, _rule(algorithm), algorithm) == pytest.approx(expected, rel=1e-5)


def test_the_app_is_of_python_that_can_be_compiled_and_names_its_rounds(tmp_path: Path) -> None:
    config = _config("fedprox(steps=2)", {"workers": 2, "updates": 9})

    sentence = export(config, SEED, tmp_path / "app")

    for file in (tmp_path / "app").rglob("*.py"):
        compile(file.read_text(), file, "exec")
    assert "num-server-rounds = 9" in (tmp_path / "app" / "pyproject.toml").read_text()
    assert "of 9 rounds with 2 of 2 clients" in sentence
    assert '--federation-config "num-supernodes=2"' in sentence


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"algorithm": "asgd"}, "algorithm asgd: Flower has no asynchronous algorithms"),
        ({"algorithm": "ad-psgd"}, "algorithm ad-psgd: Flower has no peers"),
        ({"algorithm": "scaffold"}, "algorithm scaffold: Flower has no such strategy"),
        ({"algorithm": "fedadam"}, "algorithm: Flower's FedAdam corrects the bias"),
        ({"algorithm": "fedavg(steps=1s)"}, "algorithm, steps: Flower has no virtual time"),
        ({"algorithm": "fedavg(take=2)"}, "algorithm, take"),
        ({"algorithm": "fedprox(stragglers=0.5)"}, "algorithm, stragglers"),
        ({"compress": "qsgd"}, "compress: Flower has no compression"),
        ({"servers": 2}, "servers: Flower has 1 server, not 2"),
        ({"ema": 0.9}, "ema"),
        ({"until": "1h"}, "until: Flower has neither virtual time nor targets"),
        ({"clients": 9, "dropout": 0.1}, "dropout"),
        ({"clients": 9, "round_timeout": "1s"}, "round_timeout"),
        ({"timing_only": True}, "timing_only"),
        ({"mtbf": "1h a worker"}, "mtbf and fault: Flower has no simulated failures"),
        ({"shards": "ids.csv"}, "shards: Flower has apps of text alone"),
    ],
)
def test_what_flower_does_not_have_is_refused_by_name(
    arguments: dict[str, Any], part: str, tmp_path: Path
) -> None:
    config = _config("fedavg", {"workers": 4, **arguments})

    with pytest.raises(InputError, match=re.escape(f"--export flower: {part}")):
        export(config, SEED, tmp_path / "app")
    assert not (tmp_path / "app").exists()


def test_models_whose_gradients_depend_on_their_order_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "from torch import nn\n"
        "def make(): return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))\n"
    )
    config = _config("fedavg", {"workers": 2, "model": f"{file}:make"})

    with pytest.raises(InputError, match="the model draws random numbers"):
        export(config, SEED, tmp_path / "app")


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    config = _config("fedavg", {"workers": 2})

    with pytest.raises(InputError, match="is there already: name a new folder"):
        export(config, SEED, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", STUDIES)
def test_strategies_of_flower_reach_the_losses_of_train(algorithm: str, tmp_path: Path) -> None:
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    identity.task_id, identity.run_id, identity.node_id = 1, 1, 0  # of messages
    config, expected = _run(algorithm)
    export(config, SEED, tmp_path / "app")

    assert _losses_in_flower(tmp_path / "app", config) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_flower_runs_the_app(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("ray")
    config, expected = _run("fedavg(steps=3)")
    export(config, SEED, tmp_path / "app")
    programs = Path(sys.executable).parent
    port, control = free_port(), free_port()
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\n'
        f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    server = subprocess.Popen(
        [
            *(str(programs / "flower-superlink"), "--insecure", "--simulation"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--control-api-address", f"127.0.0.1:{control}"),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        out = subprocess.run(
            [
                *(str(programs / "flwr"), "run", str(tmp_path / "app"), "--stream"),
                *("--federation-config", "num-supernodes=7"),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=True,
        ).stdout
    finally:
        server.terminate()
        server.wait()
    losses = re.findall(r"(?:results|MetricRecord): \{'loss': ([^,]+),", out)

    assert [float(loss) for loss in losses] == pytest.approx(expected, rel=1e-5)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at port {port}")


def _config(algorithm: str, arguments: dict[str, Any]) -> TrainConfig:
    return validated(TrainConfig, {"algorithm": algorithm, **arguments}, "test")


def _run(algorithm: str) -> tuple[TrainConfig, list[float]]:
    """Return a study, and the losses that `train` evaluates before and after each round."""
    config = _config(algorithm, {**COMMON, **STUDIES[algorithm]})
    metrics = Metrics()
    train(config, SEED, metrics)
    return config, [row.value for row in metrics.series("loss")]


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"task_{file.parents[1].name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _losses(task: ModuleType, rule: Rule, algorithm: str) -> list[float]:
    """Return losses of rounds that are averaged by hand."""
    model = task.new_model()
    state = {name: each.clone() for name, each in model.module.state_dict().items()}
    losses, turns = [task.evaluate(model)["loss"]], dict.fromkeys(range(task.CLIENTS), 0)
    weighted = not algorithm.startswith("fedyogi")
    for number, clients in zip(range(1, 5), task.rounds(), strict=False):
        total: State = dict.fromkeys(state, 0.0)
        weights = 0.0
        for client in clients:
            model.module.load_state_dict(state)
            task.train(model, client, turns[client], {"server-round": number, "proximal-mu": 0.5})
            turns[client] += 1
            weight = len(task.shards[client]) if weighted else 1
            weights += weight
            for name, each in model.module.state_dict().items():
                total[name] = total[name] + weight * each.double()
        state = rule(state, {name: each / weights for name, each in total.items()})
        model.module.load_state_dict(state)
        losses.append(task.evaluate(model)["loss"])
    return losses


def _rule(algorithm: str) -> Rule:
    velocity: State = {}

    def momentum(before: State, mean: State) -> State:  # Hsu, Qi, Brown, 2019
        for name in before:
            velocity[name] = 0.8 * velocity.get(name, 0.0) + before[name] - mean[name]
        return {name: before[name] - 0.5 * velocity[name] for name in before}

    first: State = {}
    second: State = {}

    def yogi(before: State, mean: State) -> State:  # Reddi et al., 2021, algorithm 2
        after = {}
        for name in before:
            change = mean[name] - before[name]
            first[name] = 0.9 * first.get(name, 0.0) + 0.1 * change
            old = second.get(name, torch.full_like(change, 0.01**2))
            second[name] = old - 0.01 * change**2 * torch.sign(old - change**2)
            after[name] = before[name] + 0.05 * first[name] / (second[name].sqrt() + 0.01)
        return after

    rules = {"fedavgm": momentum, "fedyogi": yogi}
    return rules.get(algorithm.partition("(")[0], lambda before, mean: mean)


def _losses_in_flower(folder: Path, config: TrainConfig) -> list[float]:
    """Return losses of Flower's strategy, whose messages go to clients in this process."""
    from flwr.app import Context, Message, RecordDict

    sys.path.insert(0, str(folder))
    try:
        from paracosm_study import client_app, server_app, task
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("paracosm_study")]:
            del sys.modules[name]
    clients = task.CLIENTS
    # Nodes have numbers of their own, in another order than clients.
    contexts = {
        1000 - client: Context(
            run_id=1,
            node_id=1000 - client,
            node_config={"partition-id": client, "num-partitions": clients},
            state=RecordDict(),
            run_config={},
        )
        for client in range(clients)
    }

    def send_and_receive(messages: Iterable[Message], **_: Any) -> list[Message]:
        answers = []
        for message in messages:
            context = contexts[message.metadata.dst_node_id]
            answers.append(client_app.app(message, context))
        return answers

    grid = SimpleNamespace(get_node_ids=lambda: list(contexts), send_and_receive=send_and_receive)
    losses: list[float] = []
    evaluate = task.evaluate

    def evaluated(model: Any) -> Any:
        metrics = evaluate(model)
        losses.append(metrics["loss"])
        return metrics

    task.evaluate = evaluated
    run_config = {"num-server-rounds": config.most_updates}
    context = Context(
        run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=run_config
    )
    server_app.app(grid, context)
    return losses

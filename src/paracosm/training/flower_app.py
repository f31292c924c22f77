"""The files of a Flower app, as templates: what `$name` stands for is said in `flower.py`.

They use Flower's message API (`flwr.app`, `flwr.clientapp`, `flwr.serverapp`; from 1.21 on).
"""

from string import Template

PACKAGE = "paracosm_study"
OWN = "own"
"""The folder of the user's files in the package."""

_PROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "paracosm-study"
version = "1.0.0"
description = "$algorithm, written by paracosm train --export flower"
license = "Apache-2.0"
dependencies = []  # every node has Paracosm $version with PyTorch, and Flower

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "paracosm"

[tool.flwr.app.components]
serverapp = "$package.server_app:app"
clientapp = "$package.client_app:app"

[tool.flwr.app.config]
num-server-rounds = $rounds
""")

_TASK = Template('''\
"""What is trained, on whose data, and how.

On devices that have data of their own, let `data` and `shards` be these.
"""

from pathlib import Path

import torch
from paracosm.models.build import build_model
from paracosm.models.client_data import evaluation_sets, load_training_data
from paracosm.models.shards import BatchSampler, shards_of
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training.clients import Clients
from paracosm.training.fields import ClientFields

OWN = Path(__file__).parent / "own"
SEED = $seed
CLIENTS = $clients  # of whom $active take part in a round
LR = $lr

data = load_training_data($data, $data_dir, CLIENTS, $evaluated)
shards = $shards
$schedule

def new_model():
    """Return a module with its initial parameters, and its loss."""
    return build_model($model, data, integer_seed(SEED, TrainingStream.MODEL), $nominal)


def minibatches(client, turn):
    """Return the examples of each local step of a client's turn, from 0."""
    rng = generator(SEED, TrainingStream.BATCHES, client)
    sampler = BatchSampler(shards[client], $batch, rng)
    for number in range(turn + 1):  # they go on where those of the turn before have ended
        batches = $minibatches
    return batches


def train(model, client, turn, config):
    """Make a client's local steps, on the module in place; return the mean loss of minibatches."""
    model.module.train()
    parameters = [each for each in model.module.parameters() if each.requires_grad]
    optimizer = torch.optim.$optimizer(parameters, lr=LR$options)
    batches, total = minibatches(client, turn), 0.0$start
    for step, batch in enumerate(batches):
        x, y = data.train_examples(batch)$follow
        optimizer.zero_grad()
        loss = model.loss(model.module(x), y)
        loss.backward()$clip$proximal
        optimizer.step()
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def evaluate(model):
    """Return loss on training and test examples, and accuracy where targets are class labels."""
    model.module.eval()
    metrics = {}
    for name, (x, y) in zip(("loss", "test_loss"), evaluation_sets(data, $evaluated)):
        outputs = torch.cat([model.module(part) for part in x.split(250)])
        metrics[name] = model.loss(outputs, y).item()
    if data.classification:  # of the test examples, which came last
        metrics["accuracy"] = (outputs.argmax(1) == y).double().mean().item()
    return metrics


def rounds():
    """Yield the clients of each round, without end."""
    clients = Clients(ClientFields(clients=CLIENTS), SEED, $sizes)
    while True:
        chosen = [each.client for each in clients.pick($active, now=0.0)]
        yield chosen
        for client in chosen:
            clients.release(client)
''')

SHARDS = "shards_of(data, CLIENTS, {scheme}, generator(SEED, TrainingStream.SHARDS))"
SIZES = "[len(shards[client]) for client in range(CLIENTS)]"
DRAWN_STEPS = """[
            sampler.next()
            for _ in range(
                generator(SEED, TrainingStream.LOCAL_WORK, client, number).integers(
                    {least}, {most}, endpoint=True
                )
            )
        ]"""
SCHEDULE = """
from paracosm.training.learning_rate import learning_rate_factor, parse_schedule, parse_warm_up

schedule, warmup = {schedule}, {warmup}
lr_factor = learning_rate_factor(
    schedule and parse_schedule(schedule), warmup and parse_warm_up(warmup), {rounds}, {scale}
)
"""
FOLLOW = """
        done = config["server-round"] - 1 + step / len(batches)
        optimizer.param_groups[0]["lr"] = LR * lr_factor(done)"""
CLIP = """
        torch.nn.utils.clip_grad_norm_(parameters, {limit})"""
START = """
    start = [each.detach().clone() for each in parameters]"""
PROXIMAL = """
        for each, before in zip(parameters, start):
            each.grad.add_(each.detach() - before, alpha=config["proximal-mu"])"""

_CLIENT = Template('''\
"""The client. A node's configuration says which one it is: partition-id, from 0."""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from $package import task

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Say which client this is."""
    number = MetricRecord({"number": int(context.node_config["partition-id"])})
    return Message(RecordDict({"client": number}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Make the local steps of a round."""
    client = int(context.node_config["partition-id"])
    turns = context.state.config_records.setdefault("turns", ConfigRecord({"made": 0}))
    model = task.new_model()
    model.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = task.train(model, client, turns["made"], message.content["config"])
    turns["made"] += 1
    metrics = {"train_loss": loss, "num-examples": len(task.shards[client])$weight}
    arrays = ArrayRecord(model.module.state_dict())
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)
''')

_SERVER = Template('''\
"""The server: $algorithm, and an evaluation after every $every of its rounds."""

import time

from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import $strategy

from $package import task

app = ServerApp()


class ChosenClients($strategy):
    """$strategy of the clients that Paracosm samples for each round."""

    def configure_train(self, server_round, arrays, config, grid):
        """Return the messages to the clients of a round."""
        if server_round == 1:
            self.nodes, self.rounds = nodes_by_client(grid), task.rounds()
        chosen = {self.nodes[client] for client in next(self.rounds)}
        messages = super().configure_train(server_round, arrays, config, grid)
        return [message for message in messages if message.metadata.dst_node_id in chosen]


def nodes_by_client(grid: Grid) -> dict[int, int]:
    """Return which node each client is, once all are there."""
    while len(nodes := list(grid.get_node_ids())) < task.CLIENTS:
        time.sleep(1)
    questions = [Message(RecordDict(), node, MessageType.QUERY) for node in nodes]
    answers = grid.send_and_receive(questions)
    return {each.content["client"]["number"]: each.metadata.src_node_id for each in answers}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Make all rounds."""
    rounds = context.run_config["num-server-rounds"]
    model = task.new_model()
    initial = ArrayRecord(model.module.state_dict())
    strategy = ChosenClients(
        ${arguments}fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=task.CLIENTS,
    )$begin

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round % $every and server_round < rounds:
            return None
        model.module.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord(task.evaluate(model))

    strategy.start(grid, initial, num_rounds=rounds, evaluate_fn=evaluate)
''')

SECOND_MOMENT = """
    # As in Reddi et al., algorithm 2; by itself Flower's begins as 0.
    strategy.v_t = {{name: 0 * each.numpy() + {tau}**2 for name, each in initial.items()}}"""

FILES = {
    "pyproject.toml": _PROJECT,
    f"{PACKAGE}/__init__.py": Template('"""A study that Paracosm $version has written."""\n'),
    f"{PACKAGE}/task.py": _TASK,
    f"{PACKAGE}/client_app.py": _CLIENT,
    f"{PACKAGE}/server_app.py": _SERVER,
}
"""Name in the folder of the app -> template."""

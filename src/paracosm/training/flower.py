"""A study of federated learning as a Flower app: written, not run, so that Flower is not needed.

Client and server of the app are plain PyTorch and Flower's own strategy. From Paracosm they take
what a seed decides: model, data, shards, the order of minibatches, and who is in which round. Time
and network are no longer modelled: they are those of the devices.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import paracosm
from paracosm.errors import InputError
from paracosm.files import replacing, unwritable
from paracosm.models.build import build_model
from paracosm.models.client_data import ClientData, load_training_data
from paracosm.models.own_shards import is_id_file
from paracosm.models.shards import ALL, shards_of
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import flower_app as app
from paracosm.training.algorithms.federated import FedAdam, FedAvg, FedAvgM, FedProx, FedYogi
from paracosm.training.config import TrainConfig
from paracosm.training.learning_rate import scaled_learning_rate
from paracosm.training.local_work import StepsWithin, UniformSteps
from paracosm.training.numerics.gradient_methods import inspect_model
from paracosm.training.numerics.parameters import ParameterLayout

_STRATEGIES: dict[type[FedAvg], str] = {
    FedAvg: "FedAvg",
    FedProx: "FedProx",
    FedAvgM: "FedAvgM",
    FedYogi: "FedYogi",
}
"""Algorithms that Flower defines alike -> the name of its strategy."""


def export(config: Any, seed: int, folder: Path) -> str:
    """Write a study into `folder` as a Flower app; return how it is run, in a sentence.

    Losses after each round are those of `train` with this seed, to rounding in float32.

    Raises:
        InputError: Flower lacks something of the study, or the folder is there already or cannot be
            written.
    """
    obstacle = _obstacle(config)
    if obstacle is not None:
        raise InputError(f"--export flower: {obstacle}")
    if folder.exists() or folder.is_symlink():
        raise InputError(f"--export flower: {folder} is there already: name a new folder")
    values, own_files = _values(config, seed), _own_files(config)
    try:
        (folder / app.PACKAGE / app.OWN).mkdir(parents=True)
        for file in own_files.values():
            shutil.copy(file, folder / app.PACKAGE / app.OWN)
    except OSError as error:
        raise unwritable(f"{folder}: cannot be written", error) from None
    for name, template in app.FILES.items():
        with replacing(folder / name) as path:
            path.write_text(template.substitute(values), encoding="utf-8")
    active, clients = values["active"], values["clients"]
    return (
        f"{folder} is a Flower app of {config.most_updates:,} rounds with {active:,} of "
        f"{clients:,} clients; time and network are those of its devices. Next: flwr run {folder} "
        f'--federation-config "num-supernodes={clients}" --stream'
    )


def _obstacle(config: Any) -> str | None:
    """Return which part of a study Flower has nothing for; None where it has all."""
    if not isinstance(config, TrainConfig):
        return "schedule, profile: Flower has rounds of clients, and no schedule of updates"
    algorithm = config.algorithm
    if type(algorithm) is FedAdam:
        return (
            "algorithm: Flower's FedAdam corrects the bias of its moments, and fedadam (Reddi et "
            "al., algorithm 2) does not: fedyogi is the same in both"
        )
    if not isinstance(algorithm, FedAvg) or type(algorithm) not in _STRATEGIES:
        lacks = "asynchronous algorithms"
        if config.resolve_topology() != "server":
            lacks = "peers, which send to one another"
        elif algorithm.has_rounds:
            lacks = "such strategy"
        alike = ", ".join(kind.name for kind in _STRATEGIES)
        return f"algorithm {algorithm}: Flower has no {lacks}; {alike} are the same in both"
    servers = len(config.resolve_cluster().servers)
    for part, is_there, reason in (
        ("algorithm, steps", isinstance(algorithm.steps, StepsWithin), "no virtual time"),
        ("algorithm, take", algorithm.takes_first, "no rounds that end with the first clients"),
        ("algorithm, at_least", algorithm.at_least > 1, "no rounds that begin again"),
        ("algorithm, stragglers", algorithm.stragglers > 0, "stragglers of its own: real ones"),
        ("until", config.until is not None, "neither virtual time nor targets: give --updates"),
        ("servers", servers > 1, f"1 server, not {servers}"),
        ("compress", config.compress is not None, "no compression of messages"),
        ("privacy", config.privacy is not None, "an account of privacy of its own"),
        ("ema", config.ema is not None, "no moving average of parameters"),
        ("availability", config.availability is not None, "clients that really come and go"),
        ("dropout", config.dropout > 0, "clients that are really lost"),
        ("round_timeout", config.round_timeout is not None, "no virtual time"),
        ("mtbf and fault", config.fails, "no simulated failures"),
        ("timing_only", config.timing_only, "no virtual time"),
        ("shards", is_id_file(config.shards), "apps of text alone: give file.py:function"),
    ):
        if is_there:
            return f"{part}: Flower has {reason}"
    return None


def _values(config: TrainConfig, seed: int) -> dict[str, Any]:
    """Return what stands for each name in the templates of the app."""
    algorithm = config.algorithm
    assert isinstance(algorithm, FedAvg), "others are refused"
    active = len(config.resolve_cluster().workers)
    clients = config.clients or active
    most = config.evaluate_examples
    data = load_training_data(config.data, config.data_dir, clients, most)
    rng = generator(seed, TrainingStream.SHARDS)
    shards = data if isinstance(data, ClientData) else shards_of(data, clients, config.shards, rng)
    nominal = config.batch if config.batch != ALL else round(shards.sizes.mean())
    model = build_model(config.model, data, integer_seed(seed, TrainingStream.MODEL), nominal)
    if model.takes_labels or data.sample[1].ndim > 1:
        raise InputError(
            "--export flower: the app has one label or value for each example, and "
            f'"{config.data}" or model {config.model} has more: choose others'
        )
    traits = inspect_model(model, ParameterLayout.of(model.module), data, nominal)
    if traits.obstacle is not None:
        raise InputError(
            f"--export flower: model {config.model}: {traits.obstacle}, and each of Flower's "
            "clients has its own: choose one without dropout and batch normalisation"
        )
    lr = scaled_learning_rate(config.lr, active, config.lr_scaling)
    optimizer = config.optimizer.make([torch.zeros(1, requires_grad=True)], lr)
    sizes = enumerate(config.batches(clients) if config.batch_of else [])
    different = {client: size for client, size in sizes if size != config.batch}
    batch = "len(shards[client])" if config.batch == ALL else str(config.batch)
    is_prox = isinstance(algorithm, FedProx)
    tau = algorithm.tau if isinstance(algorithm, FedYogi) else None
    schedule = app.SCHEDULE.format(
        schedule=json.dumps(config.lr_schedule and str(config.lr_schedule)),
        warmup=json.dumps(config.warmup and str(config.warmup)),
        rounds=config.most_updates,
        scale=lr / config.lr,
    )
    return {
        "version": paracosm.__version__,
        "package": app.PACKAGE,
        "rounds": config.most_updates,
        "every": config.evaluate_every or max(1, config.most_updates // 60),
        "seed": seed,
        "clients": clients,
        "active": active,
        "sizes": app.SIZES if config.sampling == "by-size" else "None",
        "data": _written(config.data),
        "data_dir": None
        if config.data_dir is None
        else f"Path({json.dumps(str(config.data_dir.absolute()))})",
        "evaluated": most,
        "shards": "data  # each client brings its own"
        if isinstance(data, ClientData)
        else app.SHARDS.format(scheme=_written(config.shards)),
        "model": _written(config.model),
        "nominal": nominal,
        "batch": f"{different}.get(client, {batch})" if different else batch,
        "minibatches": _minibatches(algorithm),
        "lr": lr,
        "schedule": schedule.replace("null", "None") if config.lr_changes else "",
        "follow": app.FOLLOW if config.lr_changes else "",
        "optimizer": type(optimizer).__name__,
        "options": "".join(f", {key}={v!r}" for key, v in config.optimizer.options.items()),
        "clip": "" if config.clip is None else app.CLIP.format(limit=config.clip),
        "start": app.START if is_prox else "",
        "proximal": app.PROXIMAL if is_prox else "",
        "algorithm": str(algorithm),
        "strategy": _STRATEGIES[type(algorithm)],
        "arguments": "".join(f"{argument},\n        " for argument in _arguments(algorithm)),
        "begin": "" if tau is None else app.SECOND_MOMENT.format(tau=tau),
        "weight": "" if tau is None else ', "weight": 1',
    }


def _arguments(algorithm: FedAvg) -> Iterator[str]:
    """Yield the arguments of Flower's strategy that are the algorithm's own."""
    match algorithm:
        case FedProx():
            yield f"proximal_mu={algorithm.mu}"
        case FedAvgM():
            yield f"server_learning_rate={algorithm.server_lr}"
            yield f"server_momentum={algorithm.momentum}"
        case FedYogi():
            yield f"eta={algorithm.server_lr}"
            yield f"beta_1={algorithm.beta1}, beta_2={algorithm.beta2}, tau={algorithm.tau}"
            yield 'weighted_by_key="weight"'


def _minibatches(algorithm: FedAvg) -> str:
    """Return the expression of the minibatches of a client's turn."""
    if algorithm.epochs:
        return f"[batch for _ in range({algorithm.epochs}) for batch in sampler.epoch()]"
    steps = algorithm.steps
    if not isinstance(steps, UniformSteps):
        return f"[sampler.next() for _ in range({steps})]"
    return app.DRAWN_STEPS.format(least=steps.least, most=steps.most)


def _own_files(config: TrainConfig) -> dict[str, Path]:
    """Return the user's files that model, data or shards are of, by name."""
    files: dict[str, Path] = {}
    for file in filter(None, map(_file_of, (config.model, config.data, config.shards))):
        if not files.setdefault(file.name, file).samefile(file):
            raise InputError(f"--export flower: two files are called {file.name}: rename one")
    return files


def _file_of(name: str) -> Path | None:
    """Return the file of `file.py:function`; None of another name."""
    file, _, function = name.partition(":")
    return Path(file) if file.endswith(".py") and function else None


def _written(name: str) -> str:
    """Return the expression of a name in the app, which has the user's files in a folder."""
    file = _file_of(name)
    if file is None:
        return json.dumps(name)
    return f'f"{{OWN}}/{file.name}:{name.partition(":")[2]}"'

"""The computation of a run: everything (PyTorch), or nothing (timing-only mode)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError, require
from paracosm.models.client_data import ClientData, evaluation_sets, load_training_data
from paracosm.models.data_sets import DataSet
from paracosm.models.own_shards import check_disjoint
from paracosm.models.shards import (
    ALL,
    BatchSampler,
    PoissonSampler,
    Sampler,
    Shards,
    is_own,
    shards_of,
)
from paracosm.results import Chance
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training.by_client import ClientScore, measured
from paracosm.training.config import MEASURED, TrainConfig
from paracosm.training.learning_rate import scaled_learning_rate
from paracosm.training.numerics.rules import Stepping, update_rule
from paracosm.training.numerics.store import (
    Clipping,
    LocalSteps,
    Numerics,
    Pending,
    PendingSteps,
    Recipe,
    Rule,
)
from paracosm.training.privacy import (
    Accountant,
    ClientAccountant,
    ClientNoise,
    ExampleAccountant,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def prepare_numerics(
    config: TrainConfig,
    seed: int,
    clients: int,  # whose examples are computed on; without clients, workers
    servers: int,
    tensors: Sequence[str] = (),
    active: int | None = None,  # of the clients at a time (all)
    backend: Backend = HERE,  # where gradients that wait are computed together
) -> Numerics:
    """Build model, data and gradients as `config` says; nothing of it in timing-only mode.

    The parts of the parameters are those of the servers, or the algorithm's fragments. Where
    `tensors` are named, each is a part, and parameters and gradients are tuples of tensors instead
    of flat vectors. PyTorch computes on one thread until they are closed, since small models lose
    more than they gain by more.
    """
    if backend.is_remote and (config.timing_only or config.compute == MEASURED):
        where = "computed" if config.timing_only else "timed on another machine"
        raise InputError(f"--backend: no gradients are {where} in this run: leave it out")
    parts = servers * config.algorithm.fragments
    batches = config.batches(clients) if config.batch_of else None
    sizes_known = config.costless_messages() or (config.message_size and parts == 1)
    if config.timing_only and sizes_known and config.compress is None:
        part = (config.message_size or 0.0) / parts
        return Numerics((part,) * parts, batch=config.batch, batches=batches)
    require("torch", "torch", "training a model")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        computing = _Computing(config, seed, clients, servers, tensors, active or clients, backend)
    except BaseException:
        torch.set_num_threads(threads)
        raise
    computing.threads = threads
    if not config.timing_only:
        return computing
    computing.close()
    return Numerics(computing.sizes, computing.shapes, config.batch, batches)


class _Computing(Numerics):
    real = True
    threads = 1  # that PyTorch computes on when they have been closed

    def __init__(
        self,
        config: TrainConfig,
        seed: int,
        clients: int,
        servers: int,
        tensors: Sequence[str],
        active: int,
        backend: Backend,
    ) -> None:
        from paracosm.models.build import build_model
        from paracosm.training.numerics.buffers import SHARED
        from paracosm.training.numerics.gradients import make_gradients
        from paracosm.training.numerics.local_steps import LocalStepSource
        from paracosm.training.numerics.parameters import ParameterLayout

        self._config = config
        most = config.evaluate_examples
        self._data = data = load_training_data(config.data, config.data_dir, clients, most)
        self._shards = _shards_of(data, clients, config, generator(seed, TrainingStream.SHARDS))
        self.clients = clients
        self._training, self._test = evaluation_sets(data, most)
        self.chance = _chance(self._training[1], self._test[1]) if data.classes else None
        drawn = integer_seed(seed, TrainingStream.MODEL)
        self._nominal = config.batch if config.batch != ALL else float(self._shards.sizes.mean())
        self._model = build_model(config.model, self._data, drawn, round(self._nominal))
        fragments = config.algorithm.fragments
        self._layout = ParameterLayout.of(self._model.module, 1 if tensors else servers, fragments)
        self.parts = self._layout.places_of(tensors) if tensors else self._layout.slices
        self._by_tensor = bool(tensors)
        # Of the parts, in the order of the model's tensors
        self._order = [tensors.index(name) for name in self._layout.names] if tensors else []
        sizes = tuple(float(size) for size in self._layout.bytes_per_server)
        if config.message_size is not None:
            sizes = tuple(config.message_size * size / sum(sizes) for size in sizes)
        self.sizes = sizes
        self.shapes = self._layout.shapes_per_server
        self._seed = seed
        self._batches = config.batches(clients) if config.batch_of else None
        self._client_noise: ClientNoise | None = None
        self._is_private = config.privacy_of("examples") is not None
        self._samplers: dict[int, Sampler] = {}  # of the clients that have taken part
        self._gradients = make_gradients(
            self._model,
            self._layout,
            self._data,
            mode="off" if config.compute == MEASURED else config.lookahead,
            workers_hint=active,
            seed=integer_seed(seed, TrainingStream.DROPOUT),
            batch=round(self._nominal),
            privacy=config.privacy_of("examples"),
            noise_seed=integer_seed(seed, TrainingStream.NOISE),
            own_buffers=config.buffers == "own",
            backend=backend,
        )
        # Whose buffers all gradients change; None where each client has its own
        self._replica = SHARED if config.buffers == "shared" else None
        self._lr = scaled_learning_rate(config.lr, active, config.lr_scaling)
        config.optimizer.try_out(self._lr)
        # Of the clients, drawn anew for each round; None where their turns are not drawn by rounds
        drawn_by_rounds = config.algorithm.has_rounds and config.clients is not None
        is_uniform = config.availability is None and config.sampling == "uniform"
        is_hiding = drawn_by_rounds and is_uniform and config.privacy_of("clients") is not None
        # Who comes late has a say in how many a mean is of, who has more examples in their weights.
        all_count = config.round_timeout is None and not config.algorithm.takes_first
        if is_hiding and (not all_count or np.ptp(self._shards.sizes)):
            is_hiding = False
        self._client_rate = active / clients if is_hiding else None
        factor = config.lr_factor(config.last_update, self._lr / config.lr)
        clipping = None if config.clip is None else Clipping(config.clip)
        self.recipe = Recipe(self._lr, factor, clipping)
        self._local_steps = LocalStepSource(
            self._gradients.policy, self._layout, self.recipe, self._gradients.buffers
        )
        self._rules: dict[int, Rule] = {}  # of clients whose local steps continue from one another

    def initial(self) -> Any:
        flat = self._layout.flatten(self._model.module)
        return tuple(self._layout.tensors(flat)) if self._by_tensor else flat

    def join(self, parts: Sequence[Any]) -> Any:
        import torch

        if self._by_tensor:
            return tuple([parts[part] for part in self._order])
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    def flat(self, parameters: Any) -> Any:
        return self._layout.flat(parameters)

    def request(self, client: int, parameters: Any) -> Pending:
        sampler = self._samplers.get(client) or self._sampler(client)
        replica = client if self._replica is None else self._replica
        lot = self._lot(client) if self._is_private else None
        pending: Pending = self._gradients.request(parameters, sampler.next(), replica, lot)
        return pending

    def request_steps(self, client: int, parameters: Any, steps: LocalSteps) -> PendingSteps:
        sampler = self._samplers.get(client) or self._sampler(client)
        if steps.epochs:
            batches = [batch for _ in range(steps.epochs) for batch in sampler.epoch()]
        else:
            batches = [sampler.next() for _ in range(steps.count)]
        rule = self._rules.get(client) if steps.keep_state else self.rule()
        if rule is None:
            rule = self._rules[client] = self.rule()
        factors: tuple[float, ...] = ()
        if self._config.lr_changes:
            times = (steps.updates + j * steps.apart for j in range(steps.count))
            factors = tuple(map(self.recipe.lr_factor, times))
        replica = client if self._replica is None else self._replica
        return self._local_steps.request(
            parameters,
            batches,
            rule,
            factors,
            steps.keep_state,
            steps.mu,
            steps.shift,
            replica,
            self._lot(client) if self._is_private else None,
        )

    def outer_recipe(self, part: int) -> Recipe:
        privacy = self._config.privacy_of("clients")
        if privacy is None:
            return Recipe()
        if privacy.quantile is not None and len(self.parts) > 1:
            raise InputError(
                f"privacy: clip=adaptive runs on 1 server, not {len(self.parts)}, which counts the "
                "changes that are within it"
            )
        rng = generator(self._seed, TrainingStream.CLIENT_NOISE, part)
        self._client_noise = ClientNoise(privacy, rng)
        return Recipe(noise=self._client_noise)

    @property
    def adaptive_clip(self) -> float | None:
        privacy = self._config.privacy_of("clients")
        if privacy is None or privacy.quantile is None or self._client_noise is None:
            return None
        return self._client_noise.clip

    def accountant(self) -> Accountant | None:
        config = self._config
        if config.privacy is None:
            return None
        if config.privacy.unit == "clients":
            return ClientAccountant(config.privacy, self._client_rate)
        return ExampleAccountant(config.privacy, self.examples_of, self._is_shared)

    @property
    def _is_shared(self) -> bool:
        """Whether all clients have the same examples."""
        return self._config.shards == "shared" and not isinstance(self._shards, ClientData)

    @property
    def nominal_batch(self) -> float:
        return self._nominal

    def batch_of(self, client: int) -> int:
        return min(self._wanted(client), self.examples_of(client))

    @property
    def has_short_minibatches(self) -> bool:
        return self._config.batch > self._shards.smallest

    def weight_of(self, client: int) -> float:
        return (self._lot(client) if self._is_private else self.batch_of(client)) / self._nominal

    def _wanted(self, client: int) -> int:
        """Return the examples of a minibatch where the shard has as many."""
        return self._config.batch if self._batches is None else self._batches[client]

    def _lot(self, client: int) -> int:
        """Return by what private sums are divided, which does not depend on what is drawn."""
        wanted = self._wanted(client)
        return self.examples_of(client) if wanted == ALL else wanted

    def forget(self, client: int) -> None:
        self._rules.pop(client, None)

    def examples_of(self, client: int) -> int:
        return self._shards.size_of(client)

    def _sampler(self, client: int) -> Sampler:
        rng = generator(self._seed, TrainingStream.BATCHES, client)
        kind = PoissonSampler if self._is_private else BatchSampler
        made = kind(self._shards[client], self._wanted(client), rng)
        self._samplers[client] = made
        return made

    def rule(self) -> Rule:
        step = self._config.algorithm.stepper(self._lr)
        return update_rule(self._config.optimizer, self._lr) if step is None else step

    def optimizer_state(self, client: int, name: str) -> Any:
        return self._stepping(client).state[name]

    def replace_optimizer_state(self, client: int, name: str, values: Any) -> None:
        self._stepping(client).state[name] = values.clone()

    def _stepping(self, client: int) -> Stepping:
        rule = self._rules[client]
        assert isinstance(rule, Stepping)
        return rule

    def evaluate(self, parameters: Any) -> dict[str, float]:
        from paracosm.training.numerics.parameters import evaluate

        model, layout, buffers = self._model, self._layout, self._gradients.buffers.mean()
        loss, _ = evaluate(model, layout, parameters, *self._training, buffers=buffers)
        test_loss, accuracy = evaluate(model, layout, parameters, *self._test, buffers=buffers)
        metrics = {"loss": loss, "test_loss": test_loss}
        return metrics if accuracy is None else {**metrics, "accuracy": accuracy}

    def evaluate_clients(self, parameters: Any) -> list[ClientScore]:
        from paracosm.training.numerics.parameters import evaluate

        if self._is_shared:
            return []
        data, shards, most = self._data, self._shards, self._config.evaluate_examples
        buffers = self._gradients.buffers.mean()
        scores = []
        for client in self._measured():
            if not isinstance(data, ClientData):
                x, y = data.train_examples(shards[client][:most])
            else:
                examples = data.of(client)
                x, y = examples.train_x[:most], examples.train_y[:most]
                if data.has_own_tests:
                    if examples.test_x is None or examples.test_y is None:
                        continue
                    x, y = examples.test_x[:most], examples.test_y[:most]
            loss, accuracy = evaluate(self._model, self._layout, parameters, x, y, buffers=buffers)
            scores.append(ClientScore(client, loss, accuracy))
        return scores

    def _measured(self) -> list[int]:
        data = self._data
        if isinstance(data, ClientData):
            mean = data.mean_examples
        else:
            mean = float(self._shards.sizes.mean())
        chosen = measured(len(self._shards), mean, self._config.evaluate_examples)
        return [int(client) for client in chosen]

    @property
    def has_own_tests(self) -> bool:
        return isinstance(self._data, ClientData) and self._data.has_own_tests

    def describe(self) -> str:
        return self._gradients.describe()

    def close(self) -> None:
        import torch

        self._gradients.close()
        torch.set_num_threads(self.threads)


def _shards_of(
    data: DataSet | ClientData, clients: int, config: TrainConfig, rng: np.random.Generator
) -> Shards | ClientData:
    """Return the examples of each client: those that it brings, or its part of one set."""
    by_client = isinstance(data, ClientData)
    if by_client and config.shards != "shared":
        raise InputError(
            f'shards: has no effect, leave it out: data set "{data.name}" comes by client'
        )
    shards = data if isinstance(data, ClientData) else shards_of(data, clients, config.shards, rng)
    if is_own(config.shards) and config.privacy_of("examples") and isinstance(data, DataSet):
        check_disjoint(config.shards, map(shards.__getitem__, range(clients)), len(data.train_x))
    if config.sampling == "by-size" and not np.ptp(shards.sizes):
        raise InputError(
            "sampling: by-size has no effect, leave it out: all clients have equally many examples"
        )
    return shards


def _chance(training: Tensor, test: Tensor) -> Chance:
    shares = training.flatten().bincount().double() / training.numel()
    return Chance(
        accuracy=int(test.flatten().bincount().max()) / test.numel(),
        loss=-float(shares.xlogy(shares).sum()),
        examples=test.numel(),
    )

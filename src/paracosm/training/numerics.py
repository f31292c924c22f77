"""What is really computed in a run: everything (PyTorch), or nothing (timing-only mode)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import require
from paracosm.models import Optimizer, load_data
from paracosm.models.shards import BatchSampler, make_shards
from paracosm.results import Chance
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training.config import MEASURED, TrainConfig
from paracosm.training.store import Numerics, Pending, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def prepare_numerics(
    config: TrainConfig, seed: int, workers: int, servers: int, tensors: Sequence[str] = ()
) -> Numerics:
    """Build model, data and gradients as `config` says; nothing of it in timing-only mode.

    The parts of the parameters are those of the servers. Where `tensors` are named, each is a part,
    and parameters and gradients are tuples of tensors instead of flat vectors.
    """
    sizes_known = config.costless_messages() or (config.message_size and servers == 1)
    if config.timing_only and sizes_known:
        return Numerics(((config.message_size or 0.0) / servers,) * servers)
    require("torch", "torch", "training a model")
    computing = _Computing(config, seed, workers, servers, tensors)
    return Numerics(computing.sizes) if config.timing_only else computing


class _Computing(Numerics):
    """The model, its data and its gradients, in PyTorch."""

    real = True

    def __init__(
        self, config: TrainConfig, seed: int, workers: int, servers: int, tensors: Sequence[str]
    ) -> None:
        import torch

        from paracosm.models.build import build_model
        from paracosm.training.gradients import make_gradients
        from paracosm.training.parameters import ParameterLayout

        torch.set_num_threads(1)  # small models lose more than they gain by more
        self._config = config
        self._data = load_data(config.data, config.data_dir)
        data, most = self._data, config.evaluate_examples
        self._training = _evenly(most, data.train_x, data.train_y)
        self._test = _evenly(most, data.test_x, data.test_y)
        self.chance = _chance(self._training[1], self._test[1]) if data.classes else None
        drawn = integer_seed(seed, TrainingStream.MODEL)
        self._model = build_model(config.model, self._data, drawn, config.batch)
        self._layout = ParameterLayout.of(self._model.module, 1 if tensors else servers)
        self.parts = self._layout.places_of(tensors) if tensors else self._layout.slices
        self._by_tensor = bool(tensors)
        # Of the parts, in the order of the model's tensors
        self._order = [tensors.index(name) for name in self._layout.names] if tensors else []
        sizes = tuple(float(size) for size in self._layout.bytes_per_server)
        if config.message_size is not None:
            sizes = tuple(config.message_size * size / sum(sizes) for size in sizes)
        self.sizes = sizes
        rng = generator(seed, TrainingStream.SHARDS)
        shards = make_shards(self._data.train_y.numpy(), workers, config.shards, rng)
        self._samplers = [
            BatchSampler(shard, config.batch, generator(seed, TrainingStream.BATCHES, worker))
            for worker, shard in enumerate(shards)
        ]
        self._gradients = make_gradients(
            self._model,
            self._layout,
            self._data,
            mode="off" if config.compute == MEASURED else config.lookahead,
            workers_hint=workers,
            seed=integer_seed(seed, TrainingStream.DROPOUT),
            batch=config.batch,
        )
        config.optimizer.try_out(config.lr)

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

    def request(self, worker: int, parameters: Any) -> Pending:
        pending: Pending = self._gradients.request(parameters, self._samplers[worker].next())
        return pending

    def rule(self) -> Rule:
        return update_rule(self._config.optimizer, self._config.lr)

    def evaluate(self, parameters: Any) -> dict[str, float]:
        from paracosm.training.parameters import evaluate

        loss, _ = evaluate(self._model, self._layout, parameters, *self._training)
        test_loss, accuracy = evaluate(self._model, self._layout, parameters, *self._test)
        metrics = {"loss": loss, "test_loss": test_loss}
        return metrics if accuracy is None else {**metrics, "accuracy": accuracy}

    def describe(self) -> str:
        return self._gradients.describe()

    def close(self) -> None:
        self._gradients.close()


def _evenly(most: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return all examples, or `most` of them that are evenly spread over the set."""
    if len(x) <= most:
        return x, y
    chosen = np.linspace(0, len(x) - 1, most).round().astype(np.int64).tolist()
    return x[chosen], y[chosen]


def _chance(training: Tensor, test: Tensor) -> Chance:
    """Return what guessing comes to over labels."""
    shares = training.flatten().bincount().double() / training.numel()
    return Chance(
        accuracy=int(test.flatten().bincount().max()) / test.numel(),
        loss=-float(shares.xlogy(shares).sum()),
        examples=test.numel(),
    )


def update_rule(optimizer: Optimizer, lr: float) -> Rule:
    """Return the rule by which an optimizer changes parameters, with a state of its own."""
    if optimizer.name == "sgd" and not optimizer.options:
        return lambda parameters, direction, step: parameters.sub(direction, alpha=lr * step)
    return _Stepping(optimizer, lr)


class _Stepping:
    """The rule of an optimizer of PyTorch, whose state it has."""

    def __init__(self, optimizer: Optimizer, lr: float) -> None:
        import torch

        self._optimizer = optimizer
        self._lr = lr
        self._variable = torch.empty(0, requires_grad=True)
        self._stepper: torch.optim.Optimizer | None = None

    def __call__(self, parameters: Any, direction: Any, step: float) -> Any:
        # The optimizer works in place, while others still read the parameters: it gets a copy.
        self._variable.data = parameters.clone()
        self._variable.grad = direction
        if self._stepper is None:  # made here, since some allocate their state at once
            self._stepper = self._optimizer.make([self._variable], self._lr)
        self._stepper.param_groups[0]["lr"] = self._lr * step
        self._stepper.step()
        return self._variable.data

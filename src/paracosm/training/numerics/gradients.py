"""The source of a job's gradients: requested at once, computed when the first is needed."""

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Literal, TypeVar, get_args

import numpy as np
import torch

from paracosm.arrays import Ints
from paracosm.backends import HERE, Backend
from paracosm.errors import InputError, unknown
from paracosm.models.data_sets import TrainingExamples
from paracosm.models.registry import Model
from paracosm.rng import TrainingStream, generator
from paracosm.training.numerics.buffers import SHARED, Buffers
from paracosm.training.numerics.dense import dense_method
from paracosm.training.numerics.gradient_methods import (
    Gradient,
    Method,
    OneByOne,
    PendingGradient,
    Request,
    Stepper,
    Traits,
    Vectorised,
    inspect_model,
)
from paracosm.training.numerics.gradient_pool import (
    ClusterWorkers,
    GradientPool,
    LocalWorkers,
    available_cores,
    sent,
)
from paracosm.training.numerics.parameters import ParameterLayout, Parameters
from paracosm.training.privacy import Privacy

Mode = Literal["auto", "off", "vmap", "processes"]


class GradientSource:
    """Look-ahead batching of gradients.

    A worker's gradient depends only on the parameters that it read, so it may be computed at any
    time before it is needed. Requests wait until one of them is, and are then computed together
    where that is faster.
    """

    def __init__(self, policy: "Policy", buffers: Buffers) -> None:
        self.policy = policy
        self.buffers = buffers
        self._waiting: dict[int, PendingGradient] = {}
        self._requests = 0

    def request(
        self, parameters: Parameters, batch: Ints, replica: int = SHARED, lot: int | None = None
    ) -> PendingGradient:
        """Request a gradient at parameters that are never changed in place, for a replica.

        `lot` is by what a private sum over the examples is divided (their number).
        """
        pending = PendingGradient(self, self._requests, parameters, batch, replica, lot)
        self._waiting[self._requests] = pending
        self._requests += 1
        return pending

    def fulfil(self, request: PendingGradient) -> Gradient:
        """Compute the gradient of a request, and perhaps those of others that wait."""
        if request.number not in self._waiting:
            raise RuntimeError(f"gradient {request.number} was discarded before it was needed")
        requests, method = self.policy.choose(request, self._waiting)
        begin = perf_counter()
        gradients = method.compute(requests)
        self.policy.note(method, len(requests), perf_counter() - begin)
        for pending, gradient in zip(requests, gradients, strict=True):
            pending.resolve(gradient)
            del self._waiting[pending.number]
        return request.result()

    def forget(self, request: PendingGradient) -> None:
        self._waiting.pop(request.number, None)

    def describe(self) -> str:
        return self.policy.describe()

    def close(self) -> None:
        self._waiting.clear()
        self.policy.close()


def make_gradients(
    model: Model,
    layout: ParameterLayout,
    data: TrainingExamples,
    mode: Mode,
    workers_hint: int,  # how many gradients may wait at a time
    seed: int = 0,  # of random numbers that the model draws; each request has its own stream
    batch: int = 32,  # examples of a minibatch
    privacy: Privacy | None = None,  # of examples
    noise_seed: int = 0,  # of what hides them; each request has its own stream
    own_buffers: bool = False,  # whether replicas are to have their own
    backend: Backend = HERE,  # a cluster computes all that wait together, whatever they are
) -> GradientSource:
    """Return the source of the gradients of a model on a data set's training examples.

    The model is taken over: its module stays in training mode, its parameters are those of the
    last gradient, and its buffers (running statistics) follow the gradients of each replica in the
    order in which these are computed; where all share them, as on a parameter server that holds
    moving averages.

    Mode "off" computes each gradient alone, by automatic differentiation, when it is needed; "vmap"
    and "processes" all that wait together; "auto" does what the model's structure and size say is
    fastest (dense networks in closed form), so that two runs agree to the bit. With `privacy` each
    is computed alone, from the clipped gradients of its examples.
    """
    if mode not in get_args(Mode):
        raise unknown("look-ahead mode", mode, get_args(Mode))
    traits = inspect_model(model, layout, data, batch)
    if own_buffers and not traits.moving_buffers:
        raise InputError(
            "buffers: the model has no running statistics that a worker could have of its own: "
            "leave it out"
        )
    buffers = Buffers(model.module)
    if backend.is_remote:
        if privacy is not None or mode not in ("auto", "processes"):
            why = "they are private" if privacy is not None else f'lookahead is "{mode}"'
            raise InputError(f"--backend: gradients are computed here, as {why}: leave it out")
        cluster = ClusterWorkers(sent(model, layout, traits, seed), backend, workers_hint)
        there = GradientPool(cluster, layout, data, traits, buffers)
        return GradientSource(Policy(there, f"on {cluster.name}"), buffers)
    if privacy is not None:
        private = Private(privacy, model, layout, data, traits, noise_seed)
        text = "by example, clipped and with noise"
        return GradientSource(Policy(private, text, together=False), buffers)
    processes = min(available_cores(), workers_hint)

    def pool() -> GradientPool:
        held = sent(model, layout, traits, seed)
        workers = LocalWorkers(held, layout.size, processes, workers_hint)
        return GradientPool(workers, layout, data, traits, buffers)

    if mode == "processes":
        return GradientSource(Policy(pool(), f"on {processes} processes"), buffers)
    if mode == "off":
        one = OneByOne(Stepper(model, layout, traits, seed, buffers), data)
        return GradientSource(Policy(one, "one by one", together=False), buffers)
    if mode == "auto" and (dense := dense_method(model, layout, data)) is not None:
        text = "auto: dense layers in closed form"
        return GradientSource(Policy(dense, text, together=dense.pays_together(batch)), buffers)
    is_small = mode == "vmap" or _is_small(layout, traits, batch)
    vectorised = Vectorised(model, layout, data, traits) if is_small else None
    obstacle = traits.obstacle or vectorised.obstacle() if vectorised else None
    if mode == "vmap":
        if obstacle:
            raise InputError(f'look-ahead mode "vmap": {obstacle}; use "auto"')
        assert vectorised is not None
        return GradientSource(Policy(vectorised, "vmap"), buffers)
    one = OneByOne(Stepper(model, layout, traits, seed, buffers), data)
    usable = None if obstacle else vectorised
    # Running statistics follow the gradients in another order on processes; and once a pool has
    # computed what waits, which a clock decides, fewer wait for vmap, whose values differ.
    make_pool = pool if processes > 1 and not (traits.moving_buffers or usable) else None
    return GradientSource(Automatic(one, usable, make_pool, obstacle or None), buffers)


Waiting = TypeVar("Waiting")


class Policy:
    """Computes by one method what is needed, or all that wait (`together`)."""

    def __init__(self, method: Method, text: str, together: bool = True) -> None:
        self._method = method
        self._text = text
        self._together = together

    def choose(self, needed: Waiting, waiting: dict[int, Waiting]) -> tuple[list[Waiting], Method]:
        """Return which requests to compute now, of those `waiting`, and by what.

        The one that is `needed` is among them.
        """
        return list(waiting.values()) if self._together else [needed], self._method

    def note(self, method: Method, gradients: int, seconds: float) -> None:
        """Take note of what has been computed, and of how long it took."""

    def describe(self) -> str:
        return self._text

    def close(self) -> None:
        """Release what the methods hold."""
        if isinstance(self._method, GradientPool):
            self._method.workers.close()


_FEWEST = 16
"""Gradients that wait, from which on one call of vmap costs less than each alone: the call itself
costs as much as some ten gradients of a small model."""

_MOST_WORK = 2**18
"""Parameters times examples of a minibatch up to which vmap is worth it: it saves no arithmetic."""

_LARGEST_ACTIVATION = 2**15
"""Bytes of a tensor kept for the backward pass, on average, up to which it is: 16 of such are what
a core has of cache. Transformers and convolutions took up to 0.95 of the time of one by one; the
former 1.5 with 2^16."""

# A pool takes seconds to start: it is tried once that is 5 % of what gradients have cost already.
_POOL_AFTER = 40.0  # seconds spent on gradients
_POOL_COST = 5e-3  # seconds for a gradient, below which sending it costs too much


def _is_small(layout: ParameterLayout, traits: Traits, batch: int) -> bool:
    """Whether a model's gradient is so little work that the bookkeeping of each one counts."""
    fits = traits.activation_bytes * batch <= _LARGEST_ACTIVATION * traits.activations
    return fits and layout.size * batch <= _MOST_WORK


class Automatic(Policy):
    """Computes one by one; together what is known, from model and number, to be faster so.

    No measured time decides over a value: small models are vectorised from a number of waiting
    gradients on, and a pool of processes, which is started when gradients have proved expensive,
    gives the values of one by one to the bit.
    """

    def __init__(
        self,
        one: Method,
        vectorised: Method | None,  # None where it is not worth it, or not possible
        pool: Callable[[], GradientPool] | None,  # makes one; None where values would differ
        obstacle: str | None = None,  # why a small model is not vectorised
    ) -> None:
        self._one = one
        self._vmap = vectorised
        self._make_pool = pool
        self._obstacle = obstacle
        self._pool: GradientPool | None = None
        self._no_pool = ""  # why none can be used
        self._is_warm = False
        self._seconds = 0.0
        self._counts: Counter[str] = Counter()

    def choose(self, needed: Waiting, waiting: dict[int, Waiting]) -> tuple[list[Waiting], Method]:
        requests = list(waiting.values())
        if self._vmap is not None and len(requests) >= _FEWEST:
            return requests, self._vmap
        if len(requests) > 1 and self._pool_started():
            assert self._pool is not None
            return requests, self._pool
        return [needed], self._one

    def note(self, method: Method, gradients: int, seconds: float) -> None:
        if method is self._one:
            self._seconds += seconds
            self._counts["one by one"] += gradients
        elif method is self._vmap:
            self._counts["vmap"] += gradients
        elif self._pool is not None:
            self._counts[self._pool.workers.name] += gradients

    def describe(self) -> str:
        """Say which methods computed how much."""
        total = self._counts.total()
        if not total:
            return "auto: nothing was computed"
        parts = [f"{name} {count / total:.0%}" for name, count in self._counts.most_common()]
        why = f"; no vmap: {self._obstacle}" if self._obstacle else ""
        return f"auto: {', '.join(parts)}{why}{self._no_pool and f'; {self._no_pool}'}"

    def close(self) -> None:
        if self._pool is not None:
            self._pool.workers.close()

    def _pool_started(self) -> bool:
        if self._is_warm:
            return True
        if self._make_pool is None or self._seconds < _POOL_AFTER:
            return False
        if self._seconds < _POOL_COST * self._counts["one by one"]:
            return False
        try:
            if self._pool is None:
                self._pool = self._make_pool()
            self._is_warm = self._pool.workers.warm_up()
        except InputError as error:  # the values are the same without processes
            self._make_pool = None
            self._no_pool = str(error)
        return self._is_warm


class Private:
    """The method that computes (sum_i min(1, C / |g_i|) g_i + noise C z) / B over a minibatch.

    B is what a minibatch should have, the lot, and not what this one has drawn, which would tell of
    a single example. z is standard normal in each coordinate, from a stream of each request; the
    norm is that of all tensors. Abadi et al., "Deep Learning with Differential Privacy", 2016,
    algorithm 1. The loss is the mean over the examples drawn; 0 where there are none.

    Raises:
        InputError: an example's gradient depends on other examples, or cannot be had alone.
    """

    def __init__(
        self,
        privacy: Privacy,
        model: Model,
        layout: ParameterLayout,
        data: TrainingExamples,
        traits: Traits,
        seed: int,
    ) -> None:
        self._privacy = privacy
        self._layout = layout
        self._seed = seed
        self._vectorised = Vectorised(model, layout, data, traits)
        if traits.moving_buffers:
            raise InputError(
                "privacy: the model keeps statistics of minibatches, so an example's gradient "
                "depends on others: use group normalisation in place of batch normalisation"
            )
        if obstacle := traits.obstacle or self._vectorised.obstacle():
            raise InputError(
                f"privacy: {obstacle}, so examples' gradients cannot be had one by one"
            )

    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Gradient:
        assert request.parameters is not None
        tensors, examples = self._layout.tensors(request.parameters), request.batch
        most = self._vectorised.most_together(1)
        sums = [torch.zeros_like(tensor) for tensor in tensors]
        total = 0.0
        for begin in range(0, len(examples), most):
            chosen = examples[begin : begin + most]
            expanded = [tensor.expand(len(chosen), *tensor.shape) for tensor in tensors]
            losses, gradients = self._vectorised.differentiate(expanded, chosen[:, None])
            total += float(losses.sum())
            norms = torch.stack([tensor.flatten(1).norm(dim=1) for tensor in gradients]).norm(dim=0)
            factors = (self._privacy.clip / norms).clamp(max=1.0)
            for one, tensor in zip(sums, gradients, strict=True):
                one += torch.tensordot(factors, tensor, 1)
        rng = generator(self._seed, TrainingStream.NOISE, request.number)
        scale = self._privacy.noise * self._privacy.clip
        drawn = (rng.standard_normal(tuple(one.shape), dtype=np.float32) for one in sums)
        noise = map(torch.from_numpy, drawn)
        lot = request.lot or len(examples)
        noisy = [(a + scale * b) / lot for a, b in zip(sums, noise, strict=True)]
        loss = total / max(1, len(examples))
        return Gradient(loss, self._layout.in_form_of(request.parameters, noisy))

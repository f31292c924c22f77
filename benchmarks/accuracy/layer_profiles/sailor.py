"""What Sailor's own simulator says of a plan, a baseline beside the replay: closed formulas.

Strati et al., "Sailor: Automating Distributed Training over Dynamic, Heterogeneous, and
Geo-distributed Clusters", SOSP 2025, section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from layer_profiles.bandwidth import Network
from layer_profiles.job import GH200
from layer_profiles.plan import Plan, Stage, Worker
from layer_profiles.profiles import Profiles
from layer_profiles.sizes import Sizes

__all__ = ["SailorEstimate", "estimate_as_sailor"]

BYTES_PER_PARAMETER = 24 / 4  # times its own four bytes: weights, Adam, gradients, two copies more
BUCKET = 5e8  # bytes that are reduced at once


@dataclass(frozen=True, slots=True)
class SailorEstimate:
    """Seconds of an iteration and of the all-reduce in it, bytes on the fullest GPU."""

    iteration: float
    all_reduce: float
    memory: float


def estimate_as_sailor(
    plan: Plan, model: str, profiles: Profiles, sizes: Sizes, network: Network
) -> SailorEstimate:
    """Return what Sailor's simulator says.

    The slowest stage with its messages for every micro-batch but one, all stages once, the
    optimizer, and the all-reduce of the largest stage.

    Raises:
        InputError: what the plan needs is not in the files.
    """
    computing = [
        max(_computing(plan, stage, worker, model, profiles) for worker in stage.workers)
        for stage in plan.stages
    ]
    messages = _messages(plan, model, sizes, network)
    update = max(
        profiles.times(model, worker.gpu, plan.microbatch, worker.tensor).update
        for stage in plan.stages
        for worker in stage.workers
    )
    slowest = max(own + sent for own, sent in zip(computing, messages, strict=True))
    all_reduce = max(_all_reduce(stage, model, sizes, network) for stage in plan.stages)
    pipeline = (plan.microbatches - 1) * slowest + sum(messages) + sum(computing) + update
    memory = max(_memory(plan, number, model, sizes) for number in range(len(plan.stages)))
    return SailorEstimate(pipeline + all_reduce, all_reduce, memory)


def _computing(plan: Plan, stage: Stage, worker: Worker, model: str, profiles: Profiles) -> float:
    times = profiles.times(model, worker.gpu, plan.microbatch, worker.tensor)
    own = slice(stage.layers.start, stage.layers.stop)
    return float(times.forward[own].sum() + times.backward[own].sum())


def _messages(plan: Plan, model: str, sizes: Sizes, network: Network) -> list[float]:
    """Return the seconds of the messages of each stage, for one micro-batch.

    A middle stage sends an activation and a gradient; the first one counts its activation twice in
    pipelines of more than three stages, the last one its gradient always.
    """
    output = sizes.layers(model, sizes.tensors(model)[0]).output * plan.microbatch
    last = len(plan.stages) - 1
    seconds = []
    for number, stage in enumerate(plan.stages):
        onward = backward = 0.0
        if number < last:
            to = plan.stages[number + 1]
            onward = _sending(stage, to, float(output[stage.layers.stop - 1]), network)
        if number > 0:
            to = plan.stages[number - 1]
            backward = _sending(stage, to, float(output[stage.layers.start]), network)
        if number == last:
            seconds.append(2 * backward)
        elif number == 0:
            seconds.append((2 if last > 2 else 1) * onward)
        else:
            seconds.append(onward + backward)
    return seconds


def _sending(sender: Stage, receiver: Stage, size: float, network: Network) -> float:
    """Return the seconds of the slowest replica, whose GPUs send together."""
    return max(
        network.between((a.zone, a.gpu), (b.zone, b.gpu), min(a.tensor, b.tensor)).time(size)
        for a, b in set(zip(sender.workers, receiver.workers, strict=True))
    )


def _all_reduce(stage: Stage, model: str, sizes: Sizes, network: Network) -> float:
    ranks = len(stage.workers)
    if ranks == 1:
        return 0.0
    whole = sizes.tensors(model)[0]
    own = slice(stage.layers.start, stage.layers.stop)
    parameters = float(sizes.layers(model, whole).parameters[own].sum()) * whole
    left = parameters / min(worker.tensor for worker in stage.workers)
    slowest = 0.0
    for a, b in set(zip(stage.workers[:-1], stage.workers[1:], strict=True)):
        bandwidth = network.between((a.zone, a.gpu), (b.zone, b.gpu))
        full, rest = divmod(left, BUCKET)
        time = full * bandwidth.all_reduce(ranks, BUCKET) + bandwidth.all_reduce(ranks, rest)
        slowest = max(slowest, time)
    return slowest


def _memory(plan: Plan, number: int, model: str, sizes: Sizes) -> float:
    """Return the bytes of a stage: as many micro-batches at once as stages follow, and itself."""
    stage = plan.stages[number]
    own = slice(stage.layers.start, stage.layers.stop)
    layers = [sizes.layers(model, tensor) for tensor in {w.tensor for w in stage.workers}]
    return max(
        BYTES_PER_PARAMETER * float(layer.parameters[own].sum())
        + float(layer.kept[own].sum()) * plan.microbatch * (len(plan.stages) - number)
        + GH200
        for layer in layers
    )

"""What the workers of a plan have of the model, and what they exchange."""

from __future__ import annotations

from dataclasses import dataclass

from layer_profiles.bandwidth import Bandwidth, Network
from layer_profiles.plan import Plan, Worker
from layer_profiles.profiles import Profiles
from layer_profiles.sizes import Sizes
from paracosm.errors import InputError

__all__ = ["BUFFER", "Message", "Part", "between", "message_of", "part_of", "reduce_time"]


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker has of the model, on each of its GPUs.

    Attributes:
        forward, backward: seconds of a micro-batch.
        update: seconds of the optimizer's step.
        parameters: bytes.
        kept: bytes from the forward to the backward pass of a micro-batch.
        largest: bytes of these of the layer that keeps most.
        output: bytes that are handed on of a micro-batch.
    """

    forward: float
    backward: float
    update: float
    parameters: int
    kept: int
    largest: int
    output: int


BUFFER = 4 << 20
"""Bytes that NCCL keeps on their way from one GPU to another (`NCCL_BUFFSIZE`, 4 MiB by default):
its send is done, and the stream that waits for it goes on, when no more are left to be sent."""


HOST_ZEROS = 14.5e9
"""Bytes/s at which one thread of a host writes zeros into memory: a loop of stores on an AMD Milan
(github.com/dist1ll/memset). Nobody has published that of the hosts that were measured."""


@dataclass(frozen=True, slots=True)
class Message:
    """One activation, or its gradient, between two stages.

    Attributes:
        seconds: from its begin until it has arrived.
        size: bytes that each GPU sends.
        whole: bytes of all parts together.
    """

    seconds: float
    size: int
    whole: int

    @property
    def joining(self) -> float:
        """Seconds of the receiver's host for a tensor of all parts, before the device goes on.

        Sailor's engine waits for the message on the host, then makes zeros there in single
        precision, which it copies to the device, for the parts to be gathered in
        (deepspeed/utils.py, `reconstruct_tensor`: `torch.zeros(...).cuda()`). The copy and the
        gathering are not counted.
        """
        return self.whole / HOST_ZEROS

    @property
    def in_flight(self) -> int:
        """How many such messages the buffers between two GPUs hold."""
        return BUFFER // max(self.size, 1)

    @property
    def blocking(self) -> float:
        """Seconds until what is left of it fits into the buffers; all of it may be."""
        return self.seconds * max(1 - BUFFER / max(self.size, 1), 0.0)


def part_of(
    plan: Plan, stage: int, worker: Worker, model: str, profiles: Profiles, sizes: Sizes
) -> Part:
    """Return what a worker has of a stage.

    Raises:
        InputError: it is not in the files, or they have other layers than the plan.
    """
    times = profiles.times(model, worker.gpu, plan.microbatch, worker.tensor)
    layers = sizes.layers(model, worker.tensor)
    count = plan.stages[-1].layers.stop
    if not len(layers) == len(times) == count:
        raise InputError(
            f"{plan.name}: has {count} layers, the profile of {worker.gpu} {len(times)}, "
            f"the sizes {len(layers)}"
        )
    own = slice(plan.stages[stage].layers.start, plan.stages[stage].layers.stop)
    total, parameters = (int(each.sum()) for each in (layers.parameters, layers.parameters[own]))
    return Part(
        forward=float(times.forward[own].sum()),
        backward=float(times.backward[own].sum()),
        update=times.update * (parameters / total if total else 0.0),
        parameters=parameters,
        kept=int(layers.kept[own].sum()) * plan.microbatch,
        largest=int(layers.kept[own].max()) * plan.microbatch,
        output=int(layers.output[own][-1]) * plan.microbatch,
    )


def message_of(part: Part, sender: Worker, receiver: Worker, network: Network) -> Message:
    """Return the message from the worker that has `part` to its counterpart of the next stage.

    Of the GPUs that split a layer each sends an equal part.
    """
    size = -(-part.output // min(sender.tensor, receiver.tensor))
    return Message(between(network, sender, receiver).time(size), size, part.output)


def reduce_time(parameters: int, workers: tuple[Worker, ...], network: Network) -> float:
    """Return the seconds of an all-reduce of a stage, at the pace of its slowest link.

    There is a ring for each of the GPUs that split a layer, all at the same time.
    """
    if len(workers) == 1:
        return 0.0
    ring = zip(workers, [*workers[1:], workers[0]], strict=True)
    return max(between(network, *pair).all_reduce(len(workers), parameters) for pair in set(ring))


def between(network: Network, sender: Worker, receiver: Worker) -> Bandwidth:
    """Return what each GPU of a worker has of the bandwidth to another, while all of them send."""
    gpus = min(sender.tensor, receiver.tensor)
    ends = (sender.zone, sender.gpu), (receiver.zone, receiver.gpu)
    return network.between(*ends, gpus).shared(gpus)

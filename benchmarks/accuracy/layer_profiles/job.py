"""The job of a plan: one rank for each worker, which stands for all GPUs that split its layers."""

from __future__ import annotations

from collections.abc import Sequence

from layer_profiles.bandwidth import Network
from layer_profiles.lockstep import lockstep
from layer_profiles.parts import BUFFER, Message, Part, message_of, part_of, reduce_time
from layer_profiles.plan import Plan
from layer_profiles.profiles import Profiles
from layer_profiles.sizes import Sizes
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

__all__ = ["COPIES", "overhead_of", "plan_job"]

COPIES = 4  # of the parameters: themselves, gradients, and the two moments of Adam
PREVIOUS, NEXT, DATA = "previous", "next", "data"
MESSAGES = {
    "gradient out": ("gradient", PREVIOUS),
    "activation in": ("activation", PREVIOUS),
    "gradient in": ("gradient", NEXT),
    "activation out": ("activation", NEXT),
}


GH200 = 5.06e9
"""Bytes on a GH200 besides tensors: Sailor's simulator adds as much for this machine (4.76e9 +
300e6), and says that it depends on the platform."""

CONTEXT = 300e6
"""Bytes of the CUDA context of a process, from 11.7 on, which loads kernels as they are needed
(pytorch/pytorch#107667)."""

WORKSPACE = 8_519_680
"""Bytes that PyTorch gives cuBLAS before Hopper: twice 4 MiB and eight times 16 KiB."""

CHANNELS = 2
"""Of a communicator over PCIe and Ethernet; NCCL takes no fewer."""


def overhead_of(gpu: str) -> float:
    """Return the bytes on a GPU besides what layers, gradients and their optimizer need.

    Where nobody measured a platform, they are context, cuBLAS and NCCL, which has buffers for each
    channel, direction and neighbour of three communicators: of tensors, replicas and stages.
    """
    if gpu.startswith("GH"):
        return GH200
    return CONTEXT + WORKSPACE + 3 * CHANNELS * 2 * BUFFER


def plan_job(
    plan: Plan,
    model: str,
    profiles: Profiles,
    sizes: Sizes,
    network: Network,
    overhead: float | None = None,
) -> Job:
    """Return the job of a plan, as DeepSpeed's pipeline engine runs it.

    Each of the GPUs that split a layer sends its part of an activation to its counterpart; what
    they have of the network is a share of what was measured for as many together. Messages keep
    their receiver from computing until they are there and joined, and their sender until NCCL's
    buffers hold what is left. The gradients of a stage are reduced over its workers when the
    backward passes are over, in a ring for each of those GPUs; then comes the optimizer, its time
    divided among the stages by their parameters.

    Memory: `COPIES` of the parameters and `overhead` throughout; what the layers keep, from the
    forward to the backward pass of each micro-batch; and, during a backward pass, as much again for
    the largest layer, for the gradients of what it kept.

    Args:
        plan: which layers run where.
        model: as profiles and sizes name it.
        profiles: times of the layers.
        sizes: of the layers.
        network: bandwidth between nodes.
        overhead: bytes on each GPU besides; None for those of `overhead_of` its kind.

    Raises:
        InputError: what the plan needs is not in the files; other layers than the profile's.
    """
    codebooks = (Codebook(), Codebook(), Codebook((PREVIOUS, NEXT, DATA)))
    written: dict[tuple[object, ...], int] = {}
    writers: list[ProgramWriter] = []
    throughout: list[dict[str, int]] = []
    program: list[int] = []
    messages: list[Message | None] = [None] * plan.replicas  # from the stage before
    for number, stage in enumerate(plan.stages):
        kinds = {
            worker: part_of(plan, number, worker, model, profiles, sizes)
            for worker in dict.fromkeys(stage.workers)
        }
        reducing = reduce_time(
            max(part.parameters for part in kinds.values()), stage.workers, network
        )
        onward: list[Message | None] = [None] * plan.replicas
        if number + 1 < len(plan.stages):
            pairs = zip(stage.workers, plan.stages[number + 1].workers, strict=True)
            onward = [message_of(kinds[sender], sender, to, network) for sender, to in pairs]
        for worker, *ends in zip(stage.workers, messages, onward, strict=True):
            key = (number, worker, *ends)
            if key not in written:
                written[key] = len(writers)
                writers.append(_write(codebooks, plan, number, kinds[worker], ends, reducing))
                besides = overhead_of(worker.gpu) if overhead is None else overhead
                held = round(COPIES * kinds[worker].parameters + besides)
                throughout.append({"parameters": held})
            program.append(written[key])
        messages = onward
    groups, communicator = _groups(plan)
    return write_job(
        writers,
        program,
        write_communicators(groups),
        communicator,
        throughout=throughout,
        labels=[
            f"stage{number}.{replica}"
            for number in range(len(plan.stages))
            for replica in range(plan.replicas)
        ],
        examples=plan.batch,
        provenance={"plan": plan.name, "model": model},
    )


def _write(
    codebooks: tuple[Codebook, Codebook, Codebook],
    plan: Plan,
    number: int,
    part: Part,
    ends: Sequence[Message | None],
    reducing: float,
) -> ProgramWriter:
    """Return what one worker does.

    Args:
        codebooks: of the whole job.
        plan: whose worker.
        number: of its stage.
        part: what it has of the model.
        ends: messages with the stages before and after.
        reducing: seconds of the all-reduce.
    """
    writer = ProgramWriter(*codebooks)
    message = {role: end for role, end in zip((PREVIOUS, NEXT), ends, strict=True) if end}
    forwards: dict[int, int] = {}
    under_way: dict[str, list[int]] = {PREVIOUS: [], NEXT: []}
    for what, microbatch in lockstep(number, len(plan.stages), plan.microbatches):
        if what in MESSAGES:
            name, role = MESSAGES[what]
            _exchange(writer, what, name, role, message[role], microbatch, under_way[role])
            continue
        sender = PREVIOUS if what == "forward" else NEXT
        if sender in message:
            writer.add(
                f"join parts for {what}",
                "compute",
                message[sender].joining,
                step="communication",
                microbatch=microbatch,
            )
        if what == "forward":
            forwards[microbatch] = writer.add(
                what, "compute", part.forward, step="forward", microbatch=microbatch
            )
        else:
            row = writer.add(what, "compute", part.backward, step="backward", microbatch=microbatch)
            writer.hold(part.kept, forwards[microbatch], row)
            writer.hold(part.largest, row, row)
    if plan.replicas > 1:
        writer.add(
            "all-reduce",
            "compute",
            reducing,
            step="communication",
            kind="collective",
            role=DATA,
            size=part.parameters,
        )
    writer.add("optimizer", "compute", part.update, step="optimizer")
    return writer


def _exchange(
    writer: ProgramWriter,
    what: str,
    name: str,
    role: str,
    message: Message,
    microbatch: int,
    under_way: list[int],
) -> None:
    """Send or receive a message; `under_way` are the rows of those that were sent in this role.

    One that the buffers hold leaves beside the computation, which waits where they are full.
    """

    def meet(lane: str, seconds: float, after: Sequence[int] = ()) -> int:
        return writer.add(
            name,
            lane,
            seconds,
            after,
            step="communication",
            kind="collective",
            role=role,
            size=message.size,
            microbatch=microbatch,
        )

    def compute(what: str, seconds: float, after: Sequence[int] = ()) -> int:
        return writer.add(
            what, "compute", seconds, after, step="communication", microbatch=microbatch
        )

    sends, room = what.endswith("out"), message.in_flight
    if not room:
        meet("compute", message.blocking)
        if not sends:
            compute(f"rest of {name}", message.seconds - message.blocking)
    elif sends:
        made = compute(f"hand on {name}", 0.0, under_way[-room : len(under_way) - room + 1])
        under_way.append(meet(f"send to {role}", message.seconds, [made]))
    else:
        meet("compute", message.seconds)


def _groups(plan: Plan) -> tuple[list[tuple[int, ...]], list[dict[str, int]]]:
    """Return who communicates, and in which group each rank is in which role."""
    count, replicas = len(plan.stages), plan.replicas
    groups: list[tuple[int, ...]] = []
    role_of: list[dict[str, int]] = [{} for _ in range(count * replicas)]
    for number in range(count - 1):
        for replica in range(replicas):
            sender = number * replicas + replica
            role_of[sender][NEXT] = role_of[sender + replicas][PREVIOUS] = len(groups)
            groups.append((sender, sender + replicas))
    if replicas > 1:
        for number in range(count):
            members = tuple(range(number * replicas, (number + 1) * replicas))
            for rank in members:
                role_of[rank][DATA] = len(groups)
            groups.append(members)
    return groups, role_of

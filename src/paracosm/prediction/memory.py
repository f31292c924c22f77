"""The memory of a job's fullest rank as a list: what holds how many bytes, and by which source.

Tensors by their use when most is held; what PyTorch's allocator reserves beyond them; CUDA's
context and NCCL's buffers. Kinds are those of `paracosm.jobs.job.MEMORY`, which `emulate
--hardware` has as well.
"""

from collections.abc import Mapping

from paracosm.cluster.hardware import Device
from paracosm.cluster.hardware.device_memory import (
    CONTEXT,
    CONTEXT_SOURCE,
    NCCL_SOURCE,
    SMALL_WORKSPACE,
    WORKSPACE,
    WORKSPACE_SOURCE,
    communicator_bytes,
    verdict_of,
    verdict_sentence,
)
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.prediction.job import EqualRanks, JobPrediction
from paracosm.results.summaries import DeviceMemory, MemoryLine
from paracosm.simulation.caching_allocator import AllocatorSettings
from paracosm.simulation.memory import memory_at_peak, reserved_memory

MOST = 4  # kinds of ranks that are looked at, those that hold most: stages of a pipeline

LISTED = 12  # lines of activations, the largest

SOURCES: Mapping[str, str] = {
    "parameters": "the model's, divided as the strategy says",
    "master weights": "a copy of the parameters in single precision (Micikevicius et al. 2018)",
    "gradients": "the model's, in the precision in which they are reduced",
    "optimizer": "two moments of Adam in single precision (Kingma, Ba 2015)",
    "activations": "what the backward pass needs (Korthikanti et al. 2022, section 4, by op)",
    "logits": "logits, their copy in single precision and its gradients, by the stack's loss",
    "collectives": "parameters that are gathered, a layer ahead of their use (Zhao et al. 2023)",
    "temporary": "gradients of activations of the op under way",
    "inputs": "the batch",
}
"""What says how many bytes a kind of memory has."""

ALLOCATOR_SOURCE = "PyTorch's CUDACachingAllocator.cpp, given the blocks of three iterations"


def device_memory(job: JobPrediction, device: Device) -> DeviceMemory | None:
    """Return the memory of the rank of a job that comes closest to its device's.

    Args:
        job: all of whose workers have the device.
        device: of the catalogue. Only GPUs have an allocator that keeps what is freed, a context,
            and NCCL.
    """
    fullest = sorted(
        (ranks for ranks in job.equal_ranks if ranks.peak_memory is not None and ranks.is_worker),
        key=lambda ranks: -(ranks.peak_memory or 0),
    )
    lists = [_memory_of(job, ranks, device) for ranks in fullest[:MOST]]
    return max(lists, key=lambda held: (held.verdict == "does not fit", held.total), default=None)


def _memory_of(job: JobPrediction, ranks: EqualRanks, device: Device) -> DeviceMemory:
    rank, capacity = ranks.ranks[0], int(device.memory)
    node = job.cluster.node(ranks.label)
    capacity = capacity if node.memory is None else int(node.memory)
    held = memory_at_peak(job.schedule, rank)
    on_host = job.schedule.job.programs[job.schedule.job.program[rank]].on_host
    workspace = 0
    if device.kind == "gpu":
        is_new = device.compute_capability >= (9, 0)
        workspace = WORKSPACE if is_new else SMALL_WORKSPACE
    allocated = sum(held.values()) + workspace
    context, nccl = 0, 0
    reserved, retries, is_full = allocated, 0, allocated > capacity
    if device.kind == "gpu":
        context, nccl = CONTEXT, _nccl_bytes(job.strategy)
        limit = capacity - context - nccl - workspace
        settings = AllocatorSettings()
        use = reserved_memory(job.schedule.job, rank, settings)
        if use.size > limit:  # else it makes no difference
            use = reserved_memory(job.schedule.job, rank, settings, limit)
        # Collectives may hold what they gather sooner than the host asks for it.
        reserved = max(use.size + workspace, allocated)
        retries, is_full = use.retries, use.is_full
    total = reserved + context + nccl
    verdict = verdict_of(total, capacity, retries, is_full=is_full)
    lines = _lines(held)
    lines += [
        MemoryLine(what=kind, bytes=size, source=source)
        for kind, size, source in (
            ("workspace of products", workspace, WORKSPACE_SOURCE),
            ("kept by the allocator", reserved - allocated, ALLOCATOR_SOURCE),
            ("CUDA's context", context, CONTEXT_SOURCE),
            ("NCCL's buffers", nccl, NCCL_SOURCE),
        )
        if size
    ]
    return DeviceMemory(
        rank=ranks.label,
        lines=lines,
        allocated=allocated,
        reserved=reserved,
        total=total,
        capacity=capacity,
        retries=retries,
        verdict=verdict,
        sentence=verdict_sentence(
            verdict, total, capacity, retries, ranks.label if job.workers > 1 else ""
        ),
        on_host=_lines({(kind, ""): size for kind, size in on_host.items()}),
    )


def _lines(held: Mapping[tuple[str, str], int]) -> list[MemoryLine]:
    """Return a line for each kind, of activations one for each op, the largest first."""
    sizes = dict[str, int]()
    ops = {name: size for (kind, name), size in held.items() if kind == "activations"}
    named = sorted(ops, key=lambda name: -ops[name])[:LISTED]
    for (kind, name), size in held.items():
        is_named = kind == "activations" and name in named and name
        line = f"activations: {name}" if is_named else kind
        sizes[line] = sizes.get(line, 0) + size
    return [
        MemoryLine(what=line, bytes=size, source=SOURCES[line.partition(":")[0]])
        for line, size in sorted(sizes.items(), key=lambda item: -item[1])
        if size
    ]


def _nccl_bytes(strategy: Strategy) -> int:
    """Return the bytes of the communicators of a rank: a ring for each way to divide the job."""
    rings = [strategy.replicas, strategy.tensor, strategy.context, strategy.pipeline]
    if strategy.shard:
        rings += [strategy.shard, strategy.replicas // strategy.shard]
    of_experts = communicator_bytes(strategy.expert, all_to_all=True)
    return of_experts + sum(communicator_bytes(ranks) for ranks in rings)

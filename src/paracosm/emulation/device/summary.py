"""What the job of a recorded script takes: its summary, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from paracosm.arrays import Floats
from paracosm.cluster.changes import WORTH_FASTER_LINKS, parse_change, with_twice_the_bandwidth
from paracosm.emulation.device.batch import batch_of
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.durations import HOST_LINK, DeviceDurations, device_durations
from paracosm.emulation.device.memory_model import MemoryUse, memory_use
from paracosm.emulation.device.memory_savings import savings
from paracosm.emulation.device.part_changes import check_collectives, with_changed_parts
from paracosm.emulation.device.program import CollectiveCosts, HostCosts, ScriptJob, script_job
from paracosm.emulation.device.recording import (
    COLLECTIVE,
    COPY,
    OP,
    Call,
    Recording,
    iterations_of,
)
from paracosm.emulation.records import Note
from paracosm.errors import InputError
from paracosm.graphs.graph import shapes_of
from paracosm.profiling.datasheets import dtype_of
from paracosm.results import ScriptBatch, ScriptMemory, ScriptSummary
from paracosm.results.summaries import Interval
from paracosm.simulation import JobSchedule, replay_job
from paracosm.simulation.breakdown import job_timeline, rank_breakdown
from paracosm.timeline import Timeline
from paracosm.units import format_bandwidth, format_duration, format_size

_LARGEST = 10  # distinct ops that are listed
_WAITS = ("exposed_communication", "waiting", "bubble")


@dataclass
class Recorded:
    """The recordings of a job's ranks, and how that went."""

    recordings: list[Recording] = field(default_factory=list)
    exit_code: int | None = 0
    interrupted: bool = False
    failure: str | None = None  # why there is nothing to play
    notes: list[Note] = field(default_factory=list)
    wall_time: float = 0.0
    cpu: float = 0.0  # processor seconds of the scripts
    is_reused: bool = False


@dataclass(frozen=True, eq=False)
class Played:
    """A job that was played."""

    recordings: Sequence[Recording]
    durations: Sequence[DeviceDurations]
    host: HostCosts
    script: ScriptJob
    schedule: JobSchedule
    iteration_times: tuple[float, ...]  # of the iterations that were recorded, of the slowest rank
    bounds: tuple[float, float]  # when the typical iteration begins and ends
    place: int  # of the slowest of the recorded ranks
    interval: tuple[float, float]  # of the typical iteration's time

    @property
    def rank(self) -> int:
        """The recorded rank that is slowest."""
        return self.recordings[self.place].rank

    @property
    def iteration_time(self) -> float:
        return float(np.median(self.iteration_times))

    def timeline(self) -> Timeline:
        """Return a typical iteration of the recorded ranks."""
        return job_timeline(self.schedule, self.script.recorded, self.bounds)


def played(config: DeviceEmulateConfig, recordings: Sequence[Recording]) -> Played:
    """Play the job of recordings on the hardware and the cluster of a configuration.

    Raises:
        InputError: the device has no peak for the numbers of an op; recordings that do not fit one
            another.
    """
    check_collectives(recordings, config.of_collectives)
    how = config.device, config.db, config.cost
    known = [device_durations(recording, *how) for recording in recordings]
    durations, host = with_changed_parts(
        recordings, known, _host_costs(config, known), config.of_parts
    )
    script, schedule = _replayed(config, recordings, durations, host, 1.0)
    ends = _ends(script, schedule)
    times = np.diff(ends, axis=1)
    count = min(len(iterations_of(recording)) for recording in recordings)
    own_times = times[:, :count]
    place = int(np.argmax(np.median(own_times, axis=1)))
    typical = 1 + int(np.argmin(np.abs(own_times[place] - np.median(own_times[place]))))
    time = float(np.median(own_times[place]))
    relative = durations[place].relative
    interval = [time, time]
    for end, factor in enumerate(relative):
        if factor != 1.0:
            replay = _replayed(config, recordings, durations, host, factor)
            other = np.diff(_ends(*replay), axis=1)
            interval[end] = float(np.median(other[place, :count]))
    return Played(
        recordings=recordings,
        durations=durations,
        host=host,
        script=script,
        schedule=schedule,
        iteration_times=tuple(own_times[place].tolist()),
        bounds=(float(ends[place, typical - 1]), float(ends[place, typical])),
        place=place,
        interval=(min(interval[0], time), max(interval[1], time)),
    )


def _replayed(
    config: DeviceEmulateConfig,
    recordings: Sequence[Recording],
    durations: Sequence[DeviceDurations],
    host: HostCosts,
    factor: float,
) -> tuple[ScriptJob, JobSchedule]:
    script = script_job(
        recordings,
        durations,
        config.resolve_cluster(),
        host=host,
        factor=factor,
        slowdown=config.slowed,
        algorithm=config.algorithm,
        changes=config.of_collectives,
    )
    return script, replay_job(script.job)


def _host_costs(config: DeviceEmulateConfig, durations: Sequence[DeviceDurations]) -> HostCosts:
    """Return what the host takes: as it is given, as it was measured, or what is assumed."""
    is_device = config.device.device.kind == "cpu"
    timed = durations[0].timed
    if config.launch is None and timed is not None and timed.host is not None:
        host = timed.host
        return HostCosts(host.op, host.op, in_optimizer=host.in_optimizer, is_device=is_device)
    launch = config.launch_or_assumed
    return HostCosts(launch, launch, is_device=is_device)


def _ends(script: ScriptJob, schedule: JobSchedule) -> Floats:
    """Return when all that belongs to an iteration is done, shape (recordings, iterations)."""
    rows = []
    for rank, ends in zip(script.recorded, script.ends, strict=True):
        done = np.maximum.accumulate(schedule.end[schedule.tasks_of(rank)])
        rows.append(done[ends])
    return np.array(rows)


def summarise(config: DeviceEmulateConfig, whole: Played, recorded: Recorded) -> ScriptSummary:
    recording, durations = whole.recordings[whole.place], whole.durations[whole.place]
    iteration = iterations_of(recording)[-1]
    breakdown = rank_breakdown(
        whole.schedule,
        whole.script.recorded[whole.place],
        pipelined=len(whole.recordings) > 1,
        between=whole.bounds,
    )
    time = whole.iteration_time
    waits = sum(breakdown[part] for part in _WAITS)
    capacity = int(config.device.device.memory)
    uses = [memory_use(recording, capacity) for recording in whole.recordings]
    fullest = max(range(len(uses)), key=lambda place: uses[place].total)
    use = uses[fullest]
    computing = iteration.code[iteration.kind == OP]
    flops = np.array([op.flops for op in recording.ops], dtype=np.int64)
    batch, price = _batch(config, whole.recordings), config.price
    return ScriptSummary(
        status="interrupted" if recorded.interrupted else "done",
        exit_code=recorded.exit_code,
        world_size=config.world,
        hardware=config.device.name,
        node=_node(config),
        rank=[recording.rank for recording in whole.recordings],
        iterations=len(recording.steps),
        iteration_time=time,
        interval=Interval(low=whole.interval[0], high=whole.interval[1]),
        iteration_times=list(whole.iteration_times),
        breakdown=breakdown,
        waits=waits / time if time else None,
        launch_bound=(breakdown["launch"] + breakdown["idle"]) / time if time else None,
        flops=int(flops[computing].sum()),
        peak_flops=_peak(config, recording, computing),
        by_class=_by_class(iteration, durations),
        largest=_largest(iteration, durations),
        collectives=_collectives(iteration, whole.script.collectives[whole.place]),
        memory=ScriptMemory(
            allocated=use.allocated,
            by_kind=use.by_kind,
            reserved=use.reserved,
            overhead=use.overhead,
            capacity=capacity,
            verdict=use.verdict,
            modules=[asdict(module) for module in use.modules],
            retries=use.retries,
            savings=_savings(config, whole, fullest, use),
        ),
        assumed=[asdict(assumption) for assumption in recording.assumed],
        durations=_origins(config, recording, durations, use.overhead) | _batch_origin(batch),
        notes=_notes(recorded, recording),
        wall_time=recorded.wall_time,
        recording=None
        if recorded.is_reused
        else {"seconds": recorded.wall_time, "processor_seconds": recorded.cpu},
        twice_bandwidth=_twice_the_bandwidth(config, whole, waits),
        batch=batch,
        throughput=batch.count / time if batch is not None and time else None,
        price=None if price is None else str(price),
        currency="" if price is None else price.currency,
        cost=None if price is None else price.of(config.world, time),
    )


def _batch(config: DeviceEmulateConfig, recordings: Sequence[Recording]) -> ScriptBatch | None:
    counted = batch_of(recordings, config.world)
    if config.batch_tokens is None:
        return counted
    unit = "tokens" if counted is None else counted.unit
    return ScriptBatch(count=config.batch_tokens, unit=unit, origin="given: --batch-tokens")


def _batch_origin(batch: ScriptBatch | None) -> dict[str, str]:
    unknown = (
        "not known: no embedding or convolution comes before the first product: add "
        "--batch-tokens 4e6, of all ranks"
    )
    return {"batch": unknown if batch is None else batch.origin}


def _savings(
    config: DeviceEmulateConfig, whole: Played, place: int, use: MemoryUse
) -> list[Mapping[str, Any]]:
    """Return what to change where memory is short."""
    if use.verdict == "fits":
        return []
    recording, costs = (
        whole.recordings[place],
        CollectiveCosts(config.resolve_cluster(), config.algorithm, config.of_collectives),
    )

    def seconds_of(call: Call) -> float:
        return costs.of(call, recording.groups[call.group], recording.rank)

    kinds = savings(recording, use, whole.durations[place].seconds, seconds_of)
    return [asdict(saving) for saving in kinds]


def failed_summary(config: DeviceEmulateConfig, recorded: Recorded) -> ScriptSummary:
    why = {"rank": config.rank, "grave": True, "text": recorded.failure}
    return ScriptSummary(
        status="interrupted" if recorded.interrupted else "failed",
        exit_code=recorded.exit_code,
        world_size=config.world,
        hardware=config.device.name,
        node=_node(config),
        rank=[config.rank],
        iterations=0,
        iteration_time=None,
        interval=None,
        iteration_times=[],
        breakdown=None,
        waits=None,
        launch_bound=None,
        flops=None,
        peak_flops=None,
        by_class={},
        largest=[],
        collectives={},
        memory=None,
        assumed=[],
        durations={},
        notes=[*({**asdict(note)} for note in recorded.notes), why],
        wall_time=recorded.wall_time,
    )


def _twice_the_bandwidth(config: DeviceEmulateConfig, whole: Played, waits: float) -> float | None:
    """Return the seconds of an iteration with faster links; None where it waits for little."""
    if waits <= WORTH_FASTER_LINKS * whole.iteration_time:
        return None
    if with_twice_the_bandwidth(config.resolve_cluster()) is None:
        return None
    faster = (*config.what_if, parse_change("links: bandwidth 2x"))
    changed = config.model_copy(update={"what_if": faster})
    try:
        replay = _replayed(changed, whole.recordings, whole.durations, whole.host, 1.0)
    except InputError:
        return None
    times = np.diff(_ends(*replay), axis=1)[whole.place, : len(whole.iteration_times)]
    return float(np.median(times))


def _peak(config: DeviceEmulateConfig, recording: Recording, codes: Any) -> float | None:
    """Return the device's flop/s for the type of number in which most is multiplied."""
    peaks = config.device.device.peak_tflops
    worked: dict[str, int] = {}
    for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
        op = recording.ops[int(code)]
        if op.flops:
            dtype = dtype_of(op, tuple(peaks))
            worked[dtype] = worked.get(dtype, 0) + int(count) * op.flops
    most = max(worked, key=lambda dtype: worked[dtype], default=None)
    return next((tflops * 1e12 for name, tflops in peaks.items() if name == most), None)


def _by_class(iteration: Recording, durations: DeviceDurations) -> dict[str, float]:
    seconds_by_class: dict[str, float] = {}
    for code, count in _counts(iteration):
        name = durations.classes[code]
        seconds_by_class[name] = seconds_by_class.get(name, 0.0) + count * float(
            durations.seconds[code]
        )
    ordered = sorted(seconds_by_class.items(), key=lambda item: -item[1])
    return {name: seconds for name, seconds in ordered if seconds > 0}


def _counts(iteration: Recording) -> list[tuple[int, int]]:
    codes = iteration.code[(iteration.kind == OP) | (iteration.kind == COPY)]
    distinct, counts = np.unique(codes, return_counts=True)
    return list(zip(distinct.tolist(), counts.tolist(), strict=True))


def _largest(iteration: Recording, durations: DeviceDurations) -> list[Mapping[str, Any]]:
    times = {code: count * float(durations.seconds[code]) for code, count in _counts(iteration)}
    counts = dict(_counts(iteration))
    total = sum(times.values()) or 1.0
    return [
        {
            "op": iteration.ops[code].name,
            "shapes": ", ".join(shapes_of(iteration.ops[code].arguments)[:4]),
            "count": counts[code],
            "time": times[code],
            "share": times[code] / total,
        }
        for code in sorted(times, key=lambda code: -times[code])[:_LARGEST]
        if times[code] > 0
    ]


def _collectives(
    iteration: Recording, seconds: Mapping[Call, float]
) -> dict[str, Mapping[str, Any]]:
    by_kind: dict[str, dict[str, Any]] = {}
    for code in iteration.code[iteration.kind == COLLECTIVE].tolist():
        call = iteration.calls[code]
        entry = by_kind.setdefault(call.kind, {"count": 0, "bytes": 0, "time": 0.0})
        entry["count"] += 1
        entry["bytes"] += call.size
        entry["time"] += seconds.get(call, 0.0)
    return dict(by_kind)


def _node(config: DeviceEmulateConfig) -> str:
    """Return how the devices are joined, in words."""
    if config.has_links:
        return "links as given"
    hardware = config.device
    if hardware.node is None or hardware.outer is None:
        return "no node"
    nodes = -(-config.world // hardware.node.count)
    if nodes == 1:
        return f"1 node, {hardware.node.title}"
    card = format_bandwidth(hardware.outer.bandwidth)
    return f"{nodes:,} nodes of {hardware.node.count}, {card} a card"


def _origins(
    config: DeviceEmulateConfig,
    recording: Recording,
    durations: DeviceDurations,
    overhead: int,  # bytes of CUDA and NCCL
) -> dict[str, str]:
    shares = {name: round(100 * part) for name, part in durations.sources.items()}
    known = {
        "kernel": "by kernels timed on this device",
        "efficiency": "by efficiencies measured on it",
        "pooled": "by those of other devices",
        "datasheet": "by those of another class of ops",
    }
    known |= {
        "exact": "timed on this device",
        "interpolated": "between timings on it",
        "estimated": "from timings of their type on it",
        "given": "as given",
    }
    of_ops = ", ".join(f"{share} % {known[name]}" for name, share in shares.items() if share)
    timed = durations.timed
    where = f"datasheet of the {config.device.device.title}"
    if timed is not None:
        where = f"{config.db} ({timed.environment}), else the {where}"
    links = "links as given" if config.has_links else f"{config.device.node_in_words}"
    common = {
        "script": f"recorded: it ran as rank {recording.rank} ({recording.framework}); nothing was "
        "computed",
        "ops": f"{'modelled' if timed is None else 'measured'}: {where}; {of_ops} of their time",
        "host": _host_origin(config, durations),
        **_assumed_hardware(config),
        **{cost.name: f"given: {format_duration(cost.seconds)} a call" for cost in config.cost},
    }
    if config.device.device.kind == "cpu":
        return common | {"sizes in memory": "recorded: parameters, and what is made of them"}
    return common | {
        "copies": f"assumed: {format_bandwidth(HOST_LINK)} between host and device",
        "communication": f"modelled: {links}, algorithm {config.algorithm}",
        "computing beside collectives": f"published: {config.slowed:g} times as long",
        "other ranks": "assumed: do what the recorded ones do",
        "sizes in memory": f"recorded: tensors; modelled: the allocator; published: "
        f"{format_size(overhead)} of CUDA and NCCL",
    }


def _assumed_hardware(config: DeviceEmulateConfig) -> dict[str, str]:
    """Return the figures of the device and of its links that no document gives."""
    device = f" of {config.device.device.title}"
    return {
        name: f"assumed: {why}"
        for name, why in config.device.assumed.items()
        if name.endswith(device) or not config.has_links
    }


def _host_origin(config: DeviceEmulateConfig, durations: DeviceDurations) -> str:
    host = _host_costs(config, [durations])
    how = "given" if config.launch is not None else "assumed"
    if config.launch is None and durations.timed is not None and durations.timed.host is not None:
        how = "measured"
    text = f"{how}: {format_duration(host.op)} for each op"
    if host.in_optimizer not in (None, host.op):
        return f"{text}, {format_duration(host.in_optimizer or 0.0)} in the optimizer"
    return f"{text} and collective"


def _notes(recorded: Recorded, recording: Recording) -> list[Mapping[str, Any]]:
    notes = [asdict(note) for note in recorded.notes]
    said = [{"rank": recording.rank, "grave": False, "text": text} for text in recording.notes]
    return [*notes, *said]

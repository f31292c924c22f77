"""Traced TensorFlow steps as a job profile."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.arrays import Bools, Floats
from paracosm.errors import InputError, check_installed
from paracosm.profiling.jobs.job_profile import (
    JobProfile,
    ProfiledOp,
    check_job_profile,
    job_profile_of,
)
from paracosm.profiling.jobs.tensorflow.records import (
    Device,
    Key,
    Records,
    TracedStep,
    read_traced_step,
    records_of,
    traced_step,
)
from paracosm.profiling.jobs.tensorflow.structure import Columns, StructureFinder, columns_of
from paracosm.profiling.processes import Processes, WorkerError, check_memory_for, free_ports


def read_steps(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None
) -> JobProfile:
    """Return the profile in RunMetadata of a job of one worker, one file per step.

    It has what the steps have in common: ops that most of them ran, and tensors that went from one
    machine to another. Steps that lack an op, ran others, or have impossible times are left out and
    counted; a transfer may lack its times, which servers do not always return. A step lasts from
    the begin of the worker's first op to the end of the last op; if steps were not traced
    consecutively, the gap between them is the median of the others, or 0.

    Args:
        paths: RunMetadata (or StepStats) in protobuf's binary form, gzipped or not.
        progress: called with files read and in all.

    Raises:
        InputError: a file is none of these or damaged; the job had several workers, or no server;
            a tensor's bytes or sender are in no step; no step is left.
    """
    if not paths:
        raise InputError("no file of a step was given")
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    steps = []
    for path in paths:
        steps.append(read_traced_step(path))
        if progress is not None:
            progress(len(steps), len(paths))
    return profile_of_steps(steps, where, {"files": [path.name for path in paths]})


def profile_of_steps(
    steps: Sequence[TracedStep], where: str, provenance: Mapping[str, Any]
) -> JobProfile:
    every = sorted(map(records_of, steps), key=lambda each: (each.base, each.step.where))
    dropped: Counter[str] = Counter()
    every = _without_duplicates(every, dropped)
    count = Counter(key for records in every for key in records.runs)
    usual = {key for key, times in count.items() if 2 * times > len(every)}
    alike = [records for records in every if records.runs.keys() == usual]
    for records in every:
        if records.runs.keys() != usual:
            dropped["ops are missing" if usual - records.runs.keys() else "other ops ran"] += 1
    if not alike:
        raise InputError(_no_step_error(every, usual))
    reference = max(alike, key=lambda each: (len(each.receives), -each.base))
    names = {name for _, name, _ in usual}
    # The partitioned graph of a step that knows all nodes that ran; empty if none does.
    nodes = next(
        (records.step.nodes for records in alike if names <= records.step.nodes.keys()), {}
    )
    structure = StructureFinder(reference, nodes).structure()
    columns = columns_of(structure, reference, every)
    ops = columns.ops()
    times = times_of(alike, columns)
    dropped["a tensor came before it was sent"] += int(times.early.sum())
    if times.early.all():
        raise InputError(
            f"{alike[0].step.where}: a tensor arrives before it is sent, whatever the clock "
            f"offset, in each of {len(alike)} steps"
        )
    kept = ~times.early
    facts = {
        "source": "TensorFlow step statistics",
        **provenance,
        "tensors_matched": "by the partitioned graph" if structure.exact else "by names and order",
        "inputs_not_traced": structure.not_traced,
        "clocks_ahead": {str(device): offset for device, offset in times.offsets.items()},
        "transfers_not_traced": int(np.isnan(times.end[kept, len(columns.keys) :]).sum()),
        "transfers_never_traced": [ops[column].name for column in times.placed],
        "between_servers": dict(zip(("transfers", "bytes"), columns.between_servers, strict=True)),
    }
    return _profile(alike, ops, times, kept, dict(dropped), facts, where)


def _without_duplicates(steps: Sequence[Records], dropped: Counter[str]) -> list[Records]:
    """Of two files of the same step, leave out the one with less content."""
    once: list[Records] = []
    for step in steps:
        if once and step.base == once[-1].base:
            dropped["also in another file"] += 1
            if len(step.receives) > len(once[-1].receives):
                once[-1] = step
            continue
        once.append(step)
    return once


def _no_step_error(steps: Sequence[Records], usual: set[Key]) -> str:
    step = min(steps, key=lambda each: len(each.runs.keys() ^ usual))
    device, name, _ = min(step.runs.keys() ^ usual)
    lacks = "lacks" if (device, name, 0) not in step.runs else "has"
    return (
        f"{step.step.where}: the step {lacks} {name} on {device}, other than most: no step ran the "
        f"ops that most of the {len(steps)} steps did: trace steps that fetch the same"
    )


def _profile(
    steps: Sequence[Records],
    ops: Sequence[ProfiledOp],
    times: "Times",
    kept: Bools,
    dropped: dict[str, int],
    provenance: dict[str, Any],
    where: str,
) -> JobProfile:
    begin, end = _spans(steps, times)
    from_first = np.array([(step.base - steps[0].base) / 1e9 for step in steps])
    order = np.argsort(times.begin[np.argmax(kept)], kind="stable")
    position = np.argsort(order, kind="stable")
    profile = job_profile_of(
        [replace(ops[at], waits=np.sort(position[sorted(ops[at].waits)]).tolist()) for at in order],
        begin=(times.begin - begin[:, None])[kept][:, order],
        end=(times.end - begin[:, None])[kept][:, order],
        step_begin=(from_first + begin)[kept],
        step_end=(from_first + end)[kept],
        dropped={reason: count for reason, count in dropped.items() if count},
        provenance=provenance,
    )
    pauses = np.array([step.step.pause for step in steps])
    checked = check_job_profile(profile, where)
    return _laid_end_to_end(checked, from_first + begin, from_first + end, pauses)


def _spans(steps: Sequence[Records], times: "Times") -> tuple[Floats, Floats]:
    """Return when each step began and ended, in seconds from its base."""
    begin = np.array([step.begin for step in steps])
    end = np.nanmax(np.where(np.isfinite(times.end), times.end, -np.inf), axis=1)
    for row, step in enumerate(steps):
        if step.step.span is not None:
            begin[row], end[row] = ((time - step.base) / 1e9 for time in step.step.span)
    return begin, end


def _laid_end_to_end(profile: JobProfile, begin: Floats, end: Floats, pauses: Floats) -> JobProfile:
    """Concatenate steps with the recorded gaps (without `pauses`) between them."""
    length = end - begin
    gaps = np.maximum(begin[1:] - end[:-1] - pauses[:-1], 0.0)
    # A gap longer than a step is one in which other steps ran, that were not traced.
    near = gaps[gaps < np.median(length)] if len(gaps) else gaps
    usual = float(np.median(near)) if len(near) else 0.0
    after = np.append(np.where(gaps < np.median(length), gaps, usual), usual)
    lengths = profile.step_end - profile.step_begin
    follows = after[np.searchsorted(begin, profile.step_begin)]
    first = np.concatenate([[0.0], np.cumsum(lengths + follows)[:-1]])
    return replace(profile, step_begin=first, step_end=first + lengths)


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds from each step's `base`."""

    # begin, end: (steps, columns); NaN where nothing was traced
    begin: Floats
    end: Floats
    # Seconds that each server's clock was ahead of the worker's, if that showed
    offsets: dict[Device, float]
    # Columns of transfers that no step has traced: they are set to last from the end of the
    # op that sends to the begin of the first that waits for it
    placed: list[int]
    early: Bools  # steps in which a tensor came before it was sent, in any case


def times_of(steps: Sequence[Records], columns: Columns) -> Times:
    shape = (len(steps), len(columns.waits))
    begin, end = np.full(shape, np.nan), np.full(shape, np.nan)
    first = len(columns.keys)
    for row, step in enumerate(steps):
        runs = [step.runs[key] for key in columns.keys]
        begin[row, :first] = [run.begin for run in runs]
        end[row, :first] = [run.end for run in runs]
        _enter_receives(begin[row], end[row], step, columns)
    sent = np.full(shape, -np.inf)
    _enter_sent(sent, end, columns)
    offsets = _offsets(sent, end, columns)
    timed_by = [key[0] for key in columns.keys] + [each.transfer.target for each in columns.sent]
    ahead = np.array([offsets.get(device, 0.0) for device in timed_by])
    begin, end = begin - ahead, end - ahead
    _enter_sent(sent, end, columns)
    starts = np.array([step.begin for step in steps])
    placed = []
    for column, each in enumerate(columns.sent, first):
        there = np.maximum(sent[:, column], starts)
        if each.server in offsets:  # a begin was noted by one clock, and bounded by the other
            begin[:, column] = np.where(np.isfinite(end[:, column]), there, np.nan)
        if np.isnan(end[:, column]).all() and each.receivers:
            begin[:, column] = there
            needed = begin[:, sorted(each.receivers)].min(axis=1)
            end[:, column] = np.maximum(needed, there)
            placed.append(column)
    with np.errstate(invalid="ignore"):
        early = np.any(end < sent - EVIDENT, axis=1)
    return Times(begin, end, offsets, placed, early)


def _enter_receives(begin: Floats, end: Floats, step: Records, columns: Columns) -> None:
    for column, each in enumerate(columns.sent, len(columns.keys)):
        transfer = each.transfer
        edge = (transfer.source, transfer.target, transfer.tensor, each.number)
        if edge in step.receives:
            begin[column], end[column] = step.receives[edge].begin, step.receives[edge].end


def _enter_sent(sent: Floats, end: Floats, columns: Columns) -> None:
    for column, each in enumerate(columns.sent, len(columns.keys)):
        if each.senders:
            sent[:, column] = end[:, sorted(each.senders)].max(axis=1)


def _offsets(sent: Floats, end: Floats, columns: Columns) -> dict[Device, float]:
    ways: dict[Device, tuple[list[int], list[int]]] = {}
    for column, each in enumerate(columns.sent, len(columns.keys)):
        ways.setdefault(each.server, ([], []))[0 if each.is_down else 1].append(column)
    with np.errstate(invalid="ignore"):
        taken = np.where(np.isfinite(sent), end - sent, np.nan)
    offsets = {
        server: clock_offset(list(taken[:, down]), list(taken[:, up]))
        for server, (down, up) in sorted(ways.items())
        if down and up
    }
    return {server: offset for server, offset in offsets.items() if offset}


EVIDENT = 1e-3
"""Seconds by which a tensor must have come before it was sent, for clocks to be found apart."""


def clock_offset(down: Sequence[Floats], up: Sequence[Floats]) -> float:
    """Return the seconds that a server's clock is ahead of the worker's; 0 if nothing shows it.

    A tensor arrives after it was sent. With a server that is d ahead, the end of a transfer minus
    that of the op that made its tensor (`down`, `up`: by step, NaN is ignored) is at least -d on
    the downlink and at least d on the uplink. The shortest of each direction take about as long, so
    d is half of their difference, as in NTP (RFC 5905, section 8). The result is the median over
    the steps, or 0 unless most steps contradict synchronised clocks.
    """
    offsets, shown = [], 0
    for downs, ups in zip(down, up, strict=True):
        if np.isfinite(downs).any() and np.isfinite(ups).any():
            least_down, least_up = float(np.nanmin(downs)), float(np.nanmin(ups))
            offsets.append((least_up - least_down) / 2)
            shown += min(least_down, least_up) < -EVIDENT
    return float(np.median(offsets)) if 2 * shown > len(offsets) else 0.0


@dataclass(frozen=True)
class ScriptSettings:
    """How to run a script."""

    servers: int = 1  # parameter servers
    warmup: int = 5  # training steps that are run before those that are kept
    timeout: float = 300.0  # seconds without a training step after which the script is given up

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise InputError(f"servers: {self.servers}, but at least 1 is needed")
        if self.warmup < 0:
            raise InputError(f"warmup: {self.warmup} steps, less than none")
        if not self.timeout > 0:
            raise InputError(f"timeout: {self.timeout:g}, not above 0")


def profile_script(
    script: Path,
    arguments: Sequence[str],
    steps: int = 100,
    settings: ScriptSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> JobProfile:
    """Run a training script unchanged on this machine, and return what its steps did, op by op.

    Every process gets its task by TF_CONFIG, and by {job}, {task}, {servers} and {workers} in the
    arguments. The worker's sessions are traced (FULL_TRACE); those that send nothing to a server,
    such as initialization, are not training steps. The script is ended as soon as there are enough
    steps. If it ends earlier, or is interrupted, the profile has those so far; "ended" in its
    provenance is "enough", "by itself" or "interrupted".

    Raises:
        InputError: there is no such script; it failed, ended or took too long without a training
            step, or uses ParameterServerStrategy; what `read_steps` refuses.
    """
    if steps < 1:
        raise InputError(f"steps: {steps}, but at least 1 is needed")
    if not script.is_file():
        raise InputError(f"{script}: no such file: give the script that trains")
    check_installed("tensorflow", "tensorflow", "profiling a TensorFlow job")
    wanted = settings or ScriptSettings()
    check_memory_for(1 + wanted.servers)
    with Processes("paracosm.profiling.jobs.tensorflow.process", wanted.timeout) as processes:
        answers: list[dict[str, Any]] = []
        ended = "enough"
        try:
            _start(processes, script, arguments, steps, wanted)
            for answer in _answers(processes, wanted.servers):
                answers.append(answer)
                if progress is not None and "step" in answer:
                    progress(answer["step"] + 1, steps)
        except KeyboardInterrupt:
            ended = "interrupted"
            if not any("step" in answer for answer in answers):
                raise
        except WorkerError as error:
            raise InputError(f"{script}: {error}") from None
        processes.end()
        return _profile_found(script, answers, ended, processes.folder)


def _start(
    processes: Processes,
    script: Path,
    arguments: Sequence[str],
    steps: int,
    settings: ScriptSettings,
) -> None:
    addresses = [f"localhost:{port}" for port in free_ports(settings.servers + 1)]
    cluster = {"ps": addresses[:-1], "worker": addresses[-1:]}
    for job, task in [*(("ps", number) for number in range(settings.servers)), ("worker", 0)]:
        words = {
            "{job}": job,
            "{task}": str(task),
            "{servers}": ",".join(cluster["ps"]),
            "{workers}": ",".join(cluster["worker"]),
        }
        setup = {
            "script": str(script),
            "arguments": [_filled(argument, words) for argument in arguments],
            "tf_config": {"cluster": cluster, "task": {"type": job, "index": task}},
            "folder": str(processes.folder),
            "steps": steps,
            "warmup": settings.warmup,
        }
        processes.start(f"{job} {task}", setup)


def _answers(processes: Processes, worker: int) -> Iterator[dict[str, Any]]:
    while True:
        (answer,) = processes.answers("a training step of a tf.compat.v1.Session", [worker])
        if "done" in answer:
            return
        yield answer
        if "ended" in answer:
            return


def _filled(argument: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        argument = argument.replace(word, value)
    return argument


def _profile_found(
    script: Path, answers: Sequence[dict[str, Any]], ended: str, folder: Path
) -> JobProfile:
    details = {key: value for answer in answers for key, value in answer.items()}
    kept = [answer for answer in answers if "step" in answer]
    if not kept:
        raise InputError(
            f"{script}: it ended without a training step: no tf.compat.v1.Session ran one that "
            "gets parameters from a server and sends gradients to it (TensorFlow keeps step "
            "statistics of sessions only, not of eager code; do the servers and the worker take "
            "their tasks from TF_CONFIG, or from arguments such as --task={task}?)"
        )
    steps = [
        traced_step(
            (folder / f"step-{each['step']}.pb").read_bytes(),
            f"{script.name}, step {each['step']}",
            span=(each["span"][0], each["span"][1]),
            pause=each["pause"],
        )
        for each in kept
    ]
    provenance = {
        "framework": details["framework"],
        "script": script.name,
        "ended": "by itself" if "ended" in details else ended,
    }
    return profile_of_steps(steps, str(script), provenance)

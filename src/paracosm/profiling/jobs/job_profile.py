"""What one worker and its parameter servers did, op by op, with checks of its plausibility."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Bools, Floats, Ints
from paracosm.errors import InputError
from paracosm.timeline.analysis import covered

Codes = npt.NDArray[np.int8]

RESOURCES = ("downlink", "worker", "uplink", "server")
"""What an op keeps busy (Li et al. 2020, section 2): `downlink` carries parameters from a server to
the worker, `uplink` gradients from the worker to a server; worker and server compute."""

DOWNLINK, WORKER, UPLINK, SERVER = range(4)


@dataclass(frozen=True)
class JobProfile:
    """Profiled steps of a job of one worker, all of the same ops."""

    names: tuple[str, ...]  # of the ops, each once
    kinds: tuple[str, ...]  # type of each op ("MatMul", "RecvTensor")
    resource: Codes  # by op, an index into `RESOURCES`
    server: Ints  # by op, the parameter server that computes, sends or receives; 0 on the worker
    size: Ints  # by op, bytes that are transferred; 0 of computations
    # Op i waits for `dependencies[first_dependency[i]:first_dependency[i+1]]`
    first_dependency: Ints
    dependencies: Ints  # indices of ops
    # Seconds from the step's begin, (steps, ops); of a transfer: when it was asked for; NaN of
    # transfers that were not traced in a step
    begin: Floats
    # Seconds from the step's begin, (steps, ops); of a transfer: when the receiver had its data,
    # parsed; NaN where `begin` is
    end: Floats
    step_begin: Floats  # seconds from the first step's begin, (steps,)
    # Seconds from the first step's begin, (steps,): when the step was reported done to the worker
    step_end: Floats
    batch: int | None = None  # examples of a step, if known
    # Bytes/s of payload of the link that it was profiled on, if known
    bandwidth: float | None = None
    # How many steps were left out, by reason
    dropped: Mapping[str, int] = field(default_factory=dict)
    # Where it comes from ("source", "framework", "hardware", ...), as JSON has it
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ops(self) -> int:
        return len(self.names)

    @property
    def steps(self) -> int:
        return len(self.step_begin)

    @property
    def servers(self) -> int:
        return int(self.server.max(initial=0)) + 1

    def waits_for(self, op: int) -> Ints:
        return self.dependencies[self.first_dependency[op] : self.first_dependency[op + 1]]

    def of_steps(self, kept: Bools) -> "JobProfile":
        """Return the profile of some of its steps, (steps,); `dropped` is unchanged."""
        return replace(
            self,
            begin=self.begin[kept],
            end=self.end[kept],
            step_begin=self.step_begin[kept],
            step_end=self.step_end[kept],
        )


@dataclass(frozen=True, slots=True)
class ProfiledOp:
    name: str
    kind: str
    resource: int
    server: int = 0
    size: int = 0
    waits: Iterable[int] = ()  # indices of the ops that it waits for


def job_profile_of(
    ops: Sequence[ProfiledOp],
    begin: Floats,
    end: Floats,
    step_begin: Floats,
    step_end: Floats,
    **known: Any,
) -> JobProfile:
    first, dependencies = dependencies_of([op.waits for op in ops])
    return JobProfile(
        names=tuple(op.name for op in ops),
        kinds=tuple(op.kind for op in ops),
        resource=np.array([op.resource for op in ops], np.int8),
        server=np.array([op.server for op in ops], np.int64),
        size=np.array([op.size for op in ops], np.int64),
        first_dependency=first,
        dependencies=dependencies,
        begin=begin,
        end=end,
        step_begin=step_begin,
        step_end=step_end,
        **known,
    )


def tensors_of(profile: JobProfile) -> tuple[tuple[str, ...], Ints]:
    """Return the names of a job's tensors, and by op the tensor that it reads or updates, (ops,).

    An op `pull/NAME` reads the tensor NAME and `update/NAME` updates it, as in profiles of PyTorch
    jobs; tensors are in the order of their pulls. All other ops have -1.

    Raises:
        InputError: no op is called so, or a tensor is only read, or only updated.
    """
    reads = _ops_called(profile, "pull/", DOWNLINK)
    updates = _ops_called(profile, "update/", SERVER)
    if not reads:
        raise InputError(
            "profile: the ops pull/NAME, which read tensors, are missing: write the profile with "
            "paracosm profile job"
        )
    for name in [*reads, *updates]:
        for what, ops in (("pull", reads), ("update", updates)):
            if name not in ops:
                raise InputError(f"profile: the tensor {name} has no op {what}/{name}")
    tensor = np.full(profile.ops, -1, np.int64)
    for number, name in enumerate(reads):
        tensor[[reads[name], updates[name]]] = number
    return tuple(reads), tensor


def _ops_called(profile: JobProfile, begin: str, resource: int) -> dict[str, int]:
    """Return the ops of a resource with this prefix, by the rest of their names."""
    return {
        name.removeprefix(begin): op
        for op, name in enumerate(profile.names)
        if name.startswith(begin) and profile.resource[op] == resource
    }


EARLY = 1e-3
"""Seconds that an op may be noted as begun before its step: clocks are read one after the other."""


def check_job_profile(profile: JobProfile, where: str) -> JobProfile:
    """Return the profile without implausible steps, which are counted by reason."""
    _check_shapes(profile, where)
    _check_ops(profile, where)
    _check_dependencies(profile, where)
    kept = np.ones(profile.steps, bool)
    dropped = dict(profile.dropped)
    first = ""
    for reason, bad in _faults(profile):
        new = bad & kept[:, None]
        steps = new.any(axis=1)
        if steps.any():
            step, op = (int(index) for index in np.argwhere(new)[0])
            first = first or f"step {step}, {profile.names[op]}: {reason}"
            dropped[reason] = dropped.get(reason, 0) + int(steps.sum())
            kept &= ~steps
    if not kept.any():
        raise InputError(f"{where}: no step is left of {profile.steps}: {first}")
    if kept.all():
        return profile
    return replace(profile.of_steps(kept), dropped=dropped)


def _check_shapes(profile: JobProfile, where: str) -> None:
    ops, steps = profile.ops, profile.steps
    if not ops:
        raise InputError(f"{where}: no op was profiled")
    if not steps:
        raise InputError(f"{where}: no step was profiled")
    for name in ("kinds", "resource", "server", "size"):
        if len(getattr(profile, name)) != ops:
            raise InputError(
                f"{where}: {name} has {len(getattr(profile, name))} values for {ops} ops"
            )
    for name in ("begin", "end"):
        if getattr(profile, name).shape != (steps, ops):
            raise InputError(
                f"{where}: {name} has the shape {getattr(profile, name).shape}, not {(steps, ops)} "
                "(steps, ops)"
            )
    if profile.step_end.shape != (steps,):
        raise InputError(f"{where}: {len(profile.step_end)} ends of {steps} steps")
    for name in ("batch", "bandwidth"):
        value = getattr(profile, name)
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise InputError(f"{where}: {name} is {value}, not above 0")


def _check_ops(profile: JobProfile, where: str) -> None:
    (most, times), *_ = Counter(profile.names).most_common(1)
    if times > 1:
        raise InputError(f"{where}: {times} ops are called {most}")
    transfers = (profile.resource == DOWNLINK) | (profile.resource == UPLINK)
    for bad, what in (
        ((profile.resource < 0) | (profile.resource >= len(RESOURCES)), "has no known resource"),
        (profile.server < 0, "has a negative number of a server"),
        (profile.server >= profile.ops, "belongs to a server that has no op"),
        (profile.size < 0, "transfers a negative number of bytes"),
        ((profile.size > 0) & ~transfers, "computes, and yet transfers bytes"),
    ):
        if bad.any():
            raise InputError(f"{where}: {profile.names[int(np.argmax(bad))]} {what}")
    for direction in (DOWNLINK, UPLINK):
        if not (profile.resource == direction).any():
            raise InputError(
                f"{where}: no op of the {RESOURCES[direction]}: a profile needs a worker that gets "
                "parameters from a server and sends gradients to it"
            )


def _check_dependencies(profile: JobProfile, where: str) -> None:
    first, dependencies = profile.first_dependency, profile.dependencies
    if len(first) != profile.ops + 1 or first[0] != 0 or first[-1] != len(dependencies):
        raise InputError(f"{where}: first_dependency does not fit {len(dependencies)} dependencies")
    if (np.diff(first) < 0).any():
        raise InputError(f"{where}: first_dependency is not ascending")
    if len(dependencies) and (dependencies.min() < 0 or dependencies.max() >= profile.ops):
        raise InputError(f"{where}: a dependency on an op that is not there")
    done = in_order(np.diff(first), *dependents_of(first, dependencies))
    if len(done) < profile.ops:
        left = sorted(set(range(profile.ops)).difference(done))
        names = [profile.names[op] for op in left[:3]]
        raise InputError(f"{where}: ops wait for each other: {', '.join(names)}")


def _faults(profile: JobProfile) -> list[tuple[str, Bools]]:
    """Return the possible faults of an op of a step, with where they occur, (steps, ops). An
    untraced transfer, with neither begin nor end, is no fault: its bytes are known."""
    transfer = np.isin(profile.resource, (DOWNLINK, UPLINK))
    untraced = transfer & np.isnan(profile.begin) & np.isnan(profile.end)
    begin, end = np.where(untraced, 0.0, profile.begin), np.where(untraced, 0.0, profile.end)
    length = (profile.step_end - profile.step_begin)[:, None]
    with np.errstate(invalid="ignore"):
        return [
            ("its step has no begin or no end", ~np.isfinite(length) & np.ones(profile.ops, bool)),
            ("no begin", ~np.isfinite(begin)),
            ("no end", ~np.isfinite(end)),
            ("ends before it begins", end < begin),
            ("begins before its step", begin < -EARLY),
            ("begins after its step's end", begin > length + EARLY),
        ]


def dependencies_of(waits: Sequence[Iterable[int]]) -> tuple[Ints, Ints]:
    rows = [list(wait) for wait in waits]
    first = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return first, np.array([op for row in rows for op in row], np.int64)


def dependents_of(first_dependency: Ints, dependencies: Ints) -> tuple[Ints, Ints]:
    """Return the inverse relation: `dependents[first[i]:first[i + 1]]` wait for op i."""
    ops = len(first_dependency) - 1
    waiting = np.repeat(np.arange(ops), np.diff(first_dependency))
    order = np.argsort(dependencies, kind="stable")
    return np.searchsorted(dependencies[order], np.arange(ops + 1)), waiting[order]


def in_order(waits: Ints, first_dependent: Ints, dependents: Ints) -> list[int]:
    """Return ops after those that they wait for (Kahn's algorithm), without those in cycles."""
    left, first, after = waits.tolist(), first_dependent.tolist(), dependents.tolist()
    order = [op for op, count in enumerate(left) if not count]
    for op in order:
        for waiting in after[first[op] : first[op + 1]]:
            left[waiting] -= 1
            if not left[waiting]:
                order.append(waiting)
    return order


def smallest_first(sizes: Sequence[float], servers: int) -> list[int]:
    """Return the server of each parameter, given their bytes: the first of those with least so far
    (Li et al. 2020, section 5)."""
    held = [0.0] * servers
    order = []
    for size in sizes:
        server = held.index(min(held))
        held[server] += size
        order.append(server)
    return order


INTERRUPTED = "interrupted: its computing took far longer than that of other steps"
"""The reason, in `JobProfile.dropped`."""

FAR = 3.0
"""Interquartile ranges above the upper quartile: what Tukey ("Exploratory Data Analysis", 1977)
calls far out."""

LONGER = 1.1  # times the median: where all steps last alike, next to nothing would be far out


def without_interrupted(profile: JobProfile) -> JobProfile:
    """Return the profile without steps whose computing is an outlier; they are counted.

    An interruption of a second while profiling would otherwise be drawn again and again. Occasional
    slow steps belong to the job unless they are that far out; at most a quarter is left out.
    """
    of_worker = profile.resource == WORKER
    computing = (profile.end[:, of_worker] - profile.begin[:, of_worker]).sum(axis=1)
    low, median, high = np.percentile(computing, [25, 50, 75])
    kept: Bools = computing <= max(high + FAR * (high - low), LONGER * median)
    if kept.all():
        return profile
    dropped = {**profile.dropped, INTERRUPTED: int((~kept).sum())}
    return replace(profile.of_steps(kept), dropped=dropped)


def summarize_profile(profile: JobProfile) -> dict[str, Any]:
    """Return a summary of a profile.

    Its `utilisation` is, by resource, the median share of a step with at least one op under way;
    for a link that includes the time in which its transfers waited for each other, or for the other
    end. It is None if no step has times of its ops.
    """
    lengths = profile.step_end - profile.step_begin
    return {
        "steps": profile.steps,
        "dropped": dict(profile.dropped),
        "ops": profile.ops,
        "servers": profile.servers,
        "ops_of": {
            name: int((profile.resource == code).sum()) for code, name in enumerate(RESOURCES)
        },
        "bytes_down": int(profile.size[profile.resource == DOWNLINK].sum()),
        "bytes_up": int(profile.size[profile.resource == UPLINK].sum()),
        "step_seconds": float(np.median(lengths)),
        "step_seconds_p10_p90": np.percentile(lengths, (10, 90)).tolist(),
        "utilisation": {
            name: _share(profile, profile.resource == code, lengths)
            for code, name in enumerate(RESOURCES)
        },
        "batch": profile.batch,
        "bandwidth": profile.bandwidth,
        "provenance": dict(profile.provenance),
    }


def _share(profile: JobProfile, ops: Bools, lengths: Floats) -> float | None:
    shares = [
        covered(begin[traced], end[traced]) / length
        for begin, end, length in zip(profile.begin, profile.end, lengths, strict=True)
        if length > 0 and (traced := ops & np.isfinite(end)).any()
    ]
    return float(np.median(shares)) if shares else None

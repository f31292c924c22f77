"""The duration of each distinct op of a graph, and its source.

Measured ops are looked up. The rest is estimated from the others of their type; a *new op*, whose
type has no timing, is profiled immediately where the timings are this machine's, as Huang et al. do
(section 2), and added to the database; elsewhere it is estimated from its flops and bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from paracosm.cluster.hardware.catalogue import Hardware
from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES, Graph, Op, shapes_of
from paracosm.machine import processor_name
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import OpTiming, speeds_of

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate


SOURCES = (
    *("exact", "interpolated", "estimated", "unknown", "recorded", "none"),
    *("kernel", "efficiency", "pooled", "datasheet"),
)
"""Measured as it is; between measured ones; from a model fitted on others of its type; from its
flops and bytes alone, no op of its type was measured; written in the graph; nothing known. On
hardware of the catalogue by its kernel, timed there; by the datasheet, and what ops of the class
reach of it: there, on other devices, or what another class does."""


def constant(graph: Graph, seconds: float) -> list[Estimate]:
    from paracosm.profiling.estimators.roofline import Estimate

    return [Estimate(seconds, seconds, seconds, "exact", "constant")] * len(graph.ops)


NewOps = Literal["profile", "estimate", "refuse"]

BUDGET = 2.0  # seconds of profiling for each new op, all in all; every op is visited once anyway


@dataclass(frozen=True)
class Found:
    """The durations of a graph's ops from a database."""

    durations: Sequence[Estimate | None]  # of each op; None if unknown
    profiled: int  # number of ops profiled now
    refused: dict[str, str]  # why an op could not be profiled, by its name
    # Seconds of the shortest timing of a compute op in a row: on an asynchronous device,
    # what it takes to issue one; None where there is none.
    launch: float | None
    probe: float  # seconds of the speed probe at the reference speed; 0 without a probe
    common: float  # relative error that all ops share: how much the machine's speed varies
    baselines: dict[str, float]  # seconds by "roofline" and "sum of warm timings", as far as known


def environments_in(path: Path) -> list[tuple[Environment, int]]:
    """Return the environments with timings of ops in a database, and how many each has."""
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(path, readonly=True) as database:
        return [(environment, count) for environment, count in database.environments() if count]


def fits(environment: Environment, wanted: str) -> bool:
    """Whether parts of a description, separated by commas, are all in that of an environment."""
    text = f"{environment.device}, {environment}".lower()
    return all(part.strip() in text for part in wanted.lower().split(","))


def environment_of(path: Path, hardware: Hardware, *, strict: bool = False) -> Environment:
    """Return the environment of this hardware in a database, or its only one if not `strict`.

    Of hardware that no driver has a name for (a CPU as such), any of its kind will do, this
    machine's above all.
    """
    held = environments_in(path)
    names = hardware.device.reported_as
    kind = "cpu" if hardware.device.kind == "cpu" else "cuda"
    named = [entry for entry in held if any(name in entry[0].hardware for name in names)]
    if not names and strict:
        named = [entry for entry in held if entry[0].device == kind]
        here = [entry for entry in named if processor_name() in entry[0].hardware]
        named = here if kind == "cpu" and here else named
    if not named and held and (strict or len(held) > 1):
        raise InputError(
            f"{path}: no timings of {hardware.device.title}: it has those of "
            f"{_environment_list([environment for environment, _ in held], None)}"
        )
    if strict and len(named) > 1:
        raise InputError(
            f"{path}: timings of {hardware.device.title} in several environments: "
            f"{_environment_list([environment for environment, _ in named], None)}: "
            "time the ops of one into a database of their own"
        )
    return choose_environment(named or held, None, "", str(path))


def choose_environment(
    held: Sequence[tuple[Environment, int]],
    here: Environment | None,
    wanted: str | None,
    where: str,
) -> Environment:
    """Return the one of the environments that are held at `where` whose timings are to be used.

    `here` is this machine's, where it is known. `wanted` are parts of a description, separated by
    commas, that must all be found in it, whatever their case: "H100", "epyc, threads 2"; None is
    this machine's. Messages say what there is.
    """
    if not held:
        raise InputError(f"{where}: no timings of ops: add some with paracosm profile ops")
    environments = [environment for environment, _ in held]
    if wanted is None:
        if here in environments:
            return here
        for environment in environments:
            # This machine's, however memory was handed out.
            if here is not None and replace(environment, allocator=here.allocator) == here:
                return environment
        first = environments[0].hardware.split(",")[0].split(" (")[0]
        raise InputError(
            f"{where}: no timings of this machine, only of "
            f"{_environment_list(environments, here)}: "
            f'--hardware "{first}" predicts for that one'
        )
    fitting = [environment for environment in environments if fits(environment, wanted)]
    if not fitting:
        raise InputError(
            f'{where}: no timings of "{wanted}": it has those of '
            f"{_environment_list(environments, here)}"
        )
    if len(fitting) > 1 and here in fitting:
        return here
    if len(fitting) > 1:
        raise InputError(
            f'{where}: "{wanted}" matches each of {_environment_list(fitting, None)}: be more '
            'specific, as in --hardware "H100, threads 1"'
        )
    return fitting[0]


def _environment_list(environments: Sequence[Environment], here: Environment | None) -> str:
    return "; ".join(_environment_text(environment, here) for environment in environments)


def _environment_text(environment: Environment, here: Environment | None) -> str:
    differences = [] if here is None else here.differences(environment)
    if here is not None and here.hardware == environment.hardware:
        return f"{environment.hardware} ({', '.join(differences) or 'this machine'})"
    return str(environment)


def find_durations(
    graph: Graph,
    path: Path,
    environment: Environment,
    *,
    cache: str = "cold",
    new_ops: NewOps = "estimate",
    exact: bool = False,
    estimator: str | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Return the duration of each op of a graph in one environment of a database.

    Ops that only communicate, or have a duration in the graph, are not looked for. `exact` profiles
    every op without a timing of its own; `estimator` None is chosen by cross-validation for each
    type. The database at `path` is written to only where something is profiled.

    Raises:
        InputError: the database cannot be used, or a new op is to be refused.
    """
    from paracosm.profiling.database import ProfileDatabase

    needed, of_host = _needed(graph), _host_only(graph)
    with ProfileDatabase.open(path, readonly=True) as database:
        timings = database.timings(environment, cache=cache)
    if not timings and new_ops != "profile" and not exact:
        other = "warm" if cache == "cold" else "cold"
        raise InputError(
            f"{path}: all timings of {environment.hardware} are with {other} data: --cache {other}"
        )
    known = {_key(timing.op) for timing in timings}
    types = {timing.op.name for timing in timings}
    missing = [op for op in needed if _key(op) not in known]
    new = [op for op in missing if op.name not in types]
    refusable = [op for op in new if op not in of_host]
    if new_ops == "refuse" and refusable:
        raise InputError(
            f"{path}: no timing of {_names(refusable)}: --new-ops profile times them here, "
            "--new-ops estimate uses flops and bytes"
        )
    to_profile = missing if exact else new if new_ops == "profile" else []
    profiled, refused = _profile(to_profile, path, environment, seed, progress)
    with ProfileDatabase.open(path, readonly=True) as database:
        if to_profile:
            timings = database.timings(environment, cache=cache)
        warm = database.timings(environment, cache="warm")
    speeds = speeds_of(timings)
    timings, warm = speeds.applied(timings), speeds.applied(warm)
    # In a row, short ops take as long as the host takes to issue them; one with cold data is issued
    # while the device is busy, and says nothing of that. A view moves no memory.
    launch = min((timing.duration for timing in warm if timing.op.bytes_written > 0), default=None)
    return Found(
        durations=_estimates(graph, timings, estimator, seed),
        profiled=profiled,
        refused=refused,
        launch=launch,
        probe=speeds.probe,
        common=speeds.common,
        baselines=_baselines(graph, timings, warm),
    )


def _estimates(
    graph: Graph, timings: Sequence[OpTiming], estimator: str | None, seed: int
) -> list[Estimate | None]:
    """Estimate ops where possible; unknown types of host ops move no data."""
    from paracosm.profiling.estimators.roofline import pool

    types = {timing.op.name for timing in timings}
    needed, of_host = set(_needed(graph)), _host_only(graph)
    by_key = {_key(op): op for op in needed}
    by_op: dict[Op, Estimate] = {}
    if timed := [timing for timing in timings if _key(timing.op) in by_key]:
        exact, _ = pool(timed)
        by_op = {by_key[key]: exact.estimate(row) for key, row in exact.rows.items()}
    alike = {work_of(timing.op): timing for timing in timings}
    others = {op: alike[work_of(op)] for op in needed if op not in by_op and work_of(op) in alike}
    if others:
        exact, _ = pool(list({other.key: other for other in others.values()}.values()))
        by_op |= {op: exact.estimate(exact.rows[_key(timing.op)]) for op, timing in others.items()}
    rest = [
        op
        for op in needed
        if op not in by_op and (op.name in types if op in of_host else _has_work(op, types))
    ]
    if rest:
        from paracosm.profiling.estimators import fit_estimators

        wanted = {op.name for op in rest}
        estimators = fit_estimators(timings, only=wanted, method=estimator, seed=seed)
        by_op |= {op: estimators.estimate(op) for op in rest}
    return [by_op.get(op) for op in graph.ops]


def _needed(graph: Graph) -> list[Op]:
    rows = np.isnan(graph.duration) & (graph.resource != RESOURCES.index("communication"))
    return [graph.ops[code] for code in np.unique(graph.op[rows]).tolist()]


def _host_only(graph: Graph) -> set[Op]:
    elsewhere = set(np.unique(graph.op[graph.resource != RESOURCES.index("host")]).tolist())
    return {op for code, op in enumerate(graph.ops) if code not in elsewhere}


def _profile(
    ops: Sequence[Op],
    path: Path,
    environment: Environment,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, dict[str, str]]:
    """Time ops here and add them to the database; return how many, and why others could not be."""
    if not ops:
        return 0, {}
    from paracosm.profiling import Settings
    from paracosm.profiling.profiler import profile_into

    settings = Settings(
        device=environment.device,
        threads=max(environment.threads, 1),
        budget=BUDGET * len(ops),
        seed=seed,
    )
    refused = profile_into(path, ops, settings, environment, progress)
    return len(ops) - len(refused), refused


def _baselines(
    graph: Graph, timings: Sequence[OpTiming], warm: Sequence[OpTiming]
) -> dict[str, float]:
    from paracosm.profiling.database import pool

    baselines: dict[str, float] = {}
    if (time := roofline_time(graph, timings)) is not None:
        baselines["roofline"] = time
    known = pool(warm)
    times = [known[_key(op)].duration if _key(op) in known else math.nan for op in graph.ops]
    total = float(np.array(times)[graph.op].sum()) if len(graph) else math.nan
    if math.isfinite(total):
        baselines["sum of warm timings"] = total
    return baselines


def _has_work(op: Op, types: Collection[str]) -> bool:
    if op.flops or op.bytes_read or op.bytes_written:
        return True
    return op.name in types and bool(shapes_of(op.arguments))


def work_of(op: Op) -> tuple[str, str, int]:
    """Return what an op does, whatever the factors in it: an optimizer's change with every step."""
    if _BY_NUMBER.search(op.name):
        return op.name, op.arguments, op.bytes_written
    return op.name, _NUMBER.sub("1.0", op.arguments), op.bytes_written


_NUMBER = re.compile(r"-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)")
_BY_NUMBER = re.compile(r"pow|norm|dropout|bernoulli|dist")
"""Ops of which a number decides how they work."""


def _key(op: Op) -> tuple[str, str]:
    return op.name, op.arguments


def _names(ops: Sequence[Op]) -> str:
    names = list(dict.fromkeys(op.name for op in ops))
    more = f" and {len(names) - 3} more op types" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def roofline_time(graph: Graph, timings: Iterable[OpTiming]) -> float | None:
    """Return the seconds of an iteration by the roofline alone; None where no rates are known.

    A node takes max(flops / F, bytes / B) (Williams, Waterman, Patterson: Roofline, 2009), with F
    and B the highest rates of any op in `timings`.
    """
    ops = [(timing.op, timing.duration) for timing in timings if timing.duration > 0]
    best_flops = max((op.flops / time for op, time in ops), default=0)
    best_bytes = max(((op.bytes_read + op.bytes_written) / time for op, time in ops), default=0)
    if best_flops == 0 or best_bytes == 0:
        return None
    times = np.maximum(
        graph.flops / best_flops, (graph.bytes_read + graph.bytes_written) / best_bytes
    )
    return float(times[graph.resource == RESOURCES.index("compute")].sum())

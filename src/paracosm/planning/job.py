"""A profiled job on a cluster as training uses it: tensors, and endless schedules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paracosm.cluster import Cluster
from paracosm.cluster.description import describe_link, link_in_words
from paracosm.cluster.fields import LINK_FIELDS
from paracosm.cluster.hardware import load_catalogue
from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.config import ThroughputConfig
from paracosm.prediction.parameter_servers.target import TargetJob, target_job
from paracosm.prediction.parameter_servers.throughput import begins_of
from paracosm.profiling.jobs import DOWNLINK, JobProfile
from paracosm.profiling.jobs.job_profile import tensors_of
from paracosm.results.view import ASSUMED
from paracosm.rng import TrainingStream, integer_seed
from paracosm.simulation.rules import Rule
from paracosm.simulation.schedule import ROWS, Schedule
from paracosm.simulation.scheduling import stream_schedule
from paracosm.simulation.system import System
from paracosm.training.algorithms.registry import parse_algorithm
from paracosm.units import format_bandwidth, format_duration
from paracosm.validation import given_fields, validated

FIRST_STEPS, FACTOR = 256, 4
"""Steps of each worker that are drawn first, and the factor for more when they run out."""

BYTES = 4  # of a parameter

_MUCH = 0.1  # change of the rate from which on what is assumed is said with the answer
_COMPARED = 64  # steps of each worker over which rates are compared

_OF_JOB = ("profile", "node", "stagger", "servers", "cluster", "batch", *sorted(LINK_FIELDS))


@dataclass(frozen=True, eq=False)
class ProfiledJob:
    """A job with one profiled worker, on a cluster of many."""

    profile: JobProfile
    tensors: tuple[str, ...]  # their names
    sizes: tuple[int, ...]  # bytes of each, as a worker pulls it
    cluster: Cluster  # with the largest number of workers
    target: TargetJob  # asynchronous: the schedule's rule defines waiting

    def schedule(
        self,
        workers: int,
        rule: Rule,
        seed: int,
        with_failures: Callable[[System], System] = lambda system: system,
    ) -> Iterator[Schedule]:
        """Return the blocks of the endless schedule of a number of workers.

        Steps of each worker are drawn from the profiled ones, the same for every rule and number
        of workers; `with_failures` adds failures of workers to the cluster.
        """
        of = np.full(self.target.workload.ops, -1, np.int64)  # parsing comes after the profiled ops
        _, tensor = tensors_of(self.profile)
        of[: len(tensor)] = tensor
        ports = self.target.settings.ports.first(workers)
        system = with_failures(self.target.system(ports, begins_of(self.target, workers, seed)))

        def blocks(steps: int) -> Iterator[Schedule]:
            drawn = self.target.drawn(workers, steps, seed)
            shared = self.target.with_shares(system, steps, [seed])
            return stream_schedule(
                self.target.workload, shared, rule, drawn, of.tolist(), tensors=self.tensors
            )

        return _without_end(blocks)


def profiled_job(config: Any, workers: Sequence[int]) -> ProfiledJob:
    """Return the job of a configuration with the fields of a profiled job.

    Args:
        config: has the fields of links, and `profile`, `node`, `servers`, `start`, `stagger`.
        workers: the numbers of workers that will be asked for, ascending.
    """
    fields = given_fields(config, (*_OF_JOB, "what_if"))
    fields |= {"workers": tuple(workers), "start": config.start}
    wanted = validated(ThroughputConfig, fields, "profile")
    profile, settings = wanted.job_profile, wanted.settings
    tensors, of = tensors_of(profile)
    pulls = [int(np.flatnonzero(of == number)[0]) for number in range(len(tensors))]
    assert all(profile.resource[op] == DOWNLINK for op in pulls)
    return ProfiledJob(
        profile=profile,
        tensors=tensors,
        sizes=tuple(int(profile.size[op]) for op in pulls),
        cluster=wanted.profile_cluster,
        target=target_job(profile, settings, 0).asynchronous(),
    )


def check_model(job: ProfiledJob, learning: Mapping[str, Any], seed: int) -> None:
    """Refuse a profile whose tensors differ from the model's in names or bytes; order is free.

    Args:
        job: of the profile.
        learning: the fields of `LearningFields`; the model is built for the data.
        seed: of the model.
    """
    from paracosm.models import load_data
    from paracosm.models.build import build_model
    from paracosm.training.numerics.parameters import ParameterLayout

    data = load_data(learning["data"], learning["data_dir"])
    drawn = integer_seed(seed, TrainingStream.MODEL)
    model = build_model(learning["model"], data, drawn, learning["batch"])
    layout = ParameterLayout.of(model.module)
    check_tensors(
        dict(zip(job.tensors, job.sizes, strict=True)),
        {name: BYTES * size for name, size in zip(layout.names, layout.sizes, strict=True)},
        f"{learning['model']} on {learning['data']}",
    )


def check_tensors(profiled: Mapping[str, int], wanted: Mapping[str, int], model: str) -> None:
    """Raise InputError unless tensors (bytes by name) are those of the model."""
    for name, size in wanted.items():
        if name not in profiled:
            raise InputError(
                f"profile: the tensor {name} of {model} is missing; it has "
                f"{', '.join(list(profiled)[:8])}: profile the same model"
            )
        if profiled[name] != size:
            raise InputError(
                f"profile: {name} has {profiled[name]:,} bytes, but {size:,} in {model}: profile "
                "the same model"
            )
    for name in profiled:
        if name not in wanted:
            raise InputError(
                f"profile: the tensor {name} is not part of {model}: profile the same model"
            )


def origins(job: ProfiledJob) -> dict[str, str]:
    """Return the source of each kind of time."""
    profile = job.profile
    known = dict(profile.provenance)
    where = known.get("hardware") or known.get("source")
    link = link_in_words(describe_link(job.cluster.topology.link))
    start, stagger = job.target.settings.start, job.target.settings.stagger
    how = "together"
    if start == "staggered":
        apart = "a step spread over all" if stagger is None else format_duration(stagger)
        how = f"one after the other, {apart} apart"
    return {
        "compute": f"measured: {profile.ops:,} ops in {profile.steps:,} steps of one worker"
        + (f" ({where})" if where else ""),
        "update": "measured: with the others, on the servers",
        "network": f"modelled: links of {link}",
        "start": f"assumed: workers begin {how}",
        "gradients": "computed",
    }


def assumed_links(
    config: Any, job: ProfiledJob, workers: int, rule: Rule | None, seed: int
) -> dict[str, str]:
    """Return what nobody has said of links, and moves the job's rate by more than a tenth.

    No latency is compared with that of TCP over Ethernet, as the catalogue of hardware has it, and
    the bandwidth as profiled with half of it, each by the schedules of both.

    Args:
        config: as of `profiled_job`.
        job: its job.
        workers: how many there are.
        rule: of the schedule; None for that of asynchronous SGD.
        seed: of the schedules.
    """
    if config.cluster is not None:
        return {}
    others: dict[str, tuple[str, float]] = {}
    if "latency" not in config.model_fields_set:
        ethernet = load_catalogue().interconnects["ethernet-10"]
        others["latency"] = ("links without latency", ethernet.latency)
    usual, given = job.profile.bandwidth, (config.bandwidth, config.node)
    if usual is not None and given == (None, None):
        text = f"links of {format_bandwidth(usual)}, as profiled"
        others["bandwidth"] = (text, usual / 2)
    rule = rule or parse_algorithm("asgd").rule(workers)
    assert rule is not None
    rate = _rate(job, workers, rule, seed)
    felt = {}
    for name, (text, value) in others.items():
        other = profiled_job(config.model_copy(update={name: value}), (workers,))
        if abs(_rate(other, workers, rule, seed) / rate - 1) > _MUCH:
            felt[name] = f"{ASSUMED}{text}"
    return felt


def _rate(job: ProfiledJob, workers: int, rule: Rule, seed: int) -> float:
    """Return the steps per picosecond at the beginning of a schedule."""
    ends: list[int] = []
    for block in job.schedule(workers, rule, seed):
        ends += block.steps["end"].tolist()
        if len(ends) >= _COMPARED * workers:
            break
    return len(ends) / max(ends)


def _without_end(blocks: Callable[[int], Iterator[Schedule]]) -> Iterator[Schedule]:
    """Yield the schedule of `blocks(steps)` without end. The first steps of a worker do not depend
    on how many are drawn. So when one worker has finished all of them, the schedule is played again
    with more, skipping what was already yielded.
    """
    steps, passed = FIRST_STEPS, dict.fromkeys(ROWS, 0)
    while True:
        left = dict(passed)
        for block in _until_one_is_done(blocks(steps), steps):
            schedules = {}
            for name in left:
                rows = getattr(block, name)
                schedules[name] = rows[left[name] :]
                left[name] -= len(rows) - len(schedules[name])
                passed[name] += len(schedules[name])
            if any(len(rows) for rows in schedules.values()):
                yield replace(block, **schedules)
        steps *= FACTOR


def _until_one_is_done(blocks: Iterator[Schedule], steps: int) -> Iterator[Schedule]:
    """Yield the events before the first worker has finished so many steps."""
    for block in blocks:
        last = block.steps["end"][block.steps["step"] == steps - 1]
        if not len(last):
            yield block
            continue
        at = last.min()
        yield replace(
            block,
            reads=block.reads[block.reads["time"] < at],
            updates=block.updates[block.updates["time"] < at],
            steps=block.steps[block.steps["end"] < at],
            failures=block.failures[block.failures["time"] < at],
            end=int(at),
        )
        return

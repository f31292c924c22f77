"""Training runs of a plan, grouped by schedule, in parallel processes, each made once."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache, partial
from itertools import groupby
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.backends import HERE, Backend
from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.faults.node_failures import JobFailures
from paracosm.files import Stamp, check_plain, file_stamp, open_plain, read_bytes, replacing
from paracosm.network.clock import LAST_INSTANT
from paracosm.planning.config import PlanConfig
from paracosm.planning.designs import Design, Outcome
from paracosm.planning.failures import FailureRecord, failing_schedule
from paracosm.planning.job import ProfiledJob, profiled_job
from paracosm.planning.scheduled import coupled_config, cut
from paracosm.planning.successive_halving import Request
from paracosm.results import TrainingSummary, to_builtin
from paracosm.simulation.rollback import Block
from paracosm.simulation.rules import Rule
from paracosm.simulation.schedule import ROWS, Schedule
from paracosm.training import Metrics, TrainConfig, train
from paracosm.training.learning_rate import scaled_learning_rate
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.validation import validated

Group = tuple[int, Rule | None, int]
"""Workers, rule and seed: the dependencies of a schedule; no rule where it depends on values."""


class Runs:
    """Makes the requested runs of a plan, unless the journal has them.

    Runs with the same number of workers, rule and seed have the same schedule, whatever their
    learning rates and the weights that they give to stale gradients: it is played once for all of
    them. Each such group is one task of a process.
    """

    def __init__(
        self,
        config: PlanConfig,
        journal: "Journal",
        backend: Backend = HERE,
        ran: Callable[[int], None] | None = None,
    ) -> None:
        self.made = 0  # runs, those of the journal counted
        self.updates = 0  # of all of them
        self._config = config
        self._journal = journal
        self._backend = backend
        self._ran = ran

    def __call__(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Outcome]]:
        """Make runs and yield their results, those of the journal first."""
        missing = []
        for request in requests:
            known = self._journal.get(_key(request))
            if known is None:
                missing.append(request)
            else:
                yield self._done(request, _kept(known))
        for done in self._made(missing):
            for request, outcome in done:
                self._journal.add(_key(request), outcome)
                yield self._done(request, outcome)

    def _done(self, request: Request, outcome: Outcome) -> tuple[Request, Outcome]:
        self.made += 1
        self.updates += outcome.made
        if self._ran is not None:
            self._ran(self.made)
        return request, outcome

    def _made(self, requests: Sequence[Request]) -> Iterator[list[tuple[Request, Outcome]]]:
        groups = [
            list(group)
            for _, group in groupby(sorted(requests, key=_place), key=lambda each: _group(each))
        ]
        calls = ((self._config, group) for group in groups)
        yield from self._backend.each(run_group, calls)


def _group(request: Request) -> Group:
    design = request.design
    rule = design.algorithm.rule(design.workers)
    return design.workers, rule, request.seed


def _place(request: Request) -> tuple[object, ...]:
    """Return the sort key of a request's group: many workers first, since these take longest."""
    workers, rule, seed = _group(request)
    return -workers, str(rule), seed


def _kept(mapping: Mapping[str, Any]) -> Outcome:
    for field in fields(Outcome):
        if field.default is MISSING and field.name not in mapping:
            raise InputError(f'the journal of runs is damaged: a result without "{field.name}"')
    kept = Outcome.from_dict(mapping, "the journal of runs is damaged: ")
    for name in ("time", "spent", "updates", "made", "steps"):
        if not 0 <= (getattr(kept, name) or 0) <= LAST_INSTANT:
            raise InputError(f"the journal of runs is damaged: {name} is {mapping[name]}")
    return kept


def _key(request: Request) -> str:
    until = "" if request.horizon == inf else f", until {request.horizon!r} s"
    return f"{request.design}, seed {request.seed}, {request.updates} updates{until}"


def run_group(config: PlanConfig, requests: Sequence[Request]) -> list[tuple[Request, Outcome]]:
    """Make runs that have one schedule, or are coupled, one after the other."""
    workers, rule, seed = _group(requests[0])
    files = (config.profile, config.node, config.cluster)
    stamps = tuple(file_stamp(path) for path in files if isinstance(path, Path))
    job = _job_of(config.model_dump_json(exclude=config.without_effect()), stamps)
    if rule is None:
        return [(request, run_coupled(config, job, request)) for request in requests]
    shared = SharedBlocks(
        failing_schedule(
            *(partial(job.schedule, workers, rule), _failures(config, job, requests[0])),
            workers=workers,
            servers=len(job.cluster.servers),
            tensors=len(job.tensors),
            rule=rule,
            seed=seed,
        )
    )
    return [(request, run_design(config, job, request, shared)) for request in requests]


def _failures(config: PlanConfig, job: ProfiledJob, request: Request) -> JobFailures | None:
    workers, rule, _ = _group(request)
    assert rule is not None  # others are coupled
    return config.job_failures(workers, len(job.cluster.servers), rule.needs_all)


@lru_cache(maxsize=2)
def _job_of(written: str, stamps: tuple[Stamp, ...]) -> ProfiledJob:
    """Return the job of a configuration as JSON, read once for each process and state of files."""
    config = PlanConfig.model_validate_json(written)
    return profiled_job(config, config.workers)


class SharedBlocks:
    """Blocks of a schedule, made on first use and then kept."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._source = blocks
        self._kept: list[Block] = []

    def until(self, horizon: float) -> Iterator[Block]:
        """Yield the blocks from the beginning, up to a virtual time in seconds."""
        end = int(horizon * 1e12) if isfinite(horizon) else None
        place = 0
        while True:
            if place == len(self._kept):
                self._kept.append(next(self._source))
            block = self._kept[place]
            place += 1
            if end is None or _last(block) <= end:
                yield block
                continue
            if not isinstance(block, Schedule) and block[0] <= end:
                yield block._replace(end=end)  # no worker computes at the end
                return
            if not isinstance(block, Schedule):
                reads, updates, steps, failures = (np.zeros(0, dtype) for dtype in ROWS.values())
                yield Schedule(reads, updates, steps, end, 0, {}, (), failures)
                return
            yield cut(block, end)
            return


def _last(block: Block) -> int:
    """Return the last instant of a part of a schedule, or the end of what happens between two."""
    if not isinstance(block, Schedule):
        return block.end
    times = (block.reads["time"], block.updates["time"], block.steps["end"])
    return max(int(np.max(time, initial=0)) for time in times)


def run_design(
    config: PlanConfig, job: ProfiledJob, request: Request, shared: SharedBlocks
) -> Outcome:
    """Train a design over its schedule, until the target or the end of the request."""
    training = train_config(config, request.design, request.updates)
    metrics = Metrics()
    blocks = shared.until(request.horizon)
    failures = _failures(config, job, request)
    record = None if failures is None else FailureRecord(failures, request.design.workers)
    if record is not None:
        blocks = record.watch(blocks)
    summary = train_on_schedule(training, blocks, job.tensors, request.seed, metrics).summary
    effective = None if record is None else record.summary(summary.virtual_time).effective
    return _outcome(config, request, summary, metrics, effective)


def run_coupled(config: PlanConfig, job: ProfiledJob, request: Request) -> Outcome:
    """Train a design whose algorithm depends on values: on the engine, without a horizon."""
    metrics = Metrics()
    learning = learning_of(config, request.design)
    training = coupled_config(config, job, learning, request.design.workers)
    training = training.model_copy(update={"updates": request.updates})
    return _outcome(config, request, train(training, request.seed, metrics).summary, metrics, None)


def _outcome(
    config: PlanConfig,
    request: Request,
    summary: TrainingSummary,
    metrics: Metrics,
    effective: float | None,
) -> Outcome:
    if summary.status == "interrupted":
        raise KeyboardInterrupt  # ends the plan, not only this run
    seen = [row for row in metrics.series(config.target.metric) if row.node == "evaluation"]
    if summary.reached_updates == 0:
        raise InputError(
            f"target: {config.target} is met before training ({seen[0].value:.4g}): choose a "
            "harder one"
        )
    if summary.status == "diverged":
        status = "diverged"
    elif summary.reached_at is not None:
        status = "reached"
    else:
        status = "not reached" if summary.updates >= request.updates else "stopped"
    return Outcome.from_dict(
        {
            "status": status,
            "time": summary.reached_at,
            "updates": summary.reached_updates,
            "spent": summary.virtual_time,
            "made": summary.updates,
            "steps": _steps(summary),
            "first": seen[0].value,
            "best": seen[0].value if summary.best is None else summary.best,
            "staleness": summary.mean_staleness,
            "curve": [[row.virtual_time, row.step, row.value] for row in seen],
            "why": _divergence(summary.divergence),
            "effective": effective,
        }
    )


def _steps(summary: TrainingSummary) -> int:
    """Return how many gradients went into the updates, whatever their minibatches had."""
    (row,) = summary.throughput
    if not row.examples_per_second or not row.steps_per_second:
        return 0
    return round(summary.examples * row.steps_per_second / row.examples_per_second)


def _divergence(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    return (
        f"the minibatch loss was {value['loss']:.3g} at update {value['update']:,}, on a gradient "
        f"of staleness {value['staleness']}"
    )


def train_config(config: PlanConfig, design: Design, updates: int) -> TrainConfig:
    """Return the configuration of a run of a design over a given schedule, which may end sooner."""
    fields = {**learning_of(config, design), "workers": design.workers}
    training = validated(TrainConfig, fields, f"plan: {design}")
    return training.model_copy(update={"updates": updates})


def learning_of(config: PlanConfig, design: Design) -> dict[str, Any]:
    """Return the training arguments of a run of a design."""
    warmup = config.warmup
    if warmup is not None:
        scale = scaled_learning_rate(1.0, design.workers, config.lr_scaling)
        warmup = warmup.scaled(scale)
    return {
        **config.learning(),
        "algorithm": design.algorithm,
        "lr": design.lr,
        "warmup": warmup,
        "until": config.target,
    }


class Journal:
    """Results by key, in memory and, where there is a file, at the end of it at once.

    A truncated last line is ignored: that run is repeated.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._found: dict[str, Mapping[str, Any]] = {}
        if path is None:
            return
        check_plain(path)  # before any run, since what is computed could not be kept
        if not path.exists():
            return
        whole = read_bytes(path)
        ended = whole[: whole.rfind(b"\n") + 1]
        for line in ended.splitlines():
            match parse_json(line, str(path)):
                case {"key": str(key), "result": dict(result)}:
                    self._found[key] = result
                case _:
                    raise InputError(f"{path}: damaged: a line that is no result of a run")
        if len(ended) < len(whole):
            with replacing(path) as unfinished:
                unfinished.write_bytes(ended)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self._found.get(key)

    def add(self, key: str, result: Mapping[str, Any]) -> None:
        """Keep a result; what was there under the key is replaced."""
        plain = to_builtin(result)
        self._found[key] = plain
        if self._path is not None:
            with open(open_plain(self._path, os.O_WRONLY | os.O_APPEND), "a") as file:
                file.write(json.dumps({"key": key, "result": plain}) + "\n")

"""Plans: designs run to a target, compared by time and cost."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path

from paracosm.backends import HERE, Backend
from paracosm.cluster.description import describe_cluster
from paracosm.models import load_data
from paracosm.planning.baselines import with_baselines
from paracosm.planning.comparison import Comparison
from paracosm.planning.config import PlanConfig
from paracosm.planning.designs import Design, designs_of
from paracosm.planning.job import ProfiledJob, assumed_links, check_model, origins, profiled_job
from paracosm.planning.runs import Journal, Runs, train_config
from paracosm.planning.scheduled import coupled_origin
from paracosm.planning.stability import delay_bound, largest_curvature
from paracosm.planning.successive_halving import Candidate, halve
from paracosm.price import WORKER_HOURS
from paracosm.results import Planned, PlannedDesign, PlanSummary, TunedWorkers
from paracosm.results.kind import with_unchanged
from paracosm.results.metrics import MetricSink
from paracosm.results.spread import spread
from paracosm.rng import TrainingStream, integer_seed
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.units import format_duration

Candidates = Mapping[Design, Candidate]


def run_plan(
    config: PlanConfig,
    seed: int,
    metrics: MetricSink | None = None,
    progress: Callable[[int, float | None], None] | None = None,
    announce: Callable[[str], None] | None = None,
    *,
    backend: Backend = HERE,
    journal: Path | None = None,
) -> PlanSummary:
    """Run every design until the target is reached or it is dropped, and compare.

    Seeds are paired: the k-th seed means the same initial model, and the same minibatches and
    durations of each worker's steps, whatever the design. An interrupt (Ctrl-C) ends the plan with
    what it has. With changes (`config.what_if`) the summary is that of the changed cluster, beside
    which it has that of the unchanged one, "unchanged".

    Args:
        config: the designs, the job, the target.
        seed: the first of the seeds.
        metrics: takes the target's metric of the first seed's runs: node = the design, step =
            updates.
        progress: called with the number of runs that are done.
        announce: called with what is to be run.
        backend: where runs run; the result is the same.
        journal: file of the runs that are done, to which others are added.

    Raises:
        InputError: a configuration that cannot be used; a profile whose tensors are not the
            model's; data that the model cannot be trained on.
    """
    summary = _plan(config, seed, metrics, progress, announce, backend, journal)
    plain = config.model_copy(update={"what_if": ()})
    kept = None if journal is None else journal.with_name(f"unchanged-{journal.name}")
    return with_unchanged(
        summary,
        config.what_if,
        lambda: _plan(plain, seed, None, progress, None, backend, kept),
    )


def _plan(
    config: PlanConfig,
    seed: int,
    metrics: MetricSink | None,
    progress: Callable[[int, float | None], None] | None,
    announce: Callable[[str], None] | None,
    backend: Backend,
    journal: Path | None,
) -> PlanSummary:
    began = time.perf_counter()
    config.check()
    job = profiled_job(config, config.workers)
    config = config.with_batch(job.profile.batch)
    check_model(job, config.learning(), seed)
    designs = designs_of(config.workers, config.algorithm, config.lr, config.lr_scaling)
    seeds = range(seed, seed + config.seeds)
    if announce is not None:
        announce(
            f"{len(designs):,} designs, {config.seeds} seed{'s' if config.seeds > 1 else ''}, at "
            f"most {config.updates:,} updates a run."
        )
    ran = None if progress is None else lambda made: progress(made, None)
    runs = Runs(config, Journal(journal), backend, ran)
    candidates: dict[Design, Candidate] = {}
    status = "done"
    try:
        halve(designs, seeds, config.updates, runs, config.target.is_better, candidates)
    except KeyboardInterrupt:
        status = "interrupted"
    if status == "done" and Comparison.of(candidates, seeds).reference is None:
        status = "not reached"
    curvature = None if status == "interrupted" else _curvature(config, job, candidates, seed)
    if metrics is not None:
        _write_curves(candidates, seed, config.target.metric, metrics, began)
    summary = _summary(
        *(config, job, candidates, seeds, curvature),
        status=status,
        runs=runs,
        wall_time=time.perf_counter() - began,
    )
    with suppress(KeyboardInterrupt):  # the plan is there without them
        summary = with_baselines(summary, config.learning())
    return summary


def _write_curves(
    candidates: Candidates, seed: int, metric: str, sink: MetricSink, began: float
) -> None:
    wall = time.perf_counter() - began
    for design, candidate in candidates.items():
        if (outcome := candidate.outcomes.get(seed)) is not None:
            for at, update, value in outcome.curve:
                sink.metric(at, wall, str(design), metric, value, int(update))


def _times(candidate: Candidate, seeds: Sequence[int]) -> list[float]:
    """Return seconds to the target by seed, as far as they were run; infinite: never."""
    return [candidate.outcomes[s].time_or_never for s in seeds if s in candidate.outcomes]


def _curvature(
    config: PlanConfig, job: ProfiledJob, candidates: Candidates, seed: int
) -> float | None:
    """Return the largest curvature at the start and the target; None unless plain SGD."""
    if config.clip is not None or config.privacy is not None:
        return None
    if config.optimizer.name != "sgd" or config.optimizer.options:
        return None
    from paracosm.models.build import build_model
    from paracosm.training.numerics.parameters import ParameterLayout

    data = load_data(config.data, config.data_dir)
    drawn = integer_seed(seed, TrainingStream.MODEL)
    model = build_model(config.model, data, drawn, config.learning()["batch"])
    layout = ParameterLayout.of(model.module)
    places = [layout.flatten(model.module)]
    reached = [
        (design.workers, outcome.time_or_never, number, design)
        for number, (design, candidate) in enumerate(candidates.items())
        if (outcome := candidate.outcomes.get(seed)) is not None
        and outcome.status == "reached"
        and design.algorithm.rule(design.workers) is not None
    ]
    if reached:
        *_, design = min(reached)
        rule = design.algorithm.rule(design.workers)
        assert rule is not None
        training = train_config(config, design, config.updates)
        blocks = job.schedule(design.workers, rule, seed)
        places.append(train_on_schedule(training, blocks, job.tensors, seed).parameters)
    return max(
        abs(largest_curvature(model, layout, place, data.train_x, data.train_y, seed))
        for place in places
    )


def _summary(
    config: PlanConfig,
    job: ProfiledJob,
    candidates: Candidates,
    seeds: range,
    curvature: float | None,
    *,
    status: str,
    runs: Runs,
    wall_time: float,
) -> PlanSummary:
    designs = list(candidates)
    compared = Comparison.of(candidates, seeds)
    planned = [_planned(config, candidate, compared, seeds) for candidate in candidates.values()]
    planned = [
        replace(
            each,
            is_efficient=_is_efficient(each, planned),
            steepness=_steepness(design, each.staleness, curvature),
            steepest=None if each.staleness is None else delay_bound(each.staleness),
        )
        for design, each in zip(designs, planned, strict=True)
    ]
    fastest, cheapest = compared.fastest(), compared.cheapest()
    assumed: dict[str, str] = {}
    if fastest is not None:
        rule = fastest.algorithm.rule(fastest.workers)
        assumed = assumed_links(config, job, fastest.workers, rule, seeds.start)
    as_fast = compared.not_apart(fastest, lambda design: 1.0)
    as_cheap = compared.not_apart(cheapest, lambda design: float(design.workers))

    def index(design: Design | None) -> int | None:
        return None if design is None else designs.index(design)

    return PlanSummary(
        status=status,
        target=str(config.target),
        profile=str(config.profile),
        model=config.model,
        data=config.data,
        batch=config.learning()["batch"],
        seed=seeds.start,
        seeds=len(seeds),
        most_updates=config.updates,
        price=None if config.price is None else str(config.price),
        currency="" if config.price is None else config.price.currency,
        designs=planned,
        fastest=index(fastest),
        cheapest=index(cheapest),
        reference=index(compared.reference),
        as_fast=None if as_fast is None else [*map(designs.index, as_fast)],
        as_cheap=None if as_cheap is None else [*map(designs.index, as_cheap)],
        by_workers=[
            _tuned(config, workers, candidates, compared, seeds) for workers in config.workers
        ],
        curvature=curvature,
        runs=runs.made,
        updates_made=runs.updates,
        cluster=describe_cluster(job.cluster),
        wall_time=wall_time,
        durations=origins(job) | assumed | _coupled(config) | _failures(config),
    )


def _planned(
    config: PlanConfig, candidate: Candidate, compared: Comparison, seeds: Sequence[int]
) -> PlannedDesign:
    """Return the entry of a design, without what it takes all others for."""
    design, outcomes = candidate.design, candidate.outcomes
    ran = [outcomes[seed] for seed in seeds if seed in outcomes]
    times = _times(candidate, seeds)
    price = config.price or WORKER_HOURS
    median = spread(times).median if times else inf
    speedup = compared.speedups.get(design)
    best = [outcome.best for outcome in ran]
    best.sort(reverse=config.target.is_better(1.0, 0.0))
    return PlannedDesign(
        workers=design.workers,
        algorithm=str(design.algorithm),
        lr=design.lr,
        verdict=candidate.verdict,
        why=candidate.why,
        seeds=len(ran),
        reached=sum(map(isfinite, times)) / len(times) if times else 0.0,
        time=_spread(times),
        updates=_spread([inf if o.updates is None else float(o.updates) for o in ran]),
        steps_per_second=_median([outcome.steps_per_second for outcome in ran]),
        updates_per_second=_median([o.made / o.spent for o in ran if o.spent]),
        cost=price.of(design.workers, median) if isfinite(median) else None,
        speedup=speedup,
        relative_cost=None if speedup is None else compared.relative_cost(design),
        staleness=ran[0].staleness if ran else None,
        best=best[0] if best else None,
        steepness=None,
        steepest=None,
        is_efficient=False,
        effective=_median([outcome.effective for outcome in ran if outcome.effective is not None]),
    )


def _coupled(config: PlanConfig) -> dict[str, str]:
    """Return the algorithms that have no precomputed schedule."""
    return {
        f"schedule of {algorithm}": coupled_origin(algorithm)
        for algorithm in config.algorithm
        if algorithm.rule(config.workers[-1]) is None
    }


def _failures(config: PlanConfig) -> dict[str, str]:
    if config.mtbf is None:
        return {}
    costs = {"checkpoint": config.checkpoint_cost, "restart": config.restart_cost}
    said = [f"{format_duration(cost)} a {name}" for name, cost in costs.items() if cost is not None]
    return {"failures": f"assumed: {config.mtbf}, {', '.join(said)}"}


def _spread(values: Sequence[float]) -> Planned:
    if not values:
        return Planned(median=None, low=None, high=None)
    values_spread = spread(values)
    return Planned(
        **{
            name: value if isfinite(value) else None
            for name, value in (
                ("median", values_spread.median),
                ("low", values_spread.low),
                ("high", values_spread.high),
            )
        }
    )


def _median(values: Sequence[float]) -> float | None:
    return spread(values).median if values else None


def _is_efficient(design: PlannedDesign, others: Sequence[PlannedDesign]) -> bool:
    """Whether it reached the target and is Pareto-optimal in time and cost."""
    if design.speedup is None or design.relative_cost is None:
        return False
    own_costs = 1 / design.speedup, design.relative_cost
    for other in others:
        if other.speedup is not None and other.relative_cost is not None:
            theirs = 1 / other.speedup, other.relative_cost
            if theirs != own_costs and theirs[0] <= own_costs[0] and theirs[1] <= own_costs[1]:
                return False
    return True


def _steepness(design: Design, staleness: float | None, curvature: float | None) -> float | None:
    """Return the step size of a gradient of mean staleness, times the curvature."""
    if staleness is None or curvature is None:
        return None
    algorithm, workers = design.algorithm, design.workers
    gradients = algorithm.gradients_per_update(workers) if algorithm.sums else 1
    return design.lr * gradients * algorithm.weight(round(staleness), workers) * curvature


def _tuned(
    config: PlanConfig,
    workers: int,
    candidates: Candidates,
    compared: Comparison,
    seeds: Sequence[int],
) -> TunedWorkers:
    own = {
        design: candidate for design, candidate in candidates.items() if design.workers == workers
    }
    best = compared.fastest(workers)
    spent = sum(
        candidate.outcomes[seeds[0]].spent
        for candidate in own.values()
        if seeds[0] in candidate.outcomes
    )
    return TunedWorkers(
        workers=workers,
        design=None if best is None else list(candidates).index(best),
        tuning_time=spent,
        tuning_cost=(config.price or WORKER_HOURS).of(workers, spent),
    )

"""Time and cost of training a transformer on a number of tokens: strategies, workers, cost.

For each number of workers the fastest strategy is searched for (`prediction.strategy_search`); the
total time follows from that of an iteration and, where nodes fail, from Daly's closed form for
checkpoints, lost work and restarts (`faults.expected_makespan`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Self

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from paracosm.cluster.description import describe_cluster
from paracosm.cluster.hardware import Hardware, find_hardware
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError
from paracosm.faults.checkpoint import expected_makespan
from paracosm.faults.node_failures import FailureFields, JobFailures
from paracosm.graphs.summary import step_of
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.prediction.candidates import check_divisible, machine_of
from paracosm.prediction.config import SIZES, PredictConfig
from paracosm.prediction.host_costs import find_interference
from paracosm.prediction.measured_runs import measured_like
from paracosm.prediction.replica import LAUNCH, software_source
from paracosm.prediction.run import ranked_strategies
from paracosm.prediction.strategy_search import Search, fastest, search_strategies, splits_of
from paracosm.price import WORKER_HOURS, DevicePrice, Price
from paracosm.quantities import Tokens
from paracosm.results import PlannedStrategy, StrategyPlanSummary
from paracosm.units import format_duration
from paracosm.validation import validated

SHOWN = 3  # strategies of each number of workers


class StrategyPlanConfig(FailureFields):
    """A plan of strategies: which model, on how much of which hardware, on how many tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(
        description="a transformer by name: llama-8b, mixtral-8x7b, ..., or by its config.json"
    )
    hardware: str = Field(
        description="a device or node of the catalogue (paracosm hardware list), or a datasheet; "
        "several are a sweep: h100-sxm,h200-sxm"
    )
    tokens: Tokens = Field(description="tokens to train on: 1e12")
    batch_tokens: Tokens | None = Field(
        None, description="tokens per iteration of all workers: 4e6"
    )
    max_workers: int = Field(
        ge=1,
        le=MOST_NODES,
        description="the most devices; half of them, a quarter and so on are compared with them",
    )
    shape: str | int | None = Field(None, description="tokens of a sequence (the model's own)")
    stack: str | None = Field(
        None, description="the software that runs on it, as for predict (megatron-te)"
    )
    measured: str | None = Field(
        None, description='what was measured on the hardware, as for predict: "resnet50: 210 ms"'
    )
    price: DevicePrice = Field(
        None,
        description='money for a device: "2.2/h"; of several, "h100-sxm: 2.2/h, l4: 0.7/h" (costs '
        "are in worker-hours)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.refuse_idle()
        return self

    def idle(self) -> dict[str, set[str]]:
        return self.idle_of_failures([True])

    def check(self) -> None:
        """Raise InputError for what can be known to be wrong before anything is predicted."""
        if self.batch_tokens is None:
            raise InputError(
                "tokens without a batch: add --batch-tokens 4e6, those of an iteration of all "
                "workers"
            )
        sequence = self.transformer.sequence
        if self.batch_tokens < sequence / 2:
            raise InputError(
                f"batch_tokens: {self.batch_tokens:,.0f} are less than a sequence of {sequence:,} "
                "tokens: --shape takes a shorter one"
            )
        if self.batch_tokens > self.tokens:
            raise InputError(
                f"batch_tokens: {self.batch_tokens:,.0f} are more than all of the "
                f"{self.tokens:,.0f} tokens"
            )
        if self.catalogued.node is None and self.max_workers > 1:
            raise InputError(
                f"hardware: the catalogue has no node that joins {self.max_workers:,} "
                f"{self.hardware}: add one to its datasheet (paracosm hardware add), or give "
                "--max-workers 1"
            )
        for workers in reversed(self.numbers):
            failures = self.job_failures(workers, 0, stops_together=True)
            if failures is not None:
                _with_failures(1.0, failures, workers)  # refuses a job that never ends
            machine = machine_of(self.catalogued.topology(workers), workers)
            check_divisible(self.transformer, workers, machine, self.examples)
        self.on_workers.check()

    @property
    def examples(self) -> int:
        """Of an iteration of all workers."""
        assert self.batch_tokens is not None
        return max(round(self.batch_tokens / self.transformer.sequence), 1)

    @cached_property
    def on_workers(self) -> PredictConfig:
        """The requested prediction for the most workers."""
        fields = {
            name: value
            for name in ("hardware", "shape", "stack", "measured")
            if (value := getattr(self, name)) is not None
        }
        fields |= {
            "model": f"{SIZES}{self.model.removeprefix(SIZES)}",
            "strategy": "auto",
            "workers": (self.numbers[-1],),
        }
        config = validated(PredictConfig, fields, "plan")
        if config.catalogued is None:
            raise InputError(
                f"hardware: {config.db} in this folder has timings of {self.hardware}, and a plan "
                "goes by datasheets: run it in another folder"
            )
        return config

    @property
    def transformer(self) -> Transformer:
        assert self.on_workers.architecture is not None
        return self.on_workers.architecture

    @cached_property
    def catalogued(self) -> Hardware:
        return find_hardware(self.hardware)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of workers to compare, ascending: halves of halves, in whole nodes."""
        node = self.catalogued.node
        count = 1 if node is None else node.count
        counts, number = list[int](), self.max_workers
        while number >= 1:
            whole = number // count * count if number > count else number
            counts.append(whole)
            number = whole // 2
        return tuple(sorted(set(counts)))


def run_strategy_plan(
    config: StrategyPlanConfig,
    seed: int,
    progress: Callable[[int, float | None], None] | None = None,
) -> StrategyPlanSummary:
    """Return the fastest strategies for each number of workers, their times and costs.

    An interrupt (Ctrl-C) after the first number of workers ends the plan with what it has.

    Raises:
        InputError: nothing fits into the memory of any number of workers, with what the nearest
            lacks; more workers than the model and the batch can use.
    """
    config.check()
    asked, model = config.on_workers, config.transformer
    splits = splits_of(asked, asked.resolve_cluster(config.numbers[-1]), seed)
    device = None if asked.catalogued is None else asked.catalogued.device
    searches: dict[int, Search] = {}
    status = "done"
    try:
        for number in reversed(config.numbers):
            cluster = asked.resolve_cluster(number)
            searches[number] = search_strategies(
                *(model, cluster, config.examples, splits),
                form=asked.context_form,
                device=device,
            )
            if not searches[number].ranked:
                if number == config.numbers[-1]:
                    fastest(searches[number], cluster)  # says what the nearest lacks
                break  # fewer have less memory
            if searches[number].interrupted:
                status = "interrupted"
                break
            if progress is not None:
                progress(len(searches), None)
    except KeyboardInterrupt:
        if not searches:
            raise
        status = "interrupted"
    return _summary(config, model, searches, status)


def _summary(
    config: StrategyPlanConfig, model: Transformer, searches: dict[int, Search], status: str
) -> StrategyPlanSummary:
    price = WORKER_HOURS if config.price is None else config.price
    designs = [
        design
        for number, search in sorted(searches.items())
        for design in _designs(config, model, number, search, price)
    ]
    first = [place for place, design in enumerate(designs) if design.place == 1]
    quickest = min(first, key=lambda place: designs[place].time)
    cheapest = min(first, key=lambda place: (designs[place].cost, designs[place].time))
    prediction = config.on_workers
    hardware, step = config.catalogued, step_of(transformer_graph(model, 1))
    return StrategyPlanSummary(
        status=status,
        model=config.model,
        dtype=step["dtype"],
        optimizer=step["optimizer"],
        parameters=model.parameters,
        hardware=hardware.device.title,
        stack=prediction.software_name,
        tokens=config.tokens,
        batch_tokens=config.batch_tokens or 0.0,
        sequence=model.sequence,
        price=None if config.price is None else str(config.price),
        currency="" if config.price is None else config.price.currency,
        mtbf=None if config.mtbf is None else str(config.mtbf),
        designs=_with_frontier(designs),
        fastest=quickest,
        cheapest=cheapest,
        candidates=sum(search.candidates for search in searches.values()),
        predicted=sum(search.predicted for search in searches.values()),
        too_large=sum(search.too_large for search in searches.values()),
        complete=all(search.complete for search in searches.values()),
        cluster=describe_cluster(prediction.resolve_cluster(max(searches))),
        nearest=measured_like(prediction, designs[quickest].workers),
        durations={
            "durations of ops": "datasheet, times what ops of each class were measured to reach",
            "software": software_source(prediction, by_default=config.stack is None),
            "peaks and memory": hardware.device.source,
            **({} if hardware.node is None else {"node": hardware.node.source}),
            "launching an op": f"assumed: {format_duration(LAUNCH)}",
            "computing beside collectives": find_interference(prediction, None, 1)[1],
        },
    )


def _designs(
    config: StrategyPlanConfig, model: Transformer, workers: int, search: Search, price: Price
) -> list[PlannedStrategy]:
    failures = config.job_failures(workers, 0, stops_together=True)
    designs = []
    for place, strategy in enumerate(ranked_strategies(search, SHOWN), start=1):
        tokens = strategy.examples * model.sequence
        work = config.tokens / tokens * strategy.iteration_time
        time = work if failures is None else _with_failures(work, failures, workers)
        designs.append(
            PlannedStrategy(
                **strategy,
                workers=workers,
                place=place,
                tokens_per_second=tokens / strategy.iteration_time,
                time=time,
                cost=price.of(workers, time),
                effective=None if failures is None else work / time,
                is_efficient=False,
            )
        )
    return designs


def _with_failures(work: float, failures: JobFailures, workers: int) -> float:
    assert failures.interval is not None
    time = expected_makespan(
        *(work, failures.interval, failures.cost, failures.restart, failures.mtbf)
    )
    if not time < inf:
        raise InputError(
            f"mtbf: {workers:,} workers fail every {format_duration(failures.mtbf)}, and hardly "
            f"ever reach a checkpoint, {format_duration(failures.interval)} apart: the job never "
            "ends. Give a longer mtbf, or fewer workers: --max-workers"
        )
    return time


def _with_frontier(designs: list[PlannedStrategy]) -> list[PlannedStrategy]:
    """Mark the first of each number of workers that no other beats in time and cost."""

    def is_beaten(one: PlannedStrategy) -> bool:
        return any(
            (design.time, design.cost) != (one.time, one.cost)
            and design.time <= one.time
            and design.cost <= one.cost
            for design in designs
        )

    return [
        replace(design, is_efficient=design.place == 1 and not is_beaten(design))
        for design in designs
    ]

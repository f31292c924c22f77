"""Which hardware, and how much of it, for a training script: time and cost of its tokens.

The script is recorded once for each number of ranks, and again for hardware on which it may do
something else: with another number of devices in a node, without bfloat16, or, where the script
asks for it, of another compute capability. Each recording is played on all hardware that it is good
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from paracosm.cluster.hardware import find_hardware
from paracosm.cluster.worker_counts import parse_workers
from paracosm.configuration import Configuration
from paracosm.emulation.device.config import (
    MOST_ITERATIONS,
    DeviceEmulateConfig,
    has_short_floats,
)
from paracosm.emulation.device.run import record_script
from paracosm.emulation.device.summary import Recorded, played, summarise
from paracosm.emulation.device.view import assumed_of_script
from paracosm.errors import InputError
from paracosm.price import (
    A_PRICE_EACH,
    WORKER_HOURS,
    DevicePrices,
    Price,
    check_prices,
    written_prices,
)
from paracosm.quantities import Tokens
from paracosm.results import PlannedScript, ScriptPlanSummary, ScriptSummary
from paracosm.results.kind import Hooks
from paracosm.validation import validated


def _names(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(name.strip() for name in value.split(","))


class ScriptPlanConfig(Configuration):
    """A plan of hardware for a script: which, how many, and what of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    SYNONYMS: ClassVar[dict[str, str]] = {"world_size": "workers"}

    script: Path = Field(description="a training script, or module:NAME; its arguments after --")
    arguments: tuple[str, ...] = Field((), description="of the script")
    hardware: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        description="devices or nodes of the catalogue to compare: h100-sxm,a100-sxm-80gb,l4"
    )
    workers: Annotated[tuple[int, ...], BeforeValidator(parse_workers)] = Field(
        description="numbers of ranks to compare: 8,16,64"
    )
    tokens: Tokens | None = Field(None, description="tokens (or examples) to train on: 1e12")
    batch_tokens: Tokens | None = Field(
        None, description="tokens (or examples) per iteration of all ranks (those counted)"
    )
    price: DevicePrices = Field(
        None, description=f'money for a device: "2.2/h"; {A_PRICE_EACH} (device-hours)'
    )
    iterations: int = Field(
        3, ge=1, le=MOST_ITERATIONS, description="after which the script is ended"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.refuse_idle()
        return self

    def check(self) -> None:
        """Raise InputError for what can be known to be impossible before the script runs."""
        if self.batch_tokens is not None and len(self.workers) > 1:
            raise InputError(
                f"batch_tokens: those of all ranks differ between {len(self.workers)} numbers of "
                "ranks: give one number, or leave it out, and they are counted"
            )
        for config in self.runs:
            config.check()
        if self.price is not None:
            check_prices(self.price, self.hardware)

    @cached_property
    def runs(self) -> tuple[DeviceEmulateConfig, ...]:
        """The runs to compare, by number of ranks."""
        return tuple(
            self._run(name, workers) for workers in sorted(self.workers) for name in self.hardware
        )

    def price_of(self, hardware: str) -> Price:
        """Return what a device costs; an hour of it without a price."""
        prices = self.price or {"": WORKER_HOURS}
        return prices.get(hardware) or prices[""]

    def _run(self, hardware: str, workers: int) -> DeviceEmulateConfig:
        arguments = {
            "script": self.script,
            "arguments": self.arguments,
            "hardware": hardware,
            "world_size": workers,
            "batch_tokens": self.batch_tokens,
            "iterations": self.iterations,
            "output": "none",
        }
        return validated(DeviceEmulateConfig, arguments, "plan")


def run_script_plan(config: ScriptPlanConfig, seed: int, hooks: Hooks) -> ScriptPlanSummary:
    """Return what the script takes on each hardware, by number of ranks.

    What fails is a row with the reason; an interrupt (Ctrl-C) ends the plan with what it has.
    """
    designs: list[PlannedScript] = []
    status = "done"
    try:
        for run, recorded in _recorded(config, seed, hooks):
            if recorded.interrupted:
                status = "interrupted"
                break
            designs.append(_design(config, run, recorded))
            if hooks.progress is not None:
                hooks.progress(len(designs), None)
    except KeyboardInterrupt:
        status = "interrupted"
    return _summary(config, _with_frontier(designs), status)


def _recorded(
    config: ScriptPlanConfig, seed: int, hooks: Hooks
) -> Iterator[tuple[DeviceEmulateConfig, Recorded]]:
    """Yield each run with the recording that it is played from."""
    known: list[tuple[DeviceEmulateConfig, Recorded]] = []
    quiet = Hooks(announce=hooks.announce)
    for run in config.runs:
        recorded = next((made for one, made in known if _is_good_for(one, made, run)), None)
        if recorded is None:
            recorded = record_script(run, seed, quiet)
            known.append((run, recorded))
        yield run, recorded


def _is_good_for(
    recorded_for: DeviceEmulateConfig, recorded: Recorded, run: DeviceEmulateConfig
) -> bool:
    """Whether the script would do the same: what it could ask of the hardware has one answer."""
    same = (recorded_for.world, recorded_for.ranks_per_machine)
    if same != (run.world, run.ranks_per_machine):
        return False
    devices = recorded_for.device.device, run.device.device
    if any(device.kind != "gpu" for device in devices):
        return recorded_for.device.name == run.device.name
    one, other = (device.compute_capability for device in devices)
    if recorded.failure or any(recording.asks_capability for recording in recorded.recordings):
        return one == other
    return has_short_floats(one) == has_short_floats(other)


def _design(
    config: ScriptPlanConfig, run: DeviceEmulateConfig, recorded: Recorded
) -> PlannedScript:
    failure, summary = recorded.failure, None
    if failure is None:
        try:
            summary = summarise(run, played(run, recorded.recordings), recorded)
        except InputError as error:
            failure = str(error)
    if summary is None or not summary.iteration_time or summary.memory is None:
        return PlannedScript(hardware=run.hardware, workers=run.world, failure=failure)
    cost = config.price_of(run.hardware).of(run.world, summary.iteration_time)
    batch = summary.batch
    iterations = None if batch is None else (config.tokens or 1e6) / batch.count
    return PlannedScript(
        hardware=run.hardware,
        workers=run.world,
        iteration_time=summary.iteration_time,
        interval=summary.interval,
        batch=batch,
        throughput=summary.throughput,
        time=None if iterations is None else iterations * summary.iteration_time,
        cost=cost if iterations is None else iterations * cost,
        memory=summary.memory,
        limit=_limit(summary),
        assumed=assumed_of_script(summary),
    )


def _limit(summary: ScriptSummary) -> str:
    """Return the part of an iteration that is largest after computing, with its share."""
    parts = {
        "communication": "exposed_communication",
        "slower ranks": "waiting",
        "the pipeline's bubble": "bubble",
    }
    breakdown, time = summary.breakdown or {}, summary.iteration_time or 1.0
    waits = {what: breakdown[part] / time for what, part in parts.items()}
    waits["the host"] = summary.launch_bound or 0.0
    most = max(waits, key=lambda what: waits[what])
    return f"{100 * waits[most]:.2g} % waits for {most}" if waits[most] > 0.001 else "computing"


def _with_frontier(designs: list[PlannedScript]) -> list[PlannedScript]:
    """Mark those that fit and that no other one that fits beats in time and cost."""
    good = [design for design in designs if design.fits and design.time is not None]

    def is_beaten(one: PlannedScript) -> bool:
        return any(
            (script.time, script.cost) != (one.time, one.cost)
            and (script.time or 0.0) <= (one.time or 0.0)
            and (script.cost or 0.0) <= (one.cost or 0.0)
            for script in good
        )

    return [
        replace(design, is_efficient=design in good and not is_beaten(design)) for design in designs
    ]


def _summary(
    config: ScriptPlanConfig, designs: list[PlannedScript], status: str
) -> ScriptPlanSummary:
    good = [place for place, design in enumerate(designs) if design.fits]
    batch = next((design.batch for design in designs if design.batch is not None), None)

    def quickness(place: int) -> float:
        design = designs[place]
        return design.iteration_time or 0.0 if design.time is None else design.time

    prices = config.price
    return ScriptPlanSummary(
        status=status if good or status != "done" else "failed",
        script=str(config.script),
        arguments=list(config.arguments),
        hardware=list(config.hardware),
        tokens=config.tokens,
        unit="iterations" if batch is None else batch.unit,
        price=None if prices is None else written_prices(prices),
        currency="" if prices is None else next(iter(prices.values())).currency,
        designs=designs,
        fastest=min(good, key=quickness, default=None),
        cheapest=min(good, key=lambda place: designs[place].cost or 0.0, default=None),
        durations={
            "scripts": "recorded: nothing was computed",
            "durations of ops": "modelled: datasheets and measured efficiencies",
            "peaks and memory": "; ".join(
                dict.fromkeys(find_hardware(name).device.source for name in config.hardware)
            ),
            **({} if batch is None else {"batch": batch.origin}),
        },
    )

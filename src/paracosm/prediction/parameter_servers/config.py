"""What the simulation of a job with parameter servers can be asked for, beside its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.background import parse_background
from paracosm.quantities import Duration, Size

__all__ = ["MOST_UNEVEN", "THROUGHPUT", "ThroughputFields"]

MOST_UNEVEN = 3.0
"""Standard deviation of ln(share): at 3 every third flow gets 20 times what is typical, or more, or
a 20th or less."""


class ThroughputFields(BaseModel):
    """The fields of a prediction that only a job profile has a use for."""

    profile: Path | None = Field(
        None,
        description="job profile, instead of a model: steps of one worker with parameter servers, "
        "which predict the throughput of several",
    )
    node: Path | None = Field(
        None,
        description="calibration of a node (paracosm calibrate): what parsing costs it, its "
        "flow-control window, its bandwidth",
    )
    order: str | list[str] | None = Field(
        None,
        description="which transfers go first: scheduled (as profiled), tic, tac, reverse, random, "
        "a file with one op a line, in a study also a list (scheduled)",
    )
    flow_control: bool = Field(
        True, description="streams take turns (HTTP/2), or each is sent as a whole"
    )
    flow_control_window: Size | None = Field(
        None, gt=0, description="bytes of a stream's first turn: 16MiB (the node's, or 28MB)"
    )
    cores: int | None = Field(
        None,
        ge=1,
        description="cores of each server, shared by the updates of all workers (one for each)",
    )
    background: str | None = Field(
        None, description='other traffic at the servers: "2 flows", or "2 flows, 3s on, 10s off"'
    )
    uneven: float | None = Field(
        None,
        ge=0,
        le=MOST_UNEVEN,
        description="how unevenly TCP connections share one queue: standard deviation of "
        "ln(share), 0 of fair queueing (what the node's calibration measured, or 0)",
    )
    synchronous: bool = Field(False, description="workers wait for each other after every step")
    backup: int | None = Field(
        None, ge=1, description="so many workers that a synchronous step does not wait for"
    )
    start: Literal["steady", "together", "staggered"] = Field(
        "steady",
        description="what is predicted beside the steady state: nothing, or the time after workers "
        "began together, or one after the other",
    )
    stagger: Duration | None = Field(
        None,
        ge=0,
        description="time between the begins of workers (a step of one worker, spread over all)",
    )
    measure: Duration | None = Field(
        None,
        gt=0,
        description="length of a measurement, 75s: the spread is that between such (50 "
        "steps, but 10 of each worker)",
    )
    steps: int | None = Field(
        None,
        ge=100,
        le=1_000_000,
        description="simulated steps of each worker (a thousand or more; of many workers, 160)",
    )
    repeats: int = Field(20, ge=2, description="simulated measurements after a start")

    @field_validator("background")
    @classmethod
    def _readable_background(cls, text: str | None) -> str | None:
        if text is not None:
            parse_background(text)
        return text

    @field_validator("background", mode="before")
    @classmethod
    def _number_of_flows(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("order")
    @classmethod
    def _some_order(cls, order: str | list[str] | None) -> str | list[str] | None:
        if order is not None and not (order.strip() if isinstance(order, str) else order):
            raise InputError("empty: write scheduled, tic, ..., or name ops")
        return order

    def idle_habits(self) -> dict[str, set[str]]:
        """Return the fields that others make pointless, by the reason."""
        idle: dict[str, set[str]] = {}
        if not self.flow_control:
            idle["there is no flow control"] = {"flow_control_window"}
        if not self.synchronous:
            idle["workers of asynchronous SGD wait for nobody"] = {"backup"}
        if self.start == "steady":
            idle["only the time after a start has them"] = {"stagger", "repeats"}
        elif self.start == "together":
            idle["only start staggered has one"] = {"stagger"}
        return idle


THROUGHPUT = frozenset(ThroughputFields.model_fields)
"""The names of the fields."""

"""The clients of a configuration: how many there are, who is there when, and how fast each is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field, InstanceOf

from paracosm.errors import InputError
from paracosm.quantities import Duration, read_bandwidth
from paracosm.rng import TrainingStream, generator
from paracosm.timing import Distribution, parse_distribution
from paracosm.timing.distribution import NUMBER, Parameter
from paracosm.training.availability import OnOff, is_table, parse_on_off, read_columns
from paracosm.training.fields import AS_TEXT
from paracosm.units import format_bandwidth, format_duration

MOST_CLIENTS = 10_000_000

_BANDWIDTH = Parameter(read_bandwidth, lambda value: format_bandwidth(value, exact=True))


@dataclass(frozen=True)
class PerClient:
    """A number for each client: drawn once from a distribution, or read from a column of a file."""

    column: Literal["speed", "uplink", "downlink"]
    source: Distribution | Path

    @property
    def quantity(self) -> Parameter:
        return NUMBER if self.column == "speed" else _BANDWIDTH

    def __str__(self) -> str:
        source = self.source
        return str(source) if isinstance(source, Path) else source.written(self.quantity)

    def values(self, clients: int, seed: int) -> NDArray[np.float64]:
        """Return the number of each client, above 0, shape (clients,).

        Raises:
            InputError: the file cannot be read, names a client twice or lacks one, or a value
                cannot be.
        """
        if isinstance(self.source, Distribution):
            stream = {
                "speed": TrainingStream.SPEEDS,
                "uplink": TrainingStream.UPLINKS,
                "downlink": TrainingStream.DOWNLINKS,
            }
            found = self.source.sample(generator(seed, stream[self.column]), clients)
            where = f"client_{self.column} {self}"
        else:
            found = self._read(self.source, clients)
            where = str(self.source)
        wrong = np.flatnonzero(~((found > 0) & (found < inf)))
        if len(wrong):
            raise InputError(
                f"{where}: the {self.column} of client {wrong[0]} must be finite and above 0, not "
                f"{found[wrong[0]]:g}"
            )
        return found

    def _read(self, path: Path, clients: int) -> NDArray[np.float64]:
        found = np.full(clients, np.nan)
        columns = read_columns(path, (self.column,), clients)
        for client, value in zip(columns["client"], columns[self.column], strict=True):
            if not isnan(found[client]):
                raise InputError(f"{path}: client {client} is there twice")
            try:
                found[client] = self.quantity.parse(value)
            except InputError as error:
                raise InputError(f"{path}: client {client}: {error}") from None
        lacks = np.flatnonzero(np.isnan(found))
        if len(lacks):
            raise InputError(f"{path}: it lacks client {lacks[0]}, of {clients} clients")
        return found


def _per_client(column: Literal["speed", "uplink", "downlink"]) -> BeforeValidator:
    def read(value: Any) -> PerClient:
        if isinstance(value, PerClient):
            return value
        if isinstance(value, Path) or (isinstance(value, str) and is_table(value)):
            return PerClient(column, Path(value))
        quantity = NUMBER if column == "speed" else _BANDWIDTH
        return PerClient(column, parse_distribution(value, quantity))

    return BeforeValidator(read)


def _availability(value: Any) -> OnOff | Path:
    if isinstance(value, OnOff | Path):
        return value
    return Path(value) if is_table(str(value)) else parse_on_off(str(value))


class ClientFields(BaseModel):
    """The fields that say whose data is trained on, where workers are places that clients take."""

    clients: int | None = Field(
        None,
        ge=1,
        le=MOST_CLIENTS,
        description="number of clients, of whom as many as there are workers take part at a time "
        "(each worker is one)",
    )
    sampling: Literal["uniform", "by-size"] = Field(
        "uniform", description="which client is picked: any, or by the size of its shard (by-size)"
    )
    availability: (
        Annotated[InstanceOf[OnOff] | Path, BeforeValidator(_availability), AS_TEXT] | None
    ) = Field(
        None,
        description="when clients, or else workers, are there: "
        '"onoff(exponential(1h), exponential(2h))", or a .csv or .parquet file of client, begin, '
        "end (always)",
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="chance that a client is lost while it computes"
    )
    round_timeout: Duration | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="time after which a synchronous round goes on with what came (none)",
    )
    client_speed: Annotated[InstanceOf[PerClient], _per_client("speed"), AS_TEXT] | None = Field(
        None,
        description="what a client's compute times are divided by: lognormal(1, 0.5), drawn once "
        "for each, or a file with the columns client and speed",
    )
    client_uplink: Annotated[InstanceOf[PerClient], _per_client("uplink"), AS_TEXT] | None = Field(
        None,
        description="bandwidth from a client: lognormal(10Mbit/s, 1), or a file with the columns "
        "client and uplink",
    )
    client_downlink: Annotated[InstanceOf[PerClient], _per_client("downlink"), AS_TEXT] | None = (
        Field(None, description="bandwidth to a client, as --client-uplink")
    )

    def clients_in_words(self, active: int) -> str:
        """Say what is assumed of the clients."""
        known = {
            "there": self.availability,
            "dropout": self.dropout or None,
            "rounds end after": self.round_timeout and format_duration(self.round_timeout),
            "speed": self.client_speed,
            "uplink": self.client_uplink,
            "downlink": self.client_downlink,
        }
        said = [f"{name} {value}" for name, value in known.items() if value is not None]
        return ", ".join([f"modelled: {self.clients}, {active} at a time", *said])

    def idle_of_clients(self, obstacle: str | None, has_rounds: bool) -> dict[str, set[str]]:
        """Return fields that have no effect by the reason.

        Args:
            obstacle: why workers cannot be places of clients; None where they can.
            has_rounds: whether the algorithm waits for all that take part.
        """
        fields = set(ClientFields.model_fields)
        if obstacle is not None:
            return {obstacle: fields}
        if self.clients is None:
            return {"each worker is its own client: give --clients 1000": fields - {"clients"}}
        return {} if has_rounds else {"the algorithm has no rounds": {"round_timeout"}}

"""Fields that several configurations have: what is trained, and the profile of one worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, PlainSerializer

from paracosm.arrays import Floats
from paracosm.cluster.changes import parse_places
from paracosm.configuration import Configuration
from paracosm.errors import InputError, require
from paracosm.models.data_sets import check_trainable
from paracosm.models.optimizers import Optimizer, parse_optimizer
from paracosm.models.registry import canonical
from paracosm.models.shards import ALL, MOST_BATCH, check_scheme
from paracosm.quantities import Duration, read_bandwidth
from paracosm.rng import TrainingStream, generator
from paracosm.timing import Distribution, parse_distribution
from paracosm.timing.distribution import NUMBER, Parameter
from paracosm.training.availability import (
    OnOff,
    Presence,
    Repeated,
    is_table,
    parse_presence,
    read_columns,
)
from paracosm.training.learning_rate import (
    Decay,
    Factor,
    Step,
    WarmUp,
    check_ends,
    learning_rate_factor,
    parse_schedule,
    parse_warm_up,
)
from paracosm.training.privacy import Privacy, parse_privacy
from paracosm.units import format_bandwidth, format_duration, parse_whole


def _read(kind: tuple[type, ...], parse: Callable[[Any], Any]) -> BeforeValidator:
    return BeforeValidator(lambda v: v if v is None or isinstance(v, kind) else parse(v))


_AS_TEXT = PlainSerializer(lambda v: None if v is None else str(v), return_type=str | None)


class RecipeFields(Configuration):
    """Settings of learning rate and gradients, common to all algorithms."""

    lr_schedule: Annotated[
        InstanceOf[Decay] | InstanceOf[Step] | None, _read((Decay, Step), parse_schedule), _AS_TEXT
    ] = Field(
        None,
        description='how the learning rate falls: cosine, "cosine(updates=3000, end=0.1)", '
        'linear, "poly(power=2)", "step(1000, 2000, factor=0.1)"',
    )
    warmup: Annotated[InstanceOf[WarmUp] | None, _read((WarmUp,), parse_warm_up), _AS_TEXT] = Field(
        None, description='how long the learning rate grows first: "500 updates"'
    )

    clip: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="largest norm of an update's whole gradient; larger ones are scaled down",
    )

    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="decay of the moving average of parameters to evaluate, such as 0.999",
    )

    privacy: Annotated[InstanceOf[Privacy] | None, _read((Privacy,), parse_privacy), _AS_TEXT] = (
        Field(
            None,
            description='what clipping and noise hide: "examples(clip=1, noise=1.1)" of a '
            'minibatch, "clients(clip=0.5, noise=1)" of an update by local steps, where '
            "clip=adaptive follows their median norm",
        )
    )

    def check_recipe(self, last: float = inf) -> None:
        """Raise InputError for settings that contradict a run of `last` updates."""
        check_ends(self.lr_schedule, self.warmup, last)
        if self.privacy is not None:
            require("dp_accounting", "privacy", "the privacy of a training run")
            if self.privacy.unit == "examples" and self.clip is not None:
                raise InputError(
                    "clip: has no effect, leave it out: privacy clips each example's gradient"
                )

    def privacy_of(self, unit: str) -> Privacy | None:
        """Return the privacy of the unit "examples" or "clients", if configured."""
        return self.privacy if self.privacy is not None and self.privacy.unit == unit else None

    def idle_of_privacy(self) -> dict[str, set[str]]:
        """Return fields without effect, by reason."""
        if self.privacy_of("examples") is None:
            return {}
        reason = "the gradients of examples are computed together, those of minibatches alone"
        return {reason: {"lookahead"}}

    @property
    def lr_changes(self) -> bool:
        """Whether the learning rate is not the same at all updates."""
        return self.lr_schedule is not None or self.warmup is not None

    def lr_factor(self, last: float, scale: float = 1.0) -> Factor:
        """Return the factor of the learning rate; see `learning_rate_factor`."""
        return learning_rate_factor(self.lr_schedule, self.warmup, last, scale)


@dataclass(frozen=True)
class BatchOf:
    """The examples in a minibatch of some workers, or clients."""

    text: str  # as written
    first: int  # number of the first worker
    last: int
    batch: int
    who: Literal["worker", "client"] = "worker"

    def __str__(self) -> str:
        return self.text


def parse_batch_of(text: str) -> BatchOf:
    """Read "worker 3: 64" or "workers 4..7: 64", as changes of a cluster name workers; "client 3:
    64" and "clients 4..7: 64" likewise.
    """
    who, _, size = (part.strip() for part in str(text).partition(":"))
    of_clients = who.lower().startswith("client")
    if of_clients:
        who = f"worker{who[len('client') :]}"
    batch = parse_whole(size, MOST_BATCH)
    if not batch:
        raise InputError(
            f'cannot read "{text}": write worker 3: 64, of up to {MOST_BATCH:,} examples'
        )
    subject, first, last = parse_places(who)
    if subject != "workers" or first is None:
        raise InputError(f'"{text}" names no worker by number: write worker 3: 64')
    last = first if last is None else last
    return BatchOf(str(text), first, last, batch, "client" if of_clients else "worker")


def _read_batches(value: Any) -> Any:
    parts = (value,) if isinstance(value, str | BatchOf) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(part if isinstance(part, BatchOf) else parse_batch_of(part) for part in parts)


BatchesOf = Annotated[
    tuple[BatchOf, ...],
    BeforeValidator(_read_batches),
    PlainSerializer(lambda given: [str(item) for item in given]),
]
"""A field of a configuration."""


def batches_of(
    batch: int,
    different: Sequence[BatchOf],
    count: int,
    who: Literal["worker", "client"] = "worker",
) -> list[int]:
    """Return the examples in a minibatch of each of `count` workers, or clients: `batch`, unless
    it is in `different`.
    """
    batches = [batch] * count
    said: set[int] = set()
    for batch_of in different:
        if batch_of.who != who:
            relation = "are workers" if who == "worker" else "share the workers"
            raise InputError(f'batch_of "{batch_of}": clients {relation} here: write {who} 3: 64')
        if batch_of.last >= count:
            raise InputError(
                f'batch_of "{batch_of}": there are {who}s 0 to {count - 1:,}, not {batch_of.last:,}'
            )
        if batch_of.batch == batch:
            raise InputError(
                f'batch_of "{batch_of}": this is the batch of all {who}s: leave it out'
            )
        numbers = range(batch_of.first, batch_of.last + 1)
        if not said.isdisjoint(numbers):
            raise InputError(f'batch_of "{batch_of}": a {who} has two sizes')
        said.update(numbers)
        for worker in numbers:
            batches[worker] = batch_of.batch
    return batches


def _optimizer(value: Any) -> Optimizer:
    optimizer = value if isinstance(value, Optimizer) else parse_optimizer(value)
    if optimizer is None:
        raise InputError("none: training changes parameters, by sgd, adam, ...")
    return optimizer


AS_TEXT = PlainSerializer(str, return_type=str)


def _at_most(batch: int) -> int:
    if MOST_BATCH < batch != ALL:
        raise ValueError(f"a minibatch has at most {MOST_BATCH:,} examples; all is a whole shard")
    return batch


Batch = Annotated[
    int,
    BeforeValidator(lambda v: ALL if v == "all" else v),
    AfterValidator(_at_most),
    PlainSerializer(lambda v: "all" if v == ALL else v),
]
"""A field of a configuration: the examples of a minibatch; `ALL` for those of a whole shard."""


class LearningFields(RecipeFields):
    """Model, data, and computation of gradients."""

    model: Annotated[str, BeforeValidator(canonical)] = Field(
        "mlp",
        description="mlp, mlp(hidden=512, layers=2), paper-cnn, resnet20, resnet18, ..., or "
        "package.module:factory of your own",
    )
    data: str = Field(
        "digits",
        description="digits, cifar10, file.py:factory of your own, or by client: synthetic(1, 1), "
        "leaf, huggingface(client=COLUMN)",
    )
    data_dir: Path | None = Field(
        None, description="folder of the data set: CIFAR-10's archive, leaf, huggingface"
    )
    batch: Batch = Field(
        32,
        ge=1,
        description="examples in a worker's minibatch, at most those of its shard, or all of them: "
        "32, all (of a profile: as profiled)",
    )
    shards: str = Field(
        "shared",
        description="distribution of examples over workers: shared, iid, dirichlet(ALPHA), "
        "classes(K), sizes(SIGMA), bootstrap(N), file.py:function of your own, or a file of "
        "client ids",
    )
    optimizer: Annotated[Optimizer, BeforeValidator(_optimizer), AS_TEXT] = Field(
        Optimizer("sgd", {}),
        description="sgd, sgd(momentum=0.9), adam, ... where parameters are updated",
    )
    buffers: Literal["shared", "own"] = Field(
        "shared",
        description=(
            "running statistics of batch normalisation: one set for all gradients "
            "(shared), or one per worker (own), evaluated by their mean"
        ),
    )
    evaluate_examples: int = Field(
        2000, ge=1, description="examples of each set, evenly spread, per evaluation"
    )
    lookahead: Annotated[
        Literal["auto", "off", "vmap", "processes"],
        BeforeValidator(lambda v: "off" if v is False else v),  # which is how YAML reads off
    ] = Field("auto", description="method to compute several gradients in flight together")
    loss_limit: float = Field(1e4, gt=0, description="a loss above this counts as diverged")

    def check_learning(self) -> None:
        """Raise InputError unless the model can be trained on the data, as names tell."""
        require("torch", "torch", "training a model")
        check_trainable(self.model, self.data)
        check_scheme(self.shards)


class ProfiledFields(Configuration):
    """A profiled job whose steps are simulated op by op."""

    profile: Path = Field(
        description="job profile of one worker (paracosm profile job), for the durations of ops; "
        "tensors are sent and updated separately"
    )
    node: Path | None = Field(
        None,
        description=(
            "calibration of a node (paracosm calibrate), for a profile: its parsing cost "
            "and bandwidth"
        ),
    )
    start: Literal["together", "staggered"] = Field(
        "together", description="start of the workers of a profile: together or staggered"
    )
    stagger: Duration | None = Field(
        None,
        ge=0,
        description="delay between starts of workers (one step, divided by their number)",
    )

    def idle_of_start(self) -> dict[str, set[str]]:
        """Return fields without effect, by reason."""
        if self.start == "together":
            return {"only start staggered has one": {"stagger"}}
        return {}


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

    def values(self, clients: int, seed: int) -> Floats:
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
            drawn = self.source.sample(generator(seed, stream[self.column]), clients)
            where = f"client_{self.column} {self}"
        else:
            drawn = self._read(self.source, clients)
            where = str(self.source)
        wrong = np.flatnonzero(~((drawn > 0) & (drawn < inf)))
        if len(wrong):
            raise InputError(
                f"{where}: the {self.column} of client {wrong[0]} must be finite and above 0, not "
                f"{drawn[wrong[0]]:g}"
            )
        return drawn

    def _read(self, path: Path, clients: int) -> Floats:
        values = np.full(clients, np.nan)
        columns = read_columns(path, (self.column,), clients)
        for client, value in zip(columns["client"], columns[self.column], strict=True):
            if not isnan(values[client]):
                raise InputError(f"{path}: client {client} is there twice")
            try:
                values[client] = self.quantity.parse(value)
            except InputError as error:
                raise InputError(f"{path}: client {client}: {error}") from None
        lacks = np.flatnonzero(np.isnan(values))
        if len(lacks):
            raise InputError(f"{path}: it lacks client {lacks[0]}, of {clients} clients")
        return values


def _per_client(column: Literal["speed", "uplink", "downlink"]) -> BeforeValidator:
    def read(value: Any) -> PerClient:
        if isinstance(value, PerClient):
            return value
        if isinstance(value, Path) or (isinstance(value, str) and is_table(value)):
            return PerClient(column, Path(value))
        quantity = NUMBER if column == "speed" else _BANDWIDTH
        return PerClient(column, parse_distribution(value, quantity))

    return BeforeValidator(read)


class ClientFields(Configuration):
    """The fields that say whose data is trained on, where workers are places that clients take."""

    clients: int | None = Field(
        None,
        ge=1,
        le=MOST_CLIENTS,
        description="number of clients that share the workers (each worker is one)",
    )
    sampling: Literal["uniform", "by-size"] = Field(
        "uniform", description="selection of clients: uniform, or by shard size (by-size)"
    )
    availability: (
        Annotated[
            InstanceOf[OnOff] | InstanceOf[Repeated] | Path,
            BeforeValidator(lambda v: v if isinstance(v, Presence) else parse_presence(str(v))),
            AS_TEXT,
        ]
        | None
    ) = Field(
        None,
        description='availability of clients, or else of workers: "onoff(exponential(1h), '
        'exponential(2h))", or a .csv or .parquet file of client, begin, end, or repeat(FILE) '
        "(always)",
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="probability that a client is lost while it computes"
    )
    round_timeout: Duration | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description=(
            "time after which a synchronous round continues with the clients that have "
            "answered (none)"
        ),
    )
    client_speed: Annotated[InstanceOf[PerClient], _per_client("speed"), AS_TEXT] | None = Field(
        None,
        description=(
            "relative speed of clients: lognormal(1, 0.5), drawn once for each, or a file "
            "with the columns client and speed"
        ),
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
        """Describe the assumptions about clients."""
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
        """Return fields without effect, by reason.

        Args:
            obstacle: why workers cannot be places of clients; None where they can.
            has_rounds: whether the algorithm waits for all that take part.
        """
        fields = set(ClientFields.model_fields)
        if obstacle is not None:
            return {obstacle: fields}
        if self.clients is None:
            return {"each worker is one client: give --clients 1000": fields - {"clients"}}
        return {} if has_rounds else {"the algorithm has no rounds": {"round_timeout"}}

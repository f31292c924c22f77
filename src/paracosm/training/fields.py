"""Fields that several configurations have: what is trained, and the profile of one worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, InstanceOf, PlainSerializer

from paracosm.cluster.changes import parse_places
from paracosm.errors import InputError, require
from paracosm.models import Optimizer, canonical, check_trainable, parse_optimizer
from paracosm.models.shards import check_scheme
from paracosm.quantities import Duration
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


def _read(kind: tuple[type, ...], parse: Callable[[Any], Any]) -> BeforeValidator:
    return BeforeValidator(lambda v: v if v is None or isinstance(v, kind) else parse(v))


_AS_TEXT = PlainSerializer(lambda v: None if v is None else str(v), return_type=str | None)


class RecipeFields(BaseModel):
    """What is done to learning rates and gradients, whatever the algorithm."""

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
        description="norm of the whole gradient above which an update's is shortened to it",
    )

    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="decay of the moving average of parameters that is evaluated, as 0.999",
    )

    privacy: Annotated[InstanceOf[Privacy] | None, _read((Privacy,), parse_privacy), _AS_TEXT] = (
        Field(
            None,
            description='what clipping and noise hide: "examples(clip=1, noise=1.1)" of a '
            'minibatch, "clients(clip=0.5, noise=1)" of an update by local steps',
        )
    )

    def check_recipe(self, last: float = inf) -> None:
        """Raise InputError for what makes no sense in a run of `last` updates."""
        check_ends(self.lr_schedule, self.warmup, last)
        if self.privacy is not None:
            require("dp_accounting", "privacy", "the privacy of a training run")
            if self.privacy.unit == "examples" and self.clip is not None:
                raise InputError(
                    "clip: no effect here, leave out: privacy clips each example's gradient"
                )

    def privacy_of(self, unit: str) -> Privacy | None:
        """Return the privacy of "examples" or "clients", if that is what is hidden."""
        return self.privacy if self.privacy is not None and self.privacy.unit == unit else None

    def idle_of_privacy(self) -> dict[str, set[str]]:
        """Return fields that have no effect by the reason."""
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
    """The examples in a minibatch of some workers."""

    text: str  # as it was written
    first: int  # number of the first worker
    last: int
    batch: int

    def __str__(self) -> str:
        return self.text


def parse_batch_of(text: str) -> BatchOf:
    """Read "worker 3: 64" or "workers 4..7: 64", as changes of a cluster name workers.

    Raises:
        InputError: what is not understood.
    """
    who, _, size = (part.strip() for part in str(text).partition(":"))
    if not size.isdecimal() or not 0 < int(size) < 2**31:
        raise InputError(f'cannot read "{text}": write worker 3: 64, of a number of examples')
    subject, first, last = parse_places(who)
    if subject != "workers" or first is None:
        raise InputError(f'"{text}" says of no worker by its number: write worker 3: 64')
    return BatchOf(str(text), first, first if last is None else last, int(size))


def _read_batches(value: Any) -> Any:
    parts = (value,) if isinstance(value, str | BatchOf) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(part if isinstance(part, BatchOf) else parse_batch_of(part) for part in parts)


BatchesOf = Annotated[
    tuple[BatchOf, ...],
    BeforeValidator(_read_batches),
    PlainSerializer(lambda given: [str(each) for each in given]),
]
"""A field of a configuration."""


def batches_of(batch: int, different: Sequence[BatchOf], workers: int) -> list[int]:
    """Return the examples in a minibatch of each worker: `batch`, unless it is said otherwise.

    Raises:
        InputError: there is no such worker; a size is said twice, or is that of all.
    """
    found = [batch] * workers
    said: set[int] = set()
    for each in different:
        if each.last >= workers:
            raise InputError(
                f'batch_of "{each}": there are workers 0 to {workers - 1:,}, not {each.last:,}'
            )
        if each.batch == batch:
            raise InputError(f'batch_of "{each}": that is the batch of all: leave it out')
        own = range(each.first, each.last + 1)
        if not said.isdisjoint(own):
            raise InputError(f'batch_of "{each}": it is said twice of a worker')
        said.update(own)
        for worker in own:
            found[worker] = each.batch
    return found


def _optimizer(value: Any) -> Optimizer:
    optimizer = value if isinstance(value, Optimizer) else parse_optimizer(value)
    if optimizer is None:
        raise InputError("none: training changes parameters, by sgd, adam, ...")
    return optimizer


AS_TEXT = PlainSerializer(str, return_type=str)


class LearningFields(RecipeFields):
    """What is trained, on what, and how its gradients are computed."""

    model: Annotated[str, BeforeValidator(canonical)] = Field(
        "mlp",
        description="mlp, mlp(hidden=512, layers=2), paper-cnn, resnet20, resnet18, ..., or "
        "package.module:factory of your own",
    )
    data: str = Field("digits", description="digits, cifar10 or package.module:factory")
    data_dir: Path | None = Field(None, description="folder of the CIFAR-10 archive")
    batch: int = Field(
        32, ge=1, description="examples in a worker's minibatch (of a profile: as profiled)"
    )
    shards: str = Field(
        "shared",
        description="who draws from what: shared, iid, dirichlet(ALPHA), classes(K), sizes(SIGMA), "
        "bootstrap(N)",
    )
    optimizer: Annotated[Optimizer, BeforeValidator(_optimizer), AS_TEXT] = Field(
        Optimizer("sgd", {}),
        description="sgd, sgd(momentum=0.9), adam, ... where parameters are updated",
    )
    buffers: Literal["shared", "own"] = Field(
        "shared",
        description="running statistics of batch normalisation: one set that follows all gradients "
        "(shared), or one of each worker (own), whose mean is evaluated",
    )
    evaluate_examples: int = Field(
        2000, ge=1, description="examples of each set, evenly spread, that an evaluation looks at"
    )
    lookahead: Annotated[
        Literal["auto", "off", "vmap", "processes"],
        BeforeValidator(lambda v: "off" if v is False else v),  # which is how YAML reads off
    ] = Field("auto", description="how the gradients in flight are computed together")
    loss_limit: float = Field(1e4, gt=0, description="a loss above this counts as exploded")

    def check_learning(self) -> None:
        """Raise InputError unless the model can be trained on the data, as names tell."""
        require("torch", "torch", "training a model")
        check_trainable(self.model, self.data)
        check_scheme(self.shards)


class ProfiledFields(BaseModel):
    """A profiled job whose steps are simulated op by op."""

    profile: Path | None = Field(
        None,
        description="job profile of one worker (paracosm profile job): its ops are the durations, "
        "and each tensor travels and is updated on its own",
    )
    node: Path | None = Field(
        None,
        description="calibration of a node (paracosm calibrate), for a profile: what parsing costs "
        "it, its bandwidth",
    )
    start: Literal["together", "staggered"] = Field(
        "together", description="how the workers of a profile begin: together or staggered"
    )
    stagger: Duration | None = Field(
        None,
        ge=0,
        description="time between the begins of workers (a step of one worker, spread over all)",
    )

    def idle_of_start(self) -> dict[str, set[str]]:
        """Return fields that have no effect by the reason."""
        if self.start == "together":
            return {"only start staggered has one": {"stagger"}}
        return {}

"""The usual parts of a recipe of training, for every algorithm: fields of configurations."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, InstanceOf, PlainSerializer

from paracosm.errors import InputError, require
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

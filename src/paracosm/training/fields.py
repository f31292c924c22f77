"""Fields that several configurations have: what is trained, and the profile of one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer

from paracosm.errors import InputError, require
from paracosm.models import Optimizer, canonical, check_trainable, parse_optimizer
from paracosm.models.shards import check_scheme
from paracosm.quantities import Duration
from paracosm.training.recipe import RecipeFields


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

"""What `predict` can be asked for: the one description behind the command line and study file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paracosm.errors import InputError
from paracosm.graphs.capture.options import DTYPES, OPTIMIZERS, parse_shape
from paracosm.units import parse_duration

if TYPE_CHECKING:
    from paracosm.graphs.capture import CaptureOptions

__all__ = ["PredictConfig"]

Duration = Annotated[float, BeforeValidator(parse_duration)]


def _sizes(value: Any) -> Any:
    """Read "3x32x32"."""
    return parse_shape(value) if isinstance(value, str) else value


class PredictConfig(BaseModel):
    """A prediction: which computation, from whose timings."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    # Which computation.
    model: str | None = Field(
        None, description="model: resnet50, gpt2, ..., or package.module:factory of your own"
    )
    graph: Path | None = Field(None, description=".graph file, instead of a model")
    op_latencies: Path | None = Field(
        None,
        description="folder of measured op latencies and whole-model latencies (NeuSight's form), "
        "instead of a model: predicts the one from the other and compares",
    )
    batch: int = Field(64, ge=1, description="examples of an iteration")
    shape: Annotated[tuple[int, ...] | None, BeforeValidator(_sizes)] = Field(
        None, description="of one example: 3x32x32, or a number of tokens (the model's own)"
    )
    classes: int | None = Field(
        None, ge=1, description="classes of a model of images (1000, or 10 of small ones)"
    )
    dtype: str = Field("float32", description=f"of parameters and activations: {', '.join(DTYPES)}")
    optimizer: str = Field("sgd", description=", ".join(OPTIMIZERS))
    foreach: bool = Field(False, description="update all parameters in one op")
    dropout: bool = Field(False, description="train with the model's dropout, in place of none")
    train: bool = Field(True, description="a training step, or the forward pass alone")

    # From whose timings.
    db: Path = Field(Path("profiles.db"), description="profile database")
    hardware: str | None = Field(
        None, description='of whose timings: part of a name, "H100" (this machine)'
    )
    threads: int = Field(1, ge=1, description="threads of one op, where this machine is meant")
    device: Literal["cpu", "cuda"] = Field("cpu", description="which device of this machine")
    cache: Literal["cold", "warm"] = Field(
        "cold", description="timings with cold data, as in a real iteration, or the op in a row"
    )
    estimator: str | None = Field(
        None, description="how ops are estimated that nobody timed (what cross-validation chooses)"
    )
    new_ops: Literal["profile", "estimate", "refuse"] | None = Field(
        None,
        description="ops of a type that nobody timed: profile them now, estimate them from flops "
        "and bytes, or refuse (profile on this machine, else estimate)",
    )
    exact: bool = Field(False, description="profile every op that was not timed as it is")
    launch: Duration | None = Field(
        None,
        ge=0,
        description="time that the host spends on issuing an op of a GPU (the shortest timing)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> PredictConfig:
        given = [name for name in ("model", "graph", "op_latencies") if getattr(self, name)]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise ValueError(
                f"what is to be predicted? give one of model, graph, op_latencies{found}"
            )
        if self.shape is not None and any(size < 1 for size in self.shape):
            raise ValueError(f"shape: sizes are 1 or more, not {'x'.join(map(str, self.shape))}")
        for reason, fields in self._idle().items():
            idle = sorted(fields & self.model_fields_set)
            if idle:
                raise ValueError(f"{', '.join(idle)}: no effect here, leave out: {reason}")
        if self.exact and self.new_ops in ("estimate", "refuse"):
            raise ValueError(f"exact profiles what is missing, new_ops {self.new_ops} does not")
        return self

    def without_effect(self) -> set[str]:
        """Return the fields that make no difference, whatever their values, to such a run."""
        return set().union(*self._idle().values())

    def _idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.op_latencies is not None:
            idle["the folder says what there is"] = set(CAPTURE | TIMINGS)
        elif self.graph is not None:
            idle["the graph is captured already"] = set(CAPTURE)
        if self.hardware is not None:
            idle["hardware says whose timings are meant"] = {"threads", "device"}
        elif self.device == "cuda":
            idle["the device decides"] = {"threads"}
        return idle

    def check(self) -> None:
        """Raise InputError for files that are not there, and options that no capture takes."""
        if self.op_latencies is not None:
            if not self.op_latencies.is_dir():
                raise InputError(f"{self.op_latencies}: no such folder")
            return
        if self.graph is not None and not self.graph.is_file():
            raise InputError(f"{self.graph}: no such file")
        if self.model is not None:
            self.options(self.device)
        if self.db.is_dir():
            raise InputError(f"{self.db}: a folder, not a profile database: --db names its file")
        if not self.db.is_file():
            raise InputError(
                f"{self.db}: no such database: paracosm profile ops writes one, --db names it"
            )

    def options(self, device: str) -> CaptureOptions:
        """Return what the capture of the model on `device` is asked for.

        Raises:
            InputError: an option that it does not take.
        """
        from paracosm.graphs.capture import CaptureOptions

        asked = {name: getattr(self, name) for name in ("model", *sorted(CAPTURE))}
        return CaptureOptions(**asked, device=device)


CAPTURE = frozenset(
    {"batch", "shape", "classes", "dtype", "optimizer", "foreach", "dropout", "train"}
)
TIMINGS = frozenset(
    {"db", "hardware", "threads", "device", "cache", "estimator", "new_ops", "exact", "launch"}
)

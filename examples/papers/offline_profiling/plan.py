"""What is measured, in full and in a hurry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from designs import Limits

from paracosm.errors import InputError, unknown
from paracosm.graphs.capture import CaptureOptions

__all__ = ["FULL", "QUICK", "Plan"]

# Shares of the budget; transfers have a time of their own.
FIGURE2, GRIDS, MODELS = 0.06, 0.26, 0.68


@dataclass(frozen=True)
class Plan:
    """One reproduction.

    Attributes:
        models: of table 2, in its order, and after them what is not in the paper.
        budget: seconds for timing ops and iterations, in all.
        channels, step: figure 2 has so many numbers of input channels, so far apart.
        sizes: of messages, bytes; the largest stands in table 1.
        ranks: numbers of processes of an all-reduce.
        seconds: for each size of each transfer.
        families: op types on which designs are compared.
        values: of each argument in the paper's design.
        rest: the same for the models' other op types, which are timed at model-like points.
        limits: of one op on which designs are compared.
        rest_limits: of one of the others.
    """

    models: tuple[CaptureOptions, ...]
    budget: float
    channels: int
    step: int
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    seconds: float
    families: tuple[str, ...]
    values: int
    rest: int
    limits: Limits
    rest_limits: Limits

    def with_models(self, names: Sequence[str] | None, batch: int | None) -> Plan:
        """Return the plan with some of its models, or others on 3x32x32 inputs, and a batch.

        Raises:
            InputError: an unknown model; no model.
        """
        known = {options.model: options for options in self.models}
        models = [
            known[name] if name in known else _images(name, self.models[0].batch)
            for name in names or known
        ]
        if len({model.model for model in models}) < len(models):
            raise InputError(f"--models: name each once, not {', '.join(names or ())}")
        if batch is not None:
            models = [replace(model, batch=batch) for model in models]
        return replace(self, models=tuple(models))


def _images(model: str, batch: int = 64) -> CaptureOptions:
    """Return a model of images as large as those of CIFAR-10."""
    from paracosm.models import MODELS

    images = [name for name, each in MODELS.items() if each.kind == "images"]
    if model not in images:
        raise unknown("model", model, [*images, "gpt-small"])
    return CaptureOptions(model, batch=batch, shape=(3, 32, 32))


_TYPES = (
    *("convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"),
    *("addmm", "mm", "relu_", "threshold_backward", "add_"),
)

FULL = Plan(
    models=(
        *(_images(name) for name in ("vgg19", "resnet50", "resnet152")),
        CaptureOptions("gpt-small", batch=8, optimizer="adamw"),
    ),
    budget=540.0,
    channels=16,
    step=32,
    sizes=(1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26),
    ranks=(2, 4),
    seconds=0.5,
    families=_TYPES,
    values=16,
    rest=4,
    limits=Limits(bytes=256e6, flops=1e10),
    rest_limits=Limits(bytes=128e6, flops=2e9),
)

QUICK = replace(
    FULL,
    models=tuple(_images(name, batch=4) for name in ("resnet18", "resnet50")),
    budget=25.0,
    channels=8,
    step=16,
    sizes=(1 << 16, 1 << 22),
    ranks=(2,),
    seconds=0.1,
    families=("convolution", "addmm", "threshold_backward"),
    values=5,
    rest=2,
    limits=Limits(bytes=64e6, flops=2e9),
    rest_limits=Limits(bytes=16e6, flops=5e8),
)

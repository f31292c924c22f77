"""The built-in models: modules by name or by the reference of their factory, with their inputs.

A name means the same module wherever a module is built; docs/models.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression
from paracosm.factory import is_reference
from paracosm.files import check_name
from paracosm.units import parse_whole

if TYPE_CHECKING:
    from torch import Tensor, nn


Kind = Literal["images", "tokens", "vectors"]

_ROOM = "paracosm.models"
_SMALL = 64  # pixels: images below are those of CIFAR and the like, with ten classes
_TAKES = {
    "images": "channels x height x width, such as 3x32x32",
    "tokens": "a sequence length, such as 128",
}
_DIMENSIONS = {"images": 3, "tokens": 1}
_RANGES = {"hidden": (1, 65_536), "layers": (0, 1_000)}  # of the parameters in parentheses


@dataclass(frozen=True)
class BuiltIn:
    """A built-in model."""

    name: str  # without parameters
    # What it takes: images (channels x height x width) or vectors of any shape, classified, or a
    # sequence of so many tokens, each of which predicts a token
    kind: Kind
    # `module:function` in this package; it takes `shape`, but for tokens `classes`, and the options
    factory: str
    shape: tuple[int, ...]  # of one example, by default
    classes: int = 0  # to tell apart, likewise; 0 for tokens, whose vocabulary is the model's own
    side: int = 1  # pixels that an image has at least, in height and width
    options: Mapping[str, int] = field(default_factory=dict)  # written in parentheses

    @property
    def reference(self) -> str:
        """The reference of its factory, which means the module whatever else has the name."""
        return f"{_ROOM}.{self.factory}"

    def __str__(self) -> str:
        """The name with the options that are not the model's own, `mlp(hidden=512)`."""
        default = MODELS[self.name].options
        told = ", ".join(f"{k}={v}" for k, v in self.options.items() if v != default[k])
        return f"{self.name}({told})" if told else self.name

    def obstacle(self, shape: Sequence[int]) -> str | None:
        """Describe why examples of a shape cannot be used; None if they can."""
        if len(shape) != _DIMENSIONS.get(self.kind, len(shape)):
            return f"takes {_TAKES[self.kind]}"
        if self.kind == "images" and min(shape[1:]) < self.side:
            return f"takes images of {self.side} pixels or more a side"
        return None

    def filled(
        self, shape: tuple[int, ...] | None, classes: int | None
    ) -> tuple[tuple[int, ...], int | None]:
        """Return shape and classes with the model's own for None; classes are None for tokens."""
        shape = shape or self.shape
        if classes is None and self.classes:
            small = self.kind == "images" and min(shape[1:]) < _SMALL
            classes = 10 if small else self.classes
        return shape, classes

    def check(self, shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Raise InputError for examples that the model does not take."""
        why = None if shape is None else self.obstacle(shape)
        if why:
            raise InputError(f"shape: {written(shape or ())}, but {self.name} {why}")
        if self.kind == "tokens" and classes is not None:
            raise InputError(f"classes: {self.name} predicts tokens, leave it out")

    def make(self, shape: tuple[int, ...], classes: int | None) -> nn.Module:
        """Make the module, on PyTorch's default device and of its default dtype."""
        module_name, _, function = self.reference.partition(":")
        factory = getattr(import_module(module_name), function)
        sizes = (shape,) if classes is None else (shape, classes)
        module: nn.Module = factory(*sizes, **self.options)
        return module


def built_in(text: str, also: Iterable[str] = ()) -> BuiltIn:
    """Return the model that `resnet18`, `mlp(hidden=512, layers=2)` or the like means.

    Raises:
        InputError: what it is not, with the nearest name of a model, or of those that fit `also`.
    """
    if isinstance(text, str) and "(" not in text and text.strip() not in MODELS:
        raise unknown("model", text, [*MODELS, *also, "package.module:factory"])
    name, positional, options = parse_expression(text, "model")
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, *also, "package.module:factory"])
    model = MODELS[name]
    if (positional or options) and not model.options:
        raise InputError(f'model "{text}": {name} has no parameters')
    if positional:
        raise InputError(f'model "{text}": name its parameters, {", ".join(model.options)}')
    return replace(model, options={**model.options, **_options(model, options)})


def built_in_of(text: str) -> BuiltIn | None:
    """Return the built-in model of a name or of a factory's reference; None for a user's own."""
    return _BY_REFERENCE.get(text) if is_reference(text) else built_in(text)


def canonical(text: str, also: Iterable[str] = ()) -> str:
    """Return how a model is written: a reference as it is, a name with what is not its default."""
    if not isinstance(text, str) or not (is_reference(text) or text.endswith(".py")):
        return str(built_in(text, also))
    file, colon, _ = text.rpartition(":")
    if not colon:
        raise InputError(f"{text}: name the function that makes it: {text}:make_model")
    check_name(file)
    if file.endswith(".py") and not Path(file).is_file():
        raise InputError(f"{text}: no such file: {file}")
    return text


def written(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "nothing"


def _options(model: BuiltIn, options: Mapping[str, str]) -> dict[str, int]:
    for name, text in options.items():
        if name not in model.options:
            raise unknown(f"parameter of {model.name}", name, model.options)
        least, most = _RANGES[name]
        number = parse_whole(text, most)
        if number is None or number < least:
            raise InputError(
                f"model {model.name}: {name} is a whole number from {least} to {most:,}, "
                f"not {text[:40]}"
            )
    return {name: int(text) for name, text in options.items()}


_CIFAR, _IMAGENET = (3, 32, 32), (3, 224, 224)


def _models() -> dict[str, BuiltIn]:
    listed = [
        BuiltIn("mlp", "vectors", "images:mlp", (1, 8, 8), 10, options={"hidden": 64, "layers": 1}),
        BuiltIn("paper-cnn", "images", "images:paper_cnn", _CIFAR, 10),
        BuiltIn("resnet20", "images", "images:resnet20", _CIFAR, 10),
    ]
    for depth in (18, 34, 50, 101, 152):
        name = f"resnet{depth}"
        listed.append(BuiltIn(name, "images", f"images:{name}", _IMAGENET, 1000))
    for name in ("vgg11", "vgg16", "vgg19", "vgg19-bn"):
        factory = f"images:{name.replace('-', '_')}"
        listed.append(BuiltIn(name, "images", factory, _IMAGENET, 1000, side=32))
    for name, length in (
        *(("gpt-small", 128), ("gpt2", 1024), ("gpt2-medium", 1024), ("gpt2-large", 1024)),
        *(("gpt2-xl", 1024), ("bert-base", 512), ("llama-7b", 4096), ("llama-70b", 4096)),
    ):
        factory = f"language:{name.replace('-', '_')}"
        listed.append(BuiltIn(name, "tokens", factory, (length,)))
    return {model.name: model for model in listed}


MODELS: Mapping[str, BuiltIn] = MappingProxyType(_models())
"""Name -> model."""

_BY_REFERENCE = {model.reference: model for model in MODELS.values()}


Loss = Callable[["Tensor", "Tensor"], "Tensor"]
"""From outputs and targets of a minibatch to the mean loss, a scalar tensor."""


@dataclass(frozen=True)
class Model:
    """A module and the loss that judges its outputs, for data that come from elsewhere."""

    module: nn.Module
    loss: Loss
    # the module is called with the targets as `labels`, and computes the loss itself
    takes_labels: bool = False

    def labels(self, targets: Tensor) -> dict[str, Tensor]:
        """Return what the module is called with by name, beside its inputs."""
        return {"labels": targets} if self.takes_labels else {}


@dataclass
class Workload:
    """A module with what it is fed and how far off it is."""

    module: nn.Module  # on the device, with the dtype of its parameters
    inputs: tuple[Any, ...]  # positional arguments of the module
    loss: Callable[[Any], Tensor]  # from what the module returns to a scalar
    examples: int  # how many of them are in `inputs`

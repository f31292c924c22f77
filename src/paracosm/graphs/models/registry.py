"""The built-in models by name: where their modules are, and what they are fed by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from paracosm.errors import unknown

__all__ = ["MODELS", "BuiltIn", "built_in"]

Kind = Literal["images", "tokens", "vectors"]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in model.

    Attributes:
        kind: what it takes. "images": channels x height x width, classified. "tokens": a sequence
            of so many tokens, each of which predicts a token. "vectors": any shape, classified.
        module: the Python module that has its factory.
        factory: the function's name; it takes `shape` and, but for tokens, `classes`.
        shape: of one example, where nobody says another.
        classes: to tell apart, likewise; 0 for tokens, whose vocabulary is the model's own.
    """

    kind: Kind
    module: str
    factory: str
    shape: tuple[int, ...]
    classes: int = 0


def built_in(name: str) -> BuiltIn:
    """Return the model of a name.

    Raises:
        InputError: there is none; with the nearest name.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]


def _images(family: str, factory: str) -> BuiltIn:
    module = f"paracosm.graphs.models.{family}"
    return BuiltIn("images", module, factory, (3, 224, 224), classes=1000)


def _tokens(family: str, factory: str, length: int) -> BuiltIn:
    return BuiltIn("tokens", f"paracosm.graphs.models.{family}", factory, (length,))


MODELS: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "vgg11": _images("vgg", "vgg11"),
        "vgg16": _images("vgg", "vgg16"),
        "vgg19": _images("vgg", "vgg19"),
        "vgg19-bn": _images("vgg", "vgg19_bn"),
        "resnet18": _images("resnet", "resnet18"),
        "resnet34": _images("resnet", "resnet34"),
        "resnet50": _images("resnet", "resnet50"),
        "resnet101": _images("resnet", "resnet101"),
        "resnet152": _images("resnet", "resnet152"),
        "gpt2": _tokens("gpt", "gpt2", 1024),
        "gpt2-medium": _tokens("gpt", "gpt2_medium", 1024),
        "gpt2-large": _tokens("gpt", "gpt2_large", 1024),
        "gpt2-xl": _tokens("gpt", "gpt2_xl", 1024),
        "gpt-small": _tokens("gpt", "gpt_small", 128),
        "bert-base": _tokens("bert", "bert_base", 512),
        "llama-7b": _tokens("llama", "llama_7b", 4096),
        "llama-70b": _tokens("llama", "llama_70b", 4096),
        "mlp": BuiltIn("vectors", "paracosm.graphs.models.mlp", "mlp", (784,), classes=10),
    }
)
"""Name -> model."""

"""Values that arguments typically have in models: those of VGG, ResNet, GPT, Llama and the like."""

from __future__ import annotations

from paracosm.profiling.designs.family import Argument

__all__ = [
    "activation",
    "activations",
    "batch",
    "channels",
    "features",
    "goes_with",
    "size",
    "tokens",
    "vocabulary",
    "width",
]

_CHANNELS = (
    *(16, 24, 32, 32, 64, 64, 64, 96, 128, 128, 128, 160, 192, 256, 256, 256),
    *(320, 384, 512, 512, 512, 768, 1024, 1024, 2048),
)
_WIDTHS = (64, 128, 256, 384, 512, 512, 640, 768, 768, 768, 1024, 1024, 1536, 2048, 3072, 4096)
_SIZES = (
    *(1, 1, 2, 2, 4, 4, 7, 7, 8, 8, 14, 14, 16, 16, 28, 28, 32, 32, 56, 56),
    *(64, 112, 128, 224),
)


def batch(base: int = 16) -> Argument:
    """Return the number of examples."""
    return Argument("batch", (1, 2, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128), base)


def channels(name: str = "channels", base: int = 64, extra: tuple[int, ...] = ()) -> Argument:
    """Return channels of a convolutional model; `extra` ones may come besides."""
    return Argument(name, _CHANNELS + extra, base, low=1)


def size(base: int = 28) -> Argument:
    """Return the height, and width, of an image or a feature map."""
    return Argument("size", _SIZES, base)


def goes_with(channels: int, size: int) -> bool:
    """Whether models have so many channels on feature maps of so many pixels.

    From layer to layer they trade one for the other: 64 channels on 56 x 56 pixels become 512 on
    7 x 7. Of an image itself, with 3 channels, there are more pixels.
    """
    if channels == 3:
        return size >= 28
    return 256 <= channels * size <= 16_384


def tokens(base: int = 128) -> Argument:
    """Return tokens of one example."""
    return Argument("tokens", (32, 64, 128, 128, 196, 256, 256, 512, 512, 1024), base, low=1)


def width(name: str = "width", base: int = 512) -> Argument:
    """Return features of a token."""
    return Argument(name, _WIDTHS, base, low=1)


def features(name: str, base: int) -> Argument:
    """Return one side of a matrix: features, rows of activations, classes."""
    typical = (10, 64, 100, 128, 256, 512, 512, 768, 1000, 1024, 1024, 2048, 2048, 3072, 4096)
    return Argument(name, typical, base, low=1, high=8192)


def vocabulary(base: int = 8192) -> Argument:
    """Return rows of an embedding."""
    return Argument("vocabulary", (100, 1000, 8192, 10_000, 30_522, 32_000, 50_257, 50_304), base)


def activations() -> tuple[Argument, ...]:
    """Return arguments of a tensor of activations, whose shape `activation` makes.

    `dims` is 4 for [batch, channels, size, size], and 3 for [batch, tokens, channels] with as many
    tokens as there are pixels.
    """
    wide = channels(extra=(2304, 3072, 4096))
    return (batch(), wide, size(), Argument("dims", (3, 4, 4), 4))


def activation(batch: int, channels: int, size: int, dims: int) -> tuple[int, ...]:
    """Return the shape of a tensor of activations."""
    return (batch, channels, size, size) if dims == 4 else (batch, size * size, channels)

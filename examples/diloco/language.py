"""A small transformer and the text that it learns, character by character.

The text is what Python's `help()` says of the language, which comes with every installation of
Python (465 kB in Python 3.11.7, under Python's licence): nothing is downloaded.
"""

from __future__ import annotations

from pydoc_data.topics import topics

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from paracosm.models.language import Llama

LENGTH = 32  # characters of one example
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))

Examples = NDArray[np.int64]

start: Tensor | None = None  # where `pretrained` begins, a flat vector


def data() -> tuple[Examples, Examples, Examples, Examples]:
    """Return characters [examples, LENGTH] and those that follow each, for training and tests.

    Every tenth stretch of 4,096 characters is for tests.
    """
    text = "\n\n".join(topics[name] for name in sorted(topics))
    codes = {character: code for code, character in enumerate(CHARACTERS)}
    stream = np.array([codes[each] for each in text if each in codes], np.int64)
    stretches = stream[: len(stream) // 4096 * 4096].reshape(-1, 4096)
    is_test = np.arange(len(stretches)) % 10 == 9
    return (*_examples(stretches[~is_test]), *_examples(stretches[is_test]))


def _examples(stretches: Examples) -> tuple[Examples, Examples]:
    each = (stretches.shape[1] - 1) // LENGTH * LENGTH
    inputs, targets = stretches[:, :each], stretches[:, 1 : each + 1]
    return inputs.reshape(-1, LENGTH), targets.reshape(-1, LENGTH)


class Characters(nn.Module):
    """Characters [batch, length] to scores [batch, characters, length], as cross-entropy wants."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.decoder = Llama(
            layers,
            width=width,
            inner=8 * width // 3,
            heads=4,
            groups=4,
            context=LENGTH,
            vocabulary=len(CHARACTERS),
        )

    def forward(self, characters: Tensor) -> Tensor:
        scores: Tensor = self.decoder(characters)
        return scores.transpose(1, 2)


def model() -> nn.Module:
    """Return a decoder of 31 thousand parameters."""
    return Characters(layers=2, width=32)


def pretrained() -> nn.Module:
    """Return the same with the parameters `start`."""
    module = model()
    assert start is not None, "nothing was trained before"
    vector_to_parameters(start.clone(), module.parameters())
    return module


def deep() -> nn.Module:
    """Return a decoder of 24 equal layers, which divide evenly into fragments."""
    return Characters(layers=24, width=64)

"""The graph or the real training step of given options; PyTorch is imported on demand."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from paracosm.errors import InputError, require
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.graphs.file import load_graph, save_graph
from paracosm.models.registry import built_in_of
from paracosm.user_cache import kept_folder, user_cache_folder

if TYPE_CHECKING:
    from paracosm.graphs.capture.step import TrainingStep
    from paracosm.graphs.graph import Graph


def capture(options: CaptureOptions) -> Graph:
    """Return the graph of one training step, without computing or allocating anything.

    It has the ops that eager PyTorch really dispatches, in their order. The step before it, which
    makes the optimizer's state, is left out. The graph of a built-in model is kept in the user's
    cache folder: capturing it again takes seconds, most of them to import PyTorch.

    Raises:
        InputError: the model cannot be made or run so; with its own error.
    """
    kept = _place_of(options)
    if kept is not None and kept.is_file():
        with suppress(InputError):  # a damaged one is captured again
            return load_graph(kept)
    require("torch", "torch", "capturing a model")
    from paracosm.graphs.capture.record import capture_fake

    graph = capture_fake(options)
    if kept is not None:
        with suppress(InputError, OSError):  # a full disk: the next process captures again
            save_graph(graph, kept)
    return graph


_SOURCES = ("graphs", "models")
"""What a graph is captured by, besides PyTorch."""


def _place_of(options: CaptureOptions) -> Path | None:
    """Return where the graph of a built-in model is kept; None of a user's own model, whose file
    may import anything, of a device that may not be here, or without such a folder."""
    if built_in_of(options.model) is None or options.device != "cpu":
        return None
    base = user_cache_folder()
    try:
        digest = hashlib.sha256(version("torch").encode())
    except PackageNotFoundError:
        return None
    if base is None:
        return None
    package = Path(__file__).parents[2]
    for room in _SOURCES:
        for source in sorted((package / room).rglob("*.py")):
            digest.update(source.read_bytes())
    folder = kept_folder(base, "graphs", digest.hexdigest()[:16])
    name = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
    return None if folder is None else folder / f"{name}.arrow"


def training_step(
    options: CaptureOptions, device: str | None = None, seed: int = 0
) -> TrainingStep:
    """Return the same step on real tensors, to be run as often as wanted.

    Nothing has run yet: the first run also makes the optimizer's state. `seed` is that of
    parameters and inputs; `device` stands in place of that of the options.

    Raises:
        InputError: the model cannot be made, or is shared between ranks.
    """
    torch = require("torch", "torch", "capturing a model")
    from paracosm.graphs.capture.step import make_step

    if options.ranks > 1:
        raise InputError(f"a real step runs one rank, not {options.ranks}")
    torch.manual_seed(seed % 2**63)
    return make_step(options, device or options.device)

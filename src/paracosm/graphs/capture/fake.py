"""A step under fake tensors: every op is dispatched, none computes and nothing is allocated."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.graphs.capture.load import resolved
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.graphs.capture.parallel import imagined_ranks
from paracosm.graphs.capture.record import record
from paracosm.graphs.capture.step import TrainingStep, make_step
from paracosm.graphs.graph import Graph

__all__ = ["capture_fake"]


def capture_fake(options: CaptureOptions) -> Graph:
    """Return the graph that `capture` promises."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: PyTorch has no CUDA here, capture for cpu")
    with imagined_ranks(options) as share, FakeTensorMode(allow_non_fake_inputs=True):
        with _silent():
            step = make_step(options, options.device, share)
            _warm(step, options)
        return record(step, options.device, _provenance(options, step))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep PyTorch from logging the traceback of a failure that becomes our one line."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


def _warm(step: TrainingStep, options: CaptureOptions) -> None:
    """Run the step once: now the optimizer has its state, and the model has shown that it runs."""
    try:
        step.run()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{options}: the model failed: {one_line(error)}") from error


def _provenance(options: CaptureOptions, step: TrainingStep) -> dict[str, Any]:
    return {
        **resolved(options),
        "examples": step.workload.examples,
        "framework": f"torch {torch.__version__.split('+')[0]}",
        "source": "torch dispatch",
    }

"""Gradients of minibatches, and the evaluation of parameters."""

from paracosm.training.gradients.evaluate import evaluate
from paracosm.training.gradients.pending import Gradient, PendingGradient
from paracosm.training.gradients.source import GradientSource, Mode, make_gradients

__all__ = [
    "Gradient",
    "GradientSource",
    "Mode",
    "PendingGradient",
    "evaluate",
    "make_gradients",
]

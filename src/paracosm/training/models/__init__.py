"""Models to train: the built-in ones, and the user's own."""

from paracosm.training.models.build import MODELS, build_model
from paracosm.training.models.model import Model

__all__ = ["MODELS", "Model", "build_model"]

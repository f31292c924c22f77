"""Models whose training steps are captured by name: images, text, and vectors.

Their modules are in files of their own, which import PyTorch; the names are known without it.
"""

from paracosm.graphs.models.registry import MODELS, BuiltIn, built_in

__all__ = ["MODELS", "BuiltIn", "built_in"]

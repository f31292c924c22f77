"""The training step of a transformer, written down from its sizes: no framework, no capture."""

from transformer.architecture import Transformer
from transformer.graph import transformer_graph

__all__ = ["Transformer", "transformer_graph"]

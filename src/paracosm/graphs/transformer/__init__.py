"""The training step of a transformer, written down from its sizes: no framework, no capture."""

from paracosm.graphs.transformer.architecture import Transformer, architecture
from paracosm.graphs.transformer.graph import transformer_graph

__all__ = ["Transformer", "architecture", "transformer_graph"]

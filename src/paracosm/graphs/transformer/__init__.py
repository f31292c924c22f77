"""The training step of a transformer, generated from its sizes: no framework, no capture."""

from paracosm.graphs.transformer.architecture import Transformer, architecture
from paracosm.graphs.transformer.graph import transformer_graph
from paracosm.graphs.transformer.share import Split

__all__ = ["Split", "Transformer", "architecture", "transformer_graph"]

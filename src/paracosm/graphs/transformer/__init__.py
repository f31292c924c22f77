"""The training step of a transformer, written down from its sizes: no framework, no capture."""

from paracosm.graphs.transformer.architecture import ARCHITECTURES, Transformer, architecture
from paracosm.graphs.transformer.graph import transformer_graph
from paracosm.graphs.transformer.share import Split, describe_routing

__all__ = [
    "ARCHITECTURES",
    "Split",
    "Transformer",
    "architecture",
    "describe_routing",
    "transformer_graph",
]

"""Graphs from files that other programs wrote."""

from paracosm.graphs.importers.formats import FORMATS, import_graph

__all__ = ["FORMATS", "import_graph"]

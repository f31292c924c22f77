"""Graphs from files that other programs wrote."""

from paracosm.graphs.importers.formats import import_graph

__all__ = ["import_graph"]

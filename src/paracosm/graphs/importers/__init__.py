"""Graphs from files that other programs wrote."""

from paracosm.graphs.importers.formats import FORMATS, Format, format_of, import_graph

__all__ = ["FORMATS", "Format", "format_of", "import_graph"]

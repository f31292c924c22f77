"""Jaxprs that `paracosm/graphs/importers/jaxpr_export.py` dumped."""

from paracosm.graphs.importers.jaxpr.read import read_jaxpr

__all__ = ["read_jaxpr"]

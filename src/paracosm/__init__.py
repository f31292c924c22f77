"""Run a distributed job on a cluster you don't have.

Each room of the package hands out its own public names: `paracosm.engine`, `paracosm.training`, ...
Importing `paracosm` alone loads none of them.
"""

__version__ = "0.1.0"

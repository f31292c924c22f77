"""One file an algorithm; `registry.py` lists them, `algorithm.py` says what one is made of."""

from paracosm.training.algorithms.algorithm import Algorithm, Topology
from paracosm.training.algorithms.registry import ALGORITHMS, parse_algorithm

__all__ = ["ALGORITHMS", "Algorithm", "Topology", "parse_algorithm"]

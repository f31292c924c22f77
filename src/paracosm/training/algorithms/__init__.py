"""`registry.py` lists the algorithms, `algorithm.py` says what one is made of."""

from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.registry import ALGORITHMS, parse_algorithm
from paracosm.training.team import Topology

__all__ = ["ALGORITHMS", "Algorithm", "Topology", "parse_algorithm"]

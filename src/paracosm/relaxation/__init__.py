"""Asynchronous iterative methods on simulated processors."""

from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.run import relax, relax_map

__all__ = ["RelaxConfig", "RelaxationResult", "relax", "relax_map"]

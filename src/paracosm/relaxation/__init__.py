"""Asynchronous iterative methods on simulated processors."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.relaxation.config import RelaxConfig
    from paracosm.relaxation.problems import Problem, problem_from
    from paracosm.relaxation.result import RelaxationResult
    from paracosm.relaxation.run import relax, relax_map

__all__ = ["Problem", "RelaxConfig", "RelaxationResult", "problem_from", "relax", "relax_map"]

__getattr__ = exported_from(
    __name__,
    {
        "config": ("RelaxConfig",),
        "problems": ("Problem", "problem_from"),
        "result": ("RelaxationResult",),
        "run": ("relax", "relax_map"),
    },
)

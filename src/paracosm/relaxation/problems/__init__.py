"""What is solved: grid problems, Matrix Market files, matrices at hand."""

from paracosm.relaxation.problems.load import PROBLEMS, load_matrix, load_problem, problem_from
from paracosm.relaxation.problems.problem import Problem
from paracosm.relaxation.problems.stencil import Stencil

__all__ = ["PROBLEMS", "Problem", "Stencil", "load_matrix", "load_problem", "problem_from"]

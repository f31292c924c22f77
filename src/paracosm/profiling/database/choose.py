"""Environments as a person asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.errors import InputError
from paracosm.profiling.environment import Environment


def choose_environments(environments: Sequence[Environment], asked: str) -> list[Environment]:
    """Return the environment with a number ("2", as `paracosm db show` counts), or all with a text.

    The text is looked for in their descriptions, upper and lower case alike.

    Raises:
        InputError: there is none, with what there is.
    """
    if asked.isdecimal() and 1 <= int(asked) <= len(environments):
        return [environments[int(asked) - 1]]
    found = [
        each
        for each in environments
        if asked.lower() in describe(each).lower() and not asked.isdecimal()
    ]
    if not found:
        there = "; ".join(
            f"{number}: {describe(each)}" for number, each in enumerate(environments, 1)
        )
        raise InputError(f'no environment "{asked}": there is {there or "none"}')
    return found


def describe(environment: Environment) -> str:
    """Return "cpu, AMD EPYC, torch 2.13.0, threads 1, malloc pinned, denormals flushed"."""
    return f"{environment.device}, {environment}"

"""Which of a database's environments a prediction is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paracosm.errors import InputError
from paracosm.profiling.environment import Environment


def choose_environment(
    held: Sequence[tuple[Environment, int]],
    here: Environment | None,
    wanted: str | None,
    where: str,
) -> Environment:
    """Return the environment whose timings are to be used.

    Args:
        held: what the database holds, with the number of timings of each.
        here: this machine's environment; None where nobody knows.
        wanted: parts of a description, separated by commas, that must all be found in it, whatever
            their case: "H100", "epyc, threads 2". None for this machine's.
        where: the database, for messages.

    Raises:
        InputError: it holds no timings, none of this machine and nothing else was asked for, none
            that fits what was asked for, or several. It says what there is.
    """
    if not held:
        raise InputError(f"{where}: holds no timings of ops: paracosm profile ops adds some")
    environments = [environment for environment, _ in held]
    if wanted is None:
        alike = [] if here is None else [e for e in environments if _is_alike(e, here)]
        if alike:
            return here if here in alike else alike[0]
        raise InputError(
            f"{where}: holds no timings of this machine, but of {_listed(environments, here)}: "
            f'--hardware "{_short(environments[0])}" predicts for that one'
        )
    parts = [part.strip().lower() for part in wanted.split(",") if part.strip()]
    fitting = [each for each in environments if all(part in _text(each) for part in parts)]
    if not fitting:
        raise InputError(
            f'{where}: nothing is "{wanted}": it holds timings of {_listed(environments, here)}'
        )
    if len(fitting) > 1 and here in fitting:
        return here
    if len(fitting) > 1:
        raise InputError(
            f'{where}: "{wanted}" may be any of {_listed(fitting, None)}: add what tells them '
            'apart, as in --hardware "H100, threads 1"'
        )
    return fitting[0]


def _is_alike(environment: Environment, here: Environment) -> bool:
    """Whether it is this machine's, however memory was handed out."""
    return replace(environment, allocator=here.allocator) == here


def _text(environment: Environment) -> str:
    return f"{environment.device}, {environment}".lower()


def _listed(environments: Sequence[Environment], here: Environment | None) -> str:
    return "; ".join(_told(each, here) for each in environments)


def _told(environment: Environment, here: Environment | None) -> str:
    """Return an environment by what tells it from this machine's, where that is little."""
    differences = [] if here is None else here.differences(environment)
    if here is not None and here.hardware == environment.hardware:
        return f"{environment.hardware} ({', '.join(differences) or 'this machine'})"
    return str(environment)


def _short(environment: Environment) -> str:
    """Return enough of an environment to ask for it."""
    return environment.hardware.split(",")[0].split(" (")[0]

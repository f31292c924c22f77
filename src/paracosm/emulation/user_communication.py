"""A communication model of the user's own: a function that returns seconds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paracosm.emulation.cost import Cost
from paracosm.errors import InputError
from paracosm.factory import named_function, one_line
from paracosm.units import parse_duration

__all__ = ["UserCommunication"]

_OFFERED = ("kind", "members", "size", "rank", "peer")


@dataclass(frozen=True)
class UserCommunication:
    """Communication takes what a function says.

    The function gets those of kind, members, size, rank and peer that it has parameters for, by
    name, as `Communication.cost` gets them. It returns seconds, for which the rank's link is busy,
    or a `Cost`. It is asked for every collective, so that it may draw from a distribution; a
    message between two ranks is a "send".
    """

    reference: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    is_measured = False

    @classmethod
    def of(cls, reference: str, world: int) -> UserCommunication:
        """Return the model of the function that `reference` names; it is called once to try it.

        Args:
            reference: `package.module:function` or `file.py:function`.
            world: ranks of the job.

        Raises:
            InputError: it cannot be found, has other parameters, fails, or returns no time.
        """
        function = named_function("communication", reference)
        model = cls(reference, function, _names(reference, function))
        if world > 1:
            model.cost("all_reduce", tuple(range(world)), 1, 0, -1)
        return model

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        """Return what the function says of a collective.

        Raises:
            InputError: it fails, or returns no time.
        """
        offered = {"kind": kind, "members": members, "size": size, "rank": rank, "peer": peer}
        try:
            found = self.function(**{name: offered[name] for name in self.names})
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f'communication "{self.reference}" failed for {kind} of {size} bytes: '
                f"{one_line(error)}"
            ) from error
        cost = found if isinstance(found, Cost) else Cost(0.0, self._seconds(found, kind), "nic")
        for seconds in (cost.fixed, cost.busy, cost.after):
            self._seconds(seconds, kind)
        return cost

    def split(self, source: int, target: int, size: int) -> tuple[float, float]:
        """Return what the function says of a message; see the protocol.

        Raises:
            InputError: it fails, or returns no time.
        """
        cost = self.cost("send", (source, target), size, source, target)
        return cost.fixed + cost.after, cost.busy

    def _seconds(self, value: Any, kind: str) -> float:
        try:
            seconds = parse_duration(value)
        except InputError as error:
            raise self._no_time(kind, str(error)) from None
        if not math.isfinite(seconds):
            raise self._no_time(kind, f"a time is finite, not {seconds}")
        return seconds

    def _no_time(self, kind: str, reason: str) -> InputError:
        return InputError(f'communication "{self.reference}" returned no time for {kind}: {reason}')


def _names(reference: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the offered arguments that the function has parameters for."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some callables written in C have none
        return _OFFERED
    takes_all = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    names = tuple(name for name in _OFFERED if takes_all or name in signature.parameters)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError:
        raise InputError(
            f'communication "{reference}" has the parameters {signature}; it is called with any '
            f"of {', '.join(_OFFERED)}, by name"
        ) from None
    return names

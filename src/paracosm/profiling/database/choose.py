"""Environments and arguments of ops as a person asks for them, and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.graph import TensorArgument, decode_arguments
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


_LONGEST = 3  # entries that are shown of a list of tensors
_CUT = 80  # characters of arguments that are not of the form that ops have


def short_arguments(text: str) -> str:
    """Return "64x3x32x32 float32, 64x3x7x7, -, [2,2]" for the text of an op's arguments.

    A tensor is its shape; its dtype follows where it is not that of the tensor before, its strides
    where it is not contiguous. What is not given is "-". Named arguments are `name=value`. Texts of
    another form, from another program, are shown as they are, cut where they are long.
    """
    try:
        args, kwargs = decode_arguments(text)
    except InputError:
        return text if len(text) <= _CUT else f"{text[: _CUT - 3]}..."
    writer = _Writer()
    parts = [writer.written(value) for value in args]
    parts += [f"{name}={writer.written(value)}" for name, value in kwargs.items()]
    return ", ".join(parts)


class _Writer:
    """Remembers which dtype was named last."""

    def __init__(self) -> None:
        self._dtype = ""

    def written(self, value: Any) -> str:
        match value:
            case TensorArgument():
                return self._tensor(value)
            case None:
                return "-"
            case bool():
                return str(value).lower()
            case list() if any(isinstance(each, TensorArgument) for each in value):
                shown = [self.written(each) for each in value[:_LONGEST]]
                rest = len(value) - len(shown)
                return f"[{', '.join(shown)}{f', and {rest} more' if rest else ''}]"
            case list():
                return f"[{','.join(self.written(each) for each in value)}]"
            case dict():  # {"dtype": "int64"}
                return " ".join(str(each) for each in value.values())
        return str(value)

    def _tensor(self, tensor: TensorArgument) -> str:
        words = ["x".join(map(str, tensor.shape)) or "scalar"]
        if tensor.dtype != self._dtype:
            words.append(tensor.dtype)
            self._dtype = tensor.dtype
        if tensor.stride is not None:
            words.append(f"strides [{','.join(map(str, tensor.stride))}]")
        if tensor.on is not None:
            words.append(f"on {tensor.on}")
        return " ".join(words)

"""Run a distributed job on a cluster you don't have.

A function for each verb returns a typed result, and `open` gives it back from its folder:

    result = paracosm.train(algorithm="asgd", workers=8, updates=200, out="runs/asgd8")
    result.summary.mean_staleness
    paracosm.open("runs/asgd8").metrics

The rooms of the package hand out their own public names: `paracosm.engine`, `paracosm.cluster`, ...
Importing `paracosm` alone loads nothing else.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` itself is not to be imported with every `import torch`
if TYPE_CHECKING:
    from typing import Any

    from paracosm.api import (
        arguments,
        emulate,
        plan,
        predict,
        profile,
        relax,
        replay,
        study,
        train,
        tune,
    )
    from paracosm.errors import InputError
    from paracosm.result import Result, Sweep
    from paracosm.result import open_result as open  # noqa: A004

    __version__: str

__all__ = [
    "InputError",
    "Result",
    "Sweep",
    "arguments",
    "emulate",
    "open",
    "plan",
    "predict",
    "profile",
    "relax",
    "replay",
    "study",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from paracosm.version import version

        return version()
    if name not in __all__:
        if "paracosm.studies.kinds" in sys.modules:  # where a kind may have been added
            from paracosm.api import function_of

            if (function := function_of(name)) is not None:
                return function
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "InputError":
        from paracosm.errors import InputError

        return InputError
    if name == "open":
        from paracosm.result import open_result

        return open_result
    from paracosm import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

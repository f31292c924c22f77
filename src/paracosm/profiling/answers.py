"""How a process answers the one that started it, as `processes` has it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

__all__ = ["Answer", "answering"]

Answer = Callable[..., None]
"""Writes its keywords, a line of JSON; also from several threads."""


def answering() -> Answer:
    """Return what writes an answer to what has been standard output until now.

    What libraries and scripts print goes to standard error from here on: it must not get between.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: object) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    return answer

"""Loops that wait until a value changes which nobody computes: named, instead of run for ever.

Any number that a script reads is assumed by a rule, and stays the same. Where the line that reads
it decides whether a loop goes on, in its condition or before a `break`, the loop may not end.
"""

from __future__ import annotations

import ast
import linecache
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any

from paracosm.emulation.device.recording import RecordingWriter
from paracosm.emulation.rank.call_site import call_site, is_inside

MOST_READS = 20_000  # of one line, between the ends of two iterations
PATIENCE = 20.0  # seconds, where there is work between one read and the next
_FEWEST = 3  # reads that make a loop


class Reads:
    """Counts what was assumed, and ends loops that wait for it to change."""

    def __init__(self, writer: RecordingWriter, refuse: Callable[[str], Exception]) -> None:
        self._writer, self._refuse = writer, refuse
        self._iteration = 0
        self._lines: dict[str, _Line] = {}

    def assume(self, text: str) -> None:
        """Count that a rule of this name was followed, at the line that is being run."""
        site = call_site()
        self._writer.assume(text, site)
        if self._iteration != self._writer.steps:
            self._iteration = self._writer.steps
            self._lines.clear()
        line = self._lines.get(site)
        if line is None:
            line = self._lines[site] = _Line()
        line.reads += 1
        now = time.monotonic()
        is_often = line.reads > MOST_READS
        is_long = line.reads >= _FEWEST and now - line.begun > PATIENCE
        if not (is_often or is_long) or now < line.again:
            return
        loop = _loop_that_it_decides_on()
        if loop == "while" or (is_often and loop != ""):
            raise self._refuse(
                f"a loop that waits until a value changes, which nobody computes: it has read the "
                f"same one {line.reads:,} times"
            )
        line.again = now + 1.0  # a loop over experts, say, which ends


class _Line:
    __slots__ = ("again", "begun", "reads")

    def __init__(self) -> None:
        self.reads, self.begun, self.again = 0, time.monotonic(), 0.0


def _loop_that_it_decides_on() -> str | None:
    """Return "while" or "for" where a line that is being run decides whether such a loop goes on.

    "" where none does; None where the text of none of the lines is known.
    """
    kinds = []
    is_known = False
    for path, number in _lines_of_script():
        conditions = _conditions(path)
        is_known |= conditions is not None
        kinds += [kind for first, last, kind in conditions or () if first <= number <= last]
    return max(kinds, default="" if is_known else None)


def _lines_of_script() -> Iterator[tuple[str, int]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_inside(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


@lru_cache(maxsize=256)
def _conditions(path: str) -> tuple[tuple[int, int, str], ...] | None:
    """Return the first and last lines of what decides whether loops of a file go on, with these."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return None
    lines: list[tuple[int, int, str]] = []
    for loop in ast.walk(tree):
        if not isinstance(loop, _LOOPS):
            continue
        nodes = list(_of_loop(loop))
        tests = [node.test for node in nodes if isinstance(node, ast.If) and _leaves(node, loop)]
        tests += [loop.test] if isinstance(loop, ast.While) else []
        names = set().union(*map(_names, tests))
        deciding = [*tests, *(node for node in nodes if _targets(node) & names)]
        kind = "while" if isinstance(loop, ast.While) else "for"
        lines += [(node.lineno, node.end_lineno or node.lineno, kind) for node in deciding]
    return tuple(lines) if tree.body else None


_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _of_loop(loop: ast.AST) -> Iterator[Any]:
    """Yield what is in a loop, but not in functions that it defines."""
    for child in ast.iter_child_nodes(loop):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from _of_loop(child)


def _leaves(condition: ast.If, loop: ast.AST) -> bool:
    """Whether a condition in a loop may leave it: by a return, or by a break of this loop."""
    if any(isinstance(node, ast.Return) for node in _of_loop(condition)):
        return True
    inner = [node for node in _of_loop(loop) if isinstance(node, _LOOPS)]
    breaks_of_others = {id(node) for loop in inner for node in _of_loop(loop)}
    return any(
        isinstance(node, ast.Break) and id(node) not in breaks_of_others
        for node in _of_loop(condition)
    )


def _targets(node: Any) -> set[str]:
    if isinstance(node, ast.Assign):
        return set().union(*map(_names, node.targets))
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return _names(node.target)
    return set()


def _names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}

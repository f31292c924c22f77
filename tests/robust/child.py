"""Run a command in a forked child, under limits, and say what came of it."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDEST = 1000
"""Characters of a line that a person is shown."""

SECONDS = 60
"""Of computing that a case may take."""

_CODES = (0, 1, 2, 130, 143)


@dataclass(frozen=True)
class Outcome:
    """What came of a case: "ran", "refused", or what may not be."""

    kind: str
    said: str  # the end of standard error

    @property
    def is_bad(self) -> bool:
        return self.kind not in ("ran", "refused")


def run(arguments: Sequence[str], folder: Path, waits: bool = False) -> Outcome:
    """Run `paracosm` with these arguments, in `folder`, where its temporary files go as well.

    Args:
        waits: it ends by a signal only, which it gets after a second.
    """
    (folder / "tmp").mkdir()
    others = _children()
    _adopt_orphans(True)
    child = os.fork()
    if child == 0:
        _be_child(arguments, folder)
    begin, told = time.monotonic(), False
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        since = time.monotonic() - begin
        if waits and not told and since > 1:
            told = True
            os.kill(child, signal.SIGTERM)
        if since > 2 * SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            _end_orphans(others, 0)
            return Outcome("hang", _end_of(folder))
        time.sleep(0.002)
    left = _end_orphans(others, 5)
    _adopt_orphans(False)
    kind = _kind(os.waitstatus_to_exitcode(ended[1]), folder, arguments)
    files = [str(each.relative_to(folder)) for each in (folder / "tmp").rglob("*")]
    if kind in ("ran", "refused"):
        if left:
            return Outcome("processes left", left)
        if files:
            return Outcome("files left", " ".join(files))
    return Outcome(kind, _end_of(folder))


def run_here(arguments: Sequence[str]) -> int:
    """Run `paracosm` in this process, without its output."""
    from paracosm.cli import main

    with open(os.devnull, "w") as nowhere:
        before, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), nowhere, nowhere
        try:
            return main(list(arguments))
        finally:
            sys.stdout, sys.stderr = before


def _kind(code: int, folder: Path, arguments: Sequence[str]) -> str:
    said, printed = _text(folder / "stderr"), _text(folder / "stdout")
    if arguments[0] == "emulate" and "/paracosm/" not in said:  # the script's own errors aside
        said = "".join(line for line in said.splitlines(True) if line.startswith("paracosm: "))
    if code < 0:
        number = signal.Signals(-code)
        return "hang" if number == signal.SIGXCPU else f"crash {number.name}"
    for kind, sign in (
        ("traceback", "Traceback (most recent"),
        ("defect", "a bug in Paracosm"),
        ("warning", "Warning: "),
        ("memory", "out of memory"),
    ):
        if sign in said:
            return kind
    if code not in _CODES:
        return f"exit code {code}"
    shown = said if "--json" in arguments else said + printed
    if max(map(len, [*shown.splitlines(), ""])) > WIDEST:
        return "long"
    # What is printed may repeat what was typed.
    results = _summaries(folder) + ("" if "nan" in " ".join(arguments) else printed)
    if code == 0 and re.search(r"(?i)\bnan\b", results):
        return "nan"
    if code == 2:
        return "refused" if said.count("\n") == 1 and said.startswith("paracosm: ") else "untidy"
    return "ran"


def _summaries(folder: Path) -> str:
    return "".join(_text(each) for each in folder.rglob("summary.json") if each.is_file())


def _text(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open(errors="replace") as file:
        return file.read(10_000_000)  # a child may write a gigabyte


def _end_of(folder: Path) -> str:
    return _text(folder / "stderr")[-4000:]


def _be_child(arguments: Sequence[str], folder: Path) -> None:
    import atexit
    import tempfile
    import weakref

    os.setsid()
    os.environ |= {"PARACOSM_CACHE": str(folder), "HOME": str(folder)}
    os.environ.pop("XDG_CONFIG_HOME", None)
    os.environ |= {"TMPDIR": str(folder / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    os.environ.pop("XDG_CONFIG_HOME", None)
    tempfile.tempdir = None
    atexit._clear()
    finalizers: Any = weakref.finalize
    finalizers._registry.clear()  # its parent's
    os.chdir(folder)
    for number, path in ((0, os.devnull), (1, str(folder / "stdout")), (2, str(folder / "stderr"))):
        mode = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(path, mode, 0o644), number)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    for what, most in (
        (resource.RLIMIT_AS, used + (4 << 30)),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 1 << 30),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most + 5 if what == resource.RLIMIT_CPU else most))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 70
    try:
        from paracosm.cli import main

        sys.stdout = os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        code = main(list(arguments))
        atexit._run_exitfuncs()
        finalizers._exitfunc()  # which atexit has no more
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


# ---------------------------------------------------------------- processes that outlive their own


def _adopt_orphans(wanted: bool) -> None:
    """Let processes whose parent has ended become children of this one (Linux), or no longer."""
    ctypes.CDLL(None).prctl(36, int(wanted), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children() -> set[int]:
    found: set[int] = set()
    for tasks in Path("/proc/self/task").glob("*/children"):
        found.update(map(int, tasks.read_text().split()))
    return found


def _end_orphans(others: set[int], patience: float) -> str:
    """Wait for orphans to end, kill those that do not, and say which these are."""
    until = time.monotonic() + patience
    while left := _children() - others:
        for each in left:
            os.waitpid(each, os.WNOHANG)
        if not (_children() - others):
            break
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    told = []
    for each in _children() - others:
        told.append(Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)
    return "; ".join(told)

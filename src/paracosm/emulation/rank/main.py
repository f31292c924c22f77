"""The process of a real rank: `python -m paracosm.emulation.rank.main SCRIPT ARGS...`."""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import signal
import sys
import tokenize
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paracosm.emulation.config import Setting
from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.processes import end_with_parent, on_interrupt


def main() -> None:
    """Prepare this process as its environment describes, run the script, and end as it ends."""
    interrupt = signal.getsignal(signal.SIGINT)
    # Until the script runs, it ends the process quietly.
    on_interrupt(interrupt if interrupt is signal.SIG_IGN else signal.SIG_DFL)
    try:
        setting = Setting.from_environment()
        end_with_parent(signal.SIGTERM, setting.launcher)
        from paracosm.emulation.rank.prepare import prepare

        prepare(setting)
        name, *arguments = sys.argv[1:]
        # Packages are imported as a module is looked for, and may look at this.
        sys.argv[:] = ["-m" if name.startswith("module:") else name, *arguments]
        script = load_script(name)
    except InputError as error:
        print(f"paracosm: {error}", file=sys.stderr)
        sys.exit(2)
    except SyntaxError as error:
        show(error)
        sys.exit(1)
    signal.signal(signal.SIGINT, interrupt)
    run_script(script, arguments)


@dataclass(frozen=True)
class Script:
    code: types.CodeType
    path: str | None  # `sys.path[0]` while it runs; None where the interpreter puts none there
    argument: str  # `sys.argv[0]`
    file: str | None
    loader: Any
    spec: importlib.machinery.ModuleSpec | None = None


def load_script(script: str) -> Script:
    """Compile a script: a file, or "module:NAME" for what `python -m NAME` would run."""
    is_module = script.startswith("module:")
    return _module(script.removeprefix("module:")) if is_module else _file(script)


def run_script(script: Script, arguments: Sequence[str]) -> None:
    """Run a script as `__main__`, with `arguments`.

    An exception is shown without frames of ours and ends the process with the interpreter's exit
    code, by SystemExit. After Ctrl-C nothing is shown, and the signal ends it.
    """
    module = types.ModuleType("__main__")
    spec = script.spec
    module.__dict__.update(__builtins__=builtins, __file__=script.file, __loader__=script.loader)
    module.__dict__.update(__package__=spec and spec.parent, __cached__=spec and spec.cached)
    module.__spec__ = spec
    sys.modules["__main__"] = module
    sys.argv[:] = [script.argument, *arguments]
    if script.path is not None:
        _search_first(script.path)
    try:
        exec(script.code, module.__dict__)
    except SystemExit:
        raise
    except KeyboardInterrupt:
        sys.excepthook = lambda *ignored: None
        raise  # the interpreter ends itself by SIGINT when this reaches it
    except BaseException as error:
        show(error)
        raise SystemExit(1) from None


def show(error: BaseException) -> None:
    """Show what a script raised as the interpreter would, without the frames below the script."""
    folder, trace = os.path.dirname(__file__), error.__traceback__
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == folder:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)


def _search_first(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder
    elif not os.environ.get("PYTHONSAFEPATH"):  # by a flag, which is ours
        sys.path.insert(0, folder)


def _file(name: str) -> Script:
    path = os.path.abspath(name)
    source = read_bytes(name)
    _check_text(source, path)
    code = compile(source, path, "exec", dont_inherit=True)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    return Script(code, os.path.dirname(os.path.realpath(path)), name, path, loader)


def _check_text(source: bytes, path: str) -> None:
    """Raise what the interpreter raises for a file that is not text; `compile` is less strict."""
    encoding = "utf-8"
    with contextlib.suppress(SyntaxError):
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    try:
        source.decode(encoding)
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise SyntaxError(
            f"Non-UTF-8 code starting with '\\x{source[error.start]:02x}' in file {path} on line "
            f"{line}, but no encoding declared; see https://peps.python.org/pep-0263/ for details"
        ) from None


def _module(name: str) -> Script:
    _search_first(os.getcwd())
    why = "no module of that name that can be run"
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        spec = None
        if isinstance(error, ImportError) and not f"{name}.".startswith(f"{error.name}."):
            why = f"a package that it is in cannot be imported: {error}"
    loader: Any = None if spec is None else spec.loader
    code = None if loader is None else loader.get_code(spec.name if spec else name)
    if spec is None or code is None:
        raise InputError(f"module:{name}: {why}")
    return Script(code, None, spec.origin or name, spec.origin, loader, spec)


if __name__ == "__main__":
    main()

"""The process of a real rank runs a script as the interpreter itself does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rank_processes import Ran, start

from paracosm.emulation.rank.main import load_script
from paracosm.emulation.records import Note
from paracosm.errors import InputError

Run = Callable[..., Ran]

WHAT_IT_SEES = """
import os, pickle, sys, threading

class Here:
    pass

print(__name__, __file__, __spec__, __package__, __doc__)
print(sys.argv, sys.path[0], sys.modules["__main__"].Here is Here)
print(type(pickle.loads(pickle.dumps(Here()))) is Here)

def fail(depth):
    if depth == 0:
        raise ValueError("on purpose")
    fail(depth - 1)

if "fork" in sys.argv:
    if (child := os.fork()) == 0:
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
fail(2)
"""


def test_a_script_sees_and_shows_what_it_would_without_us(run_rank: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WHAT_IT_SEES)
    expected = start([sys.executable, str(script), "--lr", "0.1", "fork"])
    ran = run_rank(str(script), "--lr", "0.1", "fork")
    assert ran.out == expected.stdout
    assert ran.err == expected.stderr
    assert ran.exit_code == expected.returncode == 1
    [note] = ran.records  # one: the child that was forked has written none
    assert isinstance(note, Note)
    assert note.grave
    assert note.text.startswith("the script never called torch.distributed.init_process_group")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "exit_code", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no data')", 1, "no data\n"),
        ("import os; os._exit(4)", 4, ""),
        ("1 +", 1, "SyntaxError"),
        ("# caf\xe9", 1, "Non-UTF-8 code starting with '\\xe9'"),
        ("x = 1\ny = 'caf\xe9'", 1, "Non-UTF-8 code starting with '\\xe9'"),
        ("# -*- coding: latin-1 -*-\nassert 'caf\xe9'[-1] == chr(233)", 0, ""),
        ("import atexit; atexit.register(print, 'late')", 0, ""),
    ],
)
def test_a_script_ends_as_it_would_without_us(
    run_rank: Run, tmp_path: Path, source: str, exit_code: int, said: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source, encoding="latin-1")
    expected = start([sys.executable, str(script)])
    ran = run_rank(str(script))
    assert ran.exit_code == expected.returncode == exit_code
    assert ran.out == expected.stdout
    assert ran.err == expected.stderr
    assert said.lower() in ran.err.lower()


def test_ctrl_c_ends_a_script_without_its_traceback(run_rank: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    ran = run_rank(str(script))
    assert (ran.exit_code, ran.err) == (-signal.SIGINT, "")
    script.write_text(f"try: {script.read_text()}\nexcept KeyboardInterrupt: print('caught')")
    assert run_rank(str(script)).out == "caught\n"


def test_no_thread_outlives_the_interpreter(run_rank: Run, tmp_path: Path) -> None:
    """A thread that completes a future just then aborts the process; this script has no group."""
    script = tmp_path / "train.py"
    script.write_text(
        "import atexit, threading\n"
        "threads = threading.enumerate()\n"
        "atexit._run_exitfuncs()\n"
        "print([each.name for each in threads], threading.active_count())\n"
    )
    assert run_rank(str(script)).out == "['MainThread', 'paracosm-done'] 1\n"


@pytest.mark.slow
def test_a_module_runs_as_with_python_m(run_rank: Run) -> None:
    expected = start([sys.executable, "-m", "json.tool", "--help"])
    ran = run_rank("module:json.tool", "--help")
    assert ran.exit_code == 0
    assert ran.out == expected.stdout


@pytest.mark.slow
def test_a_package_finds_its_arguments_as_with_python_m(
    run_rank: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "looking"
    package.mkdir()
    (package / "__init__.py").write_text("import sys; print(sys.argv)")
    (package / "train.py").touch()
    search = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))
    expected = start([sys.executable, "-m", "looking.train", "--steps", "3"])
    assert expected.stdout == "['-m', '--steps', '3']\n"
    assert run_rank("module:looking.train", "--steps", "3").out == expected.stdout


@pytest.mark.slow
def test_records_are_complete_where_a_script_leaves_at_once(run_rank: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(5):\n"
        "    dist.all_reduce(torch.ones(4))\n"
        "os._exit(0)\n"
    )
    assert len(run_rank(str(script)).records) >= 6


@pytest.mark.slow
def test_a_script_of_another_world_is_told_so(run_rank: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "store = dist.TCPStore('localhost', 29500, 2, is_master=False)\n"
        "dist.init_process_group('gloo', store=store, rank=0, world_size=2)\n"
    )
    ran = run_rank(str(script), world_size=4)
    assert ran.exit_code == 1
    assert "the script makes a world of 2 ranks, but 4 are emulated" in ran.err


def test_a_script_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # its first entry is replaced
    with pytest.raises(InputError, match=r"nowhere\.py: no such file"):
        load_script(str(tmp_path / "nowhere.py"))
    with pytest.raises(InputError, match="module:no_such_module: no module of that name"):
        load_script("module:no_such_module")
    with pytest.raises(InputError, match="no module of that name that can be run"):
        load_script("module:json")  # a package without __main__
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "__init__.py").write_text("import no_such_dependency")
    (tmp_path / "lacking" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"cannot be imported: No module .*no_such_dependency"):
        load_script("module:lacking.train")

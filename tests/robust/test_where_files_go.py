"""Each verb that writes, watched: no file goes where others may have put a link."""

from __future__ import annotations

import getpass
import os
import re
import runpy
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from forked import Child, forked
from planted import is_unharmed, victim_in
from test_full_disk import COMMANDS, EVERYDAY, places  # noqa: F401 (a fixture)

from paracosm.cli import main
from paracosm.studies.run_folder import FILES
from paracosm.user_cache import user_cache_folder

OWN = f"paracosm-{os.geteuid()}"
WATCHED = Path(__file__).with_name("watched")

OTHERS = {
    "train, scalars": r"out\.tb/events\.out\.tfevents\.[\w.-]+",
}
"""Names beside `{out}` that only one command writes; those that begin with it are files."""

CODES = {"tune": 1}  # no trial of a schedule alone reaches a loss


def run(arguments: list[str], temporary: Path, trace: Path | None = None) -> Child:
    """Run the program with a folder for what is temporary, watched if it has a `trace`."""

    def watched() -> int:
        tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
        if trace is not None:
            paths = [str(WATCHED), *filter(None, [os.environ.get("PYTHONPATH")])]
            os.environ |= {"TRACED": str(trace), "PYTHONPATH": os.pathsep.join(paths)}
            runpy.run_path(str(WATCHED / "sitecustomize.py"))
        return main(arguments)

    return forked(watched)


def name_in(folder: Path, path: Path) -> str:
    """Return the name of a file in a folder, of an unfinished one that which it becomes."""
    unfinished = re.fullmatch(r"\.+(.+?)(\.\d+)+", path.name)
    name = unfinished.group(1) if unfinished else path.name
    return str(path.relative_to(folder).with_name(name))


@pytest.mark.parametrize(
    "name", [n if n in EVERYDAY else pytest.param(n, marks=pytest.mark.slow) for n in COMMANDS]
)
def test_files_are_made_only_where_the_guide_says_and_through_no_link(
    name: str,
    places: Mapping[str, Path],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, temporary, trace = tmp_path / "config", tmp_path / "tmp", tmp_path / "trace"
    out, folder = tmp_path / "made" / "out", tmp_path / "made"
    for each in (folder, temporary):
        each.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    child = run(shlex.split(COMMANDS[name].format(**places, out=out)), temporary, trace)
    assert child.wait() == CODES.get(name, 0), child.said
    torch = temporary / f"torchinductor_{getpass.getuser()}"  # which PyTorch makes, and nobody uses
    own = {torch, temporary / OWN, Path("/dev/shm") / OWN, config / "paracosm", user_cache_folder()}
    in_run = set()
    for line in dict.fromkeys(trace.read_text().splitlines()):
        path = Path(line)
        if {path, *path.parents} & own:
            continue
        if out in path.parents:
            in_run.add(name_in(out, path))
        elif folder in path.parents:
            beside = name_in(folder, path)
            known = rf"out(\.\w+)*(-journal)?|{OTHERS.get(name, 'out')}"
            assert re.fullmatch(known, beside), line
        elif places["db"] != path:  # which SQLite opens to write where it is only read
            assert path in (folder, config, Path("/dev/null")), line
    assert {*temporary.iterdir()} <= {torch}
    files = {each for each in in_run if not (out / each).is_dir()}
    assert {Path(file).name for file in files} <= {*FILES, ".lock"}
    assert all(file.count("/") <= 1 for file in files)  # of a run, or of a run of a sweep
    if not files:
        return
    # Once more, into a folder from elsewhere that has a link by each of these names.
    victim, other = victim_in(tmp_path / "of another"), folder / "other"
    for file in files:
        (other / file).parent.mkdir(parents=True, exist_ok=True)
        if Path(file).name != ".lock":
            (other / file).symlink_to(victim)
    forced = COMMANDS[name].replace("--out {out}", "--out {out} --force")
    child = run(shlex.split(forced.format(**places, out=other)), temporary)
    assert child.wait() == CODES.get(name, 0), child.said
    assert is_unharmed(victim)
    assert [*victim.parent.iterdir()] == [victim]

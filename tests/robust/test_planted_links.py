"""Files are opened where others may have been first: no link is followed, and nothing hangs."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import child
import pytest
from planted import PLANT, is_unharmed, nobody, open_to_all, victim_in

import paracosm
from paracosm import files as own_files
from paracosm.cli import main
from paracosm.emulation.rank import launched
from paracosm.errors import InputError
from paracosm.files import (
    Lock,
    check_database,
    create_file,
    open_plain,
    replacing,
    temporary_folder,
)
from paracosm.planning.runs import Journal
from paracosm.profiling.database import ProfileDatabase
from paracosm.studies import RunFolder
from paracosm.studies.metrics_file import MetricsWriter
from paracosm.studies.run_folder import FILES
from paracosm.studies.scalars import write_scalars

RUN = ("train", "--timing-only", "--workers", "2", "--updates", "20", "--timeline", "--quiet")
STUDY = {"train": {"workers": 2}, "seed": 0}


def _lock(path: Path) -> None:
    with Lock(path.parent):
        pass


def _replace(path: Path) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text("new")


def _replace_beside(path: Path) -> None:
    """Write to where the unfinished file of another one has `path` for a name."""
    with replacing(path.parent / "summary.json") as unfinished:
        assert unfinished == path
        unfinished.write_text("new")


def _append(path: Path) -> None:
    os.close(open_plain(path, os.O_WRONLY | os.O_APPEND))


def _journal(path: Path) -> None:
    Journal(path).add("key", {"loss": 1.0})


def _metrics(path: Path) -> None:
    writer = MetricsWriter(path)
    writer.append(0.0, 0.0, "worker0", "loss", 1.0, 1)
    writer.close()


def _database(path: Path) -> None:
    ProfileDatabase.open(path.parent / "profiles.db", create=True).close()


OPENED: dict[str, Callable[[Path], object]] = {
    ".lock": _lock,
    "report.html": _replace,
    ".summary.json.PID": _replace_beside,
    "runs.jsonl": _journal,
    "metrics.arrows": _metrics,
    "some": _append,
    "empty": create_file,
    "profiles.db-journal": _database,
    "profiles.db-wal": _database,
    "profiles.db-shm": _database,
}


def refusal_of(do: Callable[[], object]) -> str:
    """Return what is said where something is refused, in "" where it is not."""
    try:
        do()
    except (InputError, IsADirectoryError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", PLANT)
@pytest.mark.parametrize("name", OPENED)
def test_what_is_there_is_refused_in_one_line_or_replaced(
    name: str, kind: str, tmp_path: Path
) -> None:
    victim = victim_in(tmp_path / "of another")
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / name.replace("PID", str(os.getpid()))
    PLANT[kind](path, victim)
    said = refusal_of(lambda: OPENED[name](path))
    assert "\n" not in said
    assert said == "" or str(folder) in said
    assert is_unharmed(victim)
    assert [*victim.parent.iterdir()] == [victim]
    assert kind != "folder" or (path / "something").is_file()


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    victim = victim_in(tmp_path / "of another")
    link = tmp_path / "report.html"
    link.symlink_to(victim)
    _replace(link)
    assert is_unharmed(victim)
    assert not link.is_symlink()
    assert link.read_text() == "new"


def test_a_link_in_what_the_user_types_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    (tmp_path / "disk" / "kept").mkdir()
    (tmp_path / "latest").symlink_to("disk/kept")
    for out in ("runs/x", "latest"):
        with RunFolder.create(tmp_path / out, STUDY) as run:
            run.finish({"kind": "training"})
    for folder in ("x", "kept"):
        assert RunFolder.open(tmp_path / "disk" / folder).status == "done"
    with (
        pytest.raises(InputError, match="wrong"),
        RunFolder.create(tmp_path / "latest", STUDY, force=True),
    ):
        raise InputError("wrong")
    assert (tmp_path / "latest").is_symlink()


# ------------------------------------------------------------------ folders of runs from elsewhere


def planted(names: Iterable[str], of_every_kind: Sequence[str]) -> list[Any]:
    """Return names of files and what stands in their place: every day all of it for some."""
    return [
        pytest.param(
            name,
            kind,
            marks=[] if name in of_every_kind else [pytest.mark.slow],
        )
        for name, kind in product(sorted(names), PLANT)
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    planted({*FILES, ".lock", "anything"}, (".lock", "summary.json")),
)
def test_a_run_into_a_folder_from_elsewhere(
    name: str, kind: str, finished: Path, tmp_path: Path
) -> None:
    victim = victim_in(tmp_path / "of another")
    out = tmp_path / "run"
    (out / "sub").mkdir(parents=True)
    PLANT[kind](out / name, victim)
    outcome = child.run([*RUN, "--out", str(out), "--force"], _fresh(tmp_path / "child"))
    assert outcome.kind == ("refused" if _is_in_the_way(name, kind) else "ran"), outcome
    assert is_unharmed(victim)
    assert [*victim.parent.iterdir()] == [victim]
    assert name == "anything" or outcome.kind == "refused" or not (out / name).is_symlink()


def _is_in_the_way(name: str, kind: str) -> bool:
    return name == ".lock" or (kind == "folder" and name in FILES)


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "kind"), planted(FILES, of_every_kind=("metrics.arrows", "summary.json"))
)
def test_reading_a_folder_from_elsewhere_ends(
    name: str, kind: str, finished: Path, tmp_path: Path
) -> None:
    victim = victim_in(tmp_path / "of another")
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / name).unlink(missing_ok=True)
    PLANT[kind](run / name, victim)
    if name == "metrics.arrows":
        (run / "metrics.parquet").unlink()
    page = str(tmp_path / "page.html")
    outcome = child.run(["report", str(run), "--out", page], _fresh(tmp_path / "child"))
    assert not outcome.is_bad, outcome
    assert is_unharmed(victim)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    # Here, so that children have all of it loaded.
    assert main([*RUN, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_a_run_that_goes_on_appends_to_no_file_of_another_name(kind: str, tmp_path: Path) -> None:
    victim = victim_in(tmp_path / "of another")
    RunFolder.create(tmp_path / "plan", STUDY).close()
    PLANT[kind](tmp_path / "plan" / "runs.jsonl", victim)
    (tmp_path / "plan" / ".lock").unlink()
    with (
        RunFolder.create(tmp_path / "plan", STUDY, resume=True),
        pytest.raises(InputError, match=r"runs\.jsonl: cannot be written"),
    ):
        Journal(tmp_path / "plan" / "runs.jsonl")
    assert is_unharmed(victim)


SWEEP = """
train: {workers: 2, timing_only: true, updates: 5}
over: {seed: [0, 1]}
"""


@pytest.mark.parametrize("force", [False, True])
def test_the_points_of_a_sweep_are_not_written_through_links(
    force: bool, finished: Path, tmp_path: Path
) -> None:
    study = tmp_path / "sweep.yaml"
    study.write_text(SWEEP)
    command = ["train", str(study), "--out", str(tmp_path / "out"), "--quiet"]
    assert child.run(command, _fresh(tmp_path / "first")).kind == "ran"
    other = tmp_path / "other"
    shutil.move(tmp_path / "out" / "seed=1", other)
    (tmp_path / "out" / "seed=1").symlink_to(other)
    if not force:
        (other / "summary.json").unlink()  # it is to be run again
    before = {file: file.read_bytes() for file in other.iterdir()}
    command += ["--force"] * force
    outcome = child.run(command, _fresh(tmp_path / "again"))
    assert outcome.kind == "refused"
    assert "seed=1: it is a link" in outcome.said
    assert {file: file.read_bytes() for file in other.iterdir()} == before


def test_a_sweep_names_its_runs_by_folders_in_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('[{"point": "../elsewhere", "varied": {}}]')
    (tmp_path / "study.yaml").write_text(SWEEP)
    with pytest.raises(InputError, match=r"sweep.json: cannot be read"):
        paracosm.open(tmp_path)


def test_saving_follows_no_link_on_either_side(finished: Path, tmp_path: Path) -> None:
    victim = victim_in(tmp_path / "of another")
    run, target = tmp_path / "run", tmp_path / "target"
    shutil.copytree(finished, run)
    (run / "link").symlink_to(victim)
    os.mkfifo(run / "pipe")
    (run / "own").mkdir()
    (run / "own" / "notes").write_text("of the user's")
    (run / "notes").write_text("mine")
    target.mkdir()
    (target / "notes").symlink_to(victim)
    (target / "report.html").symlink_to(victim)
    paracosm.open(run).save(target, force=True)
    assert is_unharmed(victim)
    assert (target / "notes").read_text() == "mine"
    assert (target / "own" / "notes").read_text() == "of the user's"
    assert paracosm.open(target).summary.status == "done"
    assert not any(each.is_symlink() for each in target.iterdir())
    (target / "own" / "notes").unlink()
    (target / "own").rmdir()
    (target / "own").symlink_to(victim.parent)
    with pytest.raises(InputError, match="own: it is a link"):
        paracosm.open(run).save(target, force=True)
    assert [*victim.parent.iterdir()] == [victim]


def test_scalars_go_through_no_link(tmp_path: Path, finished: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "point").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="point: it is a link"):
        write_scalars({"point": RunFolder.open(finished)}, tmp_path / "board")
    assert [*(tmp_path / "elsewhere").iterdir()] == []


# ------------------------------------------------------------------------------------- databases


def test_a_journal_that_names_another_file_removes_none(tmp_path: Path) -> None:
    """SQLite removes the file that a journal names as its super-journal: see its file format."""
    victim = victim_in(tmp_path / "of another")
    database = tmp_path / "profiles.db"
    ProfileDatabase.open(database, create=True).close()
    database.with_name("profiles.db-journal").write_bytes(_hot_journal(database, victim))
    with pytest.raises(InputError, match="names another file"):
        ProfileDatabase.open(database)
    assert is_unharmed(victim)
    # A link to the database is the user's; the journal is beside the database all the same.
    (tmp_path / "link.db").symlink_to(database)
    with pytest.raises(InputError, match="names another file"):
        check_database(tmp_path / "link.db")


def _hot_journal(database: Path, victim: Path) -> bytes:
    """Return a journal of one page that is to be rolled back, and the name of a super-journal.

    The checksum of a page is the sum of every 200th byte from its end (without a nonce).
    """
    data = database.read_bytes()
    size = int.from_bytes(data[16:18], "big")
    page = data[:size]
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + b"".join(
        number.to_bytes(4, "big") for number in (1, 0, len(data) // size, 512, size)
    )
    checksum = sum(page[at] for at in range(size - 200, 0, -200))
    record = (1).to_bytes(4, "big") + page + checksum.to_bytes(4, "big")
    name = os.fsencode(victim)
    end = ((1 << 30) // size + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    return header.ljust(512, b"\0") + record + end + sum(name).to_bytes(4, "big") + magic


# ------------------------------------------------------------------------- temporary, among others


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what is temporary in which everybody may write, as /tmp."""
    folder = open_to_all(Path(tempfile.mkdtemp()) / "shared")
    yield folder
    shutil.rmtree(folder.parent)


OWN = f"paracosm-{os.geteuid()}"


def _a_folder(name: Path, victim: Path) -> None:
    name.mkdir()
    name.chmod(0o777)
    (name / "left").mkdir()
    (name / "left" / ".lock").symlink_to(victim)


TAKEN = {
    **PLANT,
    "folder": _a_folder,
    "link to a folder": lambda name, victim: name.symlink_to(victim.parent),
}
if os.geteuid() == 0:
    del TAKEN["hard link"]  # to a file of somebody else, which the system refuses


@pytest.mark.parametrize("kind", TAKEN)
@pytest.mark.parametrize("name", [OWN, f"{OWN}-0"])
def test_a_folder_of_the_users_own_where_others_may_write(
    name: str, kind: str, shared: Path
) -> None:
    victim = victim_in(shared.parent / "of the user")
    nobody(lambda: TAKEN[kind](shared / name, victim))
    before = os.lstat(shared / name)
    for _ in range(2):
        with temporary_folder(str(shared)) as folder:
            for each in (folder, folder.parent):
                assert not each.is_symlink()
                assert each.stat().st_uid == os.geteuid()
                assert stat.S_IMODE(each.stat().st_mode) == 0o700
            assert folder.parent.parent == shared
            assert folder.parent.name != name
            (folder / "file").write_text("some")
        assert [*shared.iterdir()] == [shared / name]  # nothing else is left
    assert os.path.samestat(os.lstat(shared / name), before)
    assert is_unharmed(victim)
    assert [*victim.parent.iterdir()] == [victim]


def test_what_others_left_in_the_way_of_earlier_versions_is_not_touched(shared: Path) -> None:
    victim = victim_in(shared.parent / "of the user")
    (victim.parent / ".lock").write_text("1\n")

    def plant() -> None:
        (shared / "paracosm-x").mkdir()
        (shared / "paracosm-x" / ".lock").symlink_to(victim)
        (shared / "paracosm-y").symlink_to(victim.parent)

    nobody(plant)
    with temporary_folder(str(shared)):
        pass
    assert is_unharmed(victim)
    assert (victim.parent / ".lock").read_text() == "1\n"


def test_a_rank_trusts_no_emulator_of_somebody_else(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = victim_in(shared.parent / "of the user")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setattr(launched, "_PATIENCE", 0.2)
    monkeypatch.setenv("RANK", "0")
    setting = launched.Setting(
        launched.EmulateConfig(script="s.py", world_size=2), 0, -1, Path("x")
    )

    def plant() -> None:
        for place in (OWN, f"{OWN}-1", "paracosm-serve-root-29500"):
            folder = shared / place / "made"
            folder.mkdir(parents=True)
            for each in (folder, folder.parent):
                each.chmod(0o777)
                for name in ("setting.json", "serve-29500.json"):
                    (each / name).write_text(setting.as_json())
                (each / "rank0.records").symlink_to(victim)

    nobody(plant)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(SystemExit):
        launched.become_served_rank("29500")
    assert "no paracosm emulate serve --port 29500 runs here" in capsys.readouterr().err
    assert is_unharmed(victim)


def test_a_file_system_that_does_not_know_who_owns_what(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS for root, or FAT: whatever is made belongs to somebody else, or is open to all."""
    monkeypatch.setattr(own_files, "_is_own", lambda found: False)
    with temporary_folder(str(shared)) as first, temporary_folder(str(shared)) as second:
        assert first.parent != second.parent
        assert {first.parent.parent, second.parent.parent} == {shared}
    assert [*shared.iterdir()] == []


def test_all_that_one_user_makes_is_in_one_folder(shared: Path) -> None:
    with temporary_folder(str(shared)) as first, temporary_folder(str(shared)) as second:
        assert first.parent == second.parent == shared / OWN


def test_the_holder_of_a_lock_is_told_by_number_only(tmp_path: Path) -> None:
    with Lock(tmp_path):
        (tmp_path / ".lock").write_text("\x1b[31mhello\n")
        with pytest.raises(InputError, match=r"process \(unknown\) is writing"):
            Lock(tmp_path)


def test_a_stream_that_is_a_pipe_is_no_metrics(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", STUDY).close()
    (tmp_path / "run" / "metrics.arrows").unlink()
    os.mkfifo(tmp_path / "run" / "metrics.arrows")
    with pytest.raises(InputError, match="a device or a pipe"):
        RunFolder.open(tmp_path / "run").metrics()

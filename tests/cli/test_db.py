"""`paracosm db show`, `db merge` and `db export`, as their users call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.database.files import load_export
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import IterationTiming, LinkTiming, OpTiming, spread_of

Capture = pytest.CaptureFixture[str]

CPU = Environment("cpu", "AMD EPYC", "torch 2.13.0", 1, "malloc pinned", "flushed")
GPU = Environment("cuda", "NVIDIA H200", "torch 2.13.0", 0, "cuda caching", "kept")
DAY = "2026-01-02T03:04:05+00:00"
IMAGES, FILTERS = (
    TensorArgument((64, 3, 32, 32), "float32"),
    TensorArgument((8, 3, 7, 7), "float32"),
)
CONVOLUTION = Op(
    "aten.convolution.default", encode_arguments([IMAGES, FILTERS, None, [2, 2]], {}), 6_000_000
)
RELU = Op("aten.relu.default", encode_arguments([IMAGES], {}))


def timing(op: Op, environment: Environment, cache: str, seconds: float) -> OpTiming:
    time = spread_of([seconds, seconds * 1.001, seconds * 0.999])
    return OpTiming(op, environment, cache, time, 2e-3, "model resnet50", DAY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database of two environments."""
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as database:
        database.add(
            [
                timing(CONVOLUTION, CPU, "cold", 3e-3),
                timing(CONVOLUTION, CPU, "warm", 2e-3),
                timing(RELU, CPU, "cold", 1e-3),
                timing(RELU, GPU, "cold", 1e-5),
            ]
        )
        spread = spread_of([1e-3])
        database.add_links([LinkTiming("host copy", "one", 10**6, 1, CPU, spread, "here", DAY)])
        model = "resnet50, batch 64, 3x32x32"
        step = IterationTiming("f00d", model, CPU, spread_of([0.5, 0.6]), 0.0, "here", DAY)
        database.add_iterations([step])
    return tmp_path / "p.db"


def call(*arguments: object) -> int:
    return main(["db", *map(str, arguments)])


def test_show_tells_what_there_is(path: Path, capsys: Capture) -> None:
    assert call("show", path) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{path}: ")
    for piece in (
        "schema version 2",
        "1: cpu, AMD EPYC, torch 2.13.0, threads 1, malloc pinned, denormals flushed",
        "2: cuda, NVIDIA H200",
        "ops: 2, of types: 2",
        "timings: 2 cold, 1 warm, 1 of iterations, 1 of links",
        "median standard error 0.06%, below 1 % for 100% of the op timings",
        "measured 2026-01-02 03:04",
        "aten.convolution.default",
        "resnet50, batch 64, 3x32x32",
        "550 ms",
        "host copy",
        "8 Gbit/s",
    ):
        assert piece in shown, piece


def test_show_as_json_is_the_contents(path: Path, capsys: Capture) -> None:
    assert call("show", path, "--json") == 0
    printed = capsys.readouterr().out
    with ProfileDatabase.open(path) as database:
        assert json.loads(printed) == database.contents()


def test_show_of_one_environment_leaves_out_the_others(path: Path, capsys: Capture) -> None:
    assert call("show", path, "--environment", "h200", "--json") == 0
    (only,) = json.loads(capsys.readouterr().out)["environments"]
    assert (only["number"], only["timings"]) == (2, {"cold": 1, "warm": 0})
    for unknown in ("tpu", ""):
        assert call("show", path, "--environment", unknown) == 2
        assert f'no environment "{unknown}"' in capsys.readouterr().err


def test_an_op_is_listed_with_arguments_that_can_be_read(path: Path, capsys: Capture) -> None:
    assert call("show", path, "--op", "convolution") == 0
    name, header, line = capsys.readouterr().out.splitlines()
    assert name == "aten.convolution.default"
    assert " ".join(header.split()) == ("# cold error samples warm error samples GFLOP/s arguments")
    assert " ".join(line.split()) == (
        "1 3 ms 0.06% 3 2 ms 0.06% 3 2 64x3x32x32 float32, 8x3x7x7, -, [2,2]"
    )


def test_a_part_of_a_name_lists_every_op_that_has_it(path: Path, capsys: Capture) -> None:
    assert call("show", path, "--op", "aten") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "aten.convolution.default"
    assert lines[4] == "aten.relu.default"
    assert lines[6:] == ["1 1 ms 0.06% 3 64x3x32x32 float32", "2 10 us 0.06% 3 64x3x32x32 float32"]


def test_an_op_as_json_has_every_environment_and_cache(path: Path, capsys: Capture) -> None:
    assert call("show", path, "--op", "aten.relu", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["timings"]
    assert [(row["environment"], row["cache"], row["median"]) for row in rows] == [
        (1, "cold", 1e-3),
        (2, "cold", 1e-5),
    ]
    assert rows[0]["short_arguments"] == "64x3x32x32 float32"


def test_an_op_that_nobody_timed_is_answered_with_the_nearest(path: Path, capsys: Capture) -> None:
    assert call("show", path, "--op", "convolutoin") == 2
    assert 'no timings of op "convolutoin": did you mean "convolution"?' in capsys.readouterr().err
    assert call("show", path, "--op", "zzz") == 2
    assert f"paracosm db show {path} lists ops" in capsys.readouterr().err


def test_an_empty_database_says_so(tmp_path: Path, capsys: Capture) -> None:
    ProfileDatabase.open(tmp_path / "p.db", create=True).close()
    assert call("show", tmp_path / "p.db") == 0
    assert capsys.readouterr().out.endswith("no timings yet\n")


def test_a_file_that_is_no_database_is_refused_in_a_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text").write_text("nothing of the kind")
    for verb in (["show"], ["export"]):
        assert call(*verb, tmp_path / "text") == 2
        assert capsys.readouterr().err == (
            f'paracosm: "{tmp_path / "text"}" is not a profile database, '
            "which paracosm profile ops makes\n"
        )


def test_check_reads_every_page(path: Path, capsys: Capture) -> None:
    assert call("check", path) == 0
    assert capsys.readouterr().out == f"{path}: intact, 6 timings\n"
    pages = bytearray(path.read_bytes())
    size = int.from_bytes(pages[16:18], "big")
    for begin in range(size, len(pages), size):  # all but the first, which has the schema
        pages[begin : begin + 8] = b"\xff" * 8
    path.write_bytes(pages)
    assert call("check", path) == 2
    assert "is damaged" in capsys.readouterr().err
    assert call("merge", path, "--out", path.with_name("other.db")) == 2
    assert not path.with_name("other.db").exists()


def test_merge_writes_a_new_database_or_adds_to_one(path: Path, capsys: Capture) -> None:
    out = path.with_name("all.db")
    assert call("merge", path, "--out", out) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["environment", "added", "already", "there"]
    assert shown[1].split()[-2:] == ["5", "0"]
    assert shown[-1] == str(out)
    assert call("merge", path, "--into", out, "--json") == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["file"] == str(out)
    cpu, gpu = counts["environments"]
    assert (cpu["hardware"], cpu["added"], cpu["already_there"]) == ("AMD EPYC", 0, 5)
    assert (gpu["added"], gpu["already_there"]) == (0, 1)


def test_merge_replaces_nothing_without_force(path: Path, capsys: Capture) -> None:
    out = path.with_name("all.db")
    out.write_text("precious")
    assert call("merge", path, "--out", out) == 2
    assert "exists: --into adds to it, --force replaces it" in capsys.readouterr().err
    assert call("merge", path.with_name("none.db"), "--out", out, "--force") == 2
    assert out.read_text() == "precious"
    assert call("merge", path, "--out", out, "--force", "--quiet") == 0
    with ProfileDatabase.open(out) as database:
        assert len(database.everything()) == 6
    assert {each.name for each in path.parent.iterdir()} == {"p.db", "all.db"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give either --out"),
        (["--out", "a.db", "--into", "b.db"], "give either --out"),
        (["--into", "b.db", "--force"], "--into only adds"),
        (["--out", "a.db", "--json", "--quiet"], "give one of them"),
    ],
)
def test_merge_refuses_flags_that_contradict_each_other(
    path: Path, capsys: Capture, flags: list[str], message: str
) -> None:
    assert call("merge", path, *flags) == 2
    assert message in capsys.readouterr().err


def test_a_database_is_neither_merged_into_nor_replaced_by_itself(
    path: Path, capsys: Capture
) -> None:
    assert call("merge", path, "--into", path) == 2
    assert "cannot be merged into itself" in capsys.readouterr().err
    assert call("merge", path, "--out", path, "--force") == 2
    assert "is both a source and the output" in capsys.readouterr().err


def test_a_journal_that_an_old_database_left_does_not_spoil_the_new_one(path: Path) -> None:
    out = path.with_name("all.db")
    out.write_text("old")
    journal = path.with_name("all.db-journal")
    journal.write_bytes(b"what a process that was killed would have rolled back")
    assert call("merge", path, "--out", out, "--force", "--quiet") == 0
    assert not journal.exists()


def test_an_export_comes_back_through_merge(path: Path, capsys: Capture) -> None:
    out, again = path.with_name("p.parquet"), path.with_name("again.db")
    assert call("export", path, "--json") == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["file"] == str(out)
    assert exported["timings"] == {"ops": 4, "links": 1, "iterations": 1}
    assert call("merge", out, "--out", again, "--quiet") == 0
    with ProfileDatabase.open(path) as first, ProfileDatabase.open(again) as second:
        assert first.everything() == second.everything()


@pytest.mark.parametrize("folder", ["", ".", "/"])
def test_a_folder_is_not_exported(folder: str, capsys: Capture) -> None:
    assert call("export", folder) == 2
    assert "is a folder, not a profile database" in capsys.readouterr().err


def test_export_replaces_nothing_without_force(path: Path, capsys: Capture) -> None:
    out = path.with_name("p.parquet")
    out.write_text("precious")
    assert call("export", path, "--out", out) == 2
    assert "exists: --force replaces it" in capsys.readouterr().err
    assert call("export", path, "--out", out, "--force", "--environment", "1") == 0
    assert capsys.readouterr().out.startswith(f"{out}: 5 timings, ")
    assert len(load_export(out)) == 5
    assert call("export", path, "--out", path, "--force") == 2
    assert "is the database itself" in capsys.readouterr().err
    assert call("export", path, "--out", path.with_name("p.txt")) == 2
    assert "ends with .parquet" in capsys.readouterr().err

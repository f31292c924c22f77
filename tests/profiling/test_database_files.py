"""A database as a Parquet file, and back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from some_timings import CPU, GPU, iteration, link, timing

from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.files import export, load_export
from paracosm.profiling.database.rows import Timings
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import (
    CACHES,
    LONGEST,
    SHORTEST,
    IterationTiming,
    LinkTiming,
    OpTiming,
    Spread,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.uuids(version=4).map(lambda key: key.hex)
numbers = st.just(0.0) | st.floats(SHORTEST, LONGEST)
counts = st.integers(0, 2**63 - 1)
spreads = st.builds(
    lambda count, mean, variance, quantiles: Spread(
        *(count, max(mean, min(quantiles)), variance), *sorted(quantiles)
    ),
    st.integers(1, 2**40),
    *(numbers, numbers),
    st.tuples(*[numbers] * 4),
)
environments = st.builds(
    Environment, texts, texts, texts, st.integers(0, 256), texts, st.sampled_from(["kept", ""])
)
op_timings = st.builds(
    OpTiming,
    st.builds(Op, texts, texts, counts, counts, counts),
    environments,
    st.sampled_from(CACHES),
    spreads,
    numbers,
    texts,
    texts,
    keys,
)
link_timings = st.builds(
    LinkTiming, texts, texts, counts, counts, environments, spreads, texts, texts, keys
)
iteration_timings = st.builds(
    IterationTiming, texts, texts, environments, spreads, numbers, texts, texts, keys
)
everything = st.builds(
    Timings,
    st.lists(op_timings, max_size=6).map(tuple),
    st.lists(link_timings, max_size=3).map(tuple),
    st.lists(iteration_timings, max_size=3).map(tuple),
)


@settings(max_examples=25, deadline=None)
@given(everything)
def test_an_export_read_into_a_new_database_makes_an_equal_one(timings: Timings) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ProfileDatabase.open(folder / "a.db", create=True) as first:
            first.add_everything(timings)
            held = first.everything()
            assert export(first, folder / "a.parquet") == held
        assert len(held) == len(timings)
        with ProfileDatabase.open(folder / "b.db", create=True) as second:
            second.add_everything(load_export(folder / "a.parquet"))
            assert second.everything() == held


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ProfileDatabase]:
    ops = (timing("a"), timing("b", cache="warm"), timing("c", environment=GPU))
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as opened:
        opened.add_everything(Timings(ops, (link("l"),), (iteration("i"),)))
        yield opened


def test_a_file_of_one_environment_holds_no_other(
    database: ProfileDatabase, tmp_path: Path
) -> None:
    export(database, tmp_path / "p.parquet", [GPU])
    assert load_export(tmp_path / "p.parquet") == Timings((timing("c", environment=GPU),))


def test_a_file_that_was_there_is_replaced_at_the_end_or_not_at_all(
    database: ProfileDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.parquet"
    path.write_text("old")

    def full(_table: object, where: Path, **_options: object) -> None:
        where.write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "write_table", full)
        with pytest.raises(OSError, match=r"No space left on device: .*p.parquet"):
            export(database, path)
    assert path.read_text() == "old"
    export(database, path)
    assert len(load_export(path)) == 5
    assert {each.name for each in tmp_path.iterdir()} == {"p.db", "p.parquet"}


def test_a_suffix_that_nobody_knows_is_refused(database: ProfileDatabase, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends with \.parquet"):
        export(database, tmp_path / "p.xlsx")


def changed(database: ProfileDatabase, path: Path, column: str, values: list[object]) -> Path:
    """Export, and replace one column as another program might."""
    export(database, path)
    table = parquet.read_table(path)
    index = table.column_names.index(column)
    parquet.write_table(table.set_column(index, column, pyarrow.array(values)), path)
    return path


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("table", ["ops", "ops", "op", "links", "iterations"], "row 3: table op, not one of ops,"),
        ("key", ["a", None, "c", "d", "e"], "row 2: no key"),
        ("mean", [1.0, 1.0, float("nan"), 1.0, 1.0], "mean is nan, not 0, or 1e-15"),
        ("count", [1, 0, 1, 1, 1], "0 samples"),
        ("cache", ["cold", "tepid", "cold", None, None], "cache tepid, not cold or warm"),
        ("count", ["many"] * 5, '"count" has values that are no int64'),
        ("count", [1.5] * 5, '"count" has values that are no int64'),
    ],
)
def test_a_file_with_a_bad_value_is_refused_with_the_place(
    database: ProfileDatabase, tmp_path: Path, column: str, values: list[object], message: str
) -> None:
    path = changed(database, tmp_path / "p.parquet", column, values)
    with pytest.raises(InputError) as caught:
        load_export(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_whole_numbers_that_another_program_wrote_as_floats_are_read(
    database: ProfileDatabase, tmp_path: Path
) -> None:
    path = changed(database, tmp_path / "p.parquet", "flops", [32.0, 32.0, 32.0, None, None])
    assert load_export(path) == database.everything()


def test_files_that_are_no_exports_are_refused(database: ProfileDatabase, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    with pytest.raises(InputError, match="no such file"):
        load_export(path)
    path.write_text("PAR1 and nothing else")
    with pytest.raises(InputError, match="the export of a profile database is cut off"):
        load_export(path)
    export(database, path)
    table = parquet.read_table(path)
    parquet.write_table(table.drop_columns(["p90"]), path)
    with pytest.raises(InputError, match='without a column "p90"'):
        load_export(path)
    parquet.write_table(table.replace_schema_metadata({"paracosm.profiles": "9"}), path)
    with pytest.raises(InputError, match=r"an export of version 9"):
        load_export(path)
    parquet.write_table(table.replace_schema_metadata({"paracosm.profiles": b"\xff"}), path)
    with pytest.raises(InputError, match="an export of version \ufffd, and"):
        load_export(path)
    export(database, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="the export of a profile database is cut off"):
        load_export(path)


def test_timings_go_by_environment() -> None:
    both = Timings((timing("a"), timing("b", environment=GPU)), (link("l"),))
    assert both.by_environment() == {
        CPU: Timings((timing("a"),), (link("l"),)),
        GPU: Timings((timing("b", environment=GPU),)),
    }

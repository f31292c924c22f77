"""What goes into a profile database comes out of it, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_timings import CPU, DAY, GPU, RELU, iteration, link, some, timing

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.rows import pool, pool_spreads
from paracosm.profiling.samples import OpTiming, spread_of


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ProfileDatabase]:
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as opened:
        yield opened


def test_what_is_added_comes_back_equal_after_reopening(tmp_path: Path) -> None:
    ops = [timing("a"), timing("b", cache="warm"), timing("c", environment=GPU)]
    with ProfileDatabase.open(tmp_path / "deep" / "p.db", create=True) as made:
        assert (made.add(ops), made.add_links([link("d")])) == (3, 1)
        assert made.add_iterations([iteration("e")]) == 1
    with ProfileDatabase.open(tmp_path / "deep" / "p.db") as again:
        assert sorted(again.timings(), key=lambda each: each.key) == ops
        assert again.links() == [link("d")]
        assert again.iterations() == [iteration("e")]
        assert again.environments() == [(CPU, 2), (GPU, 1)]


def test_timings_are_chosen_by_environment_name_and_cache(database: ProfileDatabase) -> None:
    add = Op("aten.add.Tensor", "x")
    database.add([timing("a"), timing("b", cache="warm"), timing("c", add), timing("d", add, GPU)])
    assert {timing.key for timing in database.timings(CPU)} == {"a", "b", "c"}
    assert {timing.key for timing in database.timings(name="aten.add.Tensor")} == {"c", "d"}
    assert {timing.key for timing in database.timings(cache="warm")} == {"b"}
    assert database.timings(GPU, "aten.relu.default") == []


def test_an_environment_in_other_words_is_the_same(tmp_path: Path) -> None:
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as database:
        database.add([timing("a")])
        newer = CPU.to_json().replace('"cpu"', '"cpu","clock":"3 GHz"')
        database._connection.execute("UPDATE environments SET text = ?", (newer,))
        database.add([timing("b")])
        assert database.environments() == [(CPU, 2)]
        assert {timing.key for timing in database.timings(CPU)} == {"a", "b"}


def test_links_and_iterations_are_chosen_by_environment_and_graph(
    database: ProfileDatabase,
) -> None:
    database.add_links([link("a"), link("b", environment=GPU)])
    other = replace(iteration("d"), fingerprint="beef")
    database.add_iterations([iteration("c"), other, iteration("e", GPU)])
    assert database.links(GPU) == [link("b", environment=GPU)]
    assert database.iterations("beef") == [other]
    assert {iteration.key for iteration in database.iterations("f00d")} == {"c", "e"}
    assert database.iterations("f00d", CPU) == [iteration("c")]


def test_the_same_key_twice_is_one_set_of_samples(database: ProfileDatabase) -> None:
    assert database.add([timing("a"), timing("a")]) == 1
    assert database.add([timing("a"), timing("b")]) == 1
    assert [timing.key for timing in database.timings()] == ["a", "b"]


def test_the_answer_does_not_depend_on_the_order_in_which_it_was_told(tmp_path: Path) -> None:
    timings = [*some(20), *some(20, "gpu", GPU), timing("x"), timing("y")]
    answers = []
    for name, order in (("a", timings), ("b", timings[::-1])):
        with ProfileDatabase.open(tmp_path / name, create=True) as opened:
            for each in order:
                opened.add([each])
            answers.append(opened.timings())
    assert answers[0] == answers[1]
    assert len(answers[0]) == 42


def test_the_counts_of_the_newest_measurement_hold_whoever_comes_last(tmp_path: Path) -> None:
    old = timing("a", replace(RELU, flops=10), measured_at="2025-05-05T00:00:00+00:00")
    new = timing("b", replace(RELU, flops=20), measured_at="2026-01-01T00:00:00+00:00")
    for name, order in (("one", [old, new]), ("two", [new, old])):
        with ProfileDatabase.open(tmp_path / name, create=True) as opened:
            for each in order:
                opened.add([each])
            assert [timing.op.flops for timing in opened.timings()] == [20, 20], name


def test_find_pools_what_is_known_and_leaves_out_the_rest(database: ProfileDatabase) -> None:
    database.add([timing("a", samples=(1.0, 2.0)), timing("b", samples=(6.0,))])
    database.add([timing("c", cache="warm"), timing("d", environment=GPU)])
    # Every character that JSON or SQL could trip over.
    odd = Op("aten.odd", "\"quoted' \\ ünï\u2028 {}[]%_")
    database.add([timing("e", odd)])
    found = database.find([RELU, RELU, odd, Op("aten.unknown")], CPU, "cold")
    assert set(found) == {(RELU.name, RELU.arguments), (odd.name, odd.arguments)}
    pooled = found[RELU.name, RELU.arguments].time
    assert (pooled.count, pooled.mean, pooled.minimum) == (3, 3.0, 1.0)
    assert found[odd.name, odd.arguments] == timing("e", odd)
    assert database.find([], CPU, "cold") == {}


def test_a_cache_that_nobody_knows_is_no_empty_answer(database: ProfileDatabase) -> None:
    with pytest.raises(InputError, match='unknown cache "col": did you mean "cold"'):
        database.find([RELU], CPU, "col")
    with pytest.raises(InputError, match="unknown cache"):
        database.timings(cache="")


def test_find_asks_the_database_once_for_thousands_of_ops(database: ProfileDatabase) -> None:
    timings = some(3000)
    database.add(timings)
    statements: list[str] = []
    database._connection.set_trace_callback(statements.append)
    assert len(database.find([timing.op for timing in timings], CPU, "cold")) == 3000
    assert len(statements) == 2  # the environments first


samples = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8)


@given(st.lists(samples, min_size=1, max_size=5))
def test_pooled_statistics_are_those_of_all_samples_together(sets: list[list[float]]) -> None:
    everything = np.concatenate(sets)
    pooled = pool_spreads([spread_of(each) for each in sets])
    assert pooled.count == len(everything)
    assert pooled.minimum == everything.min()
    assert pooled.mean == pytest.approx(everything.mean(), rel=1e-12)
    variance = everything.var(ddof=1) if len(everything) > 1 else 0.0
    assert pooled.variance == pytest.approx(variance, rel=1e-9, abs=1e-12 * everything.max() ** 2)
    for quantile in ("p10", "median", "p90"):
        parts = [getattr(spread_of(each), quantile) for each in sets]
        value = getattr(pooled, quantile)
        assert min(parts) * (1 - 1e-12) <= value <= max(parts) * (1 + 1e-12)


def test_pooled_quantiles_and_probes_are_weighted_by_the_number_of_samples() -> None:
    sets = [
        timing("a", samples=(1.0, 1.0, 1.0), probe=2e-3, source="grid paper"),
        timing("b", samples=(5.0,), probe=6e-3, measured_at="2026-02-02"),
        timing("c", samples=(5.0,) * 4),  # nobody probed
    ]
    (pooled,) = pool(sets).values()
    assert pooled.time.median == pytest.approx((3 * 1 + 1 * 5 + 4 * 5) / 8)
    assert pooled.probe == pytest.approx((3 * 2e-3 + 1 * 6e-3) / 4)
    assert (pooled.source, pooled.measured_at) == ("grid paper, model resnet50", "2026-02-02")
    assert pooled.key == next(iter(pool(sets[::-1]).values())).key not in {"a", "b", "c"}
    assert pool(sets[:1]) == {(RELU.name, RELU.arguments): sets[0]}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (replace(timing("a"), cache="tepid"), "cache tepid, not cold or warm"),
        (replace(timing("a"), key=""), "its key is missing"),
        (replace(timing("a"), probe=float("nan")), "probe is nan"),
        (replace(timing("a"), time=replace(timing("a").time, mean=float("inf"))), "mean is inf"),
        (replace(timing("a"), time=replace(timing("a").time, count=0)), "0 samples"),
        (timing("a", replace(RELU, flops=2**63)), "flops is 9223372036854775808"),
        (timing("a", samples=(1e300,)), r"mean is 1e\+300, not 0, or 1e-15 to 1e\+15"),
        (timing("a", probe=1e-200), "probe is 1e-200, not 0, or 1e-15"),
        (
            replace(timing("a"), time=replace(timing("a").time, mean=1e-4)),
            "minimum is 0.001, above",
        ),
    ],
)
def test_a_timing_that_cannot_be_is_refused_and_nothing_is_added(
    database: ProfileDatabase, bad: OpTiming, message: str
) -> None:
    with pytest.raises(InputError, match=f"timing of aten.relu.default: {message}"):
        database.add([timing("fine"), bad])
    assert database.timings() == []


def test_numbers_of_numpy_are_kept_as_numbers(database: ProfileDatabase) -> None:
    odd = replace(RELU, flops=np.int64(7))  # type: ignore[arg-type]
    database.add([timing("a", odd, probe=np.float32(0.5))])  # type: ignore[arg-type]
    (found,) = database.timings()
    assert (found.op.flops, found.probe) == (7, 0.5)


def test_between_two_transactions_everything_stands_in_the_one_file(tmp_path: Path) -> None:
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as opened:
        opened.add(some(50))
        opened.timings()
        assert [path.name for path in tmp_path.iterdir()] == ["p.db"]
        shutil.copy(tmp_path / "p.db", tmp_path / "copy.db")
    with ProfileDatabase.open(tmp_path / "copy.db") as copy:
        assert len(copy.timings()) == 50


def test_an_interrupted_add_leaves_nothing_behind(
    database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add(some(3, "before"))
    connection = database._connection
    handled = 0

    def interrupt() -> int:
        nonlocal handled
        handled += 1
        return int(handled > 50)  # SQLite stops what it is doing, in the middle of the rows

    connection.set_progress_handler(interrupt, 100)
    with pytest.raises(InputError, match="interrupted"):
        database.add(some(1000))
    connection.set_progress_handler(None, 0)
    assert len(database.timings()) == 3
    assert database.add(some(1000)) == 1000


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from some_timings import some
from paracosm.profiling.database import ProfileDatabase
path, name = sys.argv[1:3]
print("ready", flush=True)
sys.stdin.readline()
with ProfileDatabase.open(path, create=True) as database:
    for part in range(25):
        database.add(some(10, f"{name}{part} "))
        database.add(some(10, f"both{part} "))
"""


def test_two_writers_at_once_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    folder = str(Path(__file__).parent)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:  # the file is not there yet: both make it
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=300)
    assert [writer.returncode for writer in writers] == [0, 0]
    with ProfileDatabase.open(path) as database:
        keys = [timing.key for timing in database.timings()]
    assert len(keys) == len(set(keys)) == 3 * 250


def test_contents_count_what_is_there(database: ProfileDatabase) -> None:
    steady, shaky = (1.0, 1.001, 0.999), (1.0, 2.0, 3.0)
    database.add(
        [
            timing("a", samples=steady),
            timing("b", samples=steady, cache="warm", measured_at="2025-12-31"),
            timing("c", samples=shaky, source="grid paper"),
            timing("d", Op("aten.add.Tensor", "x"), samples=steady),
            timing("e", environment=GPU, samples=(2.0,)),
        ]
    )
    database.add_links([link("f", 1000), link("g", 4000)])
    database.add_iterations([iteration("h", median=0.5), iteration("i", median=0.7)])
    found = database.contents()
    cpu, gpu = found["environments"]
    assert (cpu["number"], cpu["hardware"], gpu["number"]) == (1, "AMD EPYC", 2)
    assert cpu["timings"] == {"cold": 3, "warm": 1}
    assert (cpu["ops"], cpu["op_types"], cpu["samples"]) == (2, 2, 12)
    assert (cpu["links"], cpu["iterations"]) == (2, 2)
    assert (cpu["first_measured_at"], cpu["last_measured_at"]) == ("2025-12-31", DAY)
    error = 0.001 / np.sqrt(3)
    assert cpu["standard_error"]["median"] == pytest.approx(error)
    assert cpu["standard_error"]["share_below_1_percent"] == 0.75
    assert gpu["standard_error"] == {"median": None, "share_below_1_percent": None}
    assert found["models"] == {"resnet50": 4}
    assert found["ops"] == [
        {"name": "aten.relu.default", "arguments": 1, "timings": 4},
        {"name": "aten.add.Tensor", "arguments": 1, "timings": 1},
    ]
    (step,) = found["iterations"]
    assert (step["environment"], step["sets"], step["count"]) == (1, 2, 2)
    assert step["median"] == pytest.approx(0.6)
    (way,) = found["links"]
    assert (way["smallest"], way["largest"], way["sets"]) == (1000, 4000, 2)
    assert way["highest_bandwidth"] == pytest.approx(4e6)
    only = database.contents([GPU])
    assert [each["number"] for each in only["environments"]] == [2]
    assert only["links"] == only["iterations"] == []
    assert found["size"] == database.path.stat().st_size


def test_causal_attention_of_earlier_versions_is_read_in_half(database: ProfileDatabase) -> None:
    """They counted all scores: 2 products of 2 x 2 x 4 x 8 x 8 x 16, of which kernels do half."""
    tensors = [TensorArgument((2, 4, 8, 16), "float32")] * 3
    name = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    full = 2 * 2 * 2 * 4 * 8 * 8 * 16
    causal = Op(name, encode_arguments([*tensors, 0.0, True], {}), full, 3, 1)
    whole = Op(name, encode_arguments(tensors, {}), full, 3, 1)
    database.add([timing("a", causal), timing("b", whole)])
    read = {timing.key: timing.op.flops for timing in database.timings()}
    assert read == {"a": full // 2, "b": full}

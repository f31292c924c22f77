"""Shards by a function of the user's own, and by a file of client ids."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from paracosm.errors import InputError
from paracosm.models import load_data
from paracosm.models.own_shards import check_disjoint
from paracosm.models.shards import check_scheme, shards_of

DIGITS = load_data("digits")
EXAMPLES = len(DIGITS.train_x)

MODULE = """
import numpy as np

def parts(data, clients, rng):
    return np.array_split(rng.permutation(len(data.train_x)), clients)

def by_label(data):
    labels = data.train_y.numpy()
    return {f"digit {label}": np.flatnonzero(labels == label) for label in range(10)}

def two(data):
    return [[0, 1], [2]]

def nothing(clients):
    return [[0]] * (clients - 1) + [[]]

def beyond(data):
    return [[0], [1], [len(data.train_x)]]

def masks(data):
    return [np.ones(len(data.train_x), bool)] * 3

def number():
    return 3

def fails():
    yield [0]
    raise KeyError("writer 7")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


def shards(scheme: str, clients: int, seed: int = 0) -> list[list[int]]:
    made = shards_of(DIGITS, clients, scheme, np.random.default_rng(seed))
    assert [made.size_of(client) for client in range(clients)] == [len(shard) for shard in made]
    return [shard.tolist() for shard in made]


def test_a_function_divides_the_examples() -> None:
    found = shards("mine.py:parts", 7)
    assert sorted(chain(*found)) == list(range(EXAMPLES))
    assert found == shards("mine.py:parts", 7)
    assert found != shards("mine.py:parts", 7, seed=1)
    labels = DIGITS.train_y.numpy()
    assert [set(labels[shard]) for shard in shards("mine.py:by_label", 10)] == [
        {label} for label in range(10)
    ]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("two", "returned the shards of 2 clients, not 3: give --clients 2"),
        ("nothing", "client 2 has no examples"),
        ("beyond", "client 2 has example 1437, and training examples are 0 to 1436"),
        ("masks", "client 0 has bool of shape"),
        ("number", "returned int, not an array of indices for each client"),
        ("fails", "failed: KeyError: 'writer 7'"),
        ("absent", 'mine.py has no "absent"'),
    ],
)
def test_what_is_no_division_is_said_in_one_line(function: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shards(f"mine.py:{function}", 3)


def of_parquet(ids: np.ndarray) -> Path:
    path = Path("ids.parquet")
    table = pa.table({"client": pa.array(ids.tolist()).dictionary_encode(), "at": range(len(ids))})
    parquet.write_table(table, path)
    return path


def of_csv(ids: np.ndarray) -> Path:
    path = Path("ids.csv")
    path.write_text("\n".join(["writer", *map(str, ids.tolist())]) + "\n")
    return path


def of_npy(ids: np.ndarray) -> Path:
    np.save("ids.npy", ids)
    return Path("ids.npy")


def of_npz(ids: np.ndarray) -> Path:
    np.savez("ids.npz", client=ids, other=np.zeros(3))
    return Path("ids.npz")


@pytest.mark.parametrize("write", [of_parquet, of_csv, of_npy, of_npz])
@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_a_file_says_whose_each_example_is(write: Callable[[np.ndarray], Path], kind: str) -> None:
    numbers = np.random.default_rng(5).integers(0, 6, EXAMPLES) * 3 + 2
    ids = numbers if kind == "numbers" else np.array([f"writer {number:02}" for number in numbers])
    path = write(ids)
    check_scheme(str(path))
    expected = [np.flatnonzero(numbers == each).tolist() for each in range(2, 20, 3)]
    assert shards(str(path), 6) == expected


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.arange(9) % 3, "has 9 client ids, and the data set 1,437 training examples"),
        (np.arange(EXAMPLES) % 4, "it has 4 clients, not 3: give --clients 4"),
        (np.arange(EXAMPLES) % 2 * 2, "has 2 clients, not 3: .*; client 1 has no examples"),
        (np.zeros((EXAMPLES, 1), int), "are one vector, not of shape"),
        (np.where(np.arange(EXAMPLES) == 5, np.nan, 0), "example 5 has no client id"),
        (np.zeros(EXAMPLES, complex), "are numbers or texts, not complex128"),
        (np.array([None] * EXAMPLES), "no NumPy file of client ids"),
    ],
)
def test_ids_that_fit_no_clients_are_refused(ids: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shards(str(of_npy(ids)), 3)


def test_tables_that_say_nothing_of_clients_are_refused() -> None:
    Path("a.csv").write_text("writer,age\n1,2\n")
    with pytest.raises(InputError, match="the column client is missing: it has writer, age"):
        shards("a.csv", 1)
    parquet.write_table(pa.table({}), "none.parquet")
    with pytest.raises(InputError, match="the column client is missing: it has none"):
        shards("none.parquet", 1)
    Path("b.csv").write_text("client,x\n1,2\n,3\n")
    with pytest.raises(InputError, match="example 1 has no client id"):
        shards("b.csv", 1)
    with pytest.raises(InputError, match=r"shards: no such file: c\.parquet"):
        check_scheme("c.parquet")
    np.savez("d.npz", a=np.zeros(2), b=np.zeros(2))
    with pytest.raises(InputError, match=r'\(a, b\) call the one of client ids "client"'):
        shards("d.npz", 1)


def test_shards_are_told_to_be_disjoint() -> None:
    check_disjoint("x", [np.array([3, 1]), np.array([2])], 4)
    with pytest.raises(InputError, match="clients 0 and 2 both have example 1,"):
        check_disjoint("x", [np.array([3, 1]), np.array([2]), np.array([0, 1])], 4)
    with pytest.raises(InputError, match="client 1 has example 2 twice"):
        check_disjoint("x", [np.array([3]), np.array([2, 2])], 4)

"""Data by client: factories, the published synthetic data, LEAF's and Hugging Face's folders."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paracosm.errors import InputError, MissingExtraError
from paracosm.models import DataSet, client_data, load_data
from paracosm.models.client_data import ClientData, load_training_data
from paracosm.models.client_sets import synthetic
from paracosm.models.data_sets import check_trainable, is_by_client

HAS_DATASETS = importlib.util.find_spec("datasets") is not None

MODULE = """
import numpy as np
from paracosm.models import DataSet

def of(client, labels=3):
    rng = np.random.default_rng(client)
    size = 4 + client
    return rng.normal(client, 1, (size, 5)), rng.integers(0, labels, size)

def with_test(client):
    x, y = of(client)
    return x[2:], y[2:], x[:2], y[:2]

class Lazy:
    def __init__(self, count):
        self.count, self.made = count, []
    def __len__(self):
        return self.count
    def __getitem__(self, client):
        self.made.append(client)
        return with_test(client)

def mapping(clients):
    return {f"hospital {k}": with_test(k) for k in range(clients)}

def generated(clients):
    for client in range(10**9):
        yield with_test(client)

def common(clients):
    x, y = of(99)
    return [of(k) for k in range(clients)], x, y

def some_tests(clients):
    return [with_test(k) if k % 2 else of(k) for k in range(clients)]

def data_sets(clients):
    import torch
    t = torch.from_numpy
    return [DataSet("", *map(t, with_test(k)), 3) for k in range(clients)]

def no_tests(clients):
    return [of(k) for k in range(clients)]

def fewer(clients):
    return (with_test(k) for k in range(clients - 1))

def empty_one(clients):
    return {k: with_test(k) if k != 1 else (np.zeros((0, 5)), np.zeros(0, int)) for k in range(3)}

def shapes(clients):
    return [with_test(0), (np.zeros((2, 4)), np.zeros(2, int))]

def kinds(clients):
    return [with_test(0), (np.zeros((2, 5)), np.zeros(2))]

def lengths(clients):
    return [with_test(0), (np.zeros((2, 5)), np.zeros(3, int))]

def three_parts(clients):
    return {0: (1, 2, 3)}

def failing(clients):
    class Failing(dict):
        def __getitem__(self, key):
            raise OSError("no disk")
    return Failing({0: 0})

def arrays():
    x, y = of(9)
    return x, y, x, y
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


def load(name: str, clients: int = 4, examples: int = 2000) -> ClientData:
    found = load_training_data(name, None, clients, examples)
    assert isinstance(found, ClientData)
    return found


@pytest.mark.parametrize(
    "factory", ["mapping", "generated", "common", "some_tests", "data_sets", "no_tests"]
)
def test_factories_return_clients(factory: str) -> None:
    if factory == "no_tests":
        with pytest.raises(InputError, match="no client has test examples: return"):
            load(f"mine.py:{factory}")
        return
    data = load(f"mine.py:{factory}")
    mine: dict[str, Any] = {}
    exec(MODULE, mine)
    assert (len(data), data.input_shape, data.classes) == (4, (5,), 3)
    is_whole = factory == "common"
    for client in range(4):
        x, y = mine["of"](client)
        cut = 0 if is_whole or (factory == "some_tests" and client % 2 == 0) else 2
        assert data.size_of(client) == len(x) - cut
        inputs, targets = data.train_examples(data[client])
        assert inputs.dtype == torch.float32
        assert np.allclose(inputs, x[cut:])
        assert targets.tolist() == y[cut:].tolist()
    # Numbers of several clients, in any order, are examples in that order.
    mixed = np.concatenate([data[2][:2], data[0][1:], data[2][1:3], data[1]])
    expected = [data.train_examples(np.array([number]))[0] for number in mixed]
    assert torch.equal(data.train_examples(mixed)[0], torch.cat(expected))
    assert len(data.train_examples(mixed[:0])[0]) == 0
    assert len(data.test[0]) == {"common": 103, "some_tests": 4}.get(factory, 8)
    assert data.has_own_tests == (not is_whole)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("fewer", "has only 3 clients, not 4: give --clients 3"),
        ("empty_one", "has only 3 clients, not 4"),
        ("failing", "has only 1 clients"),
        ("three_parts", "has only 1 clients"),
    ],
)
def test_a_factory_that_has_fewer_clients_is_refused(factory: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(f"mine.py:{factory}")


@pytest.mark.parametrize(
    ("factory", "clients", "message"),
    [
        ("empty_one", 3, "client 1: train_x has no examples"),
        ("shapes", 2, r"client 1: train has inputs of shape \(4,\), others \(5,\)"),
        ("kinds", 2, "client 1: train has targets of another type"),
        ("lengths", 2, "client 1: train has 2 inputs and 3 targets"),
        ("three_parts", 1, r"client 0 has tuple, not \(x, y\)"),
        ("failing", 1, "client 0 failed: OSError: no disk"),
    ],
)
def test_a_client_that_is_unlike_others_is_named(factory: str, clients: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(f"mine.py:{factory}", clients)


def test_what_is_one_set_stays_one() -> None:
    found = load_training_data("mine.py:arrays", None, 4, 9)
    assert isinstance(found, DataSet)
    for factory in ("mapping", "common"):
        with pytest.raises(InputError, match="comes by client, which only train can use"):
            _loaded(factory)
    x = np.zeros((4, 2))
    assert not is_by_client((x, x, x, x))
    assert not is_by_client([[1, 2], [3, 4]])
    assert not is_by_client("text")
    assert not is_by_client(3)


def _loaded(factory: str) -> None:
    Path("fixed.py").write_text(f"{MODULE}\ndef factory():\n    return {factory}(3)\n")
    load_data("fixed.py:factory")


class Counted(Mapping[int, Any]):
    """Clients that are made anew each time, of whom it is noted when."""

    def __init__(self, count: int, labels: Sequence[int] = (0, 1)) -> None:
        self.count, self.labels, self.made = count, labels, list[int]()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __getitem__(self, client: int) -> Any:
        self.made.append(client)
        x = np.full((10, 1000), client, np.float32)
        y = np.array([self.labels[0]] * 9 + [self.labels[client == 777]])
        return x, y, x, y


def made_of(clients: Counted, **arguments: Any) -> ClientData:
    source = clients.__getitem__
    return ClientData("x", len(clients), source, None, arguments.get("classes"), 100)


def test_clients_are_made_when_they_are_drawn_and_dropped_when_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_data, "_KEPT", 5 * 80_160)
    clients = Counted(100_000)
    data = made_of(clients)
    assert len(clients.made) == len(set(clients.made)) == 200
    assert len(data.sample[0]) == len(data.test[0]) == 100
    clients.made.clear()
    for client in (5, 6, 7, 8, 9, 5, 6):  # all of whom fit
        assert (data.train_examples(data[client])[0] == client).all()
    assert clients.made == [5, 6, 7, 8, 9]
    assert data.size_of(11) == 10  # in the place of 7
    data.of(5)
    assert clients.made == [5, 6, 7, 8, 9, 11]
    data.of(7)
    assert clients.made[-1] == 7


def test_a_class_that_nobody_knew_of_is_said() -> None:
    data = made_of(Counted(1000, (1, 5)))
    assert data.classes == 2
    with pytest.raises(InputError, match="client 777: train has label 5, and those of the 200"):
        data.of(777)
    assert made_of(Counted(1000, (1, 5)), classes=6).of(777).train_y.max() == 5


def published(alpha: float, beta: float, clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Li et al. 2020, section 5.1, one example at a time, in the order of the authors' program."""
    rng = np.random.RandomState(0)
    sizes = rng.lognormal(4, 2, clients).astype(int) + 50
    u, b = rng.normal(0, alpha, clients), rng.normal(0, beta, clients)
    covariance = np.diag([float(j + 1) ** -1.2 for j in range(60)])
    v = [rng.normal(b[k], 1, 60) for k in range(clients)]
    found = []
    for k in range(clients):
        w, c = rng.normal(u[k], 1, (60, 10)), rng.normal(u[k], 1, 10)
        x = rng.multivariate_normal(v[k], covariance, sizes[k])
        found.append((x, np.array([((each[:, None] * w).sum(0) + c).argmax() for each in x])))
    return found


@pytest.mark.parametrize(
    ("alpha", "beta"), [(1.0, 1.0), pytest.param(0.0, 0.0, marks=pytest.mark.slow)]
)
def test_synthetic_data_are_those_of_the_published_program(alpha: float, beta: float) -> None:
    for made, (x, y) in zip(synthetic(3, alpha, beta), published(alpha, beta, 3), strict=True):
        train_x, train_y, test_x, test_y = made
        cut = int(0.9 * len(x))
        assert len(train_x) == cut
        assert np.concatenate([train_x, test_x]) == pytest.approx(x, rel=1e-4, abs=1e-5)
        assert np.concatenate([train_y, test_y]).tolist() == y.tolist()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synthetic(1, 1, 1)", "takes the parameters alpha, beta"),
        ("synthetic(gamma=1)", "gamma"),
        ("synthetic(x, 1)", "alpha must be a number from 0 to 100, not x"),
        ("sinthetic(1, 1)", "unknown data set"),
    ],
)
def test_a_data_set_that_is_not_there_is_refused_by_its_name(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_trainable("mlp", name)
    with pytest.raises(InputError, match="takes no data folder"):
        load_training_data("synthetic(1, 1)", Path(), 3, 9)
    with pytest.raises(InputError, match="is read from a folder: give --data-dir"):
        load_training_data("leaf", None, 3, 9)
    with pytest.raises(InputError, match="at most 10,000 clients"):
        synthetic(10_001, 1, 1)


def write_leaf(folder: Path, part: str, name: str, users: dict[str, Any]) -> None:
    content = {
        "users": list(users),
        "num_samples": [len(own["x"]) for own in users.values()],
        "user_data": users,
    }
    (folder / part).mkdir(exist_ok=True, parents=True)
    (folder / part / name).write_text(json.dumps(content))


def test_a_folder_of_leaf_is_read_by_user(tmp_path: Path) -> None:
    folder = tmp_path / "femnist"
    write_leaf(folder, "train", "a.json", {"f1": {"x": [[1, 2], [3, 4]], "y": [0, 1]}})
    write_leaf(folder, "train", "b.json", {"f0": {"x": [[5.5, 6]], "y": [2]}})
    write_leaf(folder, "test", "a.json", {"f0": {"x": [[7, 8]], "y": [1]}})
    data = load_training_data("leaf", folder, 2, 10)
    assert isinstance(data, ClientData)
    assert data.of(0).train_x.tolist() == [[1, 2], [3, 4]]
    assert data.of(1).train_y.tolist() == [2]
    assert data.of(0).test_x is None
    assert data.test[0].tolist() == [[7, 8]]
    assert data.classes == 3
    images = load_training_data("leaf(shape=1x2x1)", folder, 2, 10)
    assert isinstance(images, ClientData)
    assert images.of(0).train_x.tolist() == [[[[1], [2]]], [[[3], [4]]]]
    with pytest.raises(InputError, match='user "f1" has examples of 2 numbers, not 1x3'):
        load_training_data("leaf(shape=1x3)", folder, 2, 10)
    with pytest.raises(InputError, match='write shape=1x28x28, not "3x"'):
        load_training_data("leaf(shape=3x)", folder, 2, 10)


@pytest.mark.parametrize(
    ("part", "user", "own", "message"),
    [
        ("train", "f1", {"x": [], "y": []}, 'user "f1" has no examples'),
        ("train", "f0", {"x": [[1, 2]], "y": [1]}, 'user "f0" is in several files'),
        ("train", "f1", {"x": [[1, 2], [3]], "y": [1, 1]}, "examples of different lengths"),
        ("train", "f1", {"x": ["ab"], "y": ["c"]}, 'user "f1" has texts as x'),
        ("test", "f1", {"x": [[1, 2]], "y": [1]}, 'user "f1" has test examples, but none in'),
    ],
)
def test_a_folder_of_leaf_that_is_broken_names_the_user(
    tmp_path: Path, part: str, user: str, own: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=r"no train/\*.json"):
        load_training_data("leaf", tmp_path, 2, 10)
    write_leaf(tmp_path, "train", "a.json", {"f0": {"x": [[5.5, 6]], "y": [2]}})
    write_leaf(tmp_path, part, "b.json", {user: own})
    with pytest.raises(InputError, match=message):
        load_training_data("leaf", tmp_path, 2, 10)


@pytest.mark.skipif(HAS_DATASETS, reason="datasets is installed")
def test_the_library_that_reads_hugging_face_s_folders_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install \"paracosm\[datasets\]\""):
        load_training_data("huggingface(client=writer)", Path(), 3, 9)


def test_a_folder_of_hugging_face_is_read_by_client(tmp_path: Path) -> None:
    datasets, image = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 4, 4), np.uint8)
    labels, writers = rng.integers(0, 3, 12), [f"w{k % 3}" for k in range(12)]
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(5),
            "writer": datasets.Value("string"),
        }
    )
    pictures = [image.fromarray(each) for each in images]
    columns = {"image": pictures, "label": labels, "writer": writers}
    whole = datasets.Dataset.from_dict(columns, features=features)
    splits = {"train": whole.select(range(9)), "test": whole.select(range(9, 12))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "set"))
    data = load_training_data("huggingface(client=writer)", tmp_path / "set", 3, 100)
    assert isinstance(data, ClientData)
    assert (data.classes, data.input_shape, data.has_own_tests) == (5, (1, 4, 4), True)
    for client in range(3):
        own = data.of(client)
        assert np.allclose(own.train_x[:, 0], images[client:9:3] / np.float32(255))
        assert own.train_y.tolist() == labels[client:9:3].tolist()
        assert own.test_y is not None
        assert own.test_y.tolist() == [labels[9 + client]]
    shared = load_training_data(
        "huggingface(inputs=image, targets=label)", tmp_path / "set", 3, 100
    )
    assert isinstance(shared, DataSet)
    assert shared.train_x.shape == (9, 1, 4, 4)
    with pytest.raises(InputError, match='train has no column "age": of image, label, writer'):
        load_training_data("huggingface(client=age, inputs=image)", tmp_path / "set", 3, 100)
    splits["train"] = whole.select([0, 1, 3])
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "lacking"))
    with pytest.raises(InputError, match='client "w2" has rows in test, but none in train'):
        load_training_data("huggingface(client=writer)", tmp_path / "lacking", 2, 100)
    with pytest.raises(InputError, match="more than one column of inputs"):
        load_training_data("huggingface", tmp_path / "set", 3, 100)
    with pytest.raises(InputError, match="no data set of Hugging Face"):
        load_training_data("huggingface", tmp_path, 3, 100)

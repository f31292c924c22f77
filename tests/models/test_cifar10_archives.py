"""The CIFAR-10 reader on small archives in both formats, and on broken ones."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.models import load_data
from paracosm.models.cifar10 import read_archive

RECORDS = 4
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


def images(number: int) -> tuple[np.ndarray, list[int]]:
    """Pixels and labels of one file."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (RECORDS, 3072), dtype=np.uint8)
    return pixels, rng.integers(0, 10, RECORDS).tolist()


def write_pickle(path: Path, batch: Any) -> None:
    path.write_bytes(pickle.dumps(batch, protocol=2))


@pytest.fixture
def python_archive(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number, name in enumerate([*TRAIN, "test_batch"]):
        pixels, labels = images(number)
        batch = {b"batch_label": name.encode(), b"labels": labels, b"data": pixels}
        write_pickle(folder / name, batch)
    return folder


@pytest.fixture
def binary_archive(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate([*TRAIN, "test_batch"]):
        pixels, labels = images(number)
        with (folder / f"{name}.bin").open("wb") as file:
            for label, image in zip(labels, pixels, strict=True):
                file.write(bytes([label]) + image.tobytes())
    return folder


@pytest.mark.parametrize("archive", ["python_archive", "binary_archive"])
@pytest.mark.parametrize("inside", [True, False])
def test_both_archives_are_read(archive: str, inside: bool, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(archive)
    train, test = read_archive(folder if inside else folder.parent, RECORDS)
    expected = [images(number) for number in range(6)]
    assert np.array_equal(train[0], np.concatenate([pixels for pixels, _ in expected[:5]]))
    assert train[1].tolist() == [label for _, labels in expected[:5] for label in labels]
    assert np.array_equal(test[0], expected[5][0])
    assert test[1].tolist() == expected[5][1]


NAMES = {
    "python_archive": "cifar-10-python.tar.gz",
    "binary_archive": "cifar-10-binary.tar.gz",
}


def packed(folder: Path, into: Path, name: str) -> Path:
    """Pack a folder as the official archives are, its files in no particular order."""
    into.mkdir()
    with tarfile.open(into / name, "w:gz") as archive:
        archive.add(folder, folder.name, recursive=False)
        for file in sorted(folder.iterdir(), key=lambda file: file.name[::-1]):
            archive.add(file, f"{folder.name}/{file.name}")
    return into / name


@pytest.mark.parametrize("archive", sorted(NAMES))
@pytest.mark.parametrize("inside", [True, False])
def test_both_archives_are_read_as_they_come(
    archive: str, inside: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(archive)
    (folder / "readme.html").write_text("which nobody needs")
    file = packed(folder, tmp_path / "packed", NAMES[archive])
    train, test = read_archive(file if inside else file.parent, RECORDS)
    unpacked_train, unpacked_test = read_archive(folder, RECORDS)
    assert np.array_equal(train[0], unpacked_train[0])
    assert np.array_equal(train[1], unpacked_train[1])
    assert np.array_equal(test[0], unpacked_test[0])
    assert np.array_equal(test[1], unpacked_test[1])


def test_a_packed_archive_that_cannot_be_used_is_refused(
    python_archive: Path, tmp_path: Path
) -> None:
    file = packed(python_archive, tmp_path / "packed", NAMES["python_archive"])
    other = file.with_name("images.tar.gz")
    other.write_bytes(file.read_bytes())
    with pytest.raises(InputError, match=r"images.tar.gz is neither cifar-10-python.tar.gz nor"):
        read_archive(other, RECORDS)
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / file.name).write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(InputError, match=r"cifar-10-python.tar.gz: no readable archive"):
        read_archive(cut, RECORDS)
    (python_archive / "data_batch_4").unlink()
    few = packed(python_archive, tmp_path / "few", NAMES["python_archive"])
    with pytest.raises(InputError, match=r"tar.gz: the archive lacks data_batch_4"):
        read_archive(few, RECORDS)
    write_pickle(python_archive / "data_batch_4", Dangerous())
    bad = packed(python_archive, tmp_path / "bad", NAMES["python_archive"])
    with pytest.raises(InputError, match=r"data_batch_4: asks for posix.mkdir"):
        read_archive(bad, RECORDS)


def test_a_link_in_a_packed_archive_is_not_followed(python_archive: Path, tmp_path: Path) -> None:
    (python_archive / "data_batch_2").unlink()
    (python_archive / "data_batch_2").symlink_to("nowhere")
    file = packed(python_archive, tmp_path / "packed", NAMES["python_archive"])
    with pytest.raises(InputError, match=r"tar.gz: the archive lacks data_batch_2"):
        read_archive(file, RECORDS)


def test_images_are_standardised_one_by_one(
    python_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paracosm.models.cifar10.RECORDS_PER_FILE", RECORDS)
    data = load_data("cifar10", python_archive)
    assert data.train_x.shape == (5 * RECORDS, 3, 32, 32)
    assert data.input_shape == (3, 32, 32)
    assert (data.classes, len(data.test_x)) == (10, RECORDS)
    pixels = images(0)[0].astype(np.float64)
    expected = (pixels[0] - pixels[0].mean()) / pixels[0].std()
    assert np.allclose(data.train_x[0].numpy().ravel(), expected, atol=1e-5)


def test_a_uniform_image_stays_finite(
    python_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paracosm.models.cifar10.RECORDS_PER_FILE", RECORDS)
    pixels = np.full((RECORDS, 3072), 200, dtype=np.uint8)
    write_pickle(python_archive / "test_batch", {b"labels": [0] * RECORDS, b"data": pixels})
    assert not load_data("cifar10", python_archive).test_x.any()


PIXELS, LABELS = images(0)


class Dangerous:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("owned",)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"labels": LABELS}, 'has no "data"'),
        ({b"data": PIXELS}, 'has no "labels"'),
        ({b"data": PIXELS[:3], b"labels": LABELS[:3]}, "3 images and 3 labels, not 4 of each"),
        ({b"data": PIXELS, b"labels": LABELS[:3]}, "4 images and 3 labels"),
        ({b"data": PIXELS[:, :3000], b"labels": LABELS}, r"shape \(4, 3000\)"),
        ({b"data": PIXELS / 255, b"labels": LABELS}, "must be an array of bytes"),
        ({b"data": PIXELS, b"labels": [0, 1, 2, 10]}, "label 10 is not in 0 to 9"),
        ({b"data": PIXELS, b"labels": [0, 1, 2, -1]}, "label -1 is not in 0 to 9"),
        ({b"data": PIXELS, b"labels": [10**9999] * 4}, "label of many digits is not in 0 to 9"),
        ({b"data": PIXELS, b"labels": ["cat"] * 4}, '"labels" must be a list of integers'),
        ([PIXELS, LABELS], "holds a list"),
        (Dangerous(), "asks for posix.mkdir, which no CIFAR-10 batch needs; not loaded"),
    ],
)
def test_broken_batches_are_refused(
    python_archive: Path, batch: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(python_archive)
    write_pickle(python_archive / "data_batch_3", batch)
    with pytest.raises(InputError, match=f"data_batch_3: .*{message}") as caught:
        read_archive(python_archive, RECORDS)
    assert "\n" not in str(caught.value)
    assert not (python_archive / "owned").exists()


def test_a_cut_pickle_is_refused(python_archive: Path) -> None:
    path = python_archive / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="data_batch_2: no readable pickle"):
        read_archive(python_archive, RECORDS)


def test_a_cut_binary_file_is_refused(binary_archive: Path) -> None:
    path = binary_archive / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="12291 bytes are not a whole number of 3073-byte records"):
        read_archive(binary_archive, RECORDS)


def test_an_empty_binary_file_is_refused(binary_archive: Path) -> None:
    (binary_archive / "data_batch_1.bin").write_bytes(b"")
    with pytest.raises(InputError, match=r"data_batch_1\.bin: 0 bytes"):
        read_archive(binary_archive, RECORDS)


def test_a_file_that_is_too_large_is_not_read(binary_archive: Path) -> None:
    os.truncate(binary_archive / "data_batch_1.bin", 1 << 40)
    with pytest.raises(InputError, match=r"data_batch_1\.bin: larger than 128 MiB"):
        read_archive(binary_archive, RECORDS)


def test_the_official_number_of_images_is_expected(binary_archive: Path) -> None:
    with pytest.raises(InputError, match="4 images and 4 labels, not 10000 of each"):
        load_data("cifar10", binary_archive)


def test_a_missing_file_is_named(python_archive: Path) -> None:
    (python_archive / "data_batch_4").unlink()
    (python_archive / "test_batch").unlink()
    with pytest.raises(InputError, match="is incomplete: data_batch_4, test_batch missing"):
        read_archive(python_archive, RECORDS)


@pytest.mark.parametrize("folder", [None, "empty", "nowhere"])
def test_without_data_it_says_where_to_get_them(folder: str | None, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"CIFAR-10 page of Alex Krizhevsky \(University"):
        load_data("cifar10", None if folder is None else tmp_path / folder)

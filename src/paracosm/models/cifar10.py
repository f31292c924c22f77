"""CIFAR-10 from its standard archives: 60,000 colour images of 32x32 pixels, 10 classes.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Ints
from paracosm.errors import InputError

_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS  # bytes in the binary archive: label, then red, green, blue plane
_CLASSES = 10
_MOST_BYTES = 1 << 27  # of a file of the archive, which has 32 MB
RECORDS_PER_FILE = 10_000
_WHERE = (
    "get cifar-10-python.tar.gz or cifar-10-binary.tar.gz from the CIFAR-10 page of Alex "
    "Krizhevsky (University of Toronto), and give the folder that you put it in, unpacked or not, "
    "as data_dir (--data-dir)"
)

Arrays = tuple[npt.NDArray[np.uint8], Ints]


def cifar10(
    data_dir: Path | None = None,
) -> tuple[npt.NDArray[np.float32], Ints, npt.NDArray[np.float32], Ints]:
    """Read CIFAR-10, training set first: images (n, 3, 32, 32) and labels (n,) of each.

    As in TensorFlow's CIFAR-10 tutorial, an image's mean is subtracted and it is divided by
    max(its standard deviation, 1/sqrt(3072)).

    `data_dir` is the archive `cifar-10-python.tar.gz` or `cifar-10-binary.tar.gz`, the folder that
    it unpacks to, or the one that holds either.
    """
    if data_dir is None:
        raise InputError(f"cifar10 needs a data folder: {_WHERE}")
    train, test = read_archive(data_dir, RECORDS_PER_FILE)
    return _standardised(train[0]), train[1], _standardised(test[0]), test[1]


def read_archive(data_dir: Path, records: int) -> tuple[Arrays, Arrays]:
    """Read training and test set of either archive: pixels (n, 3072) and labels (n,).

    Each of the six files must hold `records` images.
    """
    layout, files = _find(data_dir)
    arrays: dict[str, Arrays] = {}
    for name, where, content in files:
        arrays[name] = _checked(where, layout.read(where, content), records)
    missing = [name for name in layout.files if name not in arrays]
    if missing:
        raise _broken(data_dir, f"the archive lacks {', '.join(missing)}")
    parts = [arrays[name] for name in layout.files]
    train_x = np.concatenate([x for x, _ in parts[:-1]])
    train_y = np.concatenate([y for _, y in parts[:-1]])
    return (train_x, train_y), parts[-1]


@dataclass(frozen=True)
class _Layout:
    archive: str
    folder: str  # that it unpacks to
    files: tuple[str, ...]  # the test set last
    read: Callable[[Path, bytes], Arrays]  # from where a file is, and what is in it


_File = tuple[str, Path, bytes]
"""A file of an archive: its name, where it is, what is in it."""


def _find(data_dir: Path) -> tuple[_Layout, Iterator[_File]]:
    if data_dir.is_file():
        return _packed(data_dir)
    if not data_dir.is_dir():
        raise InputError(f"no folder {data_dir}; for cifar10 {_WHERE}")
    for layout in _LAYOUTS:
        for folder in (data_dir, data_dir / layout.folder):
            missing = [name for name in layout.files if not (folder / name).is_file()]
            if len(missing) == len(layout.files):
                continue
            if missing:
                raise InputError(f"{folder} is incomplete: {', '.join(missing)} missing")
            paths = [(name, folder / name) for name in layout.files]
            return layout, ((name, path, _whole(path)) for name, path in paths)
    for layout in _LAYOUTS:
        if (data_dir / layout.archive).is_file():
            return _packed(data_dir / layout.archive)
    raise InputError(f"no CIFAR-10 files in {data_dir}: {_WHERE}")


def _packed(archive: Path) -> tuple[_Layout, Iterator[_File]]:
    layout = next((layout for layout in _LAYOUTS if layout.archive == archive.name), None)
    if layout is None:
        names = " nor ".join(layout.archive for layout in _LAYOUTS)
        raise InputError(f"{archive} is neither {names}; for cifar10 {_WHERE}")
    return layout, _unpacked(archive, layout)


def _unpacked(archive: Path, layout: _Layout) -> Iterator[_File]:
    """Yield the files in the order of the archive: going back means unpacking anew."""
    wanted = {f"{layout.folder}/{name}": name for name in layout.files}
    try:
        with tarfile.open(archive) as packed:
            for member in packed:
                name = wanted.get(member.name)
                file = packed.extractfile(member) if member.isfile() else None  # not a link
                if name is not None and file is not None:
                    _check_size(archive / member.name, member.size)
                    yield name, archive / member.name, file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _broken(archive, f"no readable archive ({type(error).__name__})") from None


def _whole(path: Path) -> bytes:
    _check_size(path, path.stat().st_size)
    return path.read_bytes()


def _check_size(path: Path, size: int) -> None:
    if size > _MOST_BYTES:
        raise _broken(path, f"larger than {_MOST_BYTES >> 20} MiB")


def _checked(path: Path, images: Arrays, records: int) -> Arrays:
    pixels, labels = images
    if len(pixels) != records or len(labels) != records:
        raise _broken(path, f"{len(pixels)} images and {len(labels)} labels, not {records} of each")
    _check_label(path, int(labels.max()))
    return pixels, labels


def _check_label(path: Path, label: int) -> None:
    if not 0 <= label < _CLASSES:
        shown = label if abs(label) < 1 << 63 else "of many digits"
        raise _broken(path, f"label {shown} is not in 0 to {_CLASSES - 1}")


def _read_binary(path: Path, content: bytes) -> Arrays:
    if len(content) == 0 or len(content) % _RECORD:
        raise _broken(
            path, f"{len(content)} bytes are not a whole number of {_RECORD}-byte records"
        )
    table = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    return table[:, 1:], table[:, 0].astype(np.int64)


def _read_pickle(path: Path, content: bytes) -> Arrays:
    try:
        batch = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except InputError as error:
        raise _broken(path, str(error)) from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise _broken(path, f"no readable pickle ({type(error).__name__})") from None
    if not isinstance(batch, dict):
        raise _broken(path, f"holds a {type(batch).__name__}, not a batch of images")
    # A pickle that was written again by Python 3 has str keys where the original has bytes.
    batch = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
    for key in ("data", "labels"):
        if key not in batch:
            raise _broken(path, f'has no "{key}"')
    pixels = batch["data"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise _broken(path, '"data" must be an array of bytes')
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise _broken(path, f'"data" has shape {pixels.shape}, not (images, {_PIXELS})')
    labels = batch["labels"]
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise _broken(path, '"labels" must be a list of integers')
    for label in labels:
        _check_label(path, label)
    return pixels, np.array(labels, dtype=np.int64)


class _RestrictedUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and nothing else: a pickle could otherwise run any code."""

    _ALLOWED = frozenset(
        (module, name)
        for package in ("numpy.core", "numpy._core")
        for module, name in (
            (f"{package}.multiarray", "_reconstruct"),
            (f"{package}.multiarray", "scalar"),
            (f"{package}.numeric", "_frombuffer"),
        )
    ) | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._ALLOWED:
            return super().find_class(module, name)
        raise InputError(f"asks for {module}.{name}, which no CIFAR-10 batch needs; not loaded")


def _standardised(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    images = pixels.astype(np.float32)
    images -= images.mean(axis=1, keepdims=True)
    # The floor keeps a uniform image finite; TensorFlow's per_image_standardization has the same.
    images /= np.maximum(images.std(axis=1, keepdims=True), 1 / np.sqrt(np.float32(_PIXELS)))
    return images.reshape(-1, 3, 32, 32)


def _broken(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}")


_LAYOUTS = (
    _Layout(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
        _read_pickle,
    ),
    _Layout(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        _read_binary,
    ),
)

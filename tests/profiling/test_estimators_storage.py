"""Estimators saved and loaded; files that are none, or damaged, or hold pickles."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from synthetic_device import TYPES, draw, matmul, timings_of, view

from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.profiling.estimators import Estimators, fit_estimators, load_estimators


@pytest.fixture(scope="module", params=["mlp", "gaussian"])
def estimators(request: pytest.FixtureRequest) -> Estimators:
    ops = [op for seed, name in enumerate(TYPES) for op in draw(name, 25, seed)]
    return fit_estimators(timings_of([*ops, view(3)]), method=request.param)


@pytest.fixture
def path(estimators: Estimators, tmp_path: Path) -> Path:
    found = tmp_path / "device.estimators"
    estimators.save(found)
    return found


def test_loaded_estimators_are_the_saved_ones_to_the_bit(
    estimators: Estimators, path: Path
) -> None:
    ops = [op for seed, name in enumerate(TYPES) for op in draw(name, 40, seed)]
    ops += [view(4), matmul(9, 9, 9, "int8"), Op("never.seen", "", 10, 10, 10)]
    loaded = load_estimators(path)
    assert loaded.estimate_all(ops) == estimators.estimate_all(ops)
    assert (loaded.environment, loaded.cache) == (estimators.environment, "cold")
    assert repr(loaded.scores) == repr(estimators.scores)


def test_saving_what_was_loaded_gives_the_same_file(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    load_estimators(path).save(again)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([again, path])


def test_the_file_holds_arrays_of_numbers_only(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        assert {array.dtype.kind for array in file.values()} <= {"f", "i", "u"}


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_estimators(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


class Bomb:
    """What reading a pickle would run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("the pickle was run",)


def test_a_pickle_inside_is_refused_and_not_run(path: Path) -> None:
    with np.load(path) as file:
        entries = dict(file.items())
    entries["content"] = np.array([Bomb()], dtype=object)
    np.savez(path.with_suffix(".npz"), **entries)
    assert "holds Python objects" in refusal(path.with_suffix(".npz"))


def test_a_pickle_for_a_file_is_refused_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npy"
    np.save(path, np.array([Bomb()], dtype=object))
    assert "holds Python objects" in refusal(path)


def test_there_is_no_file(tmp_path: Path) -> None:
    assert "no estimators at" in refusal(tmp_path / "none")


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.zeros(3))
    assert "holds no estimators" in refusal(path)
    np.savez(path, content=np.zeros(3), checksum=np.zeros(3))
    assert "holds no estimators" in refusal(path)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    path.write_bytes(buffer.getvalue())
    assert "holds no estimators" in refusal(path)
    path.write_text("Dear all,\nthis is a letter.")
    refusal(path)
    path.write_bytes(b"")
    refusal(path)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_half_a_file_is_refused(path: Path, part: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    assert "damaged" in refusal(path)


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    for place in range(200, len(whole) - 200, len(whole) // 15):
        changed = bytearray(whole)
        changed[place] ^= 16
        path.write_bytes(changed)
        try:
            same = load_estimators(path)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:  # a bit of the zip file that says nothing, such as a date
            np.testing.assert_array_equal(
                same.exact.log_time, load_estimators(_rewritten(path, whole)).exact.log_time
            )


@pytest.mark.parametrize(("offset", "bit"), [(8, 1), (11, 16)], ids=["password", "compression"])
def test_an_archive_that_asks_for_what_nobody_used_is_damaged(
    path: Path, offset: int, bit: int
) -> None:
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"PK\x01\x02") + offset] ^= bit  # in the directory, of the first entry
    path.write_bytes(whole)
    assert "damaged" in refusal(path)


def _rewritten(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_number_that_was_changed_is_noticed(path: Path) -> None:
    with np.load(path) as file:
        entries = dict(file.items())
    entries["0"] = entries["0"] * 2
    np.savez(path.with_suffix(".npz"), **entries)
    assert "checksum" in refusal(path.with_suffix(".npz"))


def test_a_newer_version_is_told(path: Path) -> None:
    with np.load(path) as file:
        entries = dict(file.items())
    content = json.loads(entries["content"].tobytes()) | {"paracosm estimators": 99}
    entries["content"] = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    np.savez(path.with_suffix(".npz"), **entries)
    assert "version 99, this Paracosm reads 1" in refusal(path.with_suffix(".npz"))


def test_a_folder_that_is_not_there_is_told(estimators: Estimators, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="file: cannot be written: No such file"):
        estimators.save(tmp_path / "none" / "file")


def test_an_interrupt_leaves_the_file_that_was_there_and_nothing_beside_it(
    estimators: Estimators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: BinaryIO, **entries: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    (tmp_path / "file").write_text("before")
    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimators.save(tmp_path / "file")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"

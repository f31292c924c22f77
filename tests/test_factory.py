"""Where an error of the user's code comes from."""

import multiprocessing
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from joblib.externals.loky import ProcessPoolExecutor

from paracosm.factory import (
    call_factory,
    file_of_module,
    named_function,
    reference_to,
    users_place,
)
from paracosm.parcels import parcel_of


def test_frames_of_a_compiled_library_are_not_the_users() -> None:
    """Cython names a file where PyArrow was compiled, which lies in no folder of libraries."""
    with pytest.raises(KeyError) as raised:
        _ = pyarrow.table({"a": [1]})["b"]
    assert str(raised.traceback[-1].path).endswith(".pxi")
    place = users_place(raised.value)
    assert place is not None
    assert place.file == __file__
    assert place.raises


def test_a_file_that_has_changed_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def make(): return 1\n")
    assert call_factory("model", f"{file}:make", {})[0] == 1
    first = named_function("model", f"{file}:make")
    assert named_function("model", f"{file}:make") is first
    file.write_text("def make(): return 200\n")
    assert call_factory("model", f"{file}:make", {})[0] == 200
    file.write_text("def make(): return 300\n")  # as long, and perhaps in the same second
    assert call_factory("model", f"{file}:make", {})[0] == 300


OWN = """
import factors_of_things

class Thing:
    factor = factors_of_things.FACTOR

    def __init__(self, size):
        self.size = size

    def product(self):
        return self.factor * self.size

def make(size):
    return Thing(size)
"""


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An instance of a class of a file, in a folder with a dot and a blank in its name."""
    folder = tmp_path / "my models.v2"
    folder.mkdir()
    (folder / "own.things.py").write_text(OWN)
    (folder / "factors_of_things.py").write_text("FACTOR = 3\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield named_function("model", "own.things.py:make")(7)
    sys.modules.pop("factors_of_things")


def product_of(thing: Any) -> tuple[int, int]:
    return os.getpid(), thing.product()


def test_what_a_file_defines_goes_to_processes_of_every_kind(thing: Any) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(product_of, (thing,))
    with ProcessPoolExecutor(1) as executor:
        of_loky = executor.submit(product_of, thing).result()
        back = executor.submit(type(thing), 5).result()
    for process, product in (spawned, of_loky):
        assert process != os.getpid()
        assert product == 21
    assert type(back) is type(thing)  # one class, wherever an object was made


def test_a_process_that_has_not_read_the_file_reads_it(thing: Any) -> None:
    sent = pickle.dumps(thing)
    del sys.modules[type(thing).__module__]
    assert pickle.loads(sent).product() == 21


def test_on_another_machine_the_copy_that_has_travelled_is_read(thing: Any, tmp_path: Path) -> None:
    parcel, sent = parcel_of("own.things.py:make"), pickle.dumps(thing)
    for file in Path.cwd().glob("*.py"):
        file.unlink()
    for module in ("factors_of_things", type(thing).__module__):
        sys.modules.pop(module)
    with parcel.opened():
        travelled = pickle.loads(sent)
        made = named_function("model", "own.things.py:make")(7)
        assert type(made) is type(travelled)
        answer = pickle.dumps(made)
        reference = reference_to(type(made))
    assert travelled.product() == 21
    assert reference == "own.things.py:Thing"
    assert answer == sent  # so the machine that asked has the class under this name


def test_a_class_is_named_by_its_file_or_by_its_module(thing: Any) -> None:
    assert reference_to(type(thing)) == "own.things.py:Thing"
    os.chdir("..")
    assert reference_to(type(thing)) == "my models.v2/own.things.py:Thing"
    assert named_function("model", reference_to(type(thing))) is type(thing)
    assert reference_to(Path) == "pathlib:Path"
    assert file_of_module("pathlib") is None


def test_a_file_that_is_gone_is_named(thing: Any) -> None:
    sent, file = pickle.dumps(thing), Path("own.things.py").resolve()
    file.unlink()
    del sys.modules[type(thing).__module__]
    with pytest.raises(FileNotFoundError, match=r"own\.things\.py"):
        pickle.loads(sent)

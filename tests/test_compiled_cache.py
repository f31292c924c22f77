"""Compiled functions on disk, and where nothing may be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import paracosm
from paracosm import compiled_cache
from paracosm.compiled import compiled, compiled_whole, subroutine
from paracosm.compiled_parts import PartLibrary

PACKAGE = Path(paracosm.__file__).parent


def copied_to(folder: Path) -> Path:
    """Return where a checkout of its own can be imported from."""
    shutil.copytree(PACKAGE, folder / "paracosm", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def cache_of(source: Path, home: Path, chosen: Path | None = None) -> Path | None:
    program = "from paracosm.compiled_cache import CACHE; print(CACHE or '')"
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(source), "XDG_CACHE_HOME": str(home)}
    environment |= {} if chosen is None else {"NUMBA_CACHE_DIR": str(chosen)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip()) if done.stdout.strip() else None


def test_checkouts_with_the_same_sources_share_a_folder_of_the_user(tmp_path: Path) -> None:
    first, second = copied_to(tmp_path / "first"), copied_to(tmp_path / "second")
    folder = cache_of(first, tmp_path)
    assert folder is not None
    assert folder.parent == tmp_path / "paracosm"
    assert cache_of(second, tmp_path) == folder
    # A change to anything that kernels are compiled from, callees in other files among it.
    with (second / "paracosm" / "network" / "heaps.py").open("a") as source:
        source.write("CHANGED = True\n")
    changed = cache_of(second, tmp_path)
    assert changed != folder
    assert changed is not None
    assert changed.is_dir()
    assert folder.is_dir()  # the other checkout still uses it


@subroutine
def _doubled(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return 2 * number


@compiled_whole
def _next_even(number: int) -> int:
    return int(_doubled(number // 2) + 2)


def test_what_only_compiled_functions_call_is_kept_for_other_callers_without_instructions() -> None:
    assert _next_even(7) == 8
    with pytest.raises(ValueError, match="negative"):
        _next_even(-7)
    # A caller that was read from disk has not asked for its callees.
    _doubled.compile((numba.types.int64,))
    (kinds,) = _doubled.overloads
    read_back = subroutine(_doubled.py_func)
    read_back.compile(kinds)
    assert sum(read_back.stats.cache_hits.values()) == 1
    library = read_back.overloads[kinds].library
    assert isinstance(library, PartLibrary)
    engine = library.codegen._engine
    assert not any(engine.is_symbol_defined(name) for name in library.get_defined_functions())


def test_folders_that_nobody_used_for_two_weeks_are_removed(tmp_path: Path) -> None:
    source = copied_to(tmp_path / "source")
    folder = cache_of(source, tmp_path)
    assert folder is not None
    for name, days in (("kernels-old", 15), ("kernels-young", 13), ("other-old", 15)):
        (folder.parent / name).mkdir()
        used = folder.stat().st_mtime - days * 86_400
        os.utime(folder.parent / name, (used, used))
    assert cache_of(source, tmp_path) == folder
    left = sorted(path.name for path in folder.parent.iterdir())
    assert left == sorted([folder.name, "kernels-young", "other-old"])


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    source = copied_to(tmp_path / "source")
    (tmp_path / "paracosm").mkdir()
    (tmp_path / "paracosm").chmod(0o777)  # whoever writes there could have code of theirs run
    assert cache_of(source, tmp_path) is None


@pytest.mark.parametrize("kind", ["open to all", "link to a folder open to all", "link"])
def test_a_folder_that_somebody_else_made_first_is_not_used(kind: str, tmp_path: Path) -> None:
    source, chosen = copied_to(tmp_path / "source"), tmp_path / "of several users"
    folder = cache_of(source, tmp_path, chosen)
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    own = folder.with_name(f"{folder.name}-{os.geteuid()}")
    for place, used in ((folder, own), (own, None)):
        shutil.rmtree(place, ignore_errors=True)
        (tmp_path / place.name).mkdir()
        (tmp_path / place.name).chmod(0o700 if kind == "link" else 0o777)
        if kind == "open to all":
            (tmp_path / place.name).rename(place)
        else:
            place.symlink_to(tmp_path / place.name)
            if os.geteuid() == 0:
                os.lchown(place, 65534, 65534)
            elif kind == "link":
                pytest.skip("only root can make a link of somebody else's")
        assert cache_of(source, tmp_path, chosen) == used


def double(x: float) -> float:
    return 2 * x


def test_what_one_process_compiles_the_next_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled_cache, "CACHE", tmp_path)
    first, second = compiled(double), compiled(double)
    assert first(3.0) == 6.0
    assert first(3) == 6
    assert len(list(tmp_path.iterdir())) == 2  # a file for each signature
    assert second(4.0) == 8.0
    assert second.stats.cache_hits == {(numba.types.float64,): 1}
    assert second.stats.cache_misses == {}


def test_files_that_are_damaged_or_of_another_signature_are_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled_cache, "CACHE", tmp_path)
    assert compiled(double)(3.0) == 6.0
    (of_floats,) = tmp_path.iterdir()
    kept = of_floats.read_bytes()
    assert compiled(double)(3) == 6
    (of_integers,) = set(tmp_path.iterdir()) - {of_floats}
    for content in (b"", kept[:100], b"damaged", of_integers.read_bytes()):
        of_floats.write_bytes(content)
        function = compiled(double)
        assert function(np.float64(0.75)) == 1.5
        assert function.stats.cache_hits == {}
        once_more = compiled(double)
        assert once_more(0.75) == 1.5
        assert once_more.stats.cache_misses == {}


def test_where_no_folder_may_be_written_functions_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled_cache, "CACHE", None)
    assert compiled(double)(3.0) == 6.0


def test_a_full_disk_costs_only_another_compilation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled_cache, "CACHE", tmp_path / "missing")
    assert compiled(double)(3.0) == 6.0

"""Compiled functions where nothing may be written."""

import pytest

from paracosm.compiled import compiled


def test_where_no_folder_may_be_written_functions_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])

    def double(x: float) -> float:
        return 2 * x

    assert compiled(double)(3.0) == 6.0

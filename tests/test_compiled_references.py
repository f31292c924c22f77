"""Named tuples by reference: compiled code reads each field where Python has put it."""

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from paracosm import compiled_cache
from paracosm.compiled import address_of, apart, compiled
from paracosm.compiled_references import Referenced, call_address, call_apart, dereference


class Inner(NamedTuple):
    flag: bool
    nothing: None
    table: Any
    half: Any


class Outer(NamedTuple):
    count: int
    inner: Inner
    twice: Any
    share: float
    bits: Any


def read(s: Any, out: Any) -> Any:
    inner = s.inner
    out[0] = s.count
    out[1] = inner.flag
    out[2] = inner.table[1, 2]
    out[3] = inner.table.shape[0] * 10 + inner.table.shape[1]
    out[4] = inner.half[inner.half.size - 1]
    out[5] = call_address(s.twice, (s.share,))
    out[6] = s.bits[1]
    inner.half[0] = 8.0
    return dereference(inner).flag


def test_fields_of_every_kind_are_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_cache, "CACHE", None)
    twice = numba.cfunc("float64(float64)")(lambda x: 2.0 * x)
    half = np.array([0.5, 1.5, 2.5])
    inner = Inner(True, None, np.arange(12.0).reshape(3, 4), half)
    outer = Outer(7, inner, twice, 0.25, np.array([1, 2**63], np.uint64))
    out = np.zeros(7)
    assert compiled(read)(Referenced(outer), out) is True
    np.testing.assert_array_equal(out, [7, 1, 6, 34, 2.5, 0.5, 2.0**63])
    assert half[0] == 8.0


@apart
def add(s: Any, number: Any) -> Any:
    s.half[0] += number
    return number


def call(s: Any, address: Any) -> Any:
    return call_apart(address, (s, np.int64(4)))


def test_a_function_apart_is_called_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_cache, "CACHE", None)
    inner = Referenced(Inner(True, None, np.zeros((1, 1)), np.array([0.5])))
    assert compiled(call)(inner, address_of(add, inner, 0)) == 4
    assert inner.value.half[0] == 4.5


@pytest.mark.parametrize("value", [np.arange(6.0)[::2], "text", 1j])
def test_what_has_no_words_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be handed over by reference"):
        Referenced((1, value))

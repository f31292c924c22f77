"""How a person reads arguments, and asks for an environment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_timings import CPU, GPU

from paracosm.errors import InputError
from paracosm.graphs.graph import TensorArgument, encode_arguments
from paracosm.profiling.database import choose_environments, describe, short_arguments


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> TensorArgument:
    return TensorArgument(shape, dtype, **more)


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (
            [tensor(64, 3, 32, 32), tensor(64, 3, 7, 7), None, [2, 2], [3, 3], True, 1],
            {},
            "64x3x32x32 float32, 64x3x7x7, -, [2,2], [3,3], true, 1",
        ),
        (
            [tensor(8, dtype="int64"), tensor(), tensor(4), 0.1],
            {"alpha": 2, "dtype": {"dtype": "bfloat16"}},
            "8 int64, scalar float32, 4, 0.1, alpha=2, dtype=bfloat16",
        ),
        (
            [tensor(4, 8, stride=(1, 4)), tensor(2, on="cpu")],
            {},
            "4x8 float32 strides [1,4], 2 on cpu",
        ),
        ([[tensor(2)] * 9, []], {}, "[2 float32, 2, 2, and 6 more], []"),
        ([float("-inf"), False], {}, "-inf, false"),
    ],
)
def test_arguments_are_short(args: list[Any], kwargs: dict[str, Any], expected: str) -> None:
    assert short_arguments(encode_arguments(args, kwargs)) == expected


@given(st.text())
def test_any_other_text_is_shown_as_it_is_or_cut(text: str) -> None:
    short = short_arguments(text)
    assert len(short) <= 80
    assert text.startswith(short.removesuffix("..."))


def test_arguments_of_another_program_are_shown_as_they_are() -> None:
    assert short_arguments("") == ""
    assert short_arguments("f32[8,4]{1,0}") == "f32[8,4]{1,0}"
    assert short_arguments('{"args": 3}') == '{"args": 3}'
    assert short_arguments("x" * 200) == "x" * 77 + "..."


def test_an_environment_is_described_in_a_line() -> None:
    assert (
        describe(CPU) == "cpu, AMD EPYC, torch 2.13.0, threads 1, malloc pinned, denormals flushed"
    )
    assert describe(GPU) == "cuda, NVIDIA H200, torch 2.13.0, cuda caching, denormals kept"


def test_an_environment_is_asked_for_by_number_or_text() -> None:
    assert choose_environments([CPU, GPU], "2") == [GPU]
    assert choose_environments([CPU, GPU], "h200") == [GPU]
    assert choose_environments([CPU, GPU], "torch") == [CPU, GPU]
    with pytest.raises(InputError, match=r'no environment "tpu": there is 1: cpu, .*; 2: cuda, '):
        choose_environments([CPU, GPU], "tpu")
    with pytest.raises(InputError, match="there is none"):
        choose_environments([], "1")

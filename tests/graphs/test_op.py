"""The text of an op's arguments: equal calls have equal texts, and a text gives back the call."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.graphs.graph import TensorArgument, decode_arguments, encode_arguments

tensors = st.integers(0, 4).flatmap(
    lambda rank: st.builds(
        TensorArgument,
        shape=st.tuples(*[st.integers(0, 2048)] * rank),
        dtype=st.sampled_from(["float32", "int64", "bool"]),
        stride=st.none() | st.tuples(*[st.integers(0, 2048)] * rank),
        on=st.none() | st.just("cpu"),
    )
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.sampled_from([0.0, 0.1, -1e-8, 123456.0, math.inf, -math.inf])
    | st.text(max_size=5)
    | st.just({"dtype": "int64"})
    | st.just({"memory_format": "channels_last"})
)
values = tensors | scalars | st.lists(tensors | scalars, max_size=3)


@given(st.lists(values, max_size=5), st.dictionaries(st.text(max_size=5), values, max_size=3))
def test_arguments_survive_their_text(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert decode_arguments(encode_arguments(args, kwargs)) == (args, kwargs)


def test_the_text_is_short_and_sorted() -> None:
    text = encode_arguments([TensorArgument((2, 3), "float32"), None], {"b": 1, "a": [True]})
    expected = '{"args":[{"dtype":"float32","tensor":[2,3]},null],"kwargs":{"a":[true],"b":1}}'
    assert text == expected


def test_numbers_are_rounded_to_six_digits() -> None:
    assert encode_arguments([0.1234567], {}) == encode_arguments([0.12345671], {})
    assert encode_arguments([0.123456], {}) != encode_arguments([0.123457], {})


def test_what_is_no_number_survives() -> None:
    (value,), _ = decode_arguments(encode_arguments([math.nan], {}))
    assert math.isnan(value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"args":3}', '{"args":[{"tensor":[1]}]}'])
def test_what_is_no_list_of_arguments_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not the arguments of an op"):
        decode_arguments(text)

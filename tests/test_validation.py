"""One line for each thing that can be wrong with a mapping."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from paracosm.errors import InputError
from paracosm.validation import validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    speed: float = Field(1.0, gt=0)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    one: Inner | None = None
    many: list[Inner] = []
    either: list[int] | dict[str, Inner] = []

    @field_validator("name")
    @classmethod
    def _lower(cls, value: str) -> str:
        if value != value.lower():
            raise ValueError("write it in lower case")
        return value


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"nmae": "x"}, 'f: unknown key "nmae": did you mean "name"?'),
        ({"name": "x", "one": {"sped": 2}}, 'f: unknown key "one.sped": did you mean "one.speed"?'),
        (
            {"name": "x", "many": [{"speed": 1}, {"speeed": 2}]},
            'f: unknown key "many.1.speeed": did you mean "many.1.speed"?',
        ),
        ({"name": "x", "one": {"speed": 0}}, "f: one.speed: input should be greater than 0, got 0"),
        ({"name": "x", "either": {"a": {"speed": "s"}}}, "f: either: input should be a valid list"),
        ({"name": "x", "either": [1, None]}, "f: either.1: input should be a valid integer, got n"),
        ({"name": "x", "one": 3}, "f: one: input should be a mapping of names to values, got 3"),
        ({"name": "x", 3: 3}, "f: 3: a key is a name"),
        ({"name": "X"}, "f: name: write it in lower case"),
        ({}, "f: name: field required"),
    ],
)
def test_the_line_names_the_key(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(Outer, mapping, "f")
    assert str(caught.value).startswith(message)


def test_what_is_right_is_read() -> None:
    assert validated(Outer, {"name": "x", "many": [{"speed": 2}]}, "f").many[0].speed == 2

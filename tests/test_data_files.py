"""The reader of JSON refuses what no file can be written with."""

from __future__ import annotations

import pytest

from paracosm.data_files import parse_json
from paracosm.errors import InputError


@pytest.mark.parametrize("text", ['{"a": ["\\ud83d"]}', b'{"\\uDE00": 1}'])
def test_half_a_surrogate_pair_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"^here: .* half a surrogate pair, '.ud[0-9a-f]+'"):
        parse_json(text, "here")


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse_json('["\\ud83d\\ude00"]', "here") == ["😀"]

"""The readers of JSON and YAML refuse what no file can be written with, or would never end."""

from __future__ import annotations

from pathlib import Path

import pytest

import paracosm
from paracosm import data_files
from paracosm.data_files import parse_json, parse_yaml, read_packaged_yaml, read_yaml
from paracosm.errors import InputError


@pytest.mark.parametrize("text", ['{"a": ["\\ud83d"]}', b'{"\\uDE00": 1}'])
def test_half_a_surrogate_pair_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"^here: .* half a surrogate pair, '.ud[0-9a-f]+'"):
        parse_json(text, "here")


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse_json('["\\ud83d\\ude00"]', "here") == ["😀"]


def test_a_text_that_takes_minutes_to_parse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="more than 16 MiB"):
        parse_yaml("#" * 2**25, "here")
    assert data_files.MOST_WRITTEN == 200_000
    monkeypatch.setattr(data_files, "MOST_WRITTEN", 1000)
    parse_yaml("- a\n" * 999, "here")  # the list itself is the thousandth
    with pytest.raises(InputError, match="more than 1,000 keys and values"):
        parse_yaml("- a\n" * 1000, "here")


def test_a_key_is_a_name_also_where_yaml_reads_a_truth_value() -> None:
    text = "power: {busy: 250 W, off: 5 W}\npipelined: off"
    found = parse_yaml(text, "here")
    assert found == {"power": {"busy": "250 W", "off": "5 W"}, "pipelined": False}


def test_the_packaged_files_are_the_same_to_the_parser_that_checks_them() -> None:
    files = sorted(Path(paracosm.__file__).parent.rglob("*.yaml"))
    assert len(files) > 4
    for file in files:
        assert read_packaged_yaml(file) == read_yaml(file, "packaged file"), file


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nodes: [a, b\nlinks: {x\n", 'it is no YAML, from line 2 on: "links: {x"'),
        ("import torch\nx = {1: 2}\n", 'it is no YAML, from line 2 on: "x = {1: 2}"'),
        ("workers: 4\n\tlatency: 1ms\n", "line 2 is indented by a tab: YAML takes spaces"),
        ("workers: 'four\n", """it is no YAML, from line 1 on: "workers: 'four\""""),
        ("a: \x01", "it is no text: it has characters that no YAML has"),
    ],
)
def test_what_is_no_yaml_is_named_by_its_line(text: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_yaml(text, "here")
    assert str(raised.value) == f"here: {reason}"

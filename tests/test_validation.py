"""One line for each thing that can be wrong with a mapping."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from paracosm import validation
from paracosm.cli import main
from paracosm.data_files import MOST_YAML, parse_yaml, read_yaml
from paracosm.errors import InputError
from paracosm.studies.kinds import KINDS
from paracosm.validation import validated
from source_code import parsed


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
        if " " in value:
            raise ValueError("name: write one word")
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
        ({"name": "x y"}, "f: name: write one word"),
        ({}, "f: name: must be given"),
    ],
)
def test_the_line_names_the_key(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(Outer, mapping, "f")
    assert str(caught.value).startswith(message)


def test_what_is_right_is_read() -> None:
    assert validated(Outer, {"name": "x", "many": [{"speed": 2}]}, "f").many[0].speed == 2


def test_yaml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: [1, 2]\nb: &b {c: x}\nd: *b\ne: {<<: *b, c: y}", encoding="utf-8")
    content = {"a": [1, 2], "b": {"c": "x"}, "d": {"c": "x"}, "e": {"c": "y"}}
    assert read_yaml(path, "file") == content


BOMB = "a: &a [x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f: "),
        ("a: 1\nb: 2\na: 3", 'f: the key "a" is given twice (line 3)'),
        ("x: {y: 1, y: 2}", 'f: the key "y" is given twice (line 1)'),
        ("[" * 65 + "]" * 65, "f: nested deeper than 64 levels"),
        ("[" * 100_000, "f: nested deeper than 64 levels"),
        ("{a: " * 65 + "}" * 65, "f: nested deeper than 64 levels"),
        (BOMB, "f: more than 1,000,000 values"),
        ("a: &a\n  b: *a", "f: more than 1,000,000 values"),
        ("!!python/object:os.system {}", "f: line 1 has what is no plain value"),
        ("? [a]\n: b", "f: line 1 has what is no plain value"),
        ("a: 2024-99-99", "f: "),
        (f"a: {'9' * 5000}", "f: "),
    ],
)
def test_yaml_that_cannot_be_used_is_one_short_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f")
    line = str(caught.value)
    assert line.startswith(message)
    assert "\n" not in line
    assert len(line) < 400


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'no recipe at ".*none.yaml"'):
        read_yaml(tmp_path / "none.yaml", "recipe")
    with pytest.raises(InputError, match=r"cannot read the recipe .*directory"):
        read_yaml(tmp_path, "recipe")
    (tmp_path / "latin").write_bytes(b"a: \xe9")
    with pytest.raises(InputError, match="not UTF-8"):
        read_yaml(tmp_path / "latin", "recipe")
    (tmp_path / "large").write_bytes(b" " * (MOST_YAML + 1))
    with pytest.raises(InputError, match="a recipe of more than 16 MiB"):
        read_yaml(tmp_path / "large", "recipe")


def test_a_message_cannot_control_a_terminal() -> None:
    assert str(InputError("a\x1b[2J\0b\nc\N{RIGHT-TO-LEFT OVERRIDE}é")) == "a?[2J?b c?é"


def test_no_command_makes_the_configuration_of_another_but_by_validated() -> None:
    """Else what it refuses is pydantic's error, which the command line takes for a bug."""
    source = Path(validation.__file__).parent
    configurations = {model.__name__ for kind in KINDS.values() for model in kind.models} | {
        "PredictConfig",
        "TrainConfig",
    }
    found = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in source.rglob("*.py")
        if any(f"{name}(" in path.read_text(encoding="utf-8") for name in configurations)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in configurations
    ]
    assert len(configurations) >= 5
    assert not found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--strategy", "auto"], "strategy: auto is found for transformers, none of which train"),
        (["--strategy", "cp=2", "--workers", "2"], 'strategy: "cp=2" is not plain data parallel'),
        (["--strategy", "ps"], "link bandwidth not specified: add --bandwidth"),
    ],
)
def test_train_refuses_a_strategy_in_its_own_words(
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--updates", "4", "--hardware", "t4", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "bug" not in said
    assert len(said.splitlines()) == 1


def test_a_strategy_without_servers_trains_on_a_cluster_without_servers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("switch.yaml").write_text(
        "topology: switch\nworkers: 2\nlinks: {default: {bandwidth: 1GB/s}}\n"
    )
    flags = ["--strategy", "ddp", "--hardware", "t4", "--cluster", "switch.yaml"]
    assert main(["train", "--updates", "4", "--details", *flags]) == 0
    assert "in float32 with sgd" in capsys.readouterr().out

"""Values that no configuration can hold, in every field of every kind of run, however they are
given: each is refused in one line, where it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from paracosm.cli import main
from paracosm.cluster import Link, star
from paracosm.data_files import parse_json, parse_yaml
from paracosm.errors import InputError
from paracosm.rng import checked_seed
from paracosm.studies import KINDS, Study, load_study
from paracosm.timing import parse_distribution
from paracosm.validation import validated

PROFILE = Path(__file__).parents[1] / "data" / "psthroughput" / "profile.json.gz"
SOUND: dict[str, dict[str, Any]] = {
    "TrainConfig": {"timing_only": True, "updates": 5},
    "ScheduleTrainConfig": {"schedule": __file__, "updates": 5},
    "ProfileTrainConfig": {"profile": "none.profile", "updates": 5},
    "StrategyTrainConfig": {"strategy": "ddp", "bandwidth": "1Gbit/s", "hardware": "h100-sxm"},
    "RelaxConfig": {"problem": "laplace2d:4", "time": "1ms"},
    "PredictConfig": {
        "model": "llama-8b", "batch": 1, "hardware": "h100-sxm", "workers": 8, "strategy": "ddp",
    },
    "ThroughputConfig": {"profile": str(PROFILE), "workers": 2, "bandwidth": "1Gbit/s"},
    "EmulateConfig": {"script": __file__, "world_size": 8, "bandwidth": "1Gbit/s"},
    "DeviceEmulateConfig": {"script": __file__, "hardware": "dgx-h100", "world_size": 8},
    "PlanConfig": {"profile": "none.profile", "target": "loss <= 1", "workers": "1,2"},
    "StrategyPlanConfig": {
        "model": "llama-8b", "hardware": "h100-sxm", "tokens": 1e9, "batch_tokens": 4e6,
        "max_workers": 8,
    },
    "ScriptPlanConfig": {"script": __file__, "hardware": "h100-sxm", "workers": 8},
    "ReplayConfig": {"traces": ["rank0.json.gz"]},
    "TuneConfig": {"study": {"relax": {"problem": "laplace2d:4"}}, "tune": "max_sweeps=1..2"},
}  # fmt: skip
"""Sound arguments of each form of a study."""

HEXADECIMAL, LONG = f"0x{'f' * 6000}", "9" * 23

WRITTEN = (
    (HEXADECIMAL, "larger than 64 bits hold"),
    (f"-{HEXADECIMAL}", "larger than 64 bits hold"),
    (f"0b{'1' * 65}", "larger than 64 bits hold"),
    (LONG, "larger than 64 bits hold"),
    (f"-{LONG}", "larger than 64 bits hold"),
    ("9" * 5000, "larger than 64 bits hold"),
    (f"[1, {LONG}]", "larger than 64 bits hold"),
    (f"{{a: {HEXADECIMAL}}}", "larger than 64 bits hold"),
    (f"!!int {LONG}", "larger than 64 bits hold"),
    ("!!int x", "no int"),
    ("!!bool maybe", "no bool"),
    ("!!float x", "no float"),
    ("!!set {a, b}", "a set"),
    ("!!omap [a: 1]", "an ordered mapping"),
    ("!!pairs [a: 1]", "pairs"),
    ("!!binary aGVsbG8=", "binary data"),
    ("!!timestamp 2001-01-01", "a date"),
    ("2001-01-01", "a date"),
    ("2001-01-01 10:00:00", "a date"),
    (".nan", "not a number"),
    ("1.0e+999", "larger than 1e308"),
    ("017", "no decimal number"),
    ("1:30", "no decimal number"),
    ("!!seq {a: 1}", "no plain value or name"),
    ("!mine 3", "no plain value or name"),
)
"""YAML of a value, and a part of the line that refuses it."""

PYTHON = (
    *(10**22, -(10**22), 10**5000, -(10**5000), 2**64, [10**5000], {"a": 10**5000}),
    *(LONG, "9" * 5000, f"-{'9' * 5000}", HEXADECIMAL, [LONG], ["9" * 5000]),
    *(f"1,{LONG}", f"1..{LONG}", f"{LONG}s", f"{'9' * 400}s", f"{LONG}x", f"gamma({LONG}, 2)"),
    *(True, [True], {"a": True}, float("nan"), {1, 2}),
)
"""What flags, which are texts, and Python give a field."""


def forms() -> list[Any]:
    return [
        pytest.param(kind, form, id=form.__name__) for kind in KINDS for form in KINDS[kind].models
    ]


# Every day a field gets a fifth of the values, the next one the next fifth.
@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "form"), forms())
def test_what_no_field_can_hold_is_refused_where_yaml_is_read(
    kind: str, form: type[BaseModel], share: int, tmp_path: Path
) -> None:
    sound = ", ".join(f"{key}: {json.dumps(value)}" for key, value in SOUND[form.__name__].items())
    path = tmp_path / "study.yaml"
    path.write_text(f"{kind}: {{{sound}}}\n")
    load_study(path).points("study.yaml")  # it is sound
    for number, field in enumerate(form.model_fields):
        for value, message in WRITTEN[number % share :: share]:
            path.write_text(f"{kind}: {{{field}: {value}}}\n")
            with pytest.raises(InputError, match=message) as caught:
                load_study(path)
            assert len(str(caught.value)) < 400


def whole_numbers(value: Any) -> Iterator[int]:
    """Yield the whole numbers in a configuration."""
    match value:
        case bool() | type():
            return
        case int():
            yield value
        case list() | tuple() | set():
            for part in value:
                yield from whole_numbers(part)
        case dict():
            yield from whole_numbers([*value.values()])
        case _ if hasattr(value, "__dict__"):
            yield from whole_numbers(vars(value))


@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "form"), forms())
def test_from_flags_and_python_no_number_beyond_64_bits_reaches_a_run(
    kind: str, form: type[BaseModel], share: int
) -> None:
    """Each value is refused in one line, or the configuration has only numbers of 64 bits."""
    refused = tried = 0
    for number, field in enumerate(form.model_fields):
        for value in PYTHON[number % share :: share]:
            tried += 1
            arguments = {**SOUND[form.__name__], field: value}
            points = []
            with suppress(InputError):
                points = validated(Study, {kind: arguments}, "test").points("test")
            refused += not points
            for point in points:
                assert all(-(2**63) <= n < 2**64 for n in whole_numbers(point.config)), field
    assert refused > 0.8 * tried


@pytest.mark.parametrize("value", [True, [True], {"a": True}, [{"count": True}]])
def test_a_truth_value_is_no_number_at_any_depth(value: Any) -> None:
    class Part(BaseModel):
        count: int

    class Whole(BaseModel):
        workers: int | list[int] | list[Part] | dict[str, int]

    with pytest.raises(InputError, match=r"f: workers.*: input should be a number, got true"):
        validated(Whole, {"workers": value}, "f")


@pytest.mark.parametrize(
    "text",
    [f'{{"a": {LONG}}}', f'{{"a": -{"9" * 5000}}}', "[18446744073709551616]"],
)
def test_so_are_whole_numbers_of_json(text: str) -> None:
    with pytest.raises(InputError, match=r"^f: the whole number .* larger than 64 bits hold"):
        parse_json(text, "f")


def test_what_64_bits_hold_is_read() -> None:
    largest = 18446744073709551615  # 2^64 - 1
    assert parse_yaml(f"[{largest}, -9223372036854775808, 0x10, 1_000, .inf, 5.]", "f") == [
        *(largest, -9223372036854775808, 16, 1000, float("inf"), 5.0)
    ]
    text = f'[{largest}, -9223372036854775808, 0.{LONG}, "{LONG}"]'
    assert parse_json(text, "f") == [largest, -9223372036854775808, 1.0, LONG]
    assert checked_seed(largest) == largest


@pytest.mark.parametrize("seconds", [10**22, 1e16, float("inf"), float("nan"), -1, True, "1s"])
def test_a_recorded_duration_is_a_duration(tmp_path: Path, seconds: Any) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"durations": {"worker0": [0.1, seconds]}}))
    with pytest.raises(InputError, match=r"run\.json"):
        parse_distribution(f'recorded("{path}")')


@pytest.mark.parametrize(
    "command",
    [
        "emulate --world-size 2 --bandwidth 1Gbit/s --seed {} script.py",
        "relax measure --problem laplace2d:4 --threads 1 --seed {}",
        "relax --problem laplace2d:4 --speeds {}",
        "profile ops --model mlp --shape 4 --seed {}",
        "graph show a.graph --ops {}",
        "train --timing-only --updates 5 --seed {}",
        "train --export {} app",
        "relax tune --problem laplace2d:4 --seed {}",
        "plan --profile a.profile --workers 1,2 --target {}",
        "replay trace.json --steps {}",
    ],
)
def test_flags_are_refused_by_name(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("script.py", "trace.json"):
        Path(name).write_text("1")
    for number in (LONG, "9" * 5000):
        assert main(command.format(number).split()) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert command.split("{}")[0].split()[-1].removeprefix("--") in line


@pytest.mark.parametrize("number", [10**22, 10**5000, -(10**5000)], ids=["22", "5000", "-5000"])
def test_objects_in_python_refuse_them_in_a_line(number: int) -> None:
    with pytest.raises(
        InputError,
        match=r"a seed is a whole number from 0 on, .* 18446744073709551615 is the largest",
    ):
        checked_seed(number)
    with pytest.raises(InputError, match=r"workers: "):
        star(workers=number)
    with pytest.raises(InputError, match=r"link: latency must be finite"):
        Link(latency=-abs(number))

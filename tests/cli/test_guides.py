"""The guides to profiling and prediction: their programs run, and their flags are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paracosm.cli.verbs import VERBS, _command

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = (
    "profiling",
    "prediction",
    "cluster-prediction",
    "graph",
    "measuring-links",
    "replay",
    "throughput",
    "diloco",
)


def flags_of(*verbs: str) -> set[str]:
    return {
        flag
        for verb in verbs
        for parameter in _command(verb).params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("guide", GUIDES)
def test_every_flag_of_a_guide_is_one_of_the_program(guide: str) -> None:
    text = (DOCS / f"{guide}.md").read_text()
    text = re.sub(r"^ *python .*$", "", text, flags=re.M)  # programs have flags of their own
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    assert named
    assert named <= {*flags_of(*VERBS), "--help-all"}


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_a_guide_has_flags_of_its_verb(guide: str) -> None:
    commands = re.findall(r"^ *paracosm ([^#\n]+)", (DOCS / f"{guide}.md").read_text(), re.M)
    for command in commands:
        words = command.split()
        verb = next(v for v in (" ".join(words[:2]), words[0]) if v in VERBS)
        used = {word for word in words if word.startswith("--") and word != "--"}
        assert used <= flags_of(verb), command


@pytest.mark.parametrize(
    ("guide", "printed"),
    [
        ("prediction", "0.017 1882\nLaunching: "),
        ("cluster-prediction", "0.019 0.012\n"),
        ("graph", "70 "),
    ],
)
def test_the_program_of_a_guide_prints_what_the_guide_says(
    guide: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert capsys.readouterr().out.startswith(printed)

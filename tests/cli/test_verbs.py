"""How the program finds its verbs."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import numpy as np
import pytest

from paracosm.cli import doctor, main, verbs
from paracosm.cli.verbs import VERBS, parameters_of
from paracosm.studies.kinds import KINDS

Capture = pytest.CaptureFixture[str]


def test_every_verb_is_a_kind_or_a_function_named_by_its_last_word_and_has_an_example() -> None:
    for verb, module in VERBS.items():
        if module.endswith(".kind"):
            assert all(example.startswith(f"{verb} ") for example in KINDS[verb].examples)
            assert KINDS[verb].examples
            continue
        last = verb.split()[-1]
        taken = iskeyword(last) or hasattr(builtins, last)
        function = getattr(import_module(module), f"{last}_" if taken else last)
        assert f"Example: paracosm {verb}" in " ".join(function.__doc__.split()), verb


def test_the_help_of_the_program_names_every_verb(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f" {verb} " in printed for verb in VERBS)


def test_the_list_of_verbs_needs_none_of_them() -> None:
    listed = "from paracosm.cli import main; main(['--help'])"
    program = f"import sys; {listed}; print(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stderr.splitlines())
    assert "paracosm.cli.verbs" in loaded
    assert not loaded & {*VERBS.values(), "numba", "torch", "pyarrow", "scipy", "pydantic"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help_of_a_page_that_names_every_flag(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*verb.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"Usage: paracosm {verb} " in printed
    assert len(printed.splitlines()) <= 60
    assert max(map(len, printed.splitlines())) <= 80
    assert main([*verb.split(), "--help-all"]) == 0
    everything = capsys.readouterr().out
    for flag, *_ in parameters_of(verb).values():
        if flag.startswith("--"):
            assert f" {flag}" in printed.replace("\n", " ")
            assert f" {flag}" in everything


def test_what_a_flag_does_is_wrapped_and_never_cut_off(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["predict", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "continues by the same factor, 2,5..20 by the same difference, 1..8 by ones" in printed


def test_the_program_alone_says_which_verb_answers_which_question(capsys: Capture) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    named = {line.rpartition("paracosm ")[2] for line in printed.splitlines() if "?  " in line}
    assert named == {
        "train",
        "relax",
        "predict",
        "profile ops",
        "emulate",
        "replay",
        "plan",
        "tune",
    }


@pytest.mark.parametrize(
    ("typed", "expected", "absent"),
    [
        ("paracosm pla", "plan", "train"),
        ("paracosm train --algorithm dil", "diloco", "asgd"),
        ("paracosm predict --model gpt2-", "gpt2-xl", "bert"),
        ("paracosm predict --hardware h100", "h100-sxm", "a100"),
    ],
)
def test_a_shell_completes_verbs_and_names(
    typed: str, expected: str, absent: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("_PARACOSM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    printed = capsys.readouterr().out.splitlines()
    assert expected in printed
    assert not any(line.startswith(absent) for line in printed)


def test_the_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    missing = {**doctor.EXTRAS, "metis": ("there_is_no_such_package.part", "relax --pattern metis")}
    monkeypatch.setattr(doctor, "EXTRAS", missing)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert 'missing for relax --pattern metis: pip install "paracosm[metis]"' in printed
    assert "numpy" not in printed
    assert main(["doctor", "--details"]) == 0
    assert np.__version__ in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["numpy"] == np.__version__
    assert "metis" in found["missing"]


def test_help_shows_defaults_in_brackets(capsys: Capture) -> None:
    assert main(["predict", "--help-all"]) == 0
    printed = capsys.readouterr().out
    assert all(f"[{default}]" in printed for default in ("64", "sgd", "cold", "profiles.db"))


def test_a_verb_of_two_words_is_found_and_named_in_the_help_of_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(VERBS, "report trace", "paracosm.cli.report")  # type: ignore[misc]
    assert main(["report", "--help"]) == 0
    assert "paracosm report trace: Write a run's timeline" in capsys.readouterr().out
    assert main(["report", "trace", "nowhere"]) == 2
    assert capsys.readouterr().err == "paracosm: nowhere: no such folder\n"
    assert main(["report", "nowhere"]) == 2
    assert main(["trace", "report"]) == 2
    assert "report: no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("relx", "relax")])
def test_a_misspelt_verb_is_answered_with_the_nearest(
    typed: str, meant: str, capsys: Capture
) -> None:
    assert main([typed]) == 2
    assert f"Did you mean '{meant}'" in capsys.readouterr().err


def loaded(*arguments: str) -> set[str]:
    """Return the modules that a fresh program has loaded after `arguments`."""
    program = (
        "import sys; from paracosm.cli import main; code = main(sys.argv[1:]);"
        "print(*sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, *arguments]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_training_loads_nothing_of_the_other_kinds() -> None:
    modules = loaded("train", "--timing-only", "--updates", "5", "--quiet")
    assert "paracosm.training" in modules
    assert not modules & {"paracosm.relaxation", "pyarrow", "plotly", "matplotlib", "joblib"}


def test_a_first_training_does_not_wait_for_scikit_learn_and_the_compiler_of_pytorch() -> None:
    modules = loaded("train", "--updates", "2", "--quiet")
    assert "torch" in modules
    assert not modules & {"sklearn", "scipy.stats", "torch._dynamo", "numba"}


def test_half_a_verb_is_answered_with_the_verbs_that_begin_so(capsys: Capture) -> None:
    assert main(["db"]) == 2
    assert (
        '"db" is an incomplete verb: choose from db show, db check, db merge, db export'
        in capsys.readouterr().err
    )
    assert main(["graph", "shwo"]) == 2
    assert '"graph shwo" is not a verb: choose from graph capture' in capsys.readouterr().err
    assert main(["profile", "--help"]) == 0
    assert "paracosm profile ops: Time every op of a model" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_no_word_of_a_help_turns_into_a_picture(verb: str, capsys: Capture) -> None:
    """Rich draws `:factory:` as one."""
    assert main([*verb.split(), "--help"]) == 0
    assert all(ord(letter) < 1 << 16 for letter in capsys.readouterr().out)


def test_ctrl_c_while_a_verb_is_imported_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verbs, "_command", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "paracosm: interrupted\n"
    monkeypatch.setattr(verbs.Program, "parse_args", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "paracosm: interrupted\n"


def test_a_signal_within_code_that_is_executed_from_a_text_has_its_own_exit_code(
    tmp_path: Path,
) -> None:
    """There Python notes a KeyboardInterrupt, and would end itself by SIGINT."""
    sent = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); [0 for _ in range(10**6)]"
    (tmp_path / "own.py").write_text(f"exec({sent!r})")
    command = [sys.executable, "-m", "paracosm", "train", "--algorithm", "own.py:Own"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "paracosm: interrupted\n")

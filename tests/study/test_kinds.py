"""The kinds of run that a study may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.studies import Hooks, Study, load_study, run_point
from paracosm.studies.kinds import KINDS


def test_every_kind_ends_where_it_succeeds() -> None:
    for verb, kind in KINDS.items():
        assert kind.verb == verb
        assert {answer.summary.verb for answer in kind.answers} == {verb}
        assert kind.success in kind.ends
        assert "interrupted" not in kind.ends


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_of_a_kind_is_described(kind: str) -> None:
    for form in KINDS[kind].models:
        for name, field in form.model_fields.items():
            assert field.description, name


NONE = (
    "a study has one of the keys train, plan, predict, emulate, replay, relax, tune, with the "
    "arguments of the run"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 3", NONE),
        (
            "train: {}\nrelax: {}",
            f"{NONE}, got train and relax",
        ),
        ("relax:", "relax: input should be a mapping of names to values, got nothing"),
        ("relax: [1]", "relax: input should be a mapping of names to values, got a list"),
        ("relax: {}\nover: {}\nrleax: {}", 'unknown key "rleax": did you mean "relax"?'),
    ],
)
def test_a_study_is_of_exactly_one_kind(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_study(path)
    assert str(caught.value) == f"{path}: {message}"


def test_other_arguments_go_to_the_kind_that_the_study_has() -> None:
    study = Study(relax={"processors": 2}, over={"seed": [0, 1]})
    assert study.kind == "relax"
    changed = study.with_arguments(None, {"method": "jacobi"})
    assert changed.arguments == {"processors": 2, "method": "jacobi"}
    assert changed.as_written() == {
        "seed": 0,
        "relax": {"processors": 2, "method": "jacobi"},
        "over": {"seed": [0, 1]},
    }


def test_a_relaxation_has_no_log_of_its_events() -> None:
    (point,) = Study(relax={"problem": "laplace2d:4", "processors": 2}).points("test")
    with pytest.raises(InputError, match="has no event log"):
        run_point(point, hooks=Hooks(log=True))

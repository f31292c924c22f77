"""The verbs that capture a model say the same of the same flag."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.cli.verbs import _command
from paracosm.models.optimizers import OPTIMIZERS
from paracosm.prediction.config import CAPTURE, PredictConfig

FLAGS = sorted(CAPTURE)


def options(verb: str) -> dict[str, Any]:
    return {parameter.name: parameter for parameter in _command(verb).params}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("verb", ["graph capture", "profile ops"])
def test_flags_of_a_capture_are_those_of_predict(verb: str, name: str) -> None:
    flag, field = options(verb)[name], PredictConfig.model_fields[name]
    predict = options("predict")[name]
    assert flag.opts == predict.opts
    assert flag.secondary_opts == predict.secondary_opts
    assert flag.default == field.default
    assert flag.help == field.description
    assert predict.help.startswith(flag.help)


def test_a_profile_goes_where_a_prediction_looks() -> None:
    assert options("profile ops")["db"].default == PredictConfig.model_fields["db"].default


def test_help_names_every_optimizer() -> None:
    assert options("predict")["optimizer"].help.startswith(", ".join(OPTIMIZERS))

"""Models that are written down from their sizes, by name, without timings or PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.run import run_prediction


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(**given: object) -> PredictConfig:
    return PredictConfig.model_validate({"hardware": "h100-sxm", "batch": 1, **given})


def test_a_transformer_is_predicted_in_an_empty_folder() -> None:
    """At least the time of its flops at the peak: 6 a parameter of a product, and a token."""
    summary = run_prediction(config(model="opt-350m", shape=(1024,)), 0).summary
    least = 6 * 1024 * (24 * 12 * 1024**2 + 50_272 * 1024) / 989.5e12
    assert least < summary["iteration_time"] < 10 * least


def test_the_strategy_says_how_the_graph_is_divided() -> None:
    found = config(
        model="mixtral-8x7b",
        shape=(512,),
        workers="8",
        strategy="fsdp, ep=4, routing=zipf(1), recompute=yes",
    )
    summary = run_prediction(found, 3).summary
    assert "busiest of 4 ranks" in summary["durations"]["experts"]
    assert summary["iteration_time"] != run_prediction(found, 4).summary["iteration_time"]


def test_a_model_of_both_is_captured_unless_it_cannot_be() -> None:
    assert config(model="llama-7b").architecture is None
    assert config(model="llama-8b").architecture is not None
    written = config(model="llama-7b", workers="2", strategy="cp=2")
    assert written.architecture is not None
    assert written.architecture.sequence == 4096


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "lama-8b"}, 'did you mean "llama-8b"'),
        ({"model": "llama-8b", "optimizer": "adam"}, "optimizer: has no effect"),
        ({"model": "llama-8b", "shape": (3, 4)}, "takes a number of tokens"),
        ({"model": "llama-8b", "workers": "6", "strategy": "cp=4"}, "does not divide 6 workers"),
        ({"model": "llama-8b", "workers": "2", "strategy": "ep=2"}, "the model has no experts"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        run_prediction(config(**given), 0)

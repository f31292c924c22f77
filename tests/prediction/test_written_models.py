"""Models that are written down from their sizes, by name, without timings or PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.graphs import load_graph, save_graph
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.summary import fingerprint, step_of
from paracosm.graphs.transformer.architecture import ARCHITECTURES, architecture
from paracosm.models.registry import MODELS
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.run import run_prediction
from paracosm.report.runs import answer


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


BOTH = sorted(ARCHITECTURES.keys() & MODELS.keys())
"""Names of published models that are also modules."""


def test_the_names_of_both_are_known_here() -> None:
    gpt2 = ["gpt2", "gpt2-large", "gpt2-medium", "gpt2-xl"]
    assert ["bert-base", *gpt2, "llama-70b", "llama-7b"] == BOTH


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("hardware", ["h100-sxm", "dgx-h100"])
def test_on_hardware_a_name_is_the_published_model_alone_and_in_every_strategy(
    name: str, hardware: str
) -> None:
    """A name that is also a module's means the same as with `sizes:`, whatever the strategy."""
    for job in ({}, {"workers": "8"}, {"workers": "8", "strategy": "fsdp, tp=2"}):
        named = config(model=name, hardware=hardware, **job)
        stack = named.software
        assert named.architecture == replace(
            architecture(name), recipe=stack.recipe, loss=stack.loss, weights=stack.weights
        )
        assert named.architecture == config(model=f"sizes:{name}", **job).architecture


def test_a_name_takes_the_time_of_its_sizes_and_says_what_it_computes_with() -> None:
    """Of 6.74e9 parameters at least 6 flops a token each, 4096 tokens, at 989.5 Tflop/s: 167 ms;
    the same products in single precision, at 67 Tflop/s, would take at least 2.4 s.
    """
    job = {"workers": "8", "strategy": "fsdp", "hardware": "dgx-h100"}
    named = run_prediction(config(model="llama-7b", **job), 0).summary
    sized = run_prediction(config(model="sizes:llama-7b", **job), 0).summary
    assert named["iteration_time"] == sized["iteration_time"]
    flops = 6 * 6.6e9 * 4096  # without the table of tokens, which multiplies nothing
    assert flops / 989.5e12 < named["iteration_time"] < flops / 67e12
    for summary in (named, sized):
        assert (summary["dtype"], summary["optimizer"]) == ("bfloat16", "adamw")
        assert (summary["shape"], summary["source"]) == ("4096", "published sizes")
        assert "in bfloat16 with adamw, by pytorch-compile." in answer(summary)


def test_with_a_database_a_name_is_the_module_that_was_profiled(tmp_path: Path) -> None:
    timed = {"db": tmp_path / "a.db", "hardware": "h100-sxm"}
    assert config(model="gpt2", **timed).architecture is None
    assert config(model="sizes:gpt2", **timed).architecture == architecture("gpt2")
    for strategy in ("fsdp, cp=2", "auto"):
        job = {"workers": "2", "bandwidth": "1GB/s", "strategy": strategy, **timed}
        with pytest.raises(InputError, match=r"gpt2 means the module .*: --model sizes:gpt2"):
            PredictConfig.model_validate({"model": "gpt2", **job}).check()


@pytest.mark.parametrize("given", [{"dtype": "float32"}, {"optimizer": "sgd"}, {"foreach": True}])
def test_what_a_published_model_does_not_take_names_the_module(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"--model paracosm\.models\.language:llama_7b captures"):
        config(model="llama-7b", **given)


def test_a_module_is_captured_by_its_factory() -> None:
    """With the tokens and the loss that it has by its name, in the dtype that is asked for."""
    by_name = capture(CaptureOptions("gpt-small", batch=2, shape=(16,)))
    named = "paracosm.models.language:gpt_small"
    assert fingerprint(capture(CaptureOptions(named, batch=2, shape=(16,)))) == fingerprint(by_name)
    found = config(model="paracosm.models.language:gpt2", shape=(16,), optimizer="adam")
    assert found.architecture is None
    summary = run_prediction(found, 0).summary
    assert (summary["dtype"], summary["optimizer"]) == ("float32", "adam")
    assert "in float32 with adam, by pytorch-eager." in answer(summary)


def test_every_way_of_giving_a_model_says_what_it_computes_with(tmp_path: Path) -> None:
    """By name, by factory, forward alone, and as a graph, with or without its provenance."""
    (tmp_path / "own.py").write_text(
        "from torch import nn\ndef model():\n    return nn.Linear(8, 4)\n"
    )
    graph = capture(CaptureOptions("mlp", batch=2, dtype="float64", optimizer="adamw"))
    save_graph(graph, tmp_path / "a.graph")
    save_graph(replace(graph, provenance={}), tmp_path / "b.graph")
    base = {"hardware": "cpu-2-core", "batch": 2}
    for asked, words in (
        ({**base, "model": "mlp"}, "in float32 with sgd, by pytorch-eager."),
        ({**base, "model": "mlp", "optimizer": "sgd(momentum=0.9)"}, "with sgd(momentum=0.9), by "),
        ({**base, "model": "mlp", "train": False}, "in float32, without an update, by "),
        (
            {**base, "model": "own.py:model", "shape": (8,)},
            "in float32 with sgd, by pytorch-eager.",
        ),
    ):
        assert words in answer(run_prediction(PredictConfig(**asked), 0).summary)
    assert step_of(load_graph(tmp_path / "a.graph"))["dtype"] == "float64"
    bare = step_of(load_graph(tmp_path / "b.graph"))
    assert (bare["dtype"], bare["optimizer"]) == ("float64", None)


def test_a_measurement_names_the_published_model_too() -> None:
    """2 s measured of the same model are 2 s predicted, by whichever of its names, but for the part
    in which the device waits for the host, which is no longer than before."""
    for name in ("gpt2", "sizes:gpt2"):
        found = config(model="gpt2", measured=f"{name}, batch 1: 2 s")
        assert run_prediction(found, 0).summary["iteration_time"] == pytest.approx(2, rel=5e-3)
    with pytest.raises(InputError, match="measured: dtype: has no effect"):
        run_prediction(config(model="gpt2", measured="gpt2, batch 1, dtype float32: 2 s"), 0)


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

"""The captured graph against the step that really runs, op by op."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from paracosm.graphs.capture import CaptureOptions, capture, training_step
from paracosm.graphs.capture.record import record
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.summary import fingerprint, peak_memory

SMALL = {"batch": 2, "shape": (3, 32, 32)}
STEPS = {
    "convolutions": CaptureOptions("tiny_models:resnet", **SMALL, optimizer="sgd(momentum=0.9)"),
    "convolutions, foreach": CaptureOptions("tiny_models:resnet", **SMALL, foreach=True),
    "a built-in model": CaptureOptions("resnet18", **SMALL),
    "attention": CaptureOptions("tiny_models:gpt", batch=2, optimizer="adam"),
    "attention, dropout": CaptureOptions(
        "tiny_models:gpt", batch=2, dropout=True, optimizer="adamw", foreach=True
    ),
    "attention, bfloat16": CaptureOptions("tiny_models:gpt", batch=2, dtype="bfloat16"),
    "grouped attention": CaptureOptions("tiny_models:llama", batch=2, optimizer="adamw"),
    "recurrence": CaptureOptions("tiny_models:gru", batch=2, dropout=True),
    "forward pass": CaptureOptions("tiny_models:gpt", batch=2, train=False),
    "no optimizer": CaptureOptions("mlp", batch=2, optimizer="none"),
}
EVERYDAY = {"convolutions, foreach", "attention, dropout", "recurrence", "no optimizer"}


def rows(graph: Graph) -> list[tuple[object, ...]]:
    """Return all that a graph says of each node."""
    return [
        (
            graph.ops[graph.op[row]],
            graph.names[graph.name[row]],
            PHASES[graph.phase[row]],
            RESOURCES[graph.resource[row]],
            tuple(graph.predecessors(row)),
        )
        for row in range(len(graph))
    ]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EVERYDAY else pytest.mark.slow) for name in STEPS],
)
def test_the_capture_is_what_a_real_step_runs(name: str) -> None:
    options = STEPS[name]
    step = training_step(options, seed=1)
    step.run()
    real, captured = record(step), capture(options)
    assert rows(captured) == rows(real)
    assert captured.resident == real.resident
    for part in ("size", "first", "last"):
        np.testing.assert_array_equal(
            getattr(captured.storages, part), getattr(real.storages, part)
        )


def test_a_real_step_trains() -> None:
    step = training_step(CaptureOptions("tiny_models:gpt", batch=4, optimizer="adam"), seed=3)
    work = step.workload

    def loss() -> float:
        return work.loss(work.module(*work.inputs)).item()

    before = loss()
    for _ in range(20):
        step.run()
    assert loss() < before


def test_a_seed_decides_parameters_and_inputs() -> None:
    options = CaptureOptions("mlp", batch=2)
    first, second, other = (training_step(options, seed=seed).workload for seed in (5, 5, 6))
    for mine, same, differs in zip(
        (*first.module.parameters(), *first.inputs),
        (*second.module.parameters(), *second.inputs),
        (*other.module.parameters(), *other.inputs),
        strict=True,
    ):
        assert torch.equal(mine, same)
        if mine.ndim > 1:  # biases begin with 0
            assert not torch.equal(mine, differs)


def test_a_capture_repeats_itself() -> None:
    first, second = (capture(STEPS["attention, dropout"]) for _ in range(2))
    assert rows(first) == rows(second)
    np.testing.assert_array_equal(first.storages.last, second.storages.last)
    assert fingerprint(first) == fingerprint(second)


def test_phases_follow_each_other_and_name_their_modules() -> None:
    graph = capture(CaptureOptions("tiny_models:two_layers", batch=4))
    assert list(graph.phase) == sorted(graph.phase)
    products = [
        (graph.names[graph.name[row]], PHASES[graph.phase[row]])
        for row in range(len(graph))
        if graph.ops[graph.op[row]].name == "aten.mm.default"
    ]
    layers = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"]
    # Backwards: the gradient of each weight and of each input, but for the first layer's input.
    gradients = [layer for layer in reversed(layers) for _ in range(2)][:-1]
    assert products == [(layer, "forward") for layer in layers] + [
        (layer, "backward") for layer in gradients
    ]


def test_updates_belong_to_the_module_of_their_parameter() -> None:
    graph = capture(CaptureOptions("tiny_models:two_layers", batch=4, optimizer="adam"))
    chosen = (graph.phase == PHASES.index("optimizer")) & (
        graph.resource == RESOURCES.index("compute")
    )
    names = Counter(graph.names[name] for name in graph.name[chosen])
    assert set(names) == {f"blocks.{block}.{layer}" for block in (0, 1) for layer in ("up", "down")}
    assert len(set(names.values())) == 1


def test_parameters_gradients_and_optimizer_are_counted_once() -> None:
    graph = capture(CaptureOptions("tiny_models:two_layers", batch=4, optimizer="adam"))
    weights = 4 * 8 * 16  # two blocks of two matrices
    assert graph.resident == {
        "parameters": 4 * weights,
        "gradients": 0,  # they are allocated in every step
        "optimizer": 2 * 4 * weights + 4 * 4,  # two moments, and four counters of steps
        "buffers": 0,
        "inputs": 4 * 4 * 8,
    }
    kept = graph.storages.size[graph.storages.last == len(graph)]
    assert sorted(kept) == [4 * 128] * 4  # the gradients outlive the step
    assert peak_memory(graph) >= sum(graph.resident.values()) + sum(kept)


def test_foreach_needs_fewer_ops_for_the_same_work() -> None:
    plain, together = (
        capture(CaptureOptions("tiny_models:resnet", **SMALL, foreach=foreach))
        for foreach in (False, True)
    )
    assert len(together) < len(plain)
    assert together.flops.sum() == plain.flops.sum()


def test_dropout_leaves_the_fused_attention() -> None:
    def names(dropout: bool) -> set[str]:
        return {
            op.name for op in capture(CaptureOptions("gpt-small", 1, (8,), dropout=dropout)).ops
        }

    fused = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert fused in names(dropout=False)
    assert fused not in names(dropout=True)
    assert "aten.bernoulli_.float" in names(dropout=True) - names(dropout=False)


def test_provenance_carries_every_option() -> None:
    options = CaptureOptions("resnet18", batch=2, shape=(3, 32, 32), optimizer="adam")
    provenance = capture(options).provenance
    assert provenance == {
        **vars(options),
        "shape": [3, 32, 32],
        "classes": 10,
        "examples": 2,
        "framework": f"torch {torch.__version__.split('+')[0]}",
        "source": "torch dispatch",
    }


def test_classes_are_those_of_the_usual_data_of_that_size() -> None:
    def classes(**options: object) -> object:
        return capture(CaptureOptions("resnet18", batch=2, **options)).provenance["classes"]  # type: ignore[arg-type]

    assert classes() == 1000
    assert classes(shape=(3, 32, 32)) == 10
    assert classes(shape=(3, 32, 32), classes=100) == 100


def test_dtype_is_that_of_every_parameter() -> None:
    graph = capture(CaptureOptions("mlp", batch=2, dtype="bfloat16"))
    whole = capture(CaptureOptions("mlp", batch=2))
    assert 2 * graph.resident["parameters"] == whole.resident["parameters"]
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.slow
def test_70_billion_parameters_need_less_than_a_gigabyte() -> None:
    program = (
        "import pathlib, re; from paracosm.graphs.capture import CaptureOptions, capture; "
        "graph = capture(CaptureOptions('llama-70b', dtype='bfloat16', optimizer='adamw')); "
        "status = pathlib.Path('/proc/self/status').read_text(); "  # ru_maxrss counts the parent's
        "print(graph.resident['parameters'], 1024 * int(re.search(r'VmHWM:\\s*(\\d+)', status)[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    parameters, peak = (int(word) for word in done.stdout.split())
    assert parameters == 2 * 68_976_648_192
    assert peak < 1e9


def test_a_name_is_known_and_a_module_imported_without_torch() -> None:
    program = (
        "import sys; from paracosm.graphs.capture import CaptureOptions, capture, training_step; "
        "from paracosm.models import MODELS; import paracosm.cli.graph_capture; "
        "CaptureOptions('resnet50'); assert 'torch' not in sys.modules; print(*MODELS)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "resnet50" in done.stdout.split()

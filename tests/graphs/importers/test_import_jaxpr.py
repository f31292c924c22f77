"""Jaxprs: the dump that the exporter made under JAX 0.10.2, and damaged ones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES
from paracosm.graphs.importers.jaxpr import read_jaxpr

DATA = Path(__file__).parents[2] / "data" / "importers" / "step_jaxpr.json.gz"


def dump() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(DATA.read_bytes()))
    return content


def test_the_work_of_a_training_step_is_that_of_its_formulas() -> None:
    """tanh(x w + b), three layers of 32 by 32, a convolution of 3 x 3 from 2 to 8 channels."""
    graph = read_jaxpr(DATA)
    found = Counter(
        (graph.ops[code].name, PHASES[phase], graph.ops[code].flops)
        for code, phase in zip(graph.op, graph.phase, strict=True)
        if graph.ops[code].name in ("jax.dot_general", "jax.conv_general_dilated")
    )
    first, layer = 2 * 4 * 16 * 32, 2 * 4 * 32 * 32
    conv = 2 * (4 * 4 * 4 * 8) * 9 * 2
    assert found == {
        ("jax.dot_general", "forward", first): 1,
        ("jax.dot_general", "backward", first): 1,
        ("jax.dot_general", "forward", layer): 3,
        ("jax.dot_general", "backward", layer): 6,
        ("jax.conv_general_dilated", "forward", conv): 1,
        ("jax.conv_general_dilated", "backward", conv): 2,
    }


def test_phases_names_and_memory() -> None:
    graph = read_jaxpr(DATA)
    phases = Counter(PHASES[code] for code in graph.phase)
    assert phases["optimizer"] == 8  # a product and a difference for each of four parameters
    assert {"embed", "layer", "conv", "head"} <= set(graph.names)
    parameters = 4 * (16 * 32 + 32 + 3 * 32 * 32 + 9 * 2 * 8)
    assert graph.resident == {"parameters": parameters, "inputs": 4 * 4 * 16}
    assert graph.provenance["examples"] == 4
    left = graph.storages.size[
        (graph.storages.last == len(graph))
        & (graph.phase[graph.storages.first] == PHASES.index("backward"))
    ]
    assert {128, 2048, 576} <= set(left.tolist())


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step.json"

    def refusal(**changes: Any) -> str:
        path.write_text(json.dumps({**dump(), **changes}))
        with pytest.raises(InputError) as raised:
            read_jaxpr(path)
        return str(raised.value).removeprefix(f"{path}: ")

    assert refusal(paracosm_jaxpr=2).startswith("a jaxpr of format 2; this version reads up to 1")
    assert refusal(paracosm_jaxpr=-1).startswith("a jaxpr of format -1")
    assert refusal(examples="4") == '"examples" must be a whole number from 1'
    assert refusal(counted_once=-1) == '"counted_once" must be a whole number from 0'
    assert refusal(equations=None) == '"equations" is missing, or no list'
    assert refusal(equations=[]) == "a jaxpr without equations"
    assert refusal(equations=[{}]) == 'equation 0 lacks "primitive"'
    assert refusal(inputs=[9999]).startswith("inputs: there is no value 9999, only ")
    assert refusal(tensors=[["float32"]]).startswith('"tensors" has no type and shape at 0')
    product = {"primitive": "dot_general", "inputs": [0, 0], "outputs": [1], "params": {}}
    assert refusal(equations=[product]) == (
        "equation 0 (dot_general): its params do not fit its inputs"
    )


def test_the_exporter_writes_what_is_read(tmp_path: Path) -> None:
    """Where JAX is installed: a scan of two products, two passes over three slices."""
    jax = pytest.importorskip("jax")
    from paracosm.graphs.importers.jaxpr_export import export

    def loss(weights: Any, x: Any) -> Any:
        y, _ = jax.lax.scan(lambda c, w: (c @ w, None), x, weights)
        return y.sum()

    shape = jax.ShapeDtypeStruct
    path = tmp_path / "step.json"
    export(path, jax.grad(loss), shape((3, 8, 8), "float32"), shape((4, 8), "float32"), examples=4)
    graph = read_jaxpr(path)
    products = [code for code in graph.op if graph.ops[code].name == "jax.dot_general"]
    assert len(products) == 9
    assert graph.resident["parameters"] == 4 * 3 * 64

"""Predictions with totals that can be computed by hand."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.prediction import predict
from paracosm.profiling.durations import constant
from paracosm.profiling.estimators.roofline import Estimate

X = TensorArgument((2, 3), "float32")
CONV = Op("aten.convolution.default", encode_arguments([X, X], {}), flops=10, bytes_read=8)
RELU = Op("aten.relu.default", encode_arguments([X], {}), bytes_read=4)
VIEW = Op("aten.view.default")


def nodes() -> list[Node]:
    """Return a convolution twice and a ReLU, 100 bytes each that live until the next has run."""
    return [
        Node(0, CONV, "stem.conv", "forward", allocates=((100, 1),)),
        Node(1, RELU, "stem.relu", "forward", dependencies=(0,), allocates=((100, 2),)),
        Node(2, CONV, "layer1.0.conv", "backward", dependencies=(1,), allocates=((100, -1),)),
    ]


GRAPH = build_graph(nodes(), resident={"parameters": 1000}, provenance={"examples": 4})


def durations(conv: float, relu: float, *sources: str) -> list[Estimate | None]:
    """Return durations 10 % up and down of the two ops of `GRAPH`."""
    return [
        Estimate(value, 0.9 * value, 1.1 * value, source, "")
        for value, source in zip((conv, relu), sources or ("exact", "exact"), strict=True)
    ]


def test_three_ops_of_one_second_take_three() -> None:
    prediction = predict(GRAPH, constant(GRAPH, 1.0))
    assert prediction.iteration_time == 3.0
    assert prediction.examples_per_second == pytest.approx(4 / 3)
    assert prediction.interval == (3.0, 3.0)
    assert prediction.coverage == {"exact": 1.0}
    assert prediction.baselines == {"sum of durations": 3.0}
    assert prediction.lanes == {"host": 3.0}


def test_the_time_by_phase_op_and_place() -> None:
    prediction = predict(GRAPH, durations(2.0, 1.0))
    assert prediction.by_phase == {"forward": 3.0, "backward": 2.0}
    assert prediction.by_op == {CONV.name: 4.0, RELU.name: 1.0}
    assert prediction.by_place == {"layer1.0": 2.0, "stem.conv": 2.0, "stem.relu": 1.0}
    first, second = prediction.largest
    assert (first.op, first.count, first.time, first.share) == (CONV.name, 2, 4.0, 0.8)
    assert (first.shapes, second.shapes) == ("2x3, 2x3", "2x3")
    assert (
        prediction.bottleneck == "Computing: aten.convolution.default takes 80% of the ops' time."
    )


def test_memory_is_that_of_the_graph() -> None:
    prediction = predict(GRAPH, constant(GRAPH, 1.0))
    assert prediction.memory.tolist() == [1100, 1200, 1200]
    assert prediction.peak_memory == 1200
    nothing_known = build_graph([Node(0, RELU)])
    assert predict(nothing_known, constant(nothing_known, 1.0)).peak_memory is None


def test_the_order_of_nodes_in_the_file_makes_no_difference() -> None:
    mixed = nodes()
    random.Random(1).shuffle(mixed)
    assert [node.id for node in mixed] != [0, 1, 2]
    other = build_graph(mixed)
    by_name = {CONV: 2.0, RELU: 1.0}
    again = predict(other, [constant(other, by_name[op])[0] for op in other.ops])
    assert again.schedule.begin.tolist() == [0, 2, 3]
    assert again.iteration_time == predict(GRAPH, durations(2.0, 1.0)).iteration_time


def test_coverage_is_a_share_of_time_not_of_ops() -> None:
    prediction = predict(GRAPH, durations(2.0, 1.0, "exact", "unknown"))
    assert prediction.coverage == {"exact": 0.8, "unknown": pytest.approx(0.2)}


def test_errors_of_measured_ops_are_independent_and_nodes_of_one_op_share_theirs() -> None:
    """The convolution is 0.2 s off twice, the ReLU 0.1 s once: sqrt(0.4^2 + 0.1^2)."""
    low, high = predict(GRAPH, durations(2.0, 1.0)).interval
    assert high - 5 == pytest.approx(np.hypot(0.4, 0.1))
    assert 5 - low == pytest.approx(np.hypot(0.4, 0.1))


def test_estimated_ops_of_one_type_err_together() -> None:
    """Two convolutions of different shapes, 0.1 s off each: 0.2 estimated, 0.1 * sqrt(2) exact."""
    other = replace(CONV, arguments="")
    graph = build_graph([Node(0, CONV), Node(1, other)])
    for source, width in (("estimated", 0.2), ("exact", 0.1 * np.sqrt(2))):
        found = predict(graph, durations(1.0, 1.0, source, source))
        assert found.interval[1] - 2 == pytest.approx(width)


def test_a_machine_whose_speed_varies_moves_all_ops_together() -> None:
    prediction = predict(GRAPH, constant(GRAPH, 1.0), common=0.1)
    assert prediction.interval == (pytest.approx(2.7), pytest.approx(3.3))


def test_what_the_host_hides_adds_nothing_to_the_interval() -> None:
    """Launches take 10 s each; the ops' errors change when the last one ends, no more."""
    prediction = predict(GRAPH, durations(2.0, 1.0), asynchronous=True, launch=10.0)
    assert prediction.iteration_time == 32.0
    assert prediction.interval == (pytest.approx(31.8), pytest.approx(32.2))
    assert prediction.bottleneck.startswith("Launching: the device is idle 84%")


def test_a_duration_in_the_graph_holds() -> None:
    graph = build_graph([node._replace(duration=7.0) for node in nodes()])
    prediction = predict(graph, constant(graph, 1.0))
    assert prediction.iteration_time == 21.0
    assert prediction.coverage == {"recorded": 1.0}


def test_a_view_that_nobody_timed_counts_as_a_launch_and_is_named() -> None:
    graph = build_graph([*nodes(), Node(3, VIEW, resource="host", dependencies=(2,))])
    prediction = predict(graph, [*durations(2.0, 1.0), None], launch=0.5)
    assert prediction.iteration_time == 5.5
    assert prediction.untimed == (VIEW.name,)


def test_an_op_without_a_duration_is_refused_by_name_with_the_command_that_profiles_it() -> None:
    graph = build_graph(
        nodes(), provenance={"model": "resnet50", "batch": 64, "shape": [3, 32, 32]}
    )
    with pytest.raises(InputError) as refused:
        predict(graph, constant(graph, float("nan")))
    assert str(refused.value) == (
        "no timing of aten.convolution.default and 1 more op types, and no flops or bytes to "
        "estimate one from: paracosm profile ops --model resnet50 --batch 64 --shape 3x32x32 "
        "--db DATABASE profiles it"
    )


def test_the_command_asks_for_the_ops_of_this_very_graph() -> None:
    asked = {"dtype": "bfloat16", "optimizer": "adamw", "foreach": True, "train": False}
    given = {"model": "gpt2", "batch": 2, "shape": [128], "classes": 7, **asked}
    graph = build_graph(nodes(), provenance=given)
    flags = "--shape 128 --classes 7 --dtype bfloat16 --optimizer adamw --foreach --no-train --db"
    with pytest.raises(InputError, match=flags):
        predict(graph, constant(graph, float("nan")))


def test_durations_of_another_graph_are_refused() -> None:
    with pytest.raises(InputError, match="2 durations for a graph of 1 distinct ops"):
        predict(build_graph([Node(0, CONV)]), durations(2.0, 1.0))


def test_an_empty_graph_takes_no_time() -> None:
    graph = build_graph([])
    prediction = predict(graph, constant(graph, 1.0))
    assert prediction.iteration_time == 0
    assert prediction.bottleneck == "Nothing takes any time."
    assert prediction.examples_per_second is None


def test_the_program_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "prediction.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(program, {})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "0.017 1882"
    assert second.startswith("Launching: the device is idle 65% of the iteration")

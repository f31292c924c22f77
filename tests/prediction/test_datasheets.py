"""Predictions on hardware of the catalogue: by its datasheet, corrected by what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_database import GPU, make_database, timing

from paracosm.cli import main
from paracosm.cluster.hardware import find_hardware, find_stack, load_efficiencies
from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.file import save_graph
from paracosm.graphs.graph import Graph, Op, TensorArgument, encode_arguments
from paracosm.graphs.transformer import architecture, transformer_graph
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.replica import read_measured
from paracosm.prediction.run import run_prediction
from paracosm.profiling.datasheets import (
    NONE,
    class_of,
    common_error,
    corrected_by,
    dtype_of,
    durations_on,
    share_of_kernels,
)
from paracosm.validation import validated


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def product(size: int, dtype: str = "float32") -> Op:
    tensors = [TensorArgument((size, size), dtype)] * 2
    moved = 4 * size * size
    arguments = encode_arguments(tensors, {})
    return Op("aten.mm.default", arguments, 2 * size**3, 2 * moved, moved)


RELU = Op("aten.relu.default", "", 0, 10**8, 10**8)


def graph_of(*ops: Op) -> Graph:
    nodes = [Node(n, op, phase="forward") for n, op in enumerate(ops)]
    return build_graph(nodes, provenance={"model": "two", "batch": 8, "examples": 8})


def predicted(**asked: Any) -> Any:
    return run_prediction(PredictConfig(**asked), seed=0).summary


@pytest.mark.parametrize(
    ("name", "phase", "expected"),
    [
        ("aten.mm.default", "forward", "product"),
        ("aten.addmm.default", "backward", "product"),
        ("aten._scaled_mm.default", "forward", "product"),
        ("aten._grouped_mm.default", "forward", "product"),
        ("aten.bmm.default", "forward", "batched product"),
        ("aten.convolution_backward.default", "backward", "convolution"),
        ("aten._scaled_dot_product_flash_attention.default", "forward", "attention"),
        ("aten.native_layer_norm.default", "forward", "reduction"),
        ("aten.native_batch_norm_backward.default", "backward", "reduction"),
        ("aten._softmax.default", "forward", "reduction"),
        ("aten.sum.dim_IntList", "backward", "reduction"),
        ("aten.embedding.default", "forward", "embedding"),
        ("aten.add_.Tensor", "optimizer", "optimizer"),
        ("pytorch.adamw", "optimizer", "optimizer"),
        ("aten.max_pool2d_with_indices.default", "forward", "elementwise"),
        ("aten._to_copy.default", "forward", "elementwise"),
        ("aten.gelu.default", "forward", "elementwise"),
    ],
)
def test_ops_are_told_apart_by_their_names(name: str, phase: str, expected: str) -> None:
    assert class_of(name, phase) == expected


def test_convolutions_in_single_precision_use_tensor_cores_where_there_are_some() -> None:
    image = [TensorArgument((8, 3, 32, 32), "float32"), TensorArgument((64, 3, 7, 7), "float32")]
    convolution = Op("aten.convolution.default", encode_arguments(image, {}), 10**9, 1, 1)
    assert dtype_of(convolution, ("float32", "tfloat32")) == "tfloat32"
    assert dtype_of(convolution, ("float32", "float16")) == "float32"
    assert dtype_of(product(64), ("float32", "tfloat32")) == "float32"
    assert dtype_of(product(64, "float8_e4m3fn"), ("float8",)) == "float8"


def test_durations_are_those_of_the_datasheet_and_the_table(tmp_path: Path) -> None:
    graph = graph_of(product(4096), RELU)
    found = durations_on(graph, find_hardware("v100-pcie-32gb"))
    table = load_efficiencies().devices["v100-pcie-32gb"]
    products, others = table["product"], table["elementwise"]
    multiplied, added = found
    assert multiplied is not None
    assert added is not None
    expected = products.fixed + 2 * 4096**3 / (products.compute * 14e12)
    assert multiplied.duration == pytest.approx(expected)
    assert added.duration == pytest.approx(others.fixed + 2e8 / (others.memory * 900e9))
    assert {multiplied.source, added.source} == {"efficiency"}
    assert multiplied.low < multiplied.duration < multiplied.high
    unmeasured = durations_on(graph, find_hardware("t4"))
    assert [each.source for each in unmeasured if each] == ["pooled", "pooled"]


def test_what_kernels_err_by_in_common_is_of_their_stack() -> None:
    """A quarter of the time is of classes of ops, which err by the device's, and no less."""
    table, hardware = load_efficiencies(), find_hardware("h100-sxm")
    te, eager = find_stack("megatron-te"), find_stack("pytorch-eager")
    assert te.common is not None
    assert eager.common is not None
    assert te.common < table.common < eager.common
    expected = 0.75 * te.common + 0.25 * table.common
    assert common_error(hardware, NONE, table, te, 0.75) == pytest.approx(expected)
    assert common_error(hardware, NONE, table, eager, 0.75) == pytest.approx(eager.common)
    assert common_error(hardware, NONE, table, eager) == table.common  # no kernel was timed
    assert common_error(find_hardware("t4"), NONE, table, te) == table.common_unmeasured
    graph = graph_of(product(4096, "bfloat16"), RELU)
    durations = durations_on(graph, hardware, stack=te)
    multiplied, added = durations
    assert multiplied is not None
    assert added is not None
    assert (multiplied.source, added.source) == ("kernel", "efficiency")
    share = multiplied.duration / (multiplied.duration + added.duration)
    assert share_of_kernels(graph, durations) == pytest.approx(share)


def test_a_graph_is_predicted_in_an_empty_folder(tmp_path: Path) -> None:
    save_graph(graph_of(product(4096), RELU), tmp_path / "two.graph")
    summary = predicted(graph=tmp_path / "two.graph", hardware="t4")
    assert summary["coverage"] == {"pooled": pytest.approx(1.0)}
    assert "NVIDIA T4 16 GB" in summary["environment"]
    assert "datasheet" in summary["durations"]["pooled"]
    assert "NVIDIA T4 Tensor Core GPU datasheet" in summary["durations"]["peaks and memory"]
    slower = predicted(graph=tmp_path / "two.graph", hardware="p100-pcie")
    assert summary["iteration_time"] > slower["iteration_time"]


def test_what_does_not_fit_into_memory_is_said(tmp_path: Path) -> None:
    asked = {"graph": tmp_path / "a.graph", "hardware": "t4"}
    save_graph(transformer_graph(architecture("opt-125m"), 1), tmp_path / "a.graph")
    assert "Does not fit" not in predicted(**asked)["bottleneck"]
    save_graph(transformer_graph(architecture("opt-1.3b"), 1), tmp_path / "a.graph")
    assert "Does not fit: needs" in predicted(**asked)["bottleneck"]


def test_workers_are_in_nodes_of_the_hardware(tmp_path: Path) -> None:
    save_graph(transformer_graph(architecture("opt-125m"), 1), tmp_path / "a.graph")
    asked = {"graph": tmp_path / "a.graph", "hardware": "h100-sxm", "strategy": "fsdp"}
    summary = predicted(**asked, workers=16)
    assert summary["cluster"]["group_size"] == 8
    assert summary["fits"] is True
    # Links of the user's own take the place of the node's.
    flat = predicted(**asked, workers=16, bandwidth="1Gbit/s")
    assert "group_size" not in flat["cluster"]
    assert flat["iteration_time"] > summary["iteration_time"]


def test_one_measured_iteration_scales_all_and_narrows_the_interval(tmp_path: Path) -> None:
    graph = graph_of(product(4096), RELU)
    hardware = find_hardware("t4")
    before = durations_on(graph, hardware)
    whole = sum(each.duration for each in before if each)
    correction = corrected_by(2 * whole, whole, "two: 1 s", graph, before)
    after = durations_on(graph, hardware, correction=correction)
    for old, new in zip(before, after, strict=True):
        assert old is not None
        assert new is not None
        assert new.duration == pytest.approx(2 * old.duration)
        # The same ops in the same shares: of their classes' errors nothing is left.
        assert new.high / new.low == pytest.approx(1.0)
    other = durations_on(graph_of(RELU), hardware, correction=correction)[0]
    assert other is not None
    assert before[1] is not None
    assert 1.0 < other.high / other.low < before[1].high / before[1].low


def test_timings_of_ops_correct_the_others(tmp_path: Path) -> None:
    timed, other = product(2048), RELU
    save_graph(graph_of(timed, other), tmp_path / "two.graph")
    asked = {"graph": tmp_path / "two.graph", "hardware": "h100-sxm"}
    guesses = durations_on(graph_of(timed, other), find_hardware("h100-sxm"))
    first, second = guesses
    assert first is not None
    assert second is not None
    database = make_database(tmp_path / "some.db", [timing(timed, 3 * first.duration, GPU)])
    summary = predicted(**asked, measured=str(database))
    assert summary["breakdown"]["op"]["aten.mm.default"] == pytest.approx(3 * first.duration)
    assert summary["breakdown"]["op"]["aten.relu.default"] == pytest.approx(3 * second.duration)
    assert "exact" in summary["coverage"]
    assert "1 ops timed" in summary["durations"]["correction"]


def test_what_was_measured_is_read() -> None:
    asked, seconds = read_measured("mlp(hidden=512, layers=2), batch 64, shape 1x8x8: 210 ms")
    assert asked == {"model": "mlp(hidden=512, layers=2)", "batch": "64", "shape": "1x8x8"}
    assert seconds == pytest.approx(0.21)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet50", 'write "resnet50, batch 64: 210 ms"'),
        ("resnet50: 210", "has no unit"),
        ("resnet50, bach 64: 1 s", 'did you mean "batch"'),
        (": 1 s", 'write "resnet50, batch 64: 210 ms"'),
    ],
)
def test_what_was_measured_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_measured(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"hardware": "t5"}, 'unknown hardware "t5"'),
        ({"hardware": "t4", "exact": True}, "exact: has no effect, leave it out: t4 has no"),
        ({"measured": "resnet50: 1 s"}, "measured: has no effect"),
        ({"hardware": "cpu-2-core", "launch": "5us"}, "launch: has no effect on a CPU"),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: Path, asked: dict[str, Any], message: str
) -> None:
    save_graph(graph_of(RELU), tmp_path / "two.graph")

    def run() -> None:
        config = validated(PredictConfig, {"graph": "two.graph", **asked}, "here")
        config.check()
        run_prediction(config, seed=0)

    with pytest.raises(InputError) as error:
        run()
    assert message in str(error.value)


def test_a_database_that_has_timings_of_it_goes_before_the_catalogue(tmp_path: Path) -> None:
    save_graph(graph_of(product(64)), tmp_path / "two.graph")
    make_database(tmp_path / "profiles.db", [timing(product(64), 7e-3, GPU)])
    summary = predicted(graph=tmp_path / "two.graph", hardware="H100")
    assert summary["coverage"] == {"exact": pytest.approx(1.0)}
    assert predicted(graph=tmp_path / "two.graph", hardware="t4")["coverage"].keys() == {"pooled"}


def test_the_answer_is_the_first_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_graph(graph_of(product(4096), RELU), tmp_path / "two.graph")
    assert main(["predict", "--graph", "two.graph", "--hardware", "t4"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("An iteration of two.graph takes ")


def test_a_transformer_by_its_sizes_runs_on_a_device_with_bfloat16_alone(tmp_path: Path) -> None:
    """It trains in bfloat16, so that a peak for float16 is not needed, and changes nothing."""
    card = "title: a card, memory: 640 GB, memory_bandwidth: 2 TB/s, source: none"
    times = []
    for number, more in enumerate(("", ", float16: 500")):
        file = tmp_path / f"card{number}.yaml"
        peaks = f"peak_tflops: {{bfloat16: 500{more}}}"
        file.write_text(f"devices: {{card: {{{card}, {peaks}}}}}")
        asked = {"model": "llama-8b", "hardware": str(file), "bandwidth": "400Gbit/s"}
        times.append(predicted(**asked, strategy="fsdp", workers=8).throughput[0].iteration_time)
    assert times[0] == times[1] > 0


def test_the_catalogue_is_shown_and_added_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hardware", "list"]) == 0
    assert "h100-sxm" in capsys.readouterr().out
    assert main(["hardware", "show", "dgx-h100"]) == 0
    shown = capsys.readouterr().out
    assert "H100 Tensor Core GPU datasheet" in shown
    assert "370.8 GB/s one way" in shown
    own = tmp_path / "own.yaml"
    own.write_text(
        "devices: {mine: {title: ours, peak_tflops: {float32: 1}, memory: 1 GiB, "
        "memory_bandwidth: 1 GB/s, source: us}}\n"
    )
    assert main(["hardware", "add", str(own)]) == 0
    assert "Added mine" in capsys.readouterr().out
    assert main(["hardware", "show", "mine"]) == 0
    own.write_text(own.read_text().replace("peak_tflops: {float32: 1}, ", ""))
    assert main(["hardware", "add", str(own), "--force"]) == 2
    assert "devices.mine.peak_tflops: must be given" in capsys.readouterr().err

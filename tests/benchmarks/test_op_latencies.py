"""Op latencies of real GPUs, and damaged copies of them."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from op_latencies import (
    Reading,
    Row,
    graph_of,
    read_folder,
    read_table,
    read_whole,
    reading_of,
    repeated,
    replayed,
    serial,
)

from paracosm.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "neusight"
GPT = DATA / "NVIDIA_H100_80GB_HBM3" / "gpt2_large-train-1024-1"
BERT = DATA / "Tesla_V100-PCIE-32GB" / "bert_large-inf-512-16"


def row(name: str, forward: float, backward: float = 0.0, accumulate: float = 0.0) -> Row:
    """Return a node that makes a tensor, unless its name is "size"."""
    return Row(name, "call_function", name, "", name != "size", forward, backward, accumulate)


def copied(tmp_path: Path) -> Path:
    """Return a folder of one GPU with a copy of one pair of files."""
    folder = tmp_path / "GPU"
    folder.mkdir()
    for ending in (".csv", ".json"):
        shutil.copy(GPT.with_suffix(ending), folder / f"gpt{ending}")
    return folder / "gpt.csv"


def test_a_table_as_it_was_published() -> None:
    rows = read_table(GPT.with_suffix(".csv"))
    assert len(rows) == 125
    size = next(row for row in rows if row.function == "size")
    assert not size.makes_tensor
    assert 6e-6 < size.forward < 8e-6
    addmm = next(row for row in rows if row.name == "addmm")
    assert (addmm.function, addmm.module) == ("addmm", "transformer.h.0.attn.c_attn")
    assert addmm.forward == pytest.approx(0.2326e-3, rel=1e-3)
    assert addmm.backward == pytest.approx(0.4883e-3, rel=1e-3)
    assert addmm.accumulate == pytest.approx(0.0233e-3, rel=1e-2)
    layers, whole = read_whole(GPT.with_suffix(".json"))
    assert (layers, whole.both) == (36, pytest.approx(0.18397714614868164))


@pytest.mark.parametrize(
    ("file", "layers", "first", "last"),
    [
        (GPT, 36, "transformer_h_0_ln_1", "add_15"),
        (BERT, 24, "bert_encoder_layer_0_attention_self_query", None),
    ],
)
def test_the_layer_is_what_its_modules_are_numbered_by(
    file: Path, layers: int, first: str, last: str | None
) -> None:
    """NeuSight names the first and the last row of each model's layer itself: the same ones."""
    rows = read_table(file.with_suffix(".csv"))
    names = [row.name for row in repeated(rows, layers, "test")]
    assert names.count(first) == layers
    starts = [i for i, name in enumerate(names) if name == first]
    (length,) = {b - a for a, b in pairwise(starts)}
    assert names[starts[1] - 1] == (last or "bert_encoder_layer_0_output_layer_norm")
    assert len(names) == len(rows) + (layers - 1) * length


def test_a_graph_that_is_the_whole_model_stays_as_it_is() -> None:
    rows = read_table(GPT.with_suffix(".csv"))
    assert repeated(rows, 0, "test") == rows


def test_a_layer_that_is_not_one_is_refused() -> None:
    rows = read_table(GPT.with_suffix(".csv"))
    with pytest.raises(InputError, match="no layer to repeat"):
        repeated([replace(row, module="") for row in rows], 3, "test")
    second = [replace(row, module=row.module.replace("h.0", "h.1")) for row in rows]
    with pytest.raises(InputError, match=r"which kind\? it has transformer.h.0, transformer.h.1"):
        repeated([*rows, *second], 3, "test")


ROWS = [
    row("size", 6.0),
    row("view", 8.0),
    row("mul", 11.0, 16.0),
    row("size", 6.5),
    row("linear", 26.0, 46.0, 21.0),
    row("add", 31.0, 7.0),
]


def test_floor_views_and_launches_are_read_from_the_rows() -> None:
    """size costs 6.25 in the median, the shortest kernel 11: 4.75 to launch it."""
    assert reading_of(ROWS) == Reading(floor=6.25, longest_view=8.0, launch=4.75)


def test_rows_without_a_node_that_makes_no_tensor_have_no_floor() -> None:
    assert reading_of([row("linear", 26.0)]) == Reading(0.0, 0.0, 0.0)


def test_host_nodes_cost_the_device_nothing() -> None:
    """By hand, floor 6, launch 1: forward mul 5, linear 20, add 25; backward 40, 15, 10."""
    reading = Reading(floor=6.0, longest_view=8.0, launch=1.0)
    graph = graph_of(ROWS, reading)
    times, schedule = replayed(graph, reading)
    # size 0 and view 2 on the host, launch 1: the device begins at 3 and never waits again.
    assert times.forward == 3 + 5 + 20 + 25
    # The pass of add is 1 on the host, then the launch of 1.
    assert times.backward == 1 + 1 + 40 + 15 + 10
    assert schedule.begin.tolist()[-1] == times.both - 10
    assert serial(ROWS).forward == 88.5
    assert serial(ROWS).backward == 90.0


def test_launches_decide_where_kernels_are_shorter() -> None:
    rows: Sequence[Row] = [row("size", 6.0), *[row("mul", 11.0)] * 4]
    reading = Reading(floor=6.0, longest_view=8.0, launch=20.0)
    times, _ = replayed(graph_of(rows, reading), reading)
    assert times.forward == 4 * 20 + 5
    assert times.backward == 0


def test_a_device_that_is_slower_in_an_iteration_does_not_slow_the_host_down() -> None:
    """Launches of 20 take longer than kernels of 2.5 x 5: only the last one is seen."""
    rows: Sequence[Row] = [row("size", 6.0), *[row("mul", 11.0)] * 4]
    reading = Reading(floor=6.0, longest_view=8.0, launch=20.0)
    times, _ = replayed(graph_of(rows, reading), reading, slowdown=2.5)
    assert times.forward == 4 * 20 + 2.5 * 5


def measured_as(folder: Path, name: str, factor: float) -> None:
    """Write a copy of a pair whose whole model took `factor` times what its ops say."""
    shutil.copy(GPT.with_suffix(".csv"), folder / f"{name}.csv")
    rows = read_table(GPT.with_suffix(".csv"))
    reading = reading_of(rows)
    times, _ = replayed(graph_of(repeated(rows, 36, "test"), reading), reading)
    forward, both = 1e3 * factor * times.forward, 1e3 * factor * times.both
    told = {"num_layer": 36, "fw_latency": forward, "e2e_latency": both, "bwall_latency": 0}
    (folder / f"{name}.json").write_text(json.dumps(told))


def test_clocks_are_read_from_other_models_alone(tmp_path: Path) -> None:
    """By hand: of a, b and c, which took 1.1, 1.2 and 1.6 times their ops, each is predicted by
    the median of the others; another batch of the same model does not count."""
    for name, factor in (
        *(("a-train-1024-1", 1.1), ("b-train-1024-1", 1.2), ("b-train-1024-4", 9.0)),
        ("c-inf-1024-1", 1.6),
    ):
        measured_as(tmp_path, name, factor)
    a, b, other_batch, c = read_folder(tmp_path).comparisons
    assert a.slowdown == pytest.approx(1.6, rel=1e-9)
    assert b.slowdown == other_batch.slowdown == pytest.approx(1.35, rel=1e-9)
    assert c.slowdown == pytest.approx(1.2, rel=1e-9)
    assert b.error == pytest.approx(1.35 / 1.2 - 1, abs=1e-4)
    assert b.timed_error == pytest.approx(1 / 1.2 - 1, rel=1e-9)


def test_a_model_alone_on_its_device_is_predicted_at_the_clocks_of_its_timings() -> None:
    (gpt,) = read_folder(GPT.parent).comparisons
    assert gpt.slowdown == 1.0
    assert gpt.predicted == gpt.timed


def test_real_models_are_predicted_better_than_by_adding_up() -> None:
    folder = read_folder(DATA)
    assert [comparison.model for comparison in folder.comparisons] == [
        "gpt2_large-train-1024-1",
        "bert_large-inf-512-16",
    ]
    gpt, bert = folder.comparisons
    assert gpt.device == "NVIDIA_H100_80GB_HBM3"
    assert abs(gpt.error) < 0.02 < 0.15 < gpt.serial_error
    assert abs(bert.error) < 0.01 < 0.02 < bert.serial_error
    assert gpt.measured.both == pytest.approx(0.18398, rel=1e-4)


def test_what_is_left_out_is_named_with_the_reason() -> None:
    """Of fused kernels, and of runs on several GPUs, there are no latencies of ops."""
    assert read_folder(DATA).left_out == {
        f"NVIDIA_H100_80GB_HBM3/gpt2_large-{run}.json": (
            "no op latencies: there is no CSV file of this name"
        )
        for run in (
            *("inf-1024-4-fusion", "train-1024-4-dp4", "train-1024-4-pp4_1", "train-1024-4-tp4"),
        )
    }


def test_a_folder_of_one_gpu_is_read_as_well() -> None:
    (gpt,) = read_folder(GPT.parent).comparisons
    assert gpt == read_folder(DATA).comparisons[0]


def test_a_table_cut_off_within_a_row_or_after_one_is_refused(tmp_path: Path) -> None:
    file = copied(tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:50]) + lines[50][:40])
    with pytest.raises(InputError, match=r"GPU: no op latencies .*gpt.csv: line 51: is cut off"):
        read_folder(file.parent)
    file.write_text("".join(lines[:50]))
    with pytest.raises(InputError, match="is cut off: its last row is not the graph's output"):
        read_table(file)


def test_damaged_files_are_named_and_the_others_are_used(tmp_path: Path) -> None:
    file = copied(tmp_path)
    folder = file.parent
    rows = list(csv.reader(file.open()))
    place = rows[0].index("acc_latency")

    def write(name: str, changed: list[list[str]]) -> None:
        with (folder / f"{name}.csv").open("w", newline="") as out:
            csv.writer(out).writerows(changed)
        shutil.copy(file.with_suffix(".json"), folder / f"{name}.json")

    write("lacks", [[*row[:place], *row[place + 1 :]] for row in rows])
    write("letters", [rows[0], [*rows[1][:place], "fast", *rows[1][place + 1 :]], *rows[2:]])
    write("broken", rows)
    (folder / "broken.json").write_text('{"num_layer": 36')
    write("poor", rows)
    (folder / "poor.json").write_text(json.dumps({"num_layer": 36, "fw_latency": 1.0}))
    write("alone", rows)
    (folder / "alone.json").unlink()
    found = read_folder(tmp_path)
    assert [comparison.model for comparison in found.comparisons] == ["gpt"]
    assert found.left_out["GPU/lacks.csv"] == "lacks the column acc_latency"
    assert found.left_out["GPU/letters.csv"].endswith("acc_latency: 'fast' is no number")
    assert "not JSON" in found.left_out["GPU/broken.csv"]
    assert "lacks bwall_latency" in found.left_out["GPU/poor.csv"]
    assert "no JSON file" in found.left_out["GPU/alone.csv"]


def test_a_folder_without_latencies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no op latencies"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "nowhere")

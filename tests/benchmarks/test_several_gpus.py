"""Op latencies of one GPU to runs on several: by hand, on real files, and on damaged copies."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from op_latencies import Row, read_folder, read_table
from several_gpus import (
    SeveralComparison,
    Tables,
    gradient_bytes,
    link_between,
    parse_name,
    predict_several,
    read_several,
    rows_at,
    split_rows,
)

from paracosm.cluster import Link
from paracosm.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "neusight"
H100 = DATA / "NVIDIA_H100_80GB_HBM3"
GPT = H100 / "gpt2_large-train-1024-1.csv"


def kernel(name: str, forward: float, backward: float = 0.0, accumulate: float = 0.0) -> Row:
    return Row(name, "call_function", name, "", True, forward, backward, accumulate)


def linear(name: str, module: str, source: str, sizes: tuple[int, int], seconds: float) -> Row:
    """Return a linear map of ten tokens: forward `seconds`, backward twice that."""
    return Row(
        name=name,
        kind="call_module",
        function=module,
        module=module,
        makes_tensor=True,
        forward=seconds,
        backward=2 * seconds,
        accumulate=0.0,
        inputs=(source,),
        layer="Linear",
        shapes=((10, sizes[0]),),
        shape=(10, sizes[1]),
    )


def elementwise(name: str, source: str, width: int, seconds: float) -> Row:
    """Return an op of a layer, without a backward pass."""
    return Row(
        name=name,
        kind="call_function",
        function=name,
        module="h.0",
        makes_tensor=True,
        forward=seconds,
        backward=0.0,
        accumulate=0.0,
        inputs=(source,),
        shapes=((10, width),),
        shape=(10, width),
    )


# A layer of two linear maps with an activation between them, and a norm that all ranks do.
LAYER = [
    elementwise("norm", "x", 4, 8.0),
    linear("up", "h.0.up", "norm", (4, 16), 40.0),
    elementwise("gelu", "up", 16, 4.0),
    linear("down", "h.0.down", "gelu", (16, 4), 40.0),
    elementwise("add", "down", 4, 8.0),
]


def several() -> dict[str, SeveralComparison]:
    return {each.model.rpartition("-")[2]: each for each in read_several(DATA)[0]}


@pytest.mark.parametrize(
    ("name", "model", "batch", "strategy"),
    [
        ("gpt2_large-train-1024-16-dp4", "gpt2_large-train-1024", 16, "dp=4"),
        ("gpt3_xl-train-2048-4-tp4", "gpt3_xl-train-2048", 4, "tp=4"),
        ("opt_13-train-2048-8-pp2_4", "opt_13-train-2048", 8, "pp=2, microbatches=4"),
        ("opt_13-train-2048-8-pp2", "opt_13-train-2048", 8, "pp=2"),
    ],
)
def test_names_say_what_ran(name: str, model: str, batch: int, strategy: str) -> None:
    run = parse_name(name)
    assert run is not None
    assert (run.model, run.batch, str(run.strategy)) == (model, batch, strategy)


@pytest.mark.parametrize("name", ["gpt2_large-train-1024-4", "gpt2_large-inf-1024-4-fusion", "dp4"])
def test_other_names_are_of_one_gpu(name: str) -> None:
    assert parse_name(name) is None


def test_a_layer_is_split_by_columns_then_by_rows() -> None:
    found = split_rows(LAYER)
    assert found.shared == {"up", "gelu", "down"}
    assert found.summed == {"down"}
    assert found.gradient_summed == {"up"}


def test_linear_maps_of_the_same_input_sum_its_gradient_once() -> None:
    query, key = (linear(name, f"h.0.{name}", "norm", (4, 4), 1.0) for name in ("q", "k"))
    found = split_rows([LAYER[0], query, key])
    assert found.gradient_summed == {"q"}


def test_a_real_model_is_split_as_megatron_does() -> None:
    """GPT-2: what comes out of attention and of the MLP is summed, and the embedding."""
    found = split_rows(read_table(GPT))
    assert found.summed == {"transformer_wte", "addmm_1", "addmm_3"}
    assert found.gradient_summed == {"addmm", "addmm_2", "lm_head"}
    assert {"softmax", "matmul", "tanh", "transformer_h_0_attn_attn_dropout"} <= found.shared
    assert not {"transformer_h_0_ln_1", "transformer_h_0_mlp_dropout", "add_15"} & found.shared


def test_gradients_of_a_real_model_are_its_weights() -> None:
    """GPT-2 large has 774 million: 36 layers of 12 h^2 + 13 h, two embeddings, the last norm."""
    rows = read_table(GPT)
    floor = sorted(row.forward for row in rows if not row.makes_tensor and row.forward > 0)
    found = gradient_bytes(rows, floor[len(floor) // 2])
    layer = sum(
        size for name, size in found.items() if name.startswith(("addmm", "transformer_h_0"))
    )
    assert layer == 4 * (12 * 1280**2 + 13 * 1280)
    assert "lm_head" not in found  # shared with the embedding, which is complete last
    assert found["transformer_wte"] == 4 * (50_257 * 1280 + 50_257)
    assert found["transformer_wpe"] == pytest.approx(4 * 1024 * 1280, rel=0.2)


def test_times_lie_on_a_line_in_the_batch() -> None:
    """Floor 0: 10 and 16 at batches 1 and 2, so 28 at 4; accumulating takes what it takes.

    Below, no less than in proportion: 100 and 400 lie on a line that ends below 0.
    """
    training = {1: [kernel("mul", 10.0, 20.0, 5.0)], 2: [kernel("mul", 16.0, 26.0, 5.0)]}
    (row,), _ = rows_at(4, training, {})
    assert (row.forward, row.backward, row.accumulate) == (28.0, 38.0, 5.0)
    (row,), _ = rows_at(0.5, training, {})
    assert (row.forward, row.backward) == (7.0, 17.0)
    steep = {1: [kernel("mul", 100.0)], 2: [kernel("mul", 400.0)]}
    assert rows_at(0.5, steep, {})[0][0].forward == 50.0
    assert rows_at(2, training, {})[0] == training[2]


def test_one_batch_grows_as_inference_does() -> None:
    """Inference takes 9 at batch 2 and 21 at 8: 5 + 2 b, so 13 at 4 over 7 at 1."""
    training = {1: [kernel("mul", 14.0, 28.0)]}
    inference = {2: [kernel("mul", 9.0)], 8: [kernel("mul", 21.0)]}
    (row,), _ = rows_at(4, training, inference)
    assert row.forward == pytest.approx(14 * 13 / 7)
    assert row.backward == pytest.approx(28 * 13 / 7)
    (row,), _ = rows_at(4, training, {})
    assert row.forward == 56.0


def test_tables_of_one_model_have_the_same_rows() -> None:
    training = {1: [kernel("mul", 10.0)], 2: [kernel("add", 10.0)]}
    with pytest.raises(InputError, match="tables at batches 2 and 1 have other rows"):
        rows_at(3, training, {})


def test_two_ranks_share_a_layer_by_hand() -> None:
    """Floor 0, no launches. A batch of 2 on one GPU takes forward 8 + 40 + 4 + 40 + 8 and backward
    80 + 80. Two ranks halve all but norm and add: those times at batch 1 are half. Two sums of 10
    x 4 numbers of 4 bytes, forward after `down` and backward after `up`: a ring of two sends half
    of it twice, 160 s at 1 byte/s."""
    run = parse_name("toy-train-1-2-tp2")
    assert run is not None
    tables = Tables({2: LAYER}, {}, layers=1)
    seconds, total = predict_several(run, tables, Link(bandwidth=1.0), "test")
    assert seconds == pytest.approx((8 + 20 + 2 + 20 + 8) + (40 + 40) + 2 * 160)
    assert total == pytest.approx((100 + 160) / 2)


def test_two_stages_follow_each_other_by_hand() -> None:
    """One micro-batch, two layers: no overlap. Ten x 4 numbers go over the cut, and back."""
    run = parse_name("toy-train-1-2-pp2_1")
    assert run is not None
    tables = Tables({2: LAYER}, {}, layers=2)
    seconds, _ = predict_several(run, tables, Link(bandwidth=1.0), "test")
    assert seconds == pytest.approx(2 * (100 + 160) + 2 * 160)


def test_real_runs_are_predicted_better_than_by_adding_up() -> None:
    """From batch 1 alone: the replicas of batch 4 have one each."""
    found = several()
    assert set(found) == {"dp4", "tp4", "pp4_1"}
    for run in found.values():
        assert abs(run.error) < abs(run.serial_error)
        assert run.timed == (1,)
        assert run.strategy.ranks == 4
    assert abs(found["dp4"].error) < 0.05 < 0.1 < found["dp4"].serial_error
    assert abs(found["tp4"].error) < 0.05
    assert found["dp4"].measured == pytest.approx(0.19488, rel=1e-4)


def test_a_slower_link_takes_longer() -> None:
    usual = several()
    for run in read_several(DATA, Link(bandwidth=1e9))[0]:
        assert run.predicted > usual[run.model.rpartition("-")[2]].predicted


@pytest.mark.parametrize(
    ("device", "bandwidth"),
    [
        ("NVIDIA_H100_80GB_HBM3", 18 * 20.6e9),
        ("NVIDIA_A100-SXM4-40GB", 235e9),
        ("NVIDIA_A100_80GB_PCIe", 24e9),
        ("Tesla_V100-SXM2-16GB", 120e9),
        ("Tesla_V100-PCIE-32GB", 12e9),
        ("Tesla_T4", 12e9),
    ],
)
def test_links_go_by_the_name_of_the_gpu(device: str, bandwidth: float) -> None:
    assert link_between(device, 4).bandwidth == bandwidth


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the folder of one GPU."""
    copied = tmp_path / "GPU"
    shutil.copytree(H100, copied)
    return copied


def test_runs_without_op_latencies_are_left_out(folder: Path) -> None:
    (folder / "gpt2_large-train-1024-4-dp4.json").rename(folder / "bert-train-512-4-dp4.json")
    _, left_out = read_several(folder)
    assert left_out["bert-train-512-4-dp4.json"].startswith("no op latencies of bert-train-512")


def test_a_batch_that_cannot_be_shared_is_left_out(folder: Path) -> None:
    source = folder / "gpt2_large-train-1024-4-dp4.json"
    shutil.copy(source, folder / "gpt2_large-train-1024-6-dp4.json")
    _, left_out = read_several(folder)
    assert "a batch of 6 is no multiple of 4; 8 is" in left_out["gpt2_large-train-1024-6-dp4.json"]


def test_a_table_without_shapes_is_left_out(folder: Path) -> None:
    table = folder / GPT.name
    rows = list(csv.reader(table.open(newline="")))
    place = rows[0].index("input_shapes")
    with table.open("w", newline="") as out:
        csv.writer(out).writerows([*row[:place], *row[place + 1 :]] for row in rows)
    several, left_out = read_several(folder)
    assert not several
    assert len(read_folder(folder).comparisons) == 1
    assert "the shapes of addmm are not known" in left_out["gpt2_large-train-1024-4-tp4.json"]


def test_a_damaged_run_is_left_out(folder: Path) -> None:
    (folder / "gpt2_large-train-1024-4-tp4.json").write_text('{"num_layer": 0, "e2e')
    several, left_out = read_several(folder)
    assert len(several) == 2
    assert "not JSON" in left_out["gpt2_large-train-1024-4-tp4.json"]

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from layer_profiles import Worker, read_plan, read_profiles, read_sizes

from paracosm.errors import InputError

SAILOR = Path(__file__).parents[2] / "data" / "sailor"
PLAN = SAILOR / "validation" / "clariden" / "OPT-350" / "N8" / "plan_config_N8_D4.json"


def test_times_of_layers() -> None:
    times = read_profiles(SAILOR / "profiles_tmp.json").times("OPT-350", "GH-96", 8, 4)
    assert len(times) == 26
    assert times.forward[:2].tolist() == [0.000922, 0.003021]
    assert times.backward[-1] == 0.005944
    assert times.update == 0.000479


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (("OPT-350M", "GH-96", 8, 4), 'unknown model "OPT-350M": did you mean "OPT-350"'),
        (("OPT-350", "H100", 8, 4), 'unknown GPU "H100"'),
        (("OPT-350", "GH-96", 2, 4), 'unknown micro-batch "2": choose from 1, 8'),
        (("OPT-350", "GH-96", 8, 2), 'unknown tensor "2": choose from 4'),
    ],
)
def test_times_that_are_not_there(where: tuple[str, str, int, int], said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_profiles(SAILOR / "profiles_tmp.json").times(*where)
    assert said in str(raised.value)
    assert "profiles_tmp.json" in str(raised.value)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ({}, "holds no layers"),
        ([1], "holds no layers"),
        ({"0": [1, 2, 3], "2": [1, 2, 3]}, "of 2 layers, 1 is missing"),
        ({"0": [1, 2]}, "is no list of 3 numbers"),
        ({"0": [1, 2, -3]}, "-3 is not a number, 0 or more"),
        ({"0": [1, "2", 3]}, "'2' is not a number"),
        ({"0": [1, 2, 3], "1": [1, 2, 4]}, "layers differ in the time of the optimizer's step"),
    ],
)
def test_damaged_times(tmp_path: Path, layers: object, said: str) -> None:
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps({"M": {"G": {"1": {"1": layers}}}}))
    with pytest.raises(InputError) as raised:
        read_profiles(path).times("M", "G", 1, 1)
    assert said in str(raised.value)


def test_sizes_of_layers() -> None:
    sizes = read_sizes(SAILOR / "llm_info.json")
    assert sizes.tensors("OPT-350") == (1, 4)
    layers = sizes.layers("OPT-350", 4)
    assert len(layers) == 26
    assert layers.parameters[1] == 12614656
    assert layers.output[1] == 8388608
    assert layers.kept[1] == 109592576


def test_damaged_sizes(tmp_path: Path) -> None:
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps({"M": {"1": {"0": {"params_bytes": 4}}, "all": {}}}))
    with pytest.raises(InputError, match='unknown size "act_output_bytes"'):
        read_sizes(path).layers("M", 1)
    with pytest.raises(InputError, match="is not by numbers of ranks"):
        read_sizes(path).tensors("M")


def test_a_plan() -> None:
    plan = read_plan(PLAN)
    assert plan.name == "plan_config_N8_D4"
    assert [stage.layers for stage in plan.stages] == [range(12), range(12, 26)]
    assert set(plan.stages[1].workers) == {Worker("GH-96", "us-central1-a", 4)}
    assert (plan.replicas, plan.microbatches, plan.gpus) == (4, 16, 32)
    assert plan.measured is not None
    assert plan.measured.iteration == 2.2988
    assert plan.measured.memory == 26850885632


def _changed(tmp_path: Path, change: dict[str, Any], pipeline: dict[str, Any]) -> Path:
    content = json.loads(PLAN.read_text())
    content.update(change)
    content["pipeline_list"][0].update(pipeline)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({key: each for key, each in content.items() if each is not None}))
    return path


def test_a_plan_that_was_not_measured(tmp_path: Path) -> None:
    assert read_plan(_changed(tmp_path, {"real": None}, {})).measured is None


NODE = ["GH-96", 4, "a"]


@pytest.mark.parametrize(
    ("change", "pipeline", "said"),
    [
        ({"mbs": 0}, {}, "mbs: 0 is no whole number from 1"),
        ({"gbs": None}, {}, 'unknown key "gbs"'),
        ({"real": "fast"}, {}, "real: 'fast' is no number above 0"),
        ({"max_mem": -1}, {}, "max_mem: -1 is no number above 0"),
        ({}, {"layers_per_stage": [[0, 1]]}, "not given stage by stage"),
        ({}, {"layers_per_stage": [[0, 1], [3, 4]]}, "stage 1: its layers do not begin with 2"),
        ({}, {"layers_per_stage": [[0, 1], []]}, "stage 1: its layers do not begin with 2"),
        ({}, {"tmp_per_stage": [[[[NODE], 4]], []]}, "stage 1: has no GPUs"),
        ({}, {"tmp_per_stage": [[[[NODE], 4]], [[[NODE], 4]] * 2]}, "different numbers of repl"),
        ({}, {"tmp_per_stage": [[[[NODE] * 2, 8]], [[[NODE], 4]]]}, "is split over 2 nodes"),
        ({}, {"tmp_per_stage": [["GH-96"], ["GH-96"]]}, "its GPUs are not given as nodes"),
    ],
)
def test_plans_that_cannot_be_used(
    tmp_path: Path, change: dict[str, Any], pipeline: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as raised:
        read_plan(_changed(tmp_path, change, pipeline))
    assert said in str(raised.value)
    assert "plan.json" in str(raised.value)


def test_other_numbers_of_pipelines(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"pipeline_list": [], "mbs": 1, "gbs": 1}))
    with pytest.raises(InputError, match="another number than one pipeline"):
        read_plan(path)


@pytest.mark.parametrize(("text", "said"), [("[1]", "no mapping"), ('{"a": 1', "not JSON")])
def test_files_that_are_something_else(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    for read in (read_profiles, read_sizes, read_plan):
        with pytest.raises(InputError, match=said):
            read(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_profiles(tmp_path / "none.json")

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from layer_profiles.folder import read_folder

from paracosm.errors import InputError

SAILOR = Path(__file__).parents[2] / "data" / "sailor"


def test_plans_beside_what_they_took() -> None:
    folder = read_folder(SAILOR)
    errors = {
        comparison.plan.name: comparison.iteration / comparison.measured.iteration - 1
        for comparison in folder.comparisons
    }
    assert list(errors) == ["plan_config_N4_D1", "plan_config_N8_D2", "plan_config_N8_D4"]
    assert max(map(abs, errors.values())) < 0.15
    assert {(comparison.cluster, comparison.model) for comparison in folder.comparisons} == {
        ("clariden", "OPT-350")
    }
    (reason,) = folder.left_out.values()
    assert reason == 'profiles_tmp.json: OPT-350: GH-96: unknown micro-batch "4": choose from 1, 8'
    for comparison in folder.comparisons:
        assert comparison.measured.memory is not None
        assert abs(comparison.memory / comparison.measured.memory - 1) < 0.07
        assert comparison.overlapped is not None
        assert comparison.overlapped < comparison.iteration


def test_sailor_says_what_its_simulator_says() -> None:
    # Of the formulas of sailor/Planner/simulations, evaluated apart from this code.
    said = {
        "plan_config_N4_D1": (1.5712, 0.0, 7.8804e9),
        "plan_config_N8_D2": (2.3001, 0.0056394, 23.9133e9),
        "plan_config_N8_D4": (2.2045, 0.0144584, 25.5933e9),
    }
    for comparison in read_folder(SAILOR).comparisons:
        iteration, all_reduce, memory = said[comparison.plan.name]
        assert comparison.sailor is not None
        assert comparison.sailor.iteration == pytest.approx(iteration, rel=1e-4)
        assert comparison.sailor.all_reduce == pytest.approx(all_reduce, rel=1e-4)
        assert comparison.sailor.memory == pytest.approx(memory, rel=1e-4)


def test_all_reduce_is_that_of_the_largest_stage() -> None:
    (plan,) = (c for c in read_folder(SAILOR).comparisons if c.plan.name == "plan_config_N8_D4")
    # 14 layers with the head have more parameters than 12 with the embedding.
    assert plan.sailor is not None
    assert plan.all_reduce == pytest.approx(plan.sailor.all_reduce, rel=0.01)


def test_what_only_sailor_needs_may_be_missing(tmp_path: Path) -> None:
    shutil.copytree(SAILOR, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "providers" / "multizone_bandwidths_het.json"
    content = json.loads(path.read_text())
    del content["us-central1-a"]["GH-96"]["1"]  # of its all-reduces, which the first has none of
    path.write_text(json.dumps(content))
    comparisons = read_folder(tmp_path).comparisons
    assert [comparison.sailor is None for comparison in comparisons] == [False, True, True]


def test_bandwidths_of_gpus_of_one_kind_complete_the_others(tmp_path: Path) -> None:
    shutil.copytree(SAILOR, tmp_path, dirs_exist_ok=True)
    providers = tmp_path / "providers"
    (providers / "multizone_bandwidths_het.json").rename(providers / "multizone_bandwidths.json")
    (providers / "multizone_bandwidths_het.json").write_text('{"us-central1-a": {"H100": {}}}')
    whole = [comparison.iteration for comparison in read_folder(SAILOR).comparisons]
    assert [comparison.iteration for comparison in read_folder(tmp_path).comparisons] == whole


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(InputError, match=r"profiles_tmp\.json: cannot be read"):
        read_folder(tmp_path)
    shutil.copytree(SAILOR, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "validation")
    with pytest.raises(InputError, match="no measured plan"):
        read_folder(tmp_path)
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "plan.json").write_text("{}")
    with pytest.raises(InputError, match="does not stand in a folder of a cluster"):
        read_folder(tmp_path)

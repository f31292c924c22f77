"""Study files: their points, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from paracosm.errors import InputError
from paracosm.results import to_builtin
from paracosm.studies import Study, load_study


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_study_without_a_grid_is_one_point(tmp_path: Path) -> None:
    study = load_study(write(tmp_path / "s.yaml", "seed: 3\ntrain: {workers: 8, latency: 1ms}"))
    (point,) = study.points("s.yaml")
    assert (point.seed, point.config.workers, point.config.latency) == (3, 8, 0.001)
    assert not study.is_sweep


def test_a_grid_is_the_product_of_its_values_and_a_list_of_grids_their_union() -> None:
    study = Study(
        train={"updates": 10},
        over=[
            {"algorithm": ["ssgd", "asgd"], "workers": [1, 4]},
            {"algorithm": ["asgd"], "workers": [4, 64], "seed": [0, 1]},
        ],
    )
    points = study.points("test")
    seen = [(str(p.config.algorithm), p.config.workers, p.seed) for p in points]
    assert seen == [
        ("ssgd", 1, 0),
        ("ssgd", 4, 0),
        ("asgd", 1, 0),
        ("asgd", 4, 0),
        ("asgd", 4, 1),
        ("asgd", 64, 0),
        ("asgd", 64, 1),
    ]
    assert len({point.name for point in points}) == len(points)


def test_a_list_of_numbers_of_workers_is_a_sweep(tmp_path: Path) -> None:
    for text in ("'1,2,4..16'", "[1, 2, '4..16']", "[1, 2, 4, 8, 16]"):
        study = load_study(write(tmp_path / "s.yaml", f"train: {{workers: {text}}}"))
        assert study.is_sweep
        points = study.points("s.yaml")
        assert [point.config.workers for point in points] == [1, 2, 4, 8, 16]
        assert [point.varied["workers"] for point in points] == [1, 2, 4, 8, 16]
        assert not study.with_arguments(None, {"workers": "3"}).is_sweep


@pytest.mark.parametrize(
    "asked",
    [
        {"algorithm": "asgd, ssp(slack=2, cache=true),ssgd", "lr": "0.1,0.2"},
        {"algorithm": ["asgd", "ssp(slack=2, cache=true)", "ssgd"], "lr": [0.1, 0.2]},
        {"algorithm": ("asgd", "ssp(2, true)", "ssgd"), "lr": (0.1, "0.2")},
    ],
)
def test_a_list_of_what_a_run_takes_one_of_is_a_sweep(asked: dict[str, Any]) -> None:
    points = Study(train={**asked, "updates": 3}).points("test")
    assert [(str(p.config.algorithm), p.config.lr) for p in points] == [
        (algorithm, lr)
        for algorithm in ("asgd", "ssp(slack=2, cache=True)", "ssgd")
        for lr in (0.1, 0.2)
    ]
    plan = {"profile": "none.profile", "target": "loss <= 1", "workers": "1,2", **asked}
    assert not Study(plan=plan).is_sweep


def test_a_flag_sweeps_over_workers_beside_the_grid_of_the_study() -> None:
    study = Study(train={"workers": 3}, over={"lr": [0.1, 0.2]})
    points = study.with_arguments(None, {"workers": "1..2"}).points("test")
    assert [(p.config.lr, p.config.workers) for p in points] == [
        *[(0.1, 1), (0.2, 1), (0.1, 2), (0.2, 2)]
    ]


def test_names_of_points_are_fit_for_folders() -> None:
    study = Study(train={}, over={"algorithm": ["ssp(slack=3)"], "compute": ["exponential(20 ms)"]})
    (point,) = study.points("test")
    assert point.name == "algorithm=ssp(slack=3),compute=exponential(20ms)"


STAR = {"topology": "star", "workers": 2, "servers": 1}
RING = {"topology": "ring", "workers": 3}


def test_mappings_in_a_grid_are_named_by_their_position() -> None:
    study = Study(train={}, over={"cluster": [STAR, {**STAR, "workers": 3}, STAR], "seed": [0, 7]})
    points = study.points("test")
    assert [point.name for point in points] == [
        "cluster=1,seed=0",
        "cluster=1,seed=7",
        "cluster=2,seed=0",
        "cluster=2,seed=7",
    ]
    assert len(points[2].config.resolve_cluster().workers) == 3


def test_an_empty_grid_is_the_study_as_it_stands_and_no_two_points_share_a_name() -> None:
    study = Study(train={}, over=[{}, {"workers": [1, 2]}, {"compute": ["1 ms", "1/ms", "1m/s"]}])
    with pytest.raises(InputError, match="test: compute=1ms: compute"):
        study.points("test")
    study = Study(train={}, over=[{}, {"cluster": [STAR]}, {"cluster": [{**STAR, "workers": 9}]}])
    assert [p.name for p in study.points("test")] == ["base", "cluster=1", "cluster=1-2"]


def test_a_name_stays_short_enough_for_a_folder() -> None:
    recorded = f"recorded({', '.join(f'{i}ms' for i in range(1, 400))})"
    study = Study(train={}, over={"compute": [recorded, "1ms"]})
    assert [point.name for point in study.points("test")] == ["compute=1", "compute=1ms"]


@pytest.mark.parametrize(
    ("seed", "arguments", "key"), [(None, {"workers": 8}, "workers"), (3, {}, "seed")]
)
def test_an_argument_that_the_study_varies_cannot_be_replaced(
    seed: int | None, arguments: dict[str, int], key: str
) -> None:
    study = Study(train={}, over=[{"lr": [0.1]}, {"workers": [1, 2], "seed": [0, 1]}])
    with pytest.raises(InputError, match=rf"^{key} is varied by the study \(over.{key}\).*--{key}"):
        study.with_arguments(seed, arguments)
    assert study.with_arguments(None, {"updates": 3}).train == {"updates": 3}


def test_a_point_that_cannot_run_is_found_before_any_runs() -> None:
    study = Study(train={}, over={"algorithm": ["asgd", "sequential"], "workers": [1, 2]})
    with pytest.raises(InputError, match=r"s: algorithm=sequential,workers=2: .*1 worker"):
        study.points("s")


def test_an_error_names_the_study_once() -> None:
    with pytest.raises(InputError) as refused:
        Study(train={"workers": 0}).points("s.yaml")
    assert str(refused.value).startswith("s.yaml: workers: ")


def test_a_grid_of_too_many_runs_is_refused_before_they_are_listed() -> None:
    study = Study(train={}, over={key: [0.1] * 1000 for key in ("lr", "compute", "momentum")})
    with pytest.raises(InputError, match="over: 1,000,000,000 runs; a study has at most"):
        study.points("s")


@pytest.mark.parametrize(
    "arguments",
    [
        {"latency": "1ms", "bandwidth": "10Gbit/s", "algorithm": "ssp(2)"},
        {"cluster": "cluster.yaml"},
        {"cluster": STAR},
        {"cluster": RING, "algorithm": "ssgd", "topology": "all-reduce"},
        {"algorithm": "ssgd", "topology": "all-reduce"},
        {"algorithm": "ad-psgd"},
        {"algorithm": "sequential", "workers": 1},
        {"timing_only": True},
        {"timing_only": True, "message_size": "3MB"},
        {"compute": "measured"},
        {"sharing": "serial", "pipelined": False, "duplex": "half", "overhead": 1e-6 / 7},
        {"what_if": ["worker 1: compute 2x slower", "links: bandwidth 25 Gbit/s"]},
    ],
)
def test_the_resolved_study_of_a_point_gives_the_same_point_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "cluster.yaml", yaml.safe_dump(STAR))
    (point,) = Study(train=arguments).points("test")
    path = write(tmp_path / "again.yaml", yaml.safe_dump(to_builtin(point.as_study())))
    (again,) = load_study(path).points("again")
    assert again.config == point.config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {wrokers: 4}", 'unknown key "wrokers": did you mean "workers"?'),
        ("train: {workers: 0}", "workers: input should be greater than or equal to 1, got 0"),
        ("train: {latency: -1ms}", "latency: "),
        ("train: {latency: 10 GBs}", "latency: "),
        ("train: {bandwidth: 0}", "bandwidth: input should be greater than 0"),
        ("train: {algorithm: asdg}", 'unknown algorithm "asdg": did you mean "asgd"?'),
        ("train: {algorithm: ssp(slak=3)}", 'unknown parameter of ssp "slak"'),
        ("train: {algorithm: ssp(slack=-1)}", "ssp: slack must be at least 0, got -1"),
        ("train: {compute: lognormall(20ms)}", 'unknown distribution "lognormall"'),
        ("train: {optimizer: adan}", 'unknown optimizer "adan": did you mean "adam"?'),
        ("train: {algorithm: asgd, topology: peers}", 'asgd does not run on topology "peers"'),
        ("train: {algorithm: local-sgd, servers: 2}", "servers"),
        ("train: {algorithm: sequential, latency: 1ms}", "latency"),
        ("train: {compute: measured, timing_only: true}", "nothing can be measured"),
        ("train: {cluster: c.yaml, workers: 3}", "workers: has no effect"),
        ("train: {}\nsede: 1", 'unknown key "sede": did you mean "seed"?'),
        ("train: {}\nover: {workers: []}", "over.workers: give it at least one value"),
        ("train: {}\nover: {seed: [x]}", "over.seed: a seed is a whole number, got 'x'"),
        (
            "train: {}\nover: {workers: 4}",
            "over: workers takes a list of values: write workers: [4]",
        ),
        ("train: {}\nover: {workers: '12'}", "write workers: [12]"),
        ("train: {}\nover: [3]", "over: write arguments and lists of their values"),
        ("train: {}\nover:", "over: write arguments and lists of their values"),
        ("train: {1: 3}", "train.1: a key is a name"),
        ("train: {}\n1: 3", "1: a key is a name"),
        ("train: [1]", "train: input should be a mapping of names to values, got a list"),
        ("train: {cluster: 5}", "cluster: input should be a path, got 5"),
        ("workers: 4", "a study has one of the keys train, plan, predict"),
        ("train: [", "cannot read the study file"),
        ("train: {lr: 0.1, lr: 0.2}", 'the key "lr" is given twice (line 1)'),
        (f"train: {'[' * 99}{']' * 99}", "nested deeper than 64 levels"),
        ("train: {bandwidth: '25'}", '"25" has no unit: write a bandwidth as 25Gbit/s'),
        ("train: {compute: '20'}", 'compute: "20" has no unit: write a duration as 20ms or 20s'),
        ("train: {workers: []}", "workers: missing number of workers"),
        ("train: {workers: [2, 1]}", "workers: numbers of workers must increase"),
        ("train: {workers: 2000000000}", "workers: input should be less than or equal to 1000000"),
        ("train: {servers: 2000000000}", "servers: input should be less than or equal to 10000,"),
        ("train: {updates: 2000000000}", "updates: input should be less than or equal to 10000"),
        ("train: {what_if: 'workers: 3'}", 'what_if "workers: 3": train cannot change that'),
        ("train: {what_if: 'rank 4: compute 2x slower'}", "there are workers 0 to 3, not 4"),
    ],
)
def test_bad_studies_get_one_line_that_names_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path / "bad.yaml", text)
    with pytest.raises(InputError) as caught:
        load_study(path).points(str(path))
    line = str(caught.value)
    assert str(path) in line
    assert message in line
    assert "\n" not in line


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no study file at"):
        load_study(tmp_path / "none.yaml")


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    numbers = [np.int8(2), np.float16(0.5), np.longdouble(2), np.array([1]), np.clongdouble(1j)]
    assert to_builtin(numbers) == [2, 0.5, 2.0, [1], "1j"]

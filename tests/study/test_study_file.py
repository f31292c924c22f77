"""Study files: their points, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paracosm.errors import InputError
from paracosm.study import Study, load_study


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
    seen = [(p.config.algorithm, p.config.workers, p.seed) for p in points]
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


def test_names_of_points_are_fit_for_folders() -> None:
    study = Study(train={}, over={"algorithm": ["ssp(slack=3)"], "compute": ["exponential(20 ms)"]})
    (point,) = study.points("test")
    assert point.name == "algorithm=ssp(slack=3),compute=exponential(20ms)"


def test_the_resolved_study_of_a_point_gives_the_same_point_again(tmp_path: Path) -> None:
    study = Study(train={"latency": "1ms", "bandwidth": "10Gbit/s", "algorithm": "ssp(2)"})
    (point,) = study.points("test")
    from paracosm.study.plain import plain

    path = write(tmp_path / "again.yaml", yaml.safe_dump(plain(point.as_study())))
    (again,) = load_study(path).points("again")
    assert again.config == point.config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {wrokers: 4}", 'unknown key "wrokers": did you mean "workers"?'),
        ("train: {workers: 0}", "workers: input should be greater than or equal to 1, got 0"),
        ("train: {latency: -1ms}", "latency: "),
        ("train: {latency: 10 GBs}", "latency: "),
        ("train: {bandwidth: 0}", "bandwidth must be above 0"),
        ("train: {algorithm: asdg}", 'unknown algorithm "asdg": did you mean "asgd"?'),
        ("train: {algorithm: ssp(slak=3)}", 'unknown parameter of ssp "slak"'),
        ("train: {algorithm: ssp(slack=-1)}", "ssp: slack must be at least 0, got -1"),
        ("train: {compute: lognormall(20ms)}", 'unknown distribution "lognormall"'),
        ("train: {optimizer: adan}", 'unknown optimizer "adan": did you mean "adam"?'),
        ("train: {algorithm: asgd, topology: peers}", 'asgd does not run on topology "peers"'),
        ("train: {algorithm: local-sgd, servers: 2}", "servers"),
        ("train: {algorithm: sequential, latency: 1ms}", "latency"),
        ("train: {compute: measured, timing_only: true}", "nothing can be measured"),
        ("train: {cluster: c.yaml, workers: 3}", "leave out workers"),
        ("train: {}\nsede: 1", 'unknown key "sede": did you mean "seed"?'),
        ("train: {}\nover: {workers: []}", "over.workers: give it at least one value"),
        ("train: {}\nover: {seed: [x]}", "over.seed: a seed is a whole number, got 'x'"),
        ("workers: 4", "a study has the key train"),
        ("train: [", "not YAML"),
    ],
)
def test_bad_studies_get_one_line_that_names_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path / "bad.yaml", text)
    with pytest.raises(InputError) as caught:
        load_study(path)
    line = str(caught.value)
    assert str(path) in line
    assert message in line
    assert "\n" not in line


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_study(tmp_path / "none.yaml")

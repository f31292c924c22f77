import json
import re
from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.timing.distribution import Scaled, Slowdown
from paracosm.timing.families import (
    Constant,
    Empirical,
    Gamma,
    KernelDensity,
    LogKernelDensity,
    Lognormal,
    Normal,
    Recorded,
)
from paracosm.timing.parse import load_recording, parse_distribution, save_recording


@pytest.mark.parametrize(
    ("written", "distribution"),
    [
        ("20ms", Constant(0.02)),
        (0.02, Constant(0.02)),
        ("constant(20 ms)", Constant(0.02)),
        ("normal(10, 3)", Normal(10, 3)),
        ("lognormal(20ms, 0.1)", Lognormal(0.02, 0.1)),
        ("  lognormal ( 20 ms ,0.1 ) ", Lognormal(0.02, 0.1)),
        ("gamma(shape=4, mean=20ms)", Gamma(0.02, 4)),
        ("gamma(20ms, shape=4)", Gamma(0.02, 4)),
        ("empirical(1ms, 2ms)", Empirical((0.001, 0.002))),
        ("recorded(1ms, 2ms, cycle=true)", Recorded((0.001, 0.002), True)),
        ("kernel_density(1ms, 2ms, bandwidth=1us)", KernelDensity((0.001, 0.002), 1e-6)),
        ("log_kernel_density(1, 2, bandwidth=0.1)", LogKernelDensity((1, 2), 0.1)),
        ("scaled(normal(10, 3), 0.5)", Scaled(Normal(10, 3), 0.5)),
        (
            "slowdown(lognormal(20ms, 0.1), factor=10, probability=0.01)",
            Slowdown(Lognormal(0.02, 0.1), 10, 0.01),
        ),
        ({"lognormal": {"median": "20ms", "sigma": 0.1}}, Lognormal(0.02, 0.1)),
        ({"lognormal": ["20ms", 0.1]}, Lognormal(0.02, 0.1)),
        ({"constant": 3}, Constant(3)),
        ({"empirical": ["1ms", 0.002]}, Empirical((0.001, 0.002))),
        (
            {"slowdown": {"base": {"gamma": ["1s", 2]}, "factor": 3, "probability": 0.5}},
            Slowdown(Gamma(1, 2), 3, 0.5),
        ),
        ({"scaled": ["lognormal(20ms, 0.1)", 2]}, Scaled(Lognormal(0.02, 0.1), 2)),
        (Gamma(1, 2), Gamma(1, 2)),
    ],
)
def test_spellings(written, distribution):
    assert parse_distribution(written) == distribution


def test_string_is_the_one_that_a_user_would_write():
    for text in (
        "recorded(1ms, 2ms)",
        "lognormal(20ms, 0.1)",
        "slowdown(gamma(1.5s, 4), 10, 0.01)",
        "constant(0s)",
    ):
        assert str(parse_distribution(text)) == text


def test_every_string_in_the_documentation_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_recording("run.json", {"worker0": [0.01, 0.02]})
    page = Path(__file__).parents[2] / "docs" / "distributions.md"
    rows = [
        line.split("|")[1] for line in page.read_text(encoding="utf-8").splitlines() if "|" in line
    ]
    strings = [string for row in rows for string in re.findall("`([^`]+)`", row)]
    described = {parse_distribution(string).name for string in strings}
    assert len(described) == len(strings) - 1 == 13  # a constant is written in two ways


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("lognorml(20ms, 0.1)", ['"lognorml"', 'did you mean "lognormal"?']),
        ("lognorml", ['"lognorml"', 'did you mean "lognormal"?']),
        ("lognormal", ["median is missing", "lognormal(median, sigma)"]),
        ("lognormal(20ms)", ["sigma is missing"]),
        ("lognormal(1, 2, 3)", ["3 arguments are too many", "lognormal(median, sigma)"]),
        ("lognormal(1, median=2)", ["median is given twice"]),
        ("lognormal(sigma=1, sigma=2)", ["sigma is given twice"]),
        ("lognormal(median=1, 2)", ["without a name"]),
        ("gamma(mean=1, shap=3)", ['"shap"', 'did you mean "shape"?']),
        ("gamma(1, 0)", ["gamma: shape", "above 0"]),
        ("lognormal(20ms, 0.1ms)", ["lognormal: sigma", "plain number"]),
        ("lognormal(-20ms, 0.1)", ["lognormal: median", "0 or more"]),
        ("exponential(inf)", ["exponential: mean", "finite"]),
        ("lognormal(1, 11)", ["lognormal: sigma", "at most 10"]),
        ("weibull(1, 0.001)", ["weibull: shape", "at least 0.01"]),
        ("kernel_density(1, 2, bandwidth=0)", ["kernel_density: bandwidth", "above 0"]),
        ("uniform(2, 1)", ["uniform: high", "at least low"]),
        ("slowdown(1s, 2, 1.5)", ["probability", "at most 1"]),
        ("slowdown(recorded(1s), 2, 0.5)", ["recording", "empirical"]),
        ("slowdown(scaled(recorded(1s), 2), 2, 0.5)", ["recording"]),
        ("scaled(1s, 0)", ["scaled: speed", "above 0"]),
        ("scaled(lognorml(1, 2), 1)", ["scaled: base", "lognormal"]),
        ("normal(gamma(1, 2), 3)", ["normal: mean"]),
        ("empirical()", ["at least one duration"]),
        ("empirical(1, -2)", ["empirical", "0 or more"]),
        ("log_kernel_density(0, 1)", ["no logarithm", "kernel_density"]),
        ("recorded(1, cycle=maybe)", ["recorded: cycle", "true or false"]),
        ("recorded(1, series=a)", ["series", "file"]),
        ("recorded(nowhere.json)", ['no recording at "nowhere.json"']),
        ("normal(1, 2", ['"," or ")" is missing']),
        ("normal(1,, 2)", ['a value is missing before ","']),
        ("normal(1, 2) 3", ['unexpected "3"']),
        ('empirical("a.json)', ["quote"]),
        ("", ["empty"]),
        ("20 mss", ['did you mean "ms"?']),
        ({}, ["one name"]),
        ({"gamma": 1, "normal": 2}, ["gamma, normal"]),
        (None, ["not None"]),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(written, words):
    with pytest.raises(InputError) as caught:
        parse_distribution(written)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_samples_from_a_file(tmp_path):
    path = tmp_path / "measured run.json"
    save_recording(path, {"worker0": [0.1, 1 / 3], "worker1": [0.2]})
    assert load_recording(path) == {"worker0": (0.1, 1 / 3), "worker1": (0.2,)}
    assert json.loads(path.read_text())["clock"] == "perf_counter"
    assert parse_distribution(f"recorded({path}, series=worker0)") == Recorded((0.1, 1 / 3))
    assert parse_distribution({"empirical": {"file": str(path), "series": "worker1"}}) == (
        Empirical((0.2,))
    )
    with pytest.raises(InputError, match=r"name one series of .* it has worker0, worker1"):
        parse_distribution(f"recorded({path})")
    with pytest.raises(InputError, match='did you mean "worker1"'):
        parse_distribution(f"recorded({path}, series=workr1)")


def test_plain_list_in_a_file(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[0.1, 2]")
    assert parse_distribution(f'recorded("{path}")') == Recorded((0.1, 2.0))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot read the recording"),
        ("3", 'no "durations"'),
        ('{"durations": {"a": [1, -2]}}', r"a\[1\] is -2"),
        ('{"durations": {"a": [NaN]}}', r"a\[0\] is nan"),
        ('{"durations": {"a": 3}}', '"a" is not a list'),
        ('{"durations": {}}', "it has none"),
    ],
)
def test_broken_recordings_are_refused(tmp_path, content, words):
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(InputError, match=words):
        parse_distribution(f"recorded({path})")

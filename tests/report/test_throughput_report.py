"""What stands on the page of a job's throughput, and on the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from written_page import figures_of, page_of, text_of

from paracosm.cli.run_verb import show_summary
from paracosm.report.runs import answer
from paracosm.results import ThroughputSummary
from paracosm.studies.run_folder import RunFolder
from paracosm.timeline import Timeline

RESOURCES = ("downlink", "worker", "uplink", "server")


def row(workers: int, rate: float, limit: str, **changed: Any) -> dict[str, Any]:
    return {
        "workers": workers,
        "steps_per_second": rate,
        "examples_per_second": 32 * rate,
        "spread": 0.125,
        "measure": 75.0,
        "after_start": None,
        "ideal": 0.5 * workers,
        "efficiency": rate / (0.5 * workers),
        "bottleneck": limit,
        "if_twice_as_fast": dict.fromkeys(RESOURCES, 0.0) | {limit: 0.25},
        "utilisation": dict.fromkeys(RESOURCES, 0.5) | {limit: 0.875},
        "utilisation_by_server": {name: [0.5] for name in RESOURCES if name != "worker"},
        **changed,
    }


ROWS = [row(1, 0.5, "worker"), row(2, 0.9, "downlink"), row(4, 0.95, "downlink")]
SUMMARY: dict[str, Any] = {
    "kind": "throughput",
    "status": "done",
    "profile": "data/alexnet/profile.json.gz",
    "workers": 4,
    "servers": 1,
    "batch": 32,
    "steps_per_second": 0.95,
    "spread": 0.125,
    "examples_per_second": 30.4,
    "throughput": ROWS,
    "baselines": {
        name: [
            {"workers": each["workers"], "steps_per_second": factor * each["steps_per_second"]}
            for each in ROWS
        ]
        for name, factor in (("lin", 0.9), ("cynthia", 0.5), ("cynthia_half", 2.0))
    },
    "saturation": {"workers": 2, "because": "downlink"},
    "bottleneck": "Saturates at 2 workers: the downlink of the servers would bring most.",
    "job_profile": {"steps": 97, "ops": 183, "dropped": {"no end": 3}},
    "target": {
        "bandwidth": 125e6,
        "latency": 1e-3,
        "alpha": 3e-10,
        "beta": 2e-4,
        "window": 16e6,
        "order": "tic",
        "cores": 8,
        "synchronous": True,
        "backup": 1,
        "start": "steady",
    },
}


def make_run(path: Path, **changed: Any) -> RunFolder:
    run = RunFolder.create(path, {"seed": 0, "predict": {"profile": SUMMARY["profile"]}})
    timeline = Timeline()
    for number in range(2):
        for place, lane in enumerate(("downlink 0", "downlink 1", "compute", "uplink 0")):
            timeline.span(f"worker{number}", lane, f"op{place}", float(place), place + 1.0)
    run.finish({**SUMMARY, **changed}, timeline)
    return run


def by_series(figure: dict[str, Any], mode: str) -> dict[str, Any]:
    chosen = (each for each in figure["data"] if each.get("mode") == mode and "fill" not in each)
    return {each["meta"]["series"]: each for each in chosen}


def test_the_page_says_how_fast_it_is_where_it_saturates_and_what_was_assumed(
    tmp_path: Path,
) -> None:
    text = text_of(page_of(tmp_path, make_run(tmp_path / "run")))
    assert "alexnet, 4 workers" in text
    assert (
        "Steps/s 0.95 Spread ± 0.12 steps/s Saturates at 2 workers, 0.9 steps/s (downlink)" in text
    )
    assert "97 steps of 183 ops; left out: 3 no end" in text
    assert (
        "links of 1 Gbit/s, latency 1 ms, streams that take turns after 16 MB, order tic, "
        "parsing 0.3 ns/byte + 200 us, 8 cores of each server, synchronous, 1 backup" in text
    )
    assert "Lin et al. 0.855 steps/s, Cynthia 0.475 steps/s" in text
    assert "4 0.95 0.12 30.4 47.5% downlink 0.855 0.475" in text
    assert "4 88% / +25% 50% / +0% 50% / +0% 50% / +0%" in text


def test_figures_are_there_and_valid_for_plotly(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_run(tmp_path / "run")))
    expected = ["throughput_by_workers", "efficiency", "busy_by_workers", "if_twice_as_fast"]
    assert list(figures) == [*expected, "timeline"]
    for figure in figures.values():
        go.Figure(figure)  # raises for any property that Plotly does not know


def test_throughput_stands_between_its_spread_beside_ideal_and_models(tmp_path: Path) -> None:
    figure = figures_of(page_of(tmp_path, make_run(tmp_path / "run")))["throughput_by_workers"]
    lines, dots = by_series(figure, "lines"), by_series(figure, "markers")
    assert lines["throughput"]["x"] == [1, 2, 4]
    assert lines["throughput"]["y"] == [0.5, 0.9, 0.95]
    assert lines["ideal"]["y"] == [0.5, 1, 2]
    assert dots["Lin et al."]["y"] == pytest.approx([0.45, 0.81, 0.855])
    assert dots["Lin et al."]["visible"]
    assert not dots["Cynthia"]["visible"]
    colors = {dots[name]["marker"]["color"] for name in ("throughput", "Lin et al.", "Cynthia")}
    assert len(colors) == 3
    (band,) = (each for each in figure["data"] if "fill" in each)
    assert band["y"] == [0.375, 0.775, 0.825, 1.075, 1.025, 0.625]
    assert (dots["saturation"]["x"], dots["saturation"]["y"]) == ([2], [0.9])  # on the curve


def test_utilisation_has_a_colour_for_each_resource(tmp_path: Path) -> None:
    page = page_of(tmp_path, make_run(tmp_path / "run"))
    lines = by_series(figures_of(page)["busy_by_workers"], "lines")
    assert lines["downlink"]["y"] == [0.5, 0.875, 0.875]
    assert lines["worker"]["y"] == [0.875, 0.5, 0.5]
    colors = [lines[resource]["line"]["color"] for resource in RESOURCES]
    assert len(set(colors)) == 4
    for color in colors:
        assert f"stroke:{color}" in page  # the chips that switch them


def test_lanes_of_all_servers_are_drawn_on_one_line(tmp_path: Path) -> None:
    figure = figures_of(page_of(tmp_path, make_run(tmp_path / "run")))["timeline"]
    lanes = {each["meta"]["series"]: each for each in figure["data"]}
    assert list(lanes) == ["downlink", "compute", "uplink"]
    assert lanes["downlink"]["text"][0] == "worker0, downlink: 2 spans, 2 s"


def test_measurements_after_a_start_stand_beside_the_steady_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {"steps_per_second": 0.7, "spread": 0.0625}
    rows = [{**each, "after_start": after} for each in ROWS]
    run = make_run(tmp_path / "run", throughput=rows)
    figure = figures_of(page_of(tmp_path, run))["throughput_by_workers"]
    dots = by_series(figure, "markers")["after the start"]
    assert dots["y"] == [0.7, 0.7, 0.7]
    assert dots["text"][0] == "1 workers, the first 75 s: 0.7 ± 0.062 steps/s"
    show_summary(ThroughputSummary.from_dict({**SUMMARY, "throughput": rows}), None, json=False)
    printed = capsys.readouterr().out
    assert re.search(r"Throughput +steps/s +spread +examples/s +after start +its spread", printed)
    assert re.search(r"4 +0\.95 +0\.12 +30\.4 +0\.7 +0\.062 +47\.5%", printed)


def test_the_terminal_has_what_a_decision_needs_and_all_of_it_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = ThroughputSummary.from_dict({**SUMMARY, "defaults": {"latency": "0s"}})
    show_summary(summary, None, json=False)
    short = capsys.readouterr().out
    show_summary(summary, None, json=False, details=True)
    whole = capsys.readouterr().out
    for shown in ("by default  ", "target  ", "Throughput  "):
        assert shown in short
    for rest in ("status  ", "coarse models, 4 workers  ", "Busy / if twice as fast  "):
        assert rest not in short
        assert rest in whole
    report = "--out runs/NAME, which writes a report with figures\n"
    assert short.endswith(f"more: --details, or {report}")
    assert whole.endswith(f"more: {report}")


def test_throughput_that_depends_on_being_in_step_is_a_band(
    capsys: pytest.CaptureFixture[str],
) -> None:
    band = {"in_step": 0.71, "apart": 1.24, "drift": 1.93e-3}
    rows = [ROWS[0], {**ROWS[1], **band}, {**ROWS[2], **band}]
    summary = ThroughputSummary.from_dict({**SUMMARY, "throughput": rows})
    assert answer(summary).startswith(
        "4 workers make 0.71 (in step) to 1.24 steps/s (apart). Saturates at 2 workers"
    )
    show_summary(summary, None, json=False)
    printed = capsys.readouterr().out
    assert re.search(r"Throughput .*examples/s +in step +apart +lead/step", printed)
    assert re.search(r"4 +0\.95 +0\.12 +30\.4 +0\.71 +1\.24 +\+1\.93 ms +47\.5%", printed)


@pytest.mark.parametrize(
    ("changed", "target", "expected"),
    [
        (
            {"in_step": 0.93, "apart": 1.0, "drift": 0.0},
            {},
            "4 workers make 0.95 steps/s, 47.5 % of ideal.",
        ),
        (
            {"in_step": 0.71, "apart": 1.24, "after_start": {"steps_per_second": 0.7}},
            {"start": "together"},
            "4 workers make 0.7 steps/s after a common start.",
        ),
        (
            {"in_step": 0.71, "apart": 1.24, "after_start": {"steps_per_second": 1.2}},
            {"start": "staggered"},
            "4 workers make 1.2 steps/s after a staggered start.",
        ),
    ],
)
def test_no_band_where_it_is_narrow_or_a_start_was_picked(
    changed: dict[str, Any], target: dict[str, Any], expected: str
) -> None:
    if "after_start" in changed:
        changed["after_start"] |= {"examples_per_second": None, "spread": 0.1}
    rows = [{**each, **changed} for each in ROWS]
    summary = {**SUMMARY, "throughput": rows, "target": SUMMARY["target"] | target}
    assert answer(ThroughputSummary.from_dict(summary)).startswith(expected)


def test_runs_lie_over_each_other_without_coarse_models(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name) for name in ("one", "two")]
    figures = figures_of(page_of(tmp_path, *runs))
    assert {"throughput_by_workers", "efficiency"} <= set(figures)
    assert "busy_by_workers" not in figures
    series = {each["meta"]["series"] for each in figures["throughput_by_workers"]["data"]}
    assert series == {"ideal", "spread", "throughput"}
    shown = {
        each["meta"]["series"]
        for each in figures["throughput_by_workers"]["data"]
        if each.get("visible", True) is True
    }
    assert shown == {"throughput"}


def test_one_number_of_workers_has_no_chart_and_no_spread_is_left_out(tmp_path: Path) -> None:
    only = [{**ROWS[-1], "spread": None}]
    run = make_run(
        tmp_path / "run",
        throughput=only,
        saturation=None,
        spread=None,
        bottleneck="With 4 workers, the downlink of the servers would bring most.",
    )
    page = page_of(tmp_path, run)
    assert list(figures_of(page)) == ["timeline"]
    assert "Saturates" not in text_of(page)

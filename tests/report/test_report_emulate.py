"""What stands on the page of an emulated job, and on the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from synthetic_emulation import DELAYS, job, make_emulation
from written_page import figures_of, page_of, text_of

from paracosm.cli.run_verb import show_summary
from paracosm.emulation.records import Collective, Group, Iteration, Note
from paracosm.studies.run_folder import RunFolder

FIGURES = ["iteration_times", "iteration_parts", "collectives", "timeline"]
BESIDE = {"run": "runs/predicted", "iteration_time": 0.062}


def traces(figures: dict[str, Any], figure: str) -> dict[str, list[Any]]:
    """Return the traces of a figure by their series."""
    found: dict[str, list[Any]] = {}
    for trace in figures[figure]["data"]:
        found.setdefault(trace["meta"]["series"], []).append(trace)
    return found


def printed(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> str:
    assert run.summary is not None
    show_summary(run.results, None, json=False, details=True)
    return capsys.readouterr().out


def test_key_numbers_remarks_and_tables(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, make_emulation(tmp_path / "run")))
    assert "train.py, 8 ranks emulate · rank 0 of 8, mode backend · seed 0" in text
    assert "World size 8 Mode backend Iterations 60 Iteration time 60.88 ms (60.31 ms" in text
    # The last bucket takes 4 ms after the backward pass, the all-gather 1 ms.
    assert "Exposed communication 5 ms (8.2%)" in text
    assert "Hidden communication 20 ms (80.0% of it)" in text
    assert "Processor use 90%" in text
    assert "Peak memory 800 MB" in text
    assert "all_reduce 6 150 MB 24 ms 4 ms 20 ms 4 ms" in text
    assert "all 7 150 MB 25 ms 5 ms 20 ms 4 ms" in text
    assert "measured 59 iterations after the first, which holds the start-up" in text
    assert "waiting for others 1 ms of the exposed communication, until the last rank came" in text
    assert "note gloo of PyTorch 2.99 is untested" in text
    assert "communication modelled: every link 10 Gbit/s, latency 25 us, algorithm auto" in text


def test_all_figures_are_there_and_valid_for_plotly(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run", with_delays=True, beside=BESIDE)
    figures = figures_of(page_of(tmp_path, run))
    assert list(figures) == [*FIGURES[:3], "iteration_time_by_delay", "timeline"]
    for figure in figures.values():
        go.Figure(figure)  # raises for any property that Plotly does not know


def test_without_delays_and_prediction_their_figures_are_not_there(tmp_path: Path) -> None:
    assert list(figures_of(page_of(tmp_path, make_emulation(tmp_path / "run")))) == FIGURES


def test_the_first_iteration_is_left_out_and_the_median_is_drawn(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run")
    found = traces(figures_of(page_of(tmp_path, run)), "iteration_times")
    (curve,) = found["iteration"]
    assert curve["x"] == list(range(1, 60))
    assert max(curve["y"]) < 70
    (level,) = found["median"]
    assert run.summary is not None
    assert level["y"][0] == pytest.approx(1e3 * run.summary["iteration_time"]["median"])
    assert len(found["p10 and p90"]) == 2
    assert found["exposed communication"][0]["y"] == [7.0] * 59


def test_the_parts_of_an_iteration_stand_one_behind_the_other(tmp_path: Path) -> None:
    found = traces(
        figures_of(page_of(tmp_path, make_emulation(tmp_path / "run"))), "iteration_parts"
    )
    assert list(found) == ["compute", "exposed communication", "waiting for others"]
    (compute,), (exposed,), (waiting,) = found.values()
    assert exposed["base"] == [pytest.approx(compute["x"][0], rel=1e-5)]
    assert (exposed["x"], waiting["x"]) == ([pytest.approx(4.0, 1e-4)], [pytest.approx(1.0, 1e-4)])


def test_collectives_are_exposed_and_hidden(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_emulation(tmp_path / "run")))
    assert figures["collectives"]["layout"]["yaxis"]["ticktext"] == ["all_reduce", "all_gather"]
    found = traces(figures, "collectives")
    assert found["exposed"][0]["x"] == pytest.approx([4.0, 1.0], rel=1e-4)
    assert found["hidden"][0]["base"] == pytest.approx([4.0, 1.0], rel=1e-4)
    assert found["hidden"][0]["x"] == pytest.approx([20.0, 0.0], rel=1e-4, abs=1e-4)


def test_the_typical_iteration_has_a_row_for_each_comm_worker(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run")
    figures = figures_of(page_of(tmp_path, run))
    rows = figures["timeline"]["layout"]["yaxis"]["ticktext"]
    assert rows == ["rank0", "comm 0 0", "comm 0 1"]
    found = traces(figures, "timeline")
    assert list(found) == ["compute", "wait", "all_reduce", "all_gather"]
    (reduces,) = found["all_reduce"]
    assert reduces["y"] == [1, 2, 1, 2, 1, 2]
    assert reduces["x"] == pytest.approx([4.0] * 6, rel=1e-4)
    assert min(trace["base"][0] for trace in figures["timeline"]["data"]) == pytest.approx(0)
    ends = [
        begin + length
        for trace in figures["timeline"]["data"]
        for begin, length in zip(trace["base"], trace["x"], strict=True)
    ]
    assert run.summary is not None
    assert max(ends) == pytest.approx(1e3 * run.summary["iteration_time"]["median"], rel=0.01)


def test_overlapping_collectives_of_one_worker_are_drawn_beside_each_other(tmp_path: Path) -> None:
    records = [
        Group(0, "0", 2, (0, 1), "gloo"),
        *(
            Collective(0, "0", number, "all_reduce", 8, -1, *(begin, begin, begin, begin + 3.0))
            for number, begin in enumerate((100.0, 101.0, 102.0, 103.0))
        ),
        Iteration(0, 0, 99.0, 0.0, 0),
        Iteration(0, 1, 110.0, 1.0, 0),
    ]
    run = make_emulation(tmp_path / "run", records=records)
    (boxes,) = traces(figures_of(page_of(tmp_path, run)), "timeline")["all_reduce"]
    assert boxes["y"] == pytest.approx([1 - 0.28, 1.0, 1.28, 1 - 0.28])


def test_figure_4_has_medians_bars_a_fit_and_its_knee(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run", with_delays=True)
    html = page_of(tmp_path, run)
    figures = figures_of(html)
    found = traces(figures, "iteration_time_by_delay")
    (medians,) = found["median"]
    assert medians["x"] == pytest.approx((1e3 * DELAYS).tolist())
    (bars,) = found["p10 to p90"]
    assert bars["x"][:3] == [0.0, 0.0, None]
    assert bars["y"][0] < medians["y"][0] < bars["y"][1]
    assert run.summary is not None
    # A bucket every 5 ms, each on a worker of two for 4 ms: full with 6 ms more.
    knee = run.summary["knee"]
    assert knee["knee"] == pytest.approx(6e-3, rel=0.05)
    assert knee["slope"] == pytest.approx(3.0, rel=0.05)
    assert found["knee"][1]["x"] == [pytest.approx(1e3 * knee["knee"], rel=1e-5)]
    assert found["fit"][0]["x"][1] == pytest.approx(1e3 * knee["knee"], rel=1e-5)
    assert "added delay Up to 5.9" in text_of(html)
    assert "0 s 60.88 ms 60.31 ms 61.43 ms 5 ms" in text_of(html)


def test_delays_without_a_knee_have_a_straight_line(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "made", with_delays=True)
    assert run.summary is not None
    straight = {**run.summary["knee"], "knee": None, "flat_slope": None}
    other = make_emulation(tmp_path / "run", with_delays=True, knee=straight)
    html = page_of(tmp_path, other)
    found = traces(figures_of(html), "iteration_time_by_delay")
    assert "knee" not in found
    assert found["fit"][0]["x"] == [0.0, 8.0]
    assert "Delay that hides none" in text_of(html)


def test_delays_that_nobody_could_fit_still_have_their_dots(tmp_path: Path) -> None:
    failed = {"kind": "all_reduce", "knee": None, "reason": "only 2 of 9 runs have iteration times"}
    run = make_emulation(tmp_path / "made", with_delays=True)
    assert run.summary is not None
    delays = run.summary["delays"]
    lost = {"status": "failed", "iteration_time": None, "breakdown": None}
    few = [*delays[:2], *({"delay": delay["delay"], **lost} for delay in delays[2:])]
    other = make_emulation(tmp_path / "run", delays=few, knee=failed)
    html = page_of(tmp_path, other)
    assert set(traces(figures_of(html), "iteration_time_by_delay")) == {"p10 to p90", "median"}
    assert "2 ms failed" in text_of(html)
    assert "only 2 of 9 runs have iteration times" in text_of(html)


def test_iterations_of_one_run_after_the_other_stand_one_after_the_other(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run", with_delays=True, restarts=3)
    figures = figures_of(page_of(tmp_path, run))
    found = traces(figures, "iteration_times")
    assert list(found) == ["iteration", "exposed communication"]
    assert found["iteration"][0]["x"] == list(range(1, 3 * 59 + 1))
    assert "of all runs" in figures["iteration_times"]["layout"]["xaxis"]["title"]["text"]


def test_a_prediction_stands_beside(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run", beside=BESIDE)
    html = page_of(tmp_path, run)
    assert "Predicted 62 ms (+1.8%)" in text_of(html)
    assert "prediction runs/predicted" in text_of(html)


def test_several_runs_are_compared_by_their_iterations(tmp_path: Path) -> None:
    runs = [
        make_emulation(tmp_path / "plain", asked={"what_if": []}),
        make_emulation(
            tmp_path / "slow", asked={"what_if": ["all_reduce: +7 ms"]}, records=job(delay=7e-3)
        ),
    ]
    html = page_of(tmp_path, *runs)
    assert "train.py, 8 ranks, all_reduce: +7 ms" in text_of(html)
    figures = figures_of(html)
    assert list(figures) == [
        *("iteration_time", "exposed", "iteration_times", "iteration_parts"),
        *("timeline_1", "timeline_2"),
    ]
    (dots,) = figures["iteration_time"]["data"]
    assert dots["x"] == pytest.approx([60.88, 69.99], abs=0.01)
    names = figures["iteration_time"]["layout"]["yaxis"]["ticktext"]
    assert names == ["unchanged", "all_reduce: +7 ms"]
    assert (
        "An iteration is shortest with unchanged: 60.88 ms, 1.1 times as fast as all_reduce: +7 ms."
    ) in text_of(html)
    rows = figures["iteration_parts"]["layout"]["yaxis"]["ticktext"]
    assert rows == ["train.py, 8 ranks", "train.py, 8 ranks, all_reduce: +7 ms"]


def test_a_changed_run_shows_the_parts_of_the_unchanged_one(tmp_path: Path) -> None:
    before = make_emulation(tmp_path / "plain").summary
    change = ["all_reduce: +7 ms"]
    slow = make_emulation(
        tmp_path / "slow", records=job(delay=7e-3), what_if=change, unchanged=before
    )
    figure = figures_of(page_of(tmp_path, slow))["iteration_parts"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["unchanged", *change]
    (exposed,) = (each for each in figure["data"] if each["meta"]["series"].startswith("exposed"))
    # Two buckets at once, one every 5 ms, 11 ms each: the last ends 13 ms after the backward pass,
    # and the all-gather takes 1 ms.
    assert exposed["x"] == pytest.approx([4, 14], abs=0.1)


def test_of_several_real_ranks_each_has_a_bar_and_rows(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run", ranks=(0, 3))
    html = page_of(tmp_path, run)
    figures = figures_of(html)
    assert figures["iteration_parts"]["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 3"]
    assert figures["timeline"]["layout"]["yaxis"]["ticktext"][3:5] == ["rank3", "rank3, comm 0 0"]
    # Rank 3, whose collectives take longer, is the one at the top.
    assert "Iteration time 64.09 ms" in text_of(html)
    assert min(traces(figures, "iteration_times")["iteration"][0]["y"]) > 63
    assert "ranks 0, 3 of 8, mode wire" in text_of(html)
    assert "emulator 2.5 s of processor time for 4 GB in 8,000 messages, 625 us per MB" in text_of(
        html
    )


def test_a_run_that_goes_on_shows_its_iterations_so_far(tmp_path: Path) -> None:
    run = make_emulation(tmp_path / "run", status=None)
    html = page_of(tmp_path, run)
    assert list(figures_of(html)) == ["iteration_times"]
    assert "Iterations 60 Iteration time 60.88 ms" in text_of(html)
    assert "The run is unfinished" in text_of(html)


def test_a_run_without_iterations_shows_its_first_collectives(tmp_path: Path) -> None:
    records = [each for each in job(iterations=3) if not isinstance(each, Iteration)]
    html = page_of(tmp_path, make_emulation(tmp_path / "run", records=records))
    figures = figures_of(html)
    assert list(figures) == ["collectives", "timeline"]
    assert "First collectives" in text_of(html)
    assert "iteration time the script made no step of an optimizer" in text_of(html)
    assert "all_reduce 18 450 MB" in text_of(html)


def test_a_run_of_which_nothing_is_known_has_a_page(tmp_path: Path) -> None:
    html = page_of(tmp_path, make_emulation(tmp_path / "run", records=[]))
    assert figures_of(html) == {}
    assert "iteration time the script made no step of an optimizer" in text_of(html)


@pytest.mark.parametrize(
    ("records", "changed", "said"),
    [
        ([], {"exit_code": 3}, "The run failed: the script ended with exit code 3."),
        ([], {"exit_code": -9}, "The run failed: the script was killed by SIGKILL."),
        (
            [Note(-1, True, "an unexpected message of 8 B from rank 0")],
            {"exit_code": 0},
            "The run failed: an unexpected message of 8 B from rank 0.",
        ),
    ],
)
def test_why_a_run_failed_is_said(
    records: list[Any],
    changed: dict[str, Any],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = make_emulation(tmp_path / "run", "failed", records=[*job(), *records], **changed)
    assert said in text_of(page_of(tmp_path, run))
    assert said in printed(run, capsys)


def test_the_terminal_shows_figures_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(make_emulation(tmp_path / "run", with_delays=True, beside=BESIDE), capsys)
    assert re.search(r"iteration time +60.88 ms \(60.31 ms to 61.43 ms\)", text)
    assert re.search(r"predicted +62 ms \(\+1.8%\)", text)
    assert re.search(r"delay that hides +5.9\d ms", text)
    assert re.search(r"added delay +Up to 5.9\d ms .* hides under computing", text)
    assert re.search(r"Collectives of an iteration +count +bytes +time +exposed +hidden", text)
    assert re.search(r"all_reduce +6 +150 MB +24 ms +4 ms +20 ms", text)
    assert re.search(r"8 ms +7\d[.\d]* ms", text)


def test_many_notes_groups_and_fractions_stay_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = [Group(0, f"mesh_{n}", 2, (0, 1), "gloo") for n in range(40)]
    notes = [Note(n % 2, False, f"note of number {n}") for n in range(20)]
    run = make_emulation(tmp_path / "run", records=[*job(), *groups, *notes])
    text = printed(run, capsys)
    assert "rank 1: note of number 7" in text
    assert "note of number 8" not in text
    assert re.search(r"more notes +12, in summary.json", text)
    assert "25 others" in text  # 41 groups, of which 16 are shown
    assert re.search(r"Process groups +size +backend +collectives +bytes\n0 +8 +gloo +420", text)

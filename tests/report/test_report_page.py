"""What stands on the page: names, numbers, sections, and nothing that could break it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import plotly.graph_objects as go
import pytest
from synthetic import make_run
from written_page import figures_of, page_of, text_of

from paracosm.errors import InputError
from paracosm.report import write_report
from paracosm.report.runs import described
from paracosm.results import to_json, with_digest
from paracosm.studies.run_folder import RunFolder


def test_the_headline_and_the_key_numbers_of_one_run(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, make_run(tmp_path / "my-run")))
    assert "asgd, 4 workers" in text
    assert "train · mlp on digits · seed 3 · folder my-run" in text
    assert "Status done" in text
    assert "Updates 200" in text
    assert "Last training loss 0.1626" in text  # 2.3 / sqrt(200)
    assert "Last test accuracy 94.6%" in text  # 1 - 0.1626 / 3
    assert "Virtual time 4 s" in text
    # 1 - 2.3 / sqrt(n) / 3 >= 0.9 from n = 58.8 on; evaluated at 60, 20 ms each.
    assert "Virtual time to 90% accuracy 1.2 s" in text
    assert "Wall time 1.25 s" in text
    assert "compute modelled: lognormal(20ms, 0.1)" in text
    assert "lr 0.2" in text


def test_all_figures_are_there_and_valid_for_plotly(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_run(tmp_path / "run")))
    assert list(figures) == [
        "loss_updates",
        "loss_time",
        "accuracy_time",
        "staleness",
        "utilisation",
        "timeline",
    ]
    for figure in figures.values():
        go.Figure(figure)  # raises for any property that Plotly does not know


def test_what_has_no_data_is_left_out(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "asgd"}})
    for step in range(10):
        run.metric(step, step, "worker0", "staleness", step % 2, step)
    run.finish({"updates": 10})
    html = page_of(tmp_path, run)
    assert list(figures_of(html)) == ["staleness"]
    assert "Where the time went" not in html
    assert "First rounds" not in html
    assert "Measured, modelled, computed" not in html


def test_a_single_bar_or_dot_is_no_figure(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "sequential"}})
    for step in range(10):
        run.metric(step, step, "worker0", "staleness", 0, step)
    run.metric(9.0, 9.0, "evaluation", "loss", 0.5, 10)
    run.metric(9.0, 9.0, "worker0", "utilisation.compute", 1.0, 10)
    run.finish({"updates": 10})
    assert figures_of(page_of(tmp_path, run)) == {}


def test_a_run_killed_before_its_first_metric_still_has_a_page(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "asgd", "workers": 2}})
    run.close()
    html = page_of(tmp_path, run)
    assert "The run is unfinished" in html
    assert "asgd, 2 workers" in html
    assert "figures-data" not in html


def test_an_unfinished_run_shows_how_far_it_got(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=100, status=None)
    text = text_of(page_of(tmp_path, run))
    assert "The run is unfinished: still running, or killed." in text
    assert "Status unfinished" in text
    assert "Updates 100" in text
    assert "Last training loss 0.23" in text


def test_the_answer_comes_first(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, make_run(tmp_path / "run")))
    answer = "Loss 0.163 (94.6 % accuracy) after 200 updates, 4 s; mean staleness 3."
    assert text.index(answer) < text.index("Status")


def test_a_run_that_ends_at_chance_is_not_green(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    learnt = {"final_loss": 2.29, "final_accuracy": 0.1, "chance": CHANCE, "lr": "0.2"}
    changed = with_digest({**(run.summary or {}), **learnt})
    (run.path / "summary.json").write_text(to_json(changed))
    html = page_of(tmp_path, run)
    assert '<span class="status warning">at chance' in html
    assert "Does not learn: 10 % accuracy (guessing: 11 %) after 200 updates" in text_of(html)
    table = page_of(tmp_path, run, make_run(tmp_path / "good"))
    assert table.count("status warning") == table.count("status good") == 1


CHANCE = {"accuracy": 0.11, "loss": 2.3, "examples": 360}


def test_a_divergence_is_told_in_words(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, make_run(tmp_path / "run", status="diverged")))
    assert (
        "The run diverged at update 120: the minibatch loss was 1.234e+04, for a gradient of "
        "worker2 with staleness 5."
    ) in text


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_other_ends_are_told_too(tmp_path: Path, status: str) -> None:
    text = text_of(page_of(tmp_path, make_run(tmp_path / "run", status=status)))
    assert re.search(f"The run (was|ended with status) {status}", text)


def test_several_runs_share_a_table_and_every_figure(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"run{n}", workers=n) for n in (1, 4, 16)]
    html = page_of(tmp_path, *runs)
    for n in (1, 4, 16):
        assert f"asgd, {n} worker{'s' * (n > 1)}<td>" in html
    for name, figure in figures_of(html).items():
        shown = {trace["meta"]["run"] for trace in figure["data"]}
        if shown != {-1} and not name.startswith("timeline"):
            assert shown == {0, 1, 2}, name
    # What differs stands in a table, what does not in a list.
    assert "<th scope=col>workers" in html
    assert "<dt>lr<dd>0.2" in html


def test_names_are_told_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name) for name in ("a/x", "b/x", "c")]
    runs.append(make_run(tmp_path / "d", "ssgd"))
    assert [run.name for run in described(runs)] == [
        "asgd, 4 workers (a/x)",
        "asgd, 4 workers (b/x)",
        "asgd, 4 workers (c)",
        "ssgd, 4 workers",
    ]


def test_long_names_leave_out_what_all_have(tmp_path: Path) -> None:
    algorithm = "a-rule-of-ones-own(with_a_parameter=0.25, and_another=0.5)"
    runs = [make_run(tmp_path / str(n), algorithm, workers=n) for n in (4, 8)]
    assert [run.name for run in described(runs)] == ["4 workers", "8 workers"]
    assert f"· {algorithm} ·" in text_of(page_of(tmp_path, *runs))


def test_text_of_the_user_cannot_become_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;"
    run = make_run(tmp_path / "<b>run", evil)
    other = make_run(tmp_path / "run2", "asgd")
    for runs in ([run], [run, other]):
        html = page_of(tmp_path, *runs)
        assert "<script>alert" not in html
        assert "<img" not in html
        assert "<b>run" not in html
        for figure in figures_of(html).values():
            assert "<img" not in json.dumps(figure)


def test_the_page_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    html = page_of(tmp_path, make_run(tmp_path / "run"))
    assert "default-src 'none'" in html
    assert not re.findall(r'(?:src|href)\s*=\s*["\']?(?!data:)\w', html)
    assert "@import" not in html
    assert "url(" not in html


def test_long_runs_are_thinned(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", workers=2, updates=20_000)
    figures = figures_of(page_of(tmp_path, run))
    for trace in figures["loss_time"]["data"]:
        assert len(trace["x"]) <= 2000


def test_many_workers_are_shown_as_a_crowd_and_a_few_rows(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_run(tmp_path / "run", workers=300, spans=900)))
    assert figures["utilisation"]["layout"]["yaxis"]["ticktext"] == [
        "servers, send",
        "servers, receive",
        "workers, compute",
        "workers, send",
        "workers, receive",
    ]
    timeline = figures["timeline"]
    assert len(timeline["layout"]["yaxis"]["ticktext"]) == 20
    assert sum(len(trace["x"]) for trace in timeline["data"]) <= 600


def test_no_run_and_runs_of_different_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run"):
        write_report([], tmp_path / "report.html")
    train = make_run(tmp_path / "a")
    relax = RunFolder.create(tmp_path / "b", {"relax": {}})
    relax.finish({})
    with pytest.raises(InputError, match="cannot compare runs of different kinds: relax, train"):
        write_report([train, relax], tmp_path / "report.html")


def test_a_kind_without_charts_has_a_page_of_its_numbers(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"relax": {"processors": 8}, "seed": 1})
    run.finish({"virtual_time": 2.5})
    text = text_of(page_of(tmp_path, run))
    assert "Virtual time 2.5 s" in text
    assert "processors 8" in text


def test_importing_the_report_is_light() -> None:
    heavy = ["torch", "sklearn", "plotly", "matplotlib", "pyarrow", "pydantic"]
    program = f"import sys, paracosm.report; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert answer.stdout.decode().strip() == "[]"

"""Clients that take turns at workers, who waits, and the staleness of tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from written_page import figures_of, page_of, text_of

from paracosm.report.kinds import described
from paracosm.report.shared_charts import recorded_shares
from paracosm.report.train_clients import participations, staleness_by_participation
from paracosm.report.view import Run
from paracosm.studies.run_folder import RunFolder

STEP = 0.02  # seconds of virtual time between updates


def make_clients(path: Path, rows: list[tuple[int, float]], clients: int, **summary: Any) -> Run:
    """Write a run over two workers whose updates are by these clients, of such a staleness."""
    folder = RunFolder.create(path, {"train": {"algorithm": "fedbuff", "clients": clients}})
    for step, (client, staleness) in enumerate(rows, start=1):
        now, worker = STEP * step, f"worker{step % 2}"
        folder.metric(now, now, worker, "staleness", staleness, step)
        folder.metric(now, now, worker, "client", client, step)
        if step % 2:
            folder.metric(now, now, worker, "waiting", STEP / 2, step)
    for node in ("worker0", "worker1"):
        folder.metric(now, now, node, "utilisation.compute", 0.25, len(rows))
    folder.finish({"status": "done", "virtual_time": STEP * len(rows), **summary})
    return described([RunFolder.open(path)])[0]


def test_clients_that_never_took_part_are_counted(tmp_path: Path) -> None:
    run = make_clients(tmp_path / "run", [(7, 0), (3, 1), (7, 2), (7, 0)], clients=5)
    assert sorted(participations(run)) == [0, 0, 0, 1, 3]
    html = page_of(tmp_path, run.folder)
    (area,) = figures_of(html)["participation"]["data"]
    # Shares of the clients with 0, 1, 2 and 3 participations.
    assert area["y"][1:-1:2] == pytest.approx([0.6, 0.2, 0.0, 0.2])
    assert "3 of 5 clients never took part." in text_of(html)


def test_staleness_is_told_by_how_often_clients_took_part(tmp_path: Path) -> None:
    rows = [(0, 4.0), (1, 1.0), (2, 1.0), (1, 2.0), (2, 3.0)]
    found = staleness_by_participation(make_clients(tmp_path / "run", rows, clients=3))
    assert found is not None
    x, spread, labels = found
    assert x.tolist() == [1, 2]
    # Once: 4. Twice: 1, 1, 2, 3.
    assert spread[1].tolist() == [4, 1.5]
    assert spread[:, 1].tolist() == pytest.approx([1.0, 1.5, 2.7])
    assert labels == [
        "1 client, 1 times: staleness 4 (4 to 4)",
        "2 clients, 2 times: staleness 1.5 (1 to 2.7)",
    ]


def test_ten_thousand_clients_stay_a_few_marks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    picked = np.floor(10_000 * rng.random(40_000) ** 2).astype(int)  # the first ones more often
    rows = list(zip(picked.tolist(), rng.integers(0, 30, len(picked)).tolist(), strict=True))
    run = make_clients(tmp_path / "run", rows, clients=10_000)
    figures = figures_of(page_of(tmp_path, run.folder))
    for name in ("participation", "staleness_participation"):
        go.Figure(figures[name])
        assert len(json.dumps(figures[name])) < 30_000
    medians = next(t for t in figures["staleness_participation"]["data"] if t["mode"] == "markers")
    assert 5 <= len(medians["x"]) <= 20
    assert medians["x"] == sorted(medians["x"])
    counts = participations(run)
    assert counts.sum() == 40_000
    assert len(counts) == 10_000


def test_waiting_is_a_share_of_each_worker_s_time(tmp_path: Path) -> None:
    run = make_clients(tmp_path / "run", [(0, 0.0), (1, 1.0), (0, 1.0), (1, 1.0)], clients=2)
    # worker1 waits twice for half a step of the four.
    assert recorded_shares(run)["worker1", "wait"] == pytest.approx(0.25)
    assert ("worker0", "wait") not in recorded_shares(run)
    figure = figures_of(page_of(tmp_path, run.folder))["utilisation"]
    assert [trace["meta"]["series"] for trace in figure["data"]] == ["compute", "wait"]


def test_without_clients_there_is_no_section_of_them(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "asgd"}})
    for step in range(4):
        folder.metric(step, step, "worker0", "staleness", step, step)
    folder.finish({"status": "done"})
    html = page_of(tmp_path, folder)
    assert list(figures_of(html)) == ["staleness"]
    assert "Clients" not in text_of(html)


def test_tensors_are_ordered_by_their_staleness(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "asgd"}})
    of_weight = {"mean": 0.75, "max": 1, "width": 1, "counts": [1, 3]}
    of_bias = {"mean": 3.0, "max": 5, "width": 2, "counts": [0, 4, 4]}
    folder.finish({"status": "done", "staleness": {"0.weight": of_weight, "0.bias": of_bias}})
    figure = figures_of(page_of(tmp_path, folder))["staleness_tensor"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["0.bias", "0.weight"]
    bias, weight = figure["data"]
    assert bias["x"] == [1.5, 1.5, 3.5, 3.5, 5.5, 5.5]
    assert bias["text"][1] == "staleness 2: 25.00%"
    # Rows are scaled to their peaks: a third of three quarters is a third.
    assert weight["y"] == pytest.approx(
        [1.4, 1.4 - 0.8 / 3, 1.4 - 0.8 / 3, 0.6, 0.6, 1.4], rel=1e-5
    )

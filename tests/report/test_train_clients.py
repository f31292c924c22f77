"""Clients that take turns at workers, who waits, and the staleness of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from written_page import figures_of, page_of, text_of

from paracosm.report.runs import described
from paracosm.results.view import Run
from paracosm.studies.run_folder import RunFolder
from paracosm.training.client_charts import (
    participations,
    staleness_by_participation,
    staleness_by_speed,
    waits_caused,
)
from paracosm.training.view import recorded_shares

STEP = 0.02  # seconds of virtual time between updates


def make_clients(
    path: Path,
    rows: list[tuple[int, float]],
    clients: int,
    speeds: Mapping[int, float] | None = None,
    **summary: Any,
) -> Run:
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
    for client, speed in (speeds or {}).items():
        folder.metric(now, now, "client", "client_speed", speed, client)
    folder.finish({"status": "done", "virtual_time": STEP * len(rows), **summary})
    return described([RunFolder.open(path)])[0]


def test_clients_that_never_took_part_are_counted(tmp_path: Path) -> None:
    run = make_clients(tmp_path / "run", [(7, 0), (3, 1), (7, 2), (7, 0)], clients=5)
    assert sorted(participations(run)) == [0, 0, 0, 1, 3]
    html = page_of(tmp_path, RunFolder.open(run.path))
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


def test_staleness_is_told_by_how_fast_clients_are(tmp_path: Path) -> None:
    rows = [(0, 4.0), (7, 1.0), (0, 2.0), (7, 3.0), (3, 8.0)]
    run = make_clients(tmp_path / "run", rows, clients=9, speeds={0: 2.0, 3: 0.25, 7: 2.0})
    found = staleness_by_speed(run)
    assert found is not None
    x, spread, labels = found
    assert x.tolist() == [0.25, 2.0]
    assert spread[1].tolist() == [8, 2.5]  # of 4, 1, 2, 3
    assert labels[0] == "1 client, speed 0.25: staleness 8 (8 to 8)"
    figures = figures_of(page_of(tmp_path, RunFolder.open(run.path)))
    axis = figures["staleness_speed"]["layout"]["xaxis"]
    # Eight times as fast is not enough for a logarithmic axis.
    assert axis["type"] == "linear"


@pytest.mark.parametrize("metric", ["client_accuracy", "client_loss"])
def test_clients_are_shown_from_the_worst_on(metric: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "fedavg", "clients": 11}})
    values = [0.5, 0.9, 0.1, 0.7, 0.3, 1.0, 0.8, 0.6, 0.4, 0.2, 0.9]
    for client, value in enumerate(values):
        folder.metric(1, 1, "client", metric, value, client)
    folder.finish({"status": "done", "virtual_time": 1.0})
    figure = figures_of(page_of(tmp_path, RunFolder.open(folder.path)))["client_quality"]
    curve, worst = figure["data"][:2]
    is_accuracy = metric == "client_accuracy"
    assert curve["y"] == pytest.approx(sorted(values, reverse=not is_accuracy))
    assert curve["x"] == pytest.approx([(place + 1) / 11 for place in range(11)], rel=1e-5)
    assert worst["y"] == pytest.approx([0.15 if is_accuracy else 0.95])  # of two of eleven


def test_whoever_comes_last_in_a_round_is_who_the_others_wait_for(tmp_path: Path) -> None:
    """Client 5 is last in the first and third round of three: 4 + 3 s, then 1 + 2 s; 6 in the
    second, 1 + 1 s. Nobody waits for the answer of the fourth, to one worker alone."""
    folder = RunFolder.create(tmp_path / "run", {"train": {"algorithm": "fedavg", "clients": 9}})
    rounds = [
        ((1, 4.0), (2, 3.0), (5, 0.0)),
        ((1, 1.0), (6, 0.0), (2, 1.0)),
        ((5, 0.0), (3, 1.0), (4, 2.0)),
    ]
    for step, each in enumerate([*rounds, ((8, 7.0),)], start=1):
        for what in ("client", "waiting"):
            for worker, (client, waited) in enumerate(each):
                value = client if what == "client" else waited
                folder.metric(step, step, f"worker{worker}", what, value, step)
    folder.finish({"status": "done", "virtual_time": 4.0})
    run = described([RunFolder.open(folder.path)])[0]
    assert waits_caused(run).tolist() == [10.0, 2.0]
    figure = figures_of(page_of(tmp_path, RunFolder.open(run.path)))["waiting_caused"]
    assert figure["data"][0]["y"] == pytest.approx([10 / 12, 1.0], rel=1e-5)
    assert figure["data"][1]["text"] == ["half of the waiting is due to 1 client of 2"]


def test_ten_thousand_clients_stay_a_few_marks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    picked = np.floor(10_000 * rng.random(40_000) ** 2).astype(int)  # the first ones more often
    rows = list(zip(picked.tolist(), rng.integers(0, 30, len(picked)).tolist(), strict=True))
    run = make_clients(tmp_path / "run", rows, clients=10_000)
    figures = figures_of(page_of(tmp_path, RunFolder.open(run.path)))
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
    figure = figures_of(page_of(tmp_path, RunFolder.open(run.path)))["utilisation"]
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

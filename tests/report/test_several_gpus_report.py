"""Runs on several GPUs in what is said of a folder of op latencies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paracosm.prediction.op_latencies.summary import summarise_folder
from paracosm.report.predict_words import VIEW

DATA = Path(__file__).parents[1] / "data" / "neusight"


def test_runs_on_several_gpus_have_a_table_of_their_own() -> None:
    summary = summarise_folder(DATA)
    found = {table.title: table for table in VIEW.tables(summary)}
    rows = found["Several devices"].rows
    assert [row[1].rpartition("-")[2] for row in rows] == ["dp4", "pp4_1", "tp4"]
    assert rows[0][0] == "4 x NVIDIA_H100_80GB_HBM3"
    assert rows[0][2] == "194.9 ms"
    summary = replace(summary, several_gpus={"comparisons": []})
    assert "Several devices" not in [table.title for table in VIEW.tables(summary)]

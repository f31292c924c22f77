"""The measured runs beside answers: whose they are, and that their predictions are current."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import measured_runs
import pytest
from measured_runs import read_measured_runs, write_measured_runs
from published_steps import Row
from stacks import predicted

from paracosm.graphs.transformer import Transformer
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.prediction.measured_runs import FILE, NEAREST, nearest_runs

LARGEST = 200_000  # bytes of the file
SAMPLE = 1.001  # ratio within which a stored prediction, to four digits, is the same


def test_every_run_names_its_source_and_its_licence() -> None:
    assert FILE.stat().st_size < LARGEST
    with FILE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) > NEAREST
    for row in rows:
        assert row["published"].count("/") >= 2, row
        assert row["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause", "CC-BY-SA-4.0"), row


def test_a_run_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_runs, "FILE", tmp_path / "runs.csv")
    row = Row(
        model_name="mixture",
        model=Transformer(
            *(4, 512, 8, 1024),
            rotary=True,
            rms=True,
            bias=False,
            tied=False,
            gated=True,
            experts=8,
            active=2,
            recipe="compiled",
        ),
        strategy=Strategy(data=4, tensor=2, sequence=True, sharding="optimizer", float8="delayed"),
        micro_batch=2,
        hardware="h100-sxm",
        stack="megatron-te",
        numbers="fp8",
        seconds=1.25,
        software="NeMo, of a month 25.02",
        published="somebody/tables@1:file.md",
        licence="MIT",
    )
    write_measured_runs({row: 1.5})
    assert read_measured_runs() == [(row, 1.5)]


def test_the_nearest_runs_are_of_the_same_device_and_numbers_where_there_are_such() -> None:
    model = Transformer(
        *(32, 4096, 32, 8192),
        kv_heads=8,
        inner=14336,
        vocabulary=128_256,
        gated=True,
        rotary=True,
        rms=True,
        bias=False,
        tied=False,
        recipe="compiled",
    )
    found = nearest_runs(model, 64, "h100-sxm", "megatron-te", float8=False)
    assert len(found) == NEAREST
    assert found[0].hardware == "h100-sxm"
    assert found[0].numbers == "bf16"
    small = nearest_runs(model, 64, "h100-sxm", "megatron-te", float8=True)
    assert small[0].numbers == "fp8"


@pytest.mark.slow
def test_stored_predictions_are_those_of_this_version() -> None:
    """One run of each device, stack, type of numbers and kind of model, the one of fewest devices.

    Where this fails, `python benchmarks/accuracy/stacks.py --write` stores the new ones.
    """
    groups = defaultdict[tuple[object, ...], list[tuple[Row, float]]](list)
    for row, stored in read_measured_runs():
        groups[row.device, row.stack, row.numbers, bool(row.model.experts)].append((row, stored))
    for group in groups.values():
        row, stored = min(group, key=lambda pair: pair[0].strategy.ranks)
        seconds = predicted(row.question).seconds
        assert 1 / SAMPLE < seconds / stored < SAMPLE, (row.model_name, row.strategy, stored)

"""Hardware and software compared by lists of names: answers, prices, the page, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paracosm.cli import main

PREDICT = [
    "predict",
    "--model",
    "llama-8b",
    "--batch",
    "1",
    "--shape",
    "2048",
    "--workers",
    "8",
    "--strategy",
    "fsdp",
]


def _sweep(folder: Path) -> dict[str, Any]:
    rows = json.loads((folder / "sweep.json").read_text())
    return {row["varied"].get("hardware", row["varied"].get("stack")): row for row in rows}


def test_a_list_of_hardware_is_ranked_with_the_cost_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpus"
    price = "a100-sxm-80gb: 0.7 USD/h, h100-sxm: 2.5 USD/h"
    assert (
        main(
            [*PREDICT, "--hardware", "a100-sxm-80gb, h100-sxm", "--price", price, "--out", str(out)]
        )
        == 0
    )
    first, _, header, *lines = capsys.readouterr().out.splitlines()
    rows = _sweep(out)
    rates = {name: rows[name]["tokens_per_second"] for name in rows}
    assert rates == {n: pytest.approx(2048 * rows[n]["examples_per_second"]) for n in rows}
    costs = {"a100-sxm-80gb": 0.7, "h100-sxm": 2.5}
    for name, hour in costs.items():  # 8 devices at so much an hour, over a million tokens
        assert rows[name]["cost"] == pytest.approx(8 * hour / 3600 / rates[name] * 1e6)
        assert rows[name]["price"] == f"{hour} USD/h a worker"
    assert first.startswith("By pytorch-compile, 8 x h100-sxm is fastest")
    assert (
        f"{rates['h100-sxm'] / rates['a100-sxm-80gb']:.3g} times as fast as 8 x a100-sxm-80gb"
        in first
    )
    assert f"{rates['h100-sxm']:,.0f} tokens/s" in first
    assert header.split()[:2] == ["hardware", "software"]
    assert [line.split()[2] for line in lines[:2]] == ["h100-sxm", "a100-sxm-80gb"]
    page = (out / "report.html").read_text()
    ranking = page.partition("Hardware, fastest first")[2]
    assert ranking.index("8 x h100-sxm") < ranking.index("8 x a100-sxm-80gb")
    assert "Cost of a million tokens" in page


def test_without_a_folder_a_comparison_is_printed_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stacks = "megatron-te, pytorch-eager"
    assert main([*PREDICT, "--hardware", "h100-sxm", "--stack", stacks]) == 0
    out = capsys.readouterr().out
    assert out.startswith("8 x h100-sxm by megatron-te is fastest: ")
    assert "8 x h100-sxm by pytorch-eager" in out.splitlines()[0]
    assert "worker-hours a million tokens" in out
    assert not list(tmp_path.iterdir())


def test_hardware_that_is_too_small_comes_last_and_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*PREDICT, "--hardware", "l4,h100-sxm"]) == 0
    first, _, _, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "By pytorch-compile, 8 x h100-sxm is fastest: "
    )  # prices decide what is cheapest
    assert first.endswith(" 1 of 2 does not fit.")
    assert "8 x l4" in lines[1]


def test_a_job_that_fits_nowhere_has_no_fastest_hardware(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*PREDICT, "--hardware", "l4,h100-sxm", "--batch", "512"]) == 0
    assert capsys.readouterr().out.startswith("The job fits into memory on none of the hardware")


def test_plans_of_several_devices_are_ranked(capsys: pytest.CaptureFixture[str]) -> None:
    plan = [
        "plan",
        "--model",
        "gpt2",
        "--tokens",
        "1e9",
        "--batch-tokens",
        "65536",
        "--max-workers",
        "8",
    ]
    price = "l4: 1 USD/h, a100-sxm-80gb: 2 USD/h"
    assert (
        main([*plan, "--max-workers", "8", "--hardware", "l4,a100-sxm-80gb", "--price", price]) == 0
    )
    first, _, _, *lines = capsys.readouterr().out.splitlines()
    assert "A100" in first.split(" is ")[0]
    assert "1 billion tokens of gpt2" in first
    assert any("L4" in line for line in lines)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--hardware", "h100-sxm,h20-sxm"), 'unknown hardware "h20-sxm": did you mean'),
        (("--hardware", "h100-sxm,l4", "--price", "2/h"), "with several, a price for each"),
        (("--hardware", "h100-sxm,l4", "--price", "l4: 2/h"), "price: none for h100-sxm"),
        (("--hardware", "h100-sxm", "--price", "h100-sxm: 2.5"), 'price: "2.5" has no unit'),
        (("--hardware", "l4", "--stack", "megatron-te,megatron"), 'unknown stack "megatron"'),
        (("--bandwidth", "1Gbit/s", "--price", "2/h"), "it concerns hardware of the catalogue"),
    ],
)
def test_what_cannot_be_compared(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PREDICT, *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1

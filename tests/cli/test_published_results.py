"""The studies of published results: they are sound, and what the papers found comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paracosm.studies import load_study

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "published"
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml"))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program beside the studies, in the folder from which it is run."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.chdir(ROOT)
    for name in ("run", "findings"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    yield run
    for name in ("run", "findings"):  # other examples have a program of this name
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", NAMES)
def test_every_study_is_sound_and_has_its_findings(program: Any, name: str) -> None:
    assert load_study(FOLDER / f"{name}.yaml").points(name)
    assert name in program.FINDINGS
    page = (ROOT / "docs" / "published-results.md").read_text(encoding="utf-8")
    assert f"paracosm train examples/published/{name}.yaml" in page
    assert f"images/published-{name}.png" in page
    assert (ROOT / "docs" / "images" / f"published-{name}.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_the_paper_found_comes_out(
    program: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = program.main([name, "--out", str(tmp_path), "--figures", str(tmp_path)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert (tmp_path / f"published-{name}.png").stat().st_size > 5_000


def test_a_result_of_another_name_is_refused(
    program: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(["fedsgd"])
    assert "no result is called fedsgd: there are fedprox, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fedavg", "plain", "proximal", "below", "stabler"),
    [
        ([4.0, 5.0, 5.0], [4.0, 1.0, 2.0], [4.0, 3.0, 2.0], True, True),
        ([4.0, 1.0, 1.0], [4.0, 3.0, 2.0], [4.0, 3.0, 3.5], False, False),
    ],
)
def test_fedprox_is_judged_by_its_losses(
    program: Any,
    fedavg: list[float],
    plain: list[float],
    proximal: list[float],
    below: bool,
    stabler: bool,
) -> None:
    from findings import FINDINGS, Run

    def run(label: str, losses: list[float]) -> Run:
        columns = {
            "name": ["loss"] * len(losses),
            "virtual_time": [0.0] * len(losses),
            "step": list(range(len(losses))),
            "value": losses,
        }
        return Run({"algorithm": label, "seed": 0}, pa.table(columns))

    runs = [
        run(f"{name}(epochs=20{mu}{stragglers})", losses)
        for stragglers in ("", ", stragglers=0.5", ", stragglers=0.9")
        for name, mu, losses in (
            ("fedavg", "", fedavg),
            ("fedprox", ", mu=0", plain),
            ("fedprox", ", mu=1", proximal),
        )
    ]
    claims = FINDINGS["fedprox"].claims(runs)
    assert len(claims) == 5
    for claim, holds in claims.items():
        assert holds == (below if "FedAvg, which drops it" in claim else stabler), claim

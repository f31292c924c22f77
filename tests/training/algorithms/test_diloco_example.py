"""The example of DiLoCo: what it says of bandwidth, and that it compares equals, in small."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from paracosm.timeline import Timeline

EXAMPLE = Path(__file__).parents[3] / "examples" / "diloco"
NAMES = ("bandwidth", "language", "run")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's program, imported anew: its modules' names are of no package."""
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(EXAMPLE)
    import run

    yield run
    for name in NAMES:
        sys.modules.pop(name, None)


def test_fragments_and_overlap_need_less_of_a_network(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = example.compare_bandwidth()
    assert len(checks) == 4
    assert all(holds for _, holds in checks), capsys.readouterr().out
    # 6 GB are sent in 100 s of computing and 5/95 as much of waiting: 1.14 GB/s.
    assert example.bandwidth.ways()[1].needed() == pytest.approx(1.14e9)


def test_the_peak_is_of_any_window(example: ModuleType) -> None:
    timeline = Timeline()
    for begin, end in ((0.0, 0.25), (2.0, 2.5), (2.75, 3.5), (9.0, 9.5)):
        timeline.span("worker0", "send", "all-reduce", begin, end)
        timeline.span("worker1", "send", "all-reduce", begin, 10.0)
    # From 2 to 3 s: half a second and a quarter, at 8 bytes a second; from 2.75 to 3.75 s as much.
    assert example.bandwidth.peak(timeline, 8.0, window=1.0) == 6.0
    assert example.bandwidth.peak(timeline, 8.0, window=2.0) == 10.0


def test_losses_are_compared_at_equal_tokens(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "EVALUATED", 50)
    checks = example.compare_losses(pretraining=3, rounds=2, steps=4)
    assert [check for check in checks if "loss" not in check[0]] == [
        ("DiLoCo learns from as many tokens as data parallelism", True),
        ("DiLoCo sends 4 times less (at least 4)", True),
        ("Streaming DiLoCo learns from as many tokens as data parallelism", True),
        ("Streaming DiLoCo sends 4 times less (at least 4)", True),
    ]
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "8,192" in line]
    # Two rounds of four steps, by four workers of eight stretches of 32 characters: 8,192. And
    # 30,816 numbers of 4 bytes, 6 times a quarter of them in each of eight exchanges, and in two.
    assert [row[-3] for row in rows] == ["1.48", "0.37", "0.37"]


def test_the_text_is_english_of_which_a_tenth_is_for_tests(example: ModuleType) -> None:
    train_x, train_y, test_x, _ = example.language.data()
    assert train_x.shape[1] == example.language.LENGTH
    assert (train_x[:, 1:] == train_y[:, :-1]).all()
    assert len(test_x) / (len(train_x) + len(test_x)) == pytest.approx(0.1, abs=0.01)
    text = "".join(example.language.CHARACTERS[code] for code in train_x[:3000].ravel())
    assert text.count(" the ") > 300

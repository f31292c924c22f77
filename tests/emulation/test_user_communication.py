"""A communication model that is a function of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import Cost
from paracosm.errors import InputError

EVERYONE = (0, 1, 2, 3)

MODELS = """
from paracosm.emulation.cost import Cost
from neighbour import RATE

asked = []

def whole(cost: Cost) -> float:
    return cost.fixed + cost.busy + cost.after


def seconds(size, kind):
    asked.append(kind)
    return size / RATE

def everything(kind, members, size, rank, peer):
    return Cost(len(members) * 1e-3, size * 1.0, f"{kind} {rank} {peer}")

def keywords(**given):
    return float(sorted(given) == ["kind", "members", "peer", "rank", "size"])

def constant():
    return "2ms"

def wrong(size):
    return 1 / (size - 1)

def negative():
    return -1.0

def endless():
    return float("inf")

def nothing():
    return None

def needs_more(size, phase):
    return 0.0

VARIABLE = 3
"""


@pytest.fixture
def models(tmp_path: Path) -> str:
    (tmp_path / "neighbour.py").write_text("RATE = 1e6\n")
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return str(path)


def job(**given: Any) -> EmulateConfig:
    return EmulateConfig(script="train.py", world_size=4, **given)


def test_seconds_keep_the_link_busy(models: str) -> None:
    communication = communication_of(job(communication=f"{models}:seconds"))
    assert communication.cost("all_reduce", EVERYONE, 2_000_000, 0, -1) == Cost(0.0, 2.0, "nic")
    assert communication.message(1, 2, 500_000, 1) == Cost(0.0, 0.5, "nic out")
    assert not communication.is_measured


def test_it_is_asked_every_time(models: str) -> None:
    communication = communication_of(job(communication=f"{models}:seconds"))
    asked = communication.model.function.__globals__["asked"]  # type: ignore[attr-defined]
    asked.clear()
    for _ in range(3):
        communication.cost("all_gather", EVERYONE, 10, 0, -1)
    communication.message(1, 2, 10, 1)
    assert asked == ["all_gather"] * 3 + ["send"]


def test_it_gets_what_it_has_parameters_for(models: str) -> None:
    everything = communication_of(job(communication=f"{models}:everything"))
    found = everything.cost("reduce", EVERYONE, 5, 2, 1)
    assert found == Cost(4e-3, 5.0, "reduce 2 1")
    keywords = communication_of(job(communication=f"{models}:keywords"))
    assert keywords.cost("barrier", EVERYONE, 0, 0, -1).busy == 1.0
    constant = communication_of(job(communication=f"{models}:constant"))
    assert constant.cost("barrier", EVERYONE, 0, 0, -1).busy == 0.002


def test_what_ifs_change_it(models: str) -> None:
    what_if = ("all_reduce: 3x slower", "all_reduce: +1 s")
    communication = communication_of(job(communication=f"{models}:everything", what_if=what_if))
    found = communication.cost("all_reduce", EVERYONE, 5, 0, -1)
    assert found == Cost(4e-3 * 3 + 1.0, 15.0, "all_reduce 0 -1")


def test_a_module_of_the_current_folder(
    models: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "emulated_costs_of_mine.py").write_text("def free():\n    return 0\n")
    monkeypatch.chdir(tmp_path)
    communication = communication_of(job(communication="emulated_costs_of_mine:free"))
    assert communication.cost("all_reduce", EVERYONE, 10, 0, -1) == Cost(0.0, 0.0, "nic")
    by_file = communication_of(job(communication="emulated_costs_of_mine.py:free"))
    assert by_file.message(0, 1, 10, 0) == Cost(0.0, 0.0, "nic out")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong", r"failed for all_reduce of 1 bytes: ZeroDivisionError"),
        ("negative", r"returned no time for all_reduce: a duration must be 0 or more, not -1"),
        ("endless", r"returned no time for all_reduce: a duration must be finite, not inf"),
        ("nothing", r"returned no time for all_reduce: .* not None"),
        ("needs_more", r"has the parameters \(size, phase\); it is called with any of kind"),
        ("absent", r'models.py has no "absent"'),
        ("VARIABLE", r'has a variable, not a function, "VARIABLE"'),
        ("", r"expected package.module:factory"),
    ],
)
def test_refusals_name_the_function(models: str, function: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        communication_of(job(communication=f"{models}:{function}"))
    assert f'communication "{models}:{function}"' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_fail(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*absent.py"):
        communication_of(job(communication=f"{tmp_path / 'absent.py'}:f"))
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    for _ in range(2):  # a file that failed is not taken for loaded
        with pytest.raises(InputError, match=r"cannot import .*broken.py: SyntaxError"):
            communication_of(job(communication=f"{broken}:f"))


def test_links_and_algorithms_have_no_effect(models: str) -> None:
    for what_if in ("links: bandwidth 4x slower", "all_reduce: algorithm ring"):
        with pytest.raises(InputError, match=f'what_if "{what_if}": has no effect: communication'):
            communication_of(
                job(communication=f"{models}:seconds", bandwidth="1Gbit/s", what_if=what_if)
            )

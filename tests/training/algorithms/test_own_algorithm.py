"""Algorithms of the user's own: named, found, recorded, and refused in one line."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from metric_rows import column

import paracosm
from paracosm.errors import InputError
from paracosm.factory import named_function
from paracosm.planning.config import PlanConfig
from paracosm.training.algorithms.registry import ALGORITHMS, parse_algorithm
from paracosm.training.config import TrainConfig
from paracosm.training.record import TrainingResult
from paracosm.training.run import train

EXAMPLE = "examples/own_algorithm/warm_start.py:WarmStart"
ROOT = Path(__file__).parents[3]

RULE = """
from dataclasses import dataclass

from paracosm.training import Algorithm
from paracosm.training.algorithms.asynchronous import ASGD


@dataclass(frozen=True)
class Forgetful(ASGD):
    rate: float = 0.5
    loud: bool = False

    def weight(self, staleness: int, workers: int) -> float:
        return (1 - self.rate) ** staleness


@dataclass(frozen=True)
class Fragile(ASGD):
    k: int = 1

    def __post_init__(self):
        1 / self.k


@dataclass(frozen=True)
class Demanding(ASGD):
    k: int


class Stranger:
    pass


def function():
    return Forgetful()


variable = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a file of algorithms."""
    (tmp_path / "rules.py").write_text(RULE)
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(algorithm: Any, **arguments: Any) -> TrainingResult:
    given = {"algorithm": algorithm, "workers": 4, "updates": 20, "evaluate_every": 20}
    return train(TrainConfig.model_validate({**given, **arguments}))


def test_the_example_is_synchronous_first_and_asynchronous_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    ours, synchronous = run(f"{EXAMPLE}(rounds=3)", updates=60), run("ssgd", updates=3)
    assert ours.summary.algorithm == f"{EXAMPLE}(rounds=3)"
    assert column(ours, "minibatch_loss")[:12] == column(synchronous, "minibatch_loss")
    staleness = column(ours, "staleness")
    assert staleness[:12] == [0] * 12
    assert sum(staleness[-40:]) / 40 == pytest.approx(3, rel=0.1)
    assert column(run(f"{EXAMPLE}(0)"), "minibatch_loss") == column(run("asgd"), "minibatch_loss")


def test_the_example_without_a_server_is_ad_psgd_that_asks_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    sent = {}
    for period in (1, 5):
        asked = f"examples/own_algorithm/lazy_gossip.py:LazyGossip(period={period})"
        result = run(asked, updates=400, latency="1ms", bandwidth="1Gbit/s")
        sent[period] = result.summary.bytes_sent
        if period == 1:
            other = run("ad-psgd", updates=400, latency="1ms", bandwidth="1Gbit/s")
            assert column(result, "minibatch_loss") == column(other, "minibatch_loss")
    assert sent[5] == pytest.approx(sent[1] / 5, rel=0.1)


def test_one_that_only_weighs_is_staleness_aware(folder: Path) -> None:
    """With two workers every gradient but the first is one update old."""
    ours = run("rules.py:Forgetful(rate=0.25)", workers=2, compute="1s")
    halved = run("asgd", workers=2, compute="1s", lr=0.2 * 0.75)
    assert column(ours, "staleness") == [0] + [1] * 19
    assert ours.summary.final_loss == pytest.approx(halved.summary.final_loss, rel=0.05)
    assert ours.summary.final_loss != run("asgd", workers=2, compute="1s").summary.final_loss


def test_it_is_written_as_it_is_read(folder: Path) -> None:
    for text in ("rules.py:Forgetful", "rules.py:Forgetful(rate=0.25, loud=True)"):
        assert str(parse_algorithm(text)) == text
    absolute = parse_algorithm(f" {folder}/rules.py:Forgetful (0.25) ")
    assert str(absolute) == "rules.py:Forgetful(rate=0.25)"
    assert absolute == parse_algorithm("rules.py:Forgetful(0.25)")
    own = type(absolute)
    assert parse_algorithm(own) == own()
    assert parse_algorithm(absolute) is absolute
    assert parse_algorithm(ALGORITHMS["ssp"]) == parse_algorithm("ssp")
    assert (
        str(parse_algorithm("paracosm.training.algorithms.asynchronous:SSP(2)")) == "ssp(slack=2)"
    )


def test_a_run_folder_records_it(folder: Path) -> None:
    """Of a text, of the thing itself, and of a sweep."""
    arguments: dict[str, Any] = {"updates": 3, "timing_only": True, "message_size": "1kB"}
    text = "rules.py:Forgetful(rate=0.25)"
    own = parse_algorithm(text)
    for place, asked in enumerate((text, own)):
        out = folder / f"run{place}"
        paracosm.train(algorithm=asked, out=out, **arguments)
        recorded = yaml.safe_load((out / "study.yaml").read_text())
        assert recorded["train"]["algorithm"] == text
    for place, asked in enumerate((own, type(own))):
        out = folder / f"sweep{place}"
        paracosm.train(algorithm=asked, workers=[1, 2], out=out, **arguments)
        recorded = yaml.safe_load((out / "study.yaml").read_text())["train"]["algorithm"]
        assert parse_algorithm(recorded) == (own, type(own)())[place]


def test_plans_take_it(folder: Path) -> None:
    given = {"profile": "none.profile", "target": "loss <= 0.1", "workers": "1,2"}
    text = "asgd, rules.py:Forgetful(rate=0.5, loud=true), ssp(2)"
    found = PlanConfig.model_validate({**given, "algorithm": text}).algorithm
    assert [str(each) for each in found] == [
        "asgd",
        "rules.py:Forgetful(loud=True)",
        "ssp(slack=2)",
    ]
    alone = PlanConfig.model_validate({**given, "algorithm": found[1]}).algorithm
    assert alone == (found[1],)


def test_a_process_that_has_not_read_the_file_reads_it(folder: Path) -> None:
    sent = pickle.dumps(parse_algorithm("rules.py:Forgetful(rate=0.25)"))
    del sys.modules[named_function("algorithm", "rules.py:Forgetful").__module__]
    assert str(pickle.loads(sent)) == "rules.py:Forgetful(rate=0.25)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.py:Rule", "no such file: nowhere.py"),
        ("nowhere.module:Rule", "cannot import nowhere.module: ModuleNotFoundError"),
        ("broken.py:Rule", "cannot import broken.py: ModuleNotFoundError: No module named"),
        ("rules.py:Forgetfull", 'rules.py has no "Forgetfull"'),
        ("rules.py:variable", 'has a variable, not a function, "variable"'),
        ("rules.py:Stranger", "Stranger is a class, not a subclass of paracosm.training.Algorithm"),
        ("rules.py:Algorithm", "Algorithm is a class, not a subclass"),
        ("rules.py:function", "function is a function, not a subclass"),
        ("rules.py:Forgetful(rat=1)", 'parameter of rules.py:Forgetful "rat": did you mean "rate"'),
        ("rules.py:Forgetful(rate=fast)", 'rate must be a number, got "fast"'),
        ("rules.py:Forgetful(1, true, 3)", "takes the parameters rate, loud, got 3 values"),
        ("rules.py:Fragile(0)", 'algorithm "rules.py:Fragile" failed: ZeroDivisionError'),
        ("rules.py:Demanding", "its parameter k has no default"),
        ("rules.py:", "write name or name(key=value, ...)"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(text: str, message: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse_algorithm(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("gradients_per_update = 0", "gradients_per_update is a method, not 0"),
        ("def gradients_per_update(self, workers): pass", "integer, got nothing"),
        ("def rule(self, workers): return 5", "rule: input should be an instance of Rule, got 5"),
        ("topologies = 5", "topologies: input should be a valid tuple, got 5"),
        ("topologies = 'server'", "topologies: input should be a valid tuple"),
        ("recoveries = ('never',)", "'restart', 'rejoin' or 'elastic', got 'never'"),
        ("fragments = 0", "fragments: input should be greater than 0, got 0"),
        (
            "def gradients_per_update(self, workers): return 0",
            "gradients_per_update: input should be greater than 0, got 0",
        ),
        ("def outer(self): return 2.5", "outer: input should be callable, got 2.5"),
        ("def compensation(self): return 2.5", "compensation: input should be callable, got 2.5"),
        ("def recoveries_on(self, _): return 5", "recoveries_on: input should be a valid tuple"),
        ("def __str__(self): return 5", "written: input should be a valid string, got 5"),
    ],
)
def test_what_it_overrides_by_another_kind_is_refused(
    folder: Path, body: str, message: str
) -> None:
    (folder / "odd.py").write_text(
        f"from paracosm.training import Algorithm\n\nclass Odd(Algorithm):\n    {body}\n"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        run("odd.py:Odd")


SHORTENING = """async def serve(self, server):
        push = await server.receive()
        await server.replace([push], server.parameters[:3])
"""


IN_PLACE = """async def serve(self, server):
        while True:
            push = await server.receive()
            server.parameters.sub_(push.value)
            await server.replace([push], server.parameters)
            server.answer(push.worker)
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def weight(self, staleness, workers): return 0.0", "above 0, not 0.0"),
        ("def weight(self, staleness, workers): return float('nan')", "above 0, not nan"),
        ("def weight(self, staleness, workers): return 'half'", "above 0, not 'half'"),
        ("def direction(self, gradient, moved): return gradient.sum()", "not values of shape ()"),
        ("def direction(self, gradient, moved): return None", "not NoneType"),
        (SHORTENING, "not values of shape (3,)"),
        (IN_PLACE, "changed a server's parameters in place"),
    ],
)
def test_what_would_give_wrong_parameters_is_refused(folder: Path, body: str, message: str) -> None:
    (folder / "odd.py").write_text(
        "from paracosm.training.algorithms.asynchronous import ASGD\n\n"
        f"class Odd(ASGD):\n    {body}\n"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        run("odd.py:Odd")


def test_one_without_rounds_says_that_it_needs_a_server(folder: Path) -> None:
    (folder / "odd.py").write_text(
        "from paracosm.training import Algorithm\n\nclass Odd(Algorithm):\n    pass\n"
    )
    with pytest.raises(InputError, match="Odd: define serve, or set has_rounds"):
        run("odd.py:Odd")

"""What is said of trainings: the answer in a sentence, and what became of a change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paracosm.report.runs import answer, remarks_of, verdict, view_of
from paracosm.results import Chance, TrainingSummary
from paracosm.results.view import Verdict
from paracosm.training.sentence import is_at_chance
from paracosm.training.view import FIGURES

# Of scikit-learn's digits: 1437 examples to train on in nearly equal classes, 40 of the 360 test
# examples are of the commonest class.
CHANCE = Chance(accuracy=40 / 360, loss=2.302, examples=360)


def summary(**changes: Any) -> TrainingSummary:
    """Return the summary of a run that has learnt, but for the changes."""
    known = {
        "status": "done",
        "algorithm": "asgd",
        "workers": 8,
        "updates": 3000,
        "final_loss": 0.0128,
        "final_accuracy": 0.98333,
        "mean_staleness": 6.99,
        "virtual_time": 17.2,
        "examples_per_second": 5580.4,
        "lr": "0.2",
    }
    made = TrainingSummary.from_dict(known)
    return replace(made, **{"chance": CHANCE, **changes})


LOST = {"final_loss": 2.292, "final_accuracy": 0.0917, "mean_staleness": 15.0}
NOTHING = {"final_loss": None, "final_accuracy": None, "chance": None, "lr": None}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Loss 0.0128 (98.3 % accuracy) after 3,000 updates, 17.2 s; mean staleness 6.99."),
        ({"mean_staleness": 0.0}, "Loss 0.0128 (98.3 % accuracy) after 3,000 updates, 17.2 s."),
        (
            {"final_accuracy": None, "updates": 1, "mean_staleness": None},
            "Loss 0.0128 after 1 update, 17.2 s.",
        ),
        (
            {
                "durations": {
                    "compute": "assumed: lognormal(20ms, 0.1) a gradient",
                    "network": "assumed: links that take no time",
                }
            },
            (
                "Loss 0.0128 (98.3 % accuracy) after 3,000 updates, 17.2 s; mean staleness 6.99. "
                "Assuming lognormal(20ms, 0.1) a gradient and links that take no time."
            ),
        ),
        (NOTHING, "3,000 updates, 17.2 s: 5,580 examples/s; mean staleness 6.99."),
        (
            LOST,
            (
                "Does not learn: 9.17 % accuracy (guessing: 11.1 %) after 3,000 updates, 17.2 "
                "s, mean staleness 15, at lr 0.2. Try a lower learning rate, fewer workers, or "
                "staleness-aware."
            ),
        ),
        (
            {**LOST, "mean_staleness": 0.0},
            (
                "Does not learn: 9.17 % accuracy (guessing: 11.1 %) after 3,000 updates, 17.2 "
                "s, at lr 0.2. Try a lower learning rate."
            ),
        ),
        (
            {**LOST, "algorithm": "staleness-aware(power=0.5)", "status": "interrupted"},
            (
                "The run was interrupted: does not learn: 9.17 % accuracy (guessing: 11.1 %) after "
                "3,000 updates, 17.2 s, mean staleness 15, at lr 0.2. Try a lower learning rate, "
                "or fewer workers."
            ),
        ),
        (
            {"status": "stopped", "target": "accuracy >= 0.99", "best": 0.98611},
            (
                "The target accuracy >= 0.99 was not reached in 3,000 updates, 17.2 s: the "
                "best was 0.9861, mean staleness 6.99, at lr 0.2. Three evaluations in a row "
                "must meet it: try more updates, or another learning rate."
            ),
        ),
        (
            {"target": "accuracy >= 0.95", "reached_at": 4.2, "reached_updates": 800},
            (
                "Target accuracy >= 0.95 reached after 4.2 s, 800 updates; loss 0.0128 (98.3 % "
                "accuracy) after 3,000 updates, 17.2 s; mean staleness 6.99."
            ),
        ),
        (
            {
                "status": "diverged",
                "divergence": {"update": 12, "worker": "worker3", "staleness": 15, "loss": 12345.6},
            },
            (
                "The run diverged at update 12: the minibatch loss was 1.235e+04, for a "
                "gradient of worker3 with staleness 15, at lr 0.2."
            ),
        ),
        (
            {"unchanged": summary(virtual_time=20.0)},
            (
                "Loss 0.0128 (98.3 % accuracy) after 3,000 updates, 17.2 s (unchanged: 20 s); "
                "mean staleness 6.99."
            ),
        ),
    ],
)
def test_the_answer_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert answer(summary(**changes)) == sentence


@pytest.mark.parametrize(
    ("accuracy", "loss", "expected"),
    [
        # The standard error of guessing is sqrt(1/9 * 8/9 / 360) = 0.01656.
        (0.1111, 0.5, True),
        (0.1442, 0.5, True),
        (0.1445, 0.5, False),
        (0.18, 2.20, True),  # above 0.95 * 2.302 = 2.187
        (0.18, 2.18, False),
        (0.18, float("nan"), True),
        (0.25, 9.0, False),  # far from 1/9 + 0.1 * 8/9 = 0.2: right, if too sure of itself
    ],
)
def test_chance_is_what_luck_and_the_shares_of_classes_explain(
    accuracy: float, loss: float, expected: bool
) -> None:
    assert is_at_chance(summary(final_accuracy=accuracy, final_loss=loss)) is expected


def test_without_classes_nobody_guesses() -> None:
    assert not is_at_chance(summary(**{**LOST, "chance": None}))
    assert not is_at_chance(summary(**{**LOST, "final_accuracy": None}))


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({}, "good", "done"),
        (LOST, "warning", "at chance"),
        ({"status": "stopped", "target": "loss <= 0.01"}, "warning", "stopped"),
        ({"status": "interrupted"}, "warning", "interrupted"),
        ({"status": "unfinished"}, "warning", "unfinished"),
        ({"status": "diverged"}, "bad", "diverged"),
    ],
)
def test_only_a_run_that_learns_to_its_end_is_good(
    changes: dict[str, Any], level: str, word: str
) -> None:
    run = summary(**changes)
    found = verdict(view_of(run), run)
    assert (found.level, found.word) == (level, word)
    assert (found.why is None) == (found == Verdict("good", "done"))


def test_the_unchanged_run_stands_among_the_key_figures() -> None:
    summary = TrainingSummary.from_dict(
        {
            "what_if": ["links: bandwidth 2x", "latency: 1 ms"],
            "unchanged": {"virtual_time": 2.0, "examples_per_second": 1500.0},
        }
    )
    assert FIGURES["Unchanged"](summary) == "virtual time 2 s, examples/s 1,500"
    assert remarks_of(summary) == {"what if": "links: bandwidth 2x; latency: 1 ms"}


def test_without_changes_nothing_is_said_of_them() -> None:
    summary = TrainingSummary.from_dict({"virtual_time": 2.0})
    assert FIGURES["Unchanged"](summary) is None
    assert remarks_of(summary) == {}


def test_clients_stand_among_the_key_figures() -> None:
    counts = {"clients": 10_000, "took_part": 120, "participations": 150}
    lost = {"dropped_out": 7, "gone": 0, "late": 12}
    run = TrainingSummary.from_dict({"clients": {**counts, **lost}})
    expected = "120 of 10,000 took part, 150 times, 7 dropped out, 12 late"
    assert FIGURES["Clients"](run) == expected
    assert FIGURES["Clients"](summary()) is None

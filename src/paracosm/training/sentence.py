"""The answer of a training run in a sentence, and whether it learns."""

from __future__ import annotations

import math

from paracosm.results import TrainingSummary
from paracosm.results.view import assumed_values, assuming, counted, percent
from paracosm.units import format_duration, format_energy

_ERRORS = 2.0  # standard errors above the accuracy of guessing that may still be chance
_NEAR = 0.1  # fraction of the way from guessing to no error, below which the loss decides
_SHARE = 0.95  # share of the loss of guessing above which a run has hardly learnt


def is_at_chance(summary: TrainingSummary) -> bool:
    """Whether a run ended no better than guessing: with an accuracy within two standard errors of
    that of the commonest class, or near it with a loss that explains less than 5 % of the deviance
    (McFadden's pseudo-R^2, 1 - loss / loss of the constant model; in P. Zarembka, ed., Frontiers in
    Econometrics, 1974, ch. 4).
    """
    chance, accuracy, loss = summary.chance, summary.final_accuracy, summary.final_loss
    if chance is None or accuracy is None:
        return False
    error = math.sqrt(chance.accuracy * (1 - chance.accuracy) / chance.examples)
    if accuracy <= chance.accuracy + _ERRORS * error:
        return True
    is_near = accuracy <= chance.accuracy + _NEAR * (1 - chance.accuracy)
    return is_near and (loss is None or not loss < _SHARE * chance.loss)


def sentence(summary: TrainingSummary) -> str:
    """State the result of a run, or why it has none."""
    if summary.status == "diverged":
        return _diverged(summary)
    if is_at_chance(summary):
        text = _does_not_learn(summary)
    elif summary.status == "stopped":
        text = _stopped(summary)
    else:
        text = _done(summary)
    if summary.status == "interrupted":
        return f"The run was interrupted: {text}"
    return f"{text[0].upper()}{text[1:]}"


def _done(summary: TrainingSummary) -> str:
    parts = []
    if summary.reached_at is not None:
        reached, when = format_duration(summary.reached_at), summary.reached_updates
        parts.append(f"target {summary.target} reached after {reached}, {when:,} updates")
    came = final_quality(summary)
    spent = _spent(summary)
    if came:
        parts.append(f"{came} after {spent}")
    else:
        rate = summary.examples_per_second
        parts.append(spent if rate is None else f"{spent}: {rate:,.0f} examples/s")
    if summary.mean_staleness:
        parts.append(f"mean staleness {summary.mean_staleness:.3g}")
    if summary.energy is not None:
        parts.append(format_energy(summary.energy))
    if summary.failures is not None:
        parts.append(f"{percent(summary.failures.effective)} of the workers' time effective")
    assumed = assuming(
        assumed_values(summary.durations or {}, ("compute", "network", "latency", "bandwidth"))
    )
    return f"{'; '.join(parts)}." + (f" {assumed}" if assumed else "")


def _does_not_learn(summary: TrainingSummary) -> str:
    assert summary.final_accuracy is not None
    assert summary.chance is not None
    missed = f"; target {summary.target} not reached" if summary.status == "stopped" else ""
    return (
        f"does not learn: {percent(summary.final_accuracy)} accuracy (guessing: "
        f"{percent(summary.chance.accuracy)}) after {_spent(summary)}{_how(summary)}{missed}. "
        f"{_advice(summary)}"
    )


def _advice(summary: TrainingSummary) -> str:
    """Suggest a remedy: a loss well below that of guessing may still be falling."""
    chance, loss = summary.chance, summary.final_loss
    if chance is not None and loss is not None and loss < 0.95 * chance.loss:
        return "Try more updates, or another learning rate."
    if not summary.mean_staleness or summary.mean_staleness < 1:
        return "Try a lower learning rate."
    if str(summary.algorithm).startswith("staleness-aware"):
        return "Try a lower learning rate, or fewer workers."
    return "Try a lower learning rate, fewer workers, or staleness-aware."


def _stopped(summary: TrainingSummary) -> str:
    best = "nothing" if summary.best is None else f"{summary.best:.4g}"
    return (
        f"the target {summary.target} was not reached in {_spent(summary)}: the best was {best}"
        f"{_how(summary)}. Three evaluations in a row must meet it: try more updates, or another "
        "learning rate."
    )


def _diverged(summary: TrainingSummary) -> str:
    divergence = summary.divergence
    if divergence is None:
        return "The loss diverged."
    loss = divergence.get("loss")
    finite = loss is not None and math.isfinite(loss)
    became = f"was {loss:.4g}" if finite else "was not finite"
    rate = f", at lr {summary.lr}" if summary.lr else ""
    return (
        f"The run diverged at update {divergence.get('update')}: the minibatch loss {became}, for "
        f"a gradient of {divergence.get('worker')} with staleness {divergence.get('staleness')}"
        f"{rate}."
    )


def final_quality(summary: TrainingSummary) -> str:
    """Return "loss 0.0128 (98.3 % accuracy)"; empty where nothing was computed."""
    loss, accuracy = summary.final_loss, summary.final_accuracy
    if loss is None:
        return "" if accuracy is None else f"{percent(accuracy)} accuracy"
    right = "" if accuracy is None else f" ({percent(accuracy)} accuracy)"
    return f"loss {loss:.3g}{right}"


def _spent(summary: TrainingSummary) -> str:
    """Return "3,000 updates, 17.2 s", with the time of the unchanged run where there is one."""
    updates, time, before = summary.updates, summary.virtual_time, summary.unchanged
    parts = [] if updates is None else [counted(updates, "update")]
    if time is not None:
        took = "" if before is None else f" (unchanged: {format_duration(before.virtual_time)})"
        parts.append(f"{format_duration(time)}{took}")
    return ", ".join(parts) or "an unknown time"


def _how(summary: TrainingSummary) -> str:
    """Return ", mean staleness 15, at lr 0.2", as far as known."""
    staleness = summary.mean_staleness
    stale = f", mean staleness {staleness:.3g}" if staleness else ""
    return f"{stale}, at lr {summary.lr}" if summary.lr else stale

"""Clients that take turns at the workers: how often, and how stale what they bring is.

However many clients there are, a figure has at most a hundred bars.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.report.chart import (
    Area,
    Axis,
    Chart,
    Curve,
    Dots,
    Floats,
    Mark,
    histogram,
    histogram_height,
)
from paracosm.report.shared_charts import Measure, histograms_by_run
from paracosm.report.varied import asked_of
from paracosm.report.view import Run

GROUPS = 20  # of clients that took part about as often
LOW, HIGH = 10, 90  # percentiles

PARTICIPATION = Measure(
    *("participation", "Participation of clients"),
    *("participations", "gradients or changes that were applied", "clients"),
)


def client_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of clients; None in place of those that there is no data for."""
    return [_participation(runs), _staleness(runs)]


def participations(run: Run) -> Floats:
    """Return how often something of each client was applied, the clients in no order.

    Clients that never took part are counted, where the run says how many there are.
    """
    numbers = run.series("client").value
    if not len(numbers):
        return np.zeros(0)
    _, counts = np.unique(numbers, return_counts=True)
    asked = asked_of(run.folder).get("clients")
    idle = max(0, asked - len(counts)) if isinstance(asked, int) else 0
    return np.concatenate([counts, np.zeros(idle)]).astype(np.float64)


def _participation(runs: Sequence[Run]) -> Chart | None:
    histograms, idle = {}, []
    for run in runs:
        counts = participations(run)
        if len(counts):
            histograms[run.index] = histogram(counts)
            never = int(np.sum(counts == 0))
            idle.append(f"{never:,} of {len(counts):,} clients never took part.")
    caption = idle[0] if len(idle) == len(runs) == 1 else ""
    height = histogram_height(len(runs))
    return histograms_by_run(runs, histograms, PARTICIPATION, height, caption)


def staleness_by_participation(run: Run) -> tuple[Floats, Floats, list[str]] | None:
    """Return the mean participations of groups of clients (n,), the 10th, 50th and 90th percentile
    of the staleness of what they brought (3, n), and what each group is; None without clients.

    The groups hold about as many clients each; those that took part equally often are together.
    """
    clients, staleness = run.series("client"), run.series("staleness")
    # Each row of the one belongs to a row of the other; a run that was killed may lack the last.
    rows = min(len(clients), len(staleness))
    if not rows:
        return None
    _, places = np.unique(clients.value[:rows], return_inverse=True)
    counts = np.bincount(places)
    ranked = np.sort(counts)
    bounds = ranked[np.linspace(0, len(ranked) - 1, GROUPS + 1).round().astype(int)]
    edges = np.unique([*bounds[:-1], ranked[-1] + 1])
    group = np.searchsorted(edges, counts, side="right") - 1
    x, spread, labels = [], [], []
    for each in np.unique(group):
        own = counts[group == each]
        ages = staleness.value[:rows][group[places] == each]
        low, middle, high = np.percentile(ages, (LOW, 50, HIGH))
        x.append(own.mean())
        spread.append((low, middle, high))
        often = f"{own.min():,}" if own.min() == own.max() else f"{own.min():,} to {own.max():,}"
        labels.append(
            f"{len(own):,} client{'' if len(own) == 1 else 's'}, {often} times: staleness "
            f"{middle:.3g} ({low:.3g} to {high:.3g})"
        )
    return np.array(x), np.array(spread).T, labels


def _staleness(runs: Sequence[Run]) -> Chart | None:
    """Return the staleness of what clients brought by how often they took part."""
    marks: list[Mark] = []
    for run in runs:
        found = staleness_by_participation(run)
        if found is None:
            continue
        x, (low, middle, high), labels = found
        outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
        if len(x) > 1:
            marks.append(Area(*outline, (*labels, *labels[::-1]), run.index, "10 to 90 %"))
            marks.append(Curve(x, middle, run.index, "median"))
        marks.append(Dots(x, middle, tuple(labels), run.index, "median"))
    if not marks:
        return None
    return Chart(
        name="staleness_participation",
        title="Staleness by participation",
        x=Axis("participations of a client", switch="participations"),
        y=Axis("staleness (updates)"),
        marks=tuple(marks),
        caption="Clients that took part about as often are one group.",
        height=histogram_height(len(runs)),
    )

"""Charts of clients: how well each is served, participation, staleness, waiting. A figure has at
most a hundred bars, whatever the number of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Mark
from paracosm.results.charts import (
    band,
    histogram,
    histogram_chart,
    histograms_by_run,
    is_wide,
)
from paracosm.results.comparison import scalar_arguments
from paracosm.results.view import Run, counted

Groups = tuple[Floats, Floats, list[str]]

GROUPS = 20  # of clients with about equal participation
LOW, HIGH = 10, 90  # percentiles


def client_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of clients; None for those without data."""
    often = Axis("participations per client", switch="participations")
    fast = Axis("relative speed of a client", switch="speed")
    return [
        _quality(runs),
        _participation(runs),
        _staleness(runs, staleness_by_participation, "participation", often),
        _staleness(runs, staleness_by_speed, "speed", fast),
        _waiting(runs),
    ]


def _quality(runs: Sequence[Run]) -> Chart | None:
    """Return the accuracies of clients, or their losses where no run has any, worst first."""
    metric = "client_accuracy"
    if not any(len(run.series(metric)) for run in runs):
        metric = "client_loss"
    is_accuracy = metric == "client_accuracy"
    marks: list[Mark] = []
    for run in runs:
        ordered = np.sort(run.series(metric).value)[:: 1 if is_accuracy else -1]
        count = len(ordered)
        if count < 2:
            continue
        shown = np.unique(np.linspace(0, count - 1, 200).round().astype(int))
        marks.append(Curve((shown + 1) / count, ordered[shown], run.index, "client"))
        tenth = ordered[: ceil(count / 10)]
        mean = float(tenth.mean())
        text = f"{mean:.1%} accuracy" if is_accuracy else f"a loss of {mean:.3g}"
        label = f"the worst {counted(len(tenth), 'client')} of {count:,}: {text} on average"
        at = np.array([len(tenth) / count]), np.array([mean])
        marks.append(Dots(*at, (label,), run.index, "worst tenth", "diamond"))
    if not marks:
        return None
    return Chart(
        name="client_quality",
        title=f"{'Accuracy' if is_accuracy else 'Loss'} by client",
        x=Axis("share of the clients, the worst first", percent=True, limits=(0.0, 1.0)),
        y=Axis("accuracy", percent=True) if is_accuracy else Axis("loss", switch="loss"),
        marks=tuple(marks),
        caption="The last parameters, on each client's own examples.",
    )


def participations(run: Run) -> Floats:
    """Return each client's number of applied contributions; absent clients have 0."""
    numbers = run.series("client").value
    if not len(numbers):
        return np.zeros(0)
    _, counts = np.unique(numbers, return_counts=True)
    clients = scalar_arguments(run).get("clients")
    idle = max(0, clients - len(counts)) if isinstance(clients, int) else 0
    return np.concatenate([counts, np.zeros(idle)]).astype(np.float64)


def _participation(runs: Sequence[Run]) -> Chart:
    counts = {run.index: counts_of_run for run in runs if len(counts_of_run := participations(run))}
    rows = histograms_by_run(
        runs, lambda run: histogram(counts[run.index]) if run.index in counts else None
    )
    caption = ""
    if len(runs) == 1 and counts:
        (counts_of_run,) = counts.values()
        missing = int(np.sum(counts_of_run == 0))
        caption = f"{missing:,} of {len(counts_of_run):,} clients never took part."
    return histogram_chart(
        "participation",
        "Participation of clients",
        "participations (gradients or changes applied)",
        "clients",
        *rows,
        caption,
    )


def staleness_by_participation(run: Run) -> Groups | None:
    """Return the staleness of contributions by the participation of their clients."""
    numbers = run.series("client").value
    _, counts = np.unique(numbers, return_counts=True)
    return _staleness_by(run, counts.astype(np.float64), "{} times".format)


def staleness_by_speed(run: Run) -> Groups | None:
    """Return staleness by the speed of the clients; None for equal speeds."""
    known, numbers = run.series("client_speed"), np.unique(run.series("client").value)
    if not len(known) or not np.isin(numbers, known.step).all():
        return None
    order = np.argsort(known.step)
    places = order[np.searchsorted(known.step, numbers, sorter=order)]
    return _staleness_by(run, known.value[places], "speed {}".format)


def _staleness_by(run: Run, values: Floats, write: Callable[[str], str]) -> Groups | None:
    """Return the mean value of groups of clients (n,), the 10th, 50th and 90th percentile of the
    staleness of their contributions (3, n), and labels of the groups; None without clients. The
    groups are about equal in size; clients of equal value are together.

    Args:
        run: of clients.
        values: of the clients that took part, in the order of their numbers.
        write: formats a value or a range.
    """
    clients, staleness = run.series("client"), run.series("staleness")
    # The rows correspond; a killed run may lack the last one.
    rows = min(len(clients), len(staleness))
    if not rows:
        return None
    _, places = np.unique(clients.value, return_inverse=True)
    ranked = np.sort(values)
    bounds = ranked[np.linspace(0, len(ranked) - 1, GROUPS + 1).round().astype(int)]
    edges = np.unique([*bounds[:-1], np.inf])
    group = np.searchsorted(edges, values, side="right") - 1
    x, spread, labels = [], [], []
    for number in np.unique(group[places[:rows]]):
        members = values[group == number]
        ages = staleness.value[:rows][group[places[:rows]] == number]
        low, middle, high = np.percentile(ages, (LOW, 50, HIGH))
        x.append(members.mean())
        spread.append((low, middle, high))
        least, most = f"{members.min():,.4g}", f"{members.max():,.4g}"
        values_text = write(least if least == most else f"{least} to {most}")
        labels.append(
            f"{counted(len(members), 'client')}, {values_text}: "
            f"staleness {middle:.3g} ({low:.3g} to {high:.3g})"
        )
    return np.array(x), np.array(spread).T, labels


def _staleness(
    runs: Sequence[Run], by: Callable[[Run], Groups | None], name: str, axis: Axis
) -> Chart | None:
    marks: list[Mark] = []
    places: list[float] = []
    is_stale = False
    for run in runs:
        groups = by(run)
        if groups is None:
            continue
        x, (low, middle, high), labels = groups
        places += x.tolist()
        is_stale |= bool(high.any())
        if len(x) > 1:
            marks.append(band(x, low, high, labels, run.index, "10 to 90 %"))
            marks.append(Curve(x, middle, run.index, "median"))
        marks.append(Dots(x, middle, tuple(labels), run.index, "median"))
    if not is_stale:
        return None
    return Chart(
        name=f"staleness_{name}",
        title=f"Staleness by {name}",
        x=replace(axis, log=min(places) > 0 and is_wide(places)),
        y=Axis("staleness (updates)"),
        marks=tuple(marks),
        caption="Each dot is a group of clients with similar values.",
    )


def waits_caused(run: Run) -> Floats:
    """Return the seconds that others waited for each client, longest first. In a round, whose
    workers are answered together, all wait for the last one. Empty where nobody waits, or workers
    are answered one by one.
    """
    waiting, clients = run.series("waiting"), run.series("client")
    if not len(waiting) or not len(clients):
        return np.zeros(0)
    taken = {
        (time, node): int(client)
        for time, node, client in zip(
            clients.virtual_time.tolist(), clients.node, clients.value.tolist(), strict=True
        )
    }
    times = waiting.virtual_time
    begins = np.flatnonzero(np.diff(times, prepend=-1.0))
    caused: dict[int, float] = {}
    for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
        seconds = waiting.value[begin:end]
        last = begin + int(seconds.argmin())
        client = taken.get((float(times[last]), waiting.node[last]))
        if len(seconds) > 1 and client is not None:
            caused[client] = caused.get(client, 0.0) + float(seconds.sum())
    return np.sort(np.array([total for total in caused.values() if total > 0]))[::-1]


def _waiting(runs: Sequence[Run]) -> Chart | None:
    marks: list[Mark] = []
    most = 0
    for run in runs:
        caused = waits_caused(run)
        if len(caused) < 2:
            continue
        share = np.cumsum(caused) / caused.sum()
        shown = np.unique(np.geomspace(1, len(caused), 200).round().astype(int))
        half = int(np.searchsorted(share, 0.5)) + 1
        marks.append(Curve(shown.astype(np.float64), share[shown - 1], run.index, "waiting"))
        label = f"half of the waiting is due to {counted(half, 'client')} of {len(caused):,}"
        at = np.array([float(half)]), share[half - 1 : half]
        marks.append(Dots(*at, (label,), run.index, "half of it", "diamond"))
        most = max(most, len(caused))
    if not marks:
        return None
    return Chart(
        name="waiting_caused",
        title="Waiting caused by clients",
        x=Axis("clients, those that cause most waiting first", log=is_wide((1, most))),
        y=Axis("share of all waiting", percent=True, limits=(0.0, 1.05)),
        marks=tuple(marks),
        caption="In a round all wait for the last client.",
    )

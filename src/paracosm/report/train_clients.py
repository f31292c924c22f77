"""Charts of clients that share workers: participation, staleness, waiting. A figure has at most a
hundred bars, whatever the number of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paracosm.report.chart import WIDE, histogram, histogram_height
from paracosm.report.shared_charts import Measure, histograms_by_run
from paracosm.report.sweeps import scalar_arguments
from paracosm.results.chart import Area, Axis, Chart, Curve, Dots, Floats
from paracosm.results.view import Run

Groups = tuple[Floats, Floats, list[str]]

GROUPS = 20  # of clients with about equal participation
LOW, HIGH = 10, 90  # percentiles

PARTICIPATION = Measure(
    *("participation", "Participation of clients"),
    *("participations", "gradients or changes applied", "clients"),
)


def client_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of clients; None for those without data."""
    often = Axis("participations per client", switch="participations")
    fast = Axis("relative speed of a client", switch="speed")
    return [
        _participation(runs),
        _staleness(
            *(runs, staleness_by_participation, "staleness_participation"),
            *("Staleness by participation", often),
        ),
        _staleness(runs, staleness_by_speed, "staleness_speed", "Staleness by speed", fast),
        _waiting(runs),
    ]


def participations(run: Run) -> Floats:
    """Return each client's number of applied contributions; absent clients have 0."""
    numbers = run.series("client").value
    if not len(numbers):
        return np.zeros(0)
    _, counts = np.unique(numbers, return_counts=True)
    asked = scalar_arguments(run).get("clients")
    idle = max(0, asked - len(counts)) if isinstance(asked, int) else 0
    return np.concatenate([counts, np.zeros(idle)]).astype(np.float64)


def _participation(runs: Sequence[Run]) -> Chart:
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
    for each in np.unique(group[places[:rows]]):
        own = values[group == each]
        ages = staleness.value[:rows][group[places[:rows]] == each]
        low, middle, high = np.percentile(ages, (LOW, 50, HIGH))
        x.append(own.mean())
        spread.append((low, middle, high))
        least, most = f"{own.min():,.4g}", f"{own.max():,.4g}"
        labels.append(
            f"{_clients(len(own))}, {write(least if least == most else f'{least} to {most}')}: "
            f"staleness {middle:.3g} ({low:.3g} to {high:.3g})"
        )
    return np.array(x), np.array(spread).T, labels


def _clients(count: int) -> str:
    return f"{count:,} client{'' if count == 1 else 's'}"


def _staleness(
    runs: Sequence[Run], by: Callable[[Run], Groups | None], name: str, title: str, x_axis: Axis
) -> Chart | None:
    marks: list[Area | Curve | Dots] = []
    for run in runs:
        found = by(run)
        if found is None:
            continue
        x, (low, middle, high), labels = found
        outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
        if len(x) > 1:
            marks.append(Area(*outline, (*labels, *labels[::-1]), run.index, "10 to 90 %"))
            marks.append(Curve(x, middle, run.index, "median"))
        marks.append(Dots(x, middle, tuple(labels), run.index, "median"))
    if not any(mark.y.any() for mark in marks):
        return None
    shown = np.concatenate([mark.x for mark in marks])
    return Chart(
        name=name,
        title=title,
        x=replace(x_axis, log=bool(shown.min() > 0 and shown.max() >= WIDE * shown.min())),
        y=Axis("staleness (updates)"),
        marks=tuple(marks),
        caption="Each dot is a group of clients with similar values.",
        height=histogram_height(len(runs)),
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
        own = waiting.value[begin:end]
        last = begin + int(own.argmin())
        client = taken.get((float(times[last]), waiting.node[last]))
        if len(own) > 1 and client is not None:
            caused[client] = caused.get(client, 0.0) + float(own.sum())
    return np.sort(np.array([each for each in caused.values() if each > 0]))[::-1]


def _waiting(runs: Sequence[Run]) -> Chart | None:
    marks: list[Area | Curve | Dots] = []
    for run in runs:
        caused = waits_caused(run)
        if len(caused) < 2:
            continue
        share = np.cumsum(caused) / caused.sum()
        shown = np.unique(np.geomspace(1, len(caused), 200).round().astype(int))
        half = int(np.searchsorted(share, 0.5)) + 1
        marks.append(Curve(shown.astype(np.float64), share[shown - 1], run.index, "waiting"))
        label = f"half of the waiting is due to {_clients(half)} of {len(caused):,}"
        at = np.array([float(half)]), share[half - 1 : half]
        marks.append(Dots(*at, (label,), run.index, "half of it", "diamond"))
    if not marks:
        return None
    most = max(float(mark.x.max()) for mark in marks)
    return Chart(
        name="waiting_caused",
        title="Waiting caused by clients",
        x=Axis("clients, most waiting caused first", log=most >= WIDE),
        y=Axis("share of all waiting", percent=True, limits=(0.0, 1.05)),
        marks=tuple(marks),
        caption="In a round all wait for the last client.",
        height=histogram_height(len(runs)),
    )

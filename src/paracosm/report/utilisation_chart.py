"""How busy every node and each of its ports was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, Dots, Floats
from paracosm.report.lanes import LANES, lane_offset, node_group, node_order
from paracosm.report.run import Run
from paracosm.report.thinning import quantiles

__all__ = ["utilisation_chart"]

RESOURCES = ("compute", "send", "receive")
NAMED_NODES = 20  # more nodes than this are shown as a crowd of dots
SHARE = Axis("share of virtual time", percent=True, limits=(0, 1.02))


def utilisation_chart(runs: Sequence[Run]) -> Chart | None:
    """Return bars for the nodes of one run, dots for many nodes or runs; None without data."""
    shares = [_shares(run) for run in runs]
    if not any(shares):
        return None
    if len(runs) == 1 and len({node for node, _ in shares[0]}) <= NAMED_NODES:
        return _bars(shares[0])
    return _crowds(runs, shares)


Shares = dict[tuple[str, str], float]


def _shares(run: Run) -> Shares:
    """Return the utilisation by node and resource, without what a group of nodes never uses."""
    found: Shares = {}
    for resource in RESOURCES:
        series = run.series(f"utilisation.{resource}")
        pairs = list(zip(series.node, series.value.tolist(), strict=True))
        used = {node_group(node) for node, share in pairs if share > 0}
        found |= {(node, resource): share for node, share in pairs if node_group(node) in used}
    return found


def _bars(shares: Shares) -> Chart:
    nodes = node_order({node for node, _ in shares})
    marks = []
    for resource in RESOURCES:
        lane = LANES[resource]
        rows = [row for row, node in enumerate(nodes) if (node, resource) in shares]
        values = [shares[nodes[row], resource] for row in rows]
        labels = (
            f"{nodes[row]}, {resource}: {value:.1%}"
            for row, value in zip(rows, values, strict=True)
        )
        marks.append(
            Boxes(
                begin=np.zeros(len(rows)),
                end=np.array(values),
                row=np.array(rows) + lane_offset(lane),
                labels=tuple(labels),
                height=lane.height,
                color=lane.color,
                series=resource,
            )
        )
    return Chart(
        name="utilisation",
        title="Utilisation of workers and ports",
        x=SHARE,
        y=Axis("", names=tuple(nodes)),
        marks=tuple(marks),
        height=110 + 30 * len(nodes),
        wide=True,
    )


def _crowds(runs: Sequence[Run], shares: Sequence[Shares]) -> Chart:
    groups = {(node_group(node), resource) for each in shares for node, resource in each}
    rows = sorted(groups, key=lambda row: (row[0], RESOURCES.index(row[1])))
    room = 0.8 / len(runs)
    marks = []
    for run, each in zip(runs, shares, strict=True):
        middle = (run.index - (len(runs) - 1) / 2) * room
        for row, (group, resource) in enumerate(rows):
            nodes = [node for node, of in each if of == resource and node_group(node) == group]
            if nodes:
                marks.append(_crowd(run, each, nodes, resource, row + middle, room * 0.6))
    return Chart(
        name="utilisation",
        title="Utilisation of workers and ports",
        x=SHARE,
        y=Axis("", names=tuple(f"{group}s, {resource}" for group, resource in rows)),
        marks=tuple(marks),
        caption="A dot is a node; of more than 200 alike, 200 are shown, evenly by rank.",
        height=110 + len(rows) * max(36, 14 * len(runs)),
        wide=True,
    )


def _crowd(
    run: Run, shares: Shares, nodes: list[str], resource: str, middle: float, room: float
) -> Dots:
    values: Floats = np.array([shares[node, resource] for node in nodes])
    chosen = quantiles(values)
    # Multiples of the golden ratio spread evenly: neighbours in rank do not cover each other.
    spread: Floats = (np.arange(len(chosen), dtype=np.float64) * 0.6180339887 + 0.5) % 1 - 0.5
    return Dots(
        x=values[chosen],
        y=np.float64(middle) + spread * room,
        labels=tuple(f"{nodes[i]}, {resource}: {values[i]:.1%}" for i in chosen.tolist()),
        run=run.index,
        series="node",
    )

"""Weights with which workers mix the parameters of their neighbours: of a graph, or from a file."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.files import Stamp, file_stamp

Weights = Floats
"""Shape (workers, workers); row i is that of worker i."""

_GRAPHS = ("ring", "complete", "exponential")
_NEAR_1 = 1e-6  # how far sums of written weights may be off


def mixing_weights(
    name: str, graph: str, workers: int, *, both_ways: bool, step: int = 0
) -> Weights:
    """Return the weights of a graph of workers: rows add up to 1, and nobody is cut off.

    Args:
        name: of the algorithm, for messages.
        graph: "ring", "complete", "exponential" or a .csv file with a row for each worker.
        workers: how many there are.
        both_ways: whether columns add up to 1 too, and a ring has two directions.
        step: of the worker; one way, an exponential graph has another neighbour at each.

    Raises:
        InputError: another graph; a file that cannot be read; weights that do not add up (which
            row or column), or of a graph that is not connected (which workers are not reached).
    """
    if workers < 2:
        raise InputError(f"{name} needs at least 2 workers, not {workers}")
    if graph in _GRAPHS:
        rounds = (workers - 1).bit_length()
        return _of_graph(graph, workers, both_ways, step % rounds)
    if not graph.lower().endswith(".csv"):
        raise InputError(
            f'{name}: graph must be {", ".join(_GRAPHS)} or a .csv file of weights, got "{graph}"'
        )
    path = Path(graph)
    if not path.is_file():
        raise InputError(f"{name}: graph: {graph}: no such file")
    return _read(path, workers, both_ways, file_stamp(path))


@lru_cache(maxsize=64)
def _of_graph(graph: str, workers: int, both_ways: bool, turn: int) -> Weights:
    if graph == "complete":
        return np.full((workers, workers), 1 / workers)
    places = [1] if graph == "ring" else [1 << k for k in range((workers - 1).bit_length())]
    if both_ways:
        places = sorted({place % workers for away in places for place in (away, -away)})
    elif graph == "exponential":
        places = [places[turn]]
    weights = np.zeros((workers, workers))
    for away in (0, *places):
        rows = np.arange(workers)
        weights[rows, (rows + away) % workers] = 1 / (1 + len(places))
    return weights


@lru_cache(maxsize=8)
def _read(path: Path, workers: int, both_ways: bool, stamp: Stamp) -> Weights:
    """Read and check a file; of another stamp it is another one."""
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if len(lines) != workers:
        raise InputError(f"{path}: it has {len(lines)} rows, and there are {workers} workers")
    weights = np.zeros((workers, workers))
    for number, line in enumerate(lines):
        cells = line.split(",")
        if len(cells) != workers:
            raise InputError(
                f"{path}: row {number} has {len(cells)} weights, and there are {workers} workers"
            )
        for place, cell in enumerate(cells):
            try:
                weights[number, place] = float(cell)
            except ValueError:
                raise InputError(
                    f'{path}: row {number}: "{cell.strip()}" is not a number'
                ) from None
        if not (np.isfinite(weights[number]).all() and (weights[number] >= 0).all()):
            raise InputError(f"{path}: row {number}: weights are finite and not below 0")
    lines_of = {"row": weights, "column": weights.T} if both_ways else {"row": weights}
    for kind, rows in lines_of.items():
        sums = rows.sum(axis=1)
        wrong = np.flatnonzero(np.abs(sums - 1) > _NEAR_1)
        if len(wrong):
            raise InputError(
                f"{path}: {kind} {wrong[0]} adds up to {sums[wrong[0]]:.6g}: weights must be "
                f"stochastic, each {kind} adding up to 1"
            )
    for source, others in (("worker 0", weights), ("its workers", weights.T)):
        cut_off = sorted(set(range(workers)) - _reached(others))
        if cut_off:
            gap = (
                f"nothing of {source} reaches worker"
                if others is weights
                else ("nothing reaches worker 0 from worker")
            )
            raise InputError(
                f"{path}: the graph is not connected: {gap} {cut_off[0]}"
                + (f" and {len(cut_off) - 1} more" if len(cut_off) > 1 else "")
            )
    return weights


def _reached(weights: Weights) -> set[int]:
    """Return the workers that worker 0 reaches by rows."""
    reached, front = {0}, [0]
    while front:
        following = set(np.flatnonzero(weights[front].any(axis=0)).tolist()) - reached
        reached |= following
        front = sorted(following)
    return reached

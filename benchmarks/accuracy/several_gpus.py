"""Runs on several GPUs of one machine, predicted from op latencies of one GPU.

A file "gpt2_large-train-1024-16-tp4.json" has what an iteration (forward and backward pass, no
update) of a batch of 16 took on four GPUs that share every layer: "dp4" has data-parallel replicas,
each with a quarter of the batch; "pp4_2" four stages of a pipeline and two micro-batches. NeuSight
measured them with Megatron-LM and PyTorch's DDP.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from op_latencies import (
    Reading,
    Row,
    layer_of,
    read_table,
    read_whole,
    reading_of,
    repeated,
    serial,
)
from switched_ring import nccl_link

from paracosm.cluster import Link, switch
from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica
from paracosm.simulation import replay_job

__all__ = [
    "SeveralComparison",
    "Tables",
    "gradient_bytes",
    "link_between",
    "parse_name",
    "predict_several",
    "read_several",
    "rows_at",
    "split_rows",
]


@dataclass(frozen=True, slots=True)
class SeveralComparison:
    """A model on several GPUs of one machine: seconds of an iteration.

    Attributes:
        device: the folder's name, which is the GPU's.
        model: the file's name, "gpt2_large-train-1024-4-dp4".
        strategy: how the GPUs share the work.
        link: between them.
        timed: batches of one GPU whose op latencies the prediction is from.
        measured, predicted: of the iteration.
        serial: by adding up the latencies of one GPU's share.
    """

    device: str
    model: str
    strategy: Strategy
    link: Link
    timed: tuple[int, ...]
    measured: float
    predicted: float
    serial: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured; negative where it is too short."""
        return self.predicted / self.measured - 1

    @property
    def serial_error(self) -> float:
        """Of the sum of latencies, relative to what was measured."""
        return self.serial / self.measured - 1


def read_several(
    path: Path, link: Link | None = None
) -> tuple[list[SeveralComparison], dict[str, str]]:
    """Predict every run on several GPUs in a folder of one kind of GPU, or in folders below it.

    Args:
        path: the folder.
        link: between the GPUs of a machine; by the GPU's name where it is not given.

    Returns:
        one comparison for each run, sorted; and why a run was not used, by its path in the folder.
    """
    several: list[SeveralComparison] = []
    left_out: dict[str, str] = {}
    for folder in [path, *sorted(each for each in path.iterdir() if each.is_dir())]:
        for file in sorted(folder.glob("*.json")):
            if (run := parse_name(file.stem)) is None:
                continue
            try:
                several.append(_compare(file, run, link))
            except InputError as error:
                reason = str(error).replace(f"{folder}/", "").removeprefix(file.name)
                left_out[str(file.relative_to(path))] = reason.lstrip(":, ")
    return several, left_out


def _compare(file: Path, run: SeveralGpus, link: Link | None) -> SeveralComparison:
    """Predict a run on several GPUs from the op latencies of one that are in the same folder.

    Raises:
        InputError: there are none of this model, or they cannot be used.
    """
    training = _tables(file.parent, run.model)
    if not training:
        raise InputError(f"no op latencies of {run.model} on one GPU: there is no CSV file of it")
    inference = _tables(file.parent, run.model.replace("-train-", "-inf-"))
    layers = {read_whole(table.with_suffix(".json"))[0] for table in training.values()}
    if len(layers) > 1:
        raise InputError(f"tables of {run.model} have {sorted(layers)} layers: which is it?")
    device = file.resolve().parent.name
    used = link or link_between(device, run.strategy.ranks)
    tables = Tables(
        {batch: read_table(path) for batch, path in training.items()},
        {batch: read_table(path) for batch, path in inference.items()},
        layers.pop(),
    )
    predicted, serial_time = predict_several(run, tables, used, str(file))
    return SeveralComparison(
        device=device,
        model=file.stem,
        strategy=run.strategy,
        link=used,
        timed=tuple(sorted(training)),
        measured=read_whole(file)[1].both,
        predicted=predicted,
        serial=serial_time,
    )


def _tables(folder: Path, model: str) -> dict[int, Path]:
    """Return the tables of a model ("gpt2_large-train-1024") that have both files, by batch."""
    return {
        int(batch): table
        for table in sorted(folder.glob(f"{model}-*.csv"))
        for start, _, batch in [table.stem.rpartition("-")]
        if start == model and batch.isdigit() and table.with_suffix(".json").exists()
    }


NAME = re.compile(
    r"(?P<model>.+-train-\d+)-(?P<batch>\d+)-(?P<way>dp|tp|pp)(?P<gpus>\d+)(_(?P<m>\d+))?$"
)


@dataclass(frozen=True, slots=True)
class SeveralGpus:
    """What the name of a file says.

    Attributes:
        model: "gpt2_large-train-1024".
        batch: of an iteration, on all GPUs together.
        strategy: how the GPUs share the work.
    """

    model: str
    batch: int
    strategy: Strategy


@dataclass(frozen=True)
class Tables:
    """Tables of one model on one GPU, by batch.

    Attributes:
        training, inference: rows of every batch.
        layers: how often the layer is repeated.
    """

    training: Mapping[int, Sequence[Row]]
    inference: Mapping[int, Sequence[Row]]
    layers: int


def parse_name(stem: str) -> SeveralGpus | None:
    """Return what a file's name says of several GPUs; None of a name of another form."""
    if not (found := NAME.match(stem)):
        return None
    gpus, microbatches = int(found["gpus"]), int(found["m"] or 1)
    way = {"dp": "data", "tp": "tensor", "pp": "pipeline"}[found["way"]]
    strategy = Strategy(**{way: gpus}, microbatches=microbatches)  # type: ignore[arg-type]
    return SeveralGpus(found["model"], int(found["batch"]), strategy)


def predict_several(
    run: SeveralGpus, tables: Tables, link: Link, where: str
) -> tuple[float, float]:
    """Return the seconds of an iteration as predicted, and by adding up all latencies.

    The sum is that of the rows of one GPU, as if layers were split and stages followed each other
    at no cost.

    Args:
        run: what ran.
        tables: of the same model on one GPU.
        link: between every two GPUs.
        where: the file, for messages.

    Raises:
        InputError: a batch that the GPUs cannot share; tables that cannot be used.
    """
    strategy = run.strategy
    parts = strategy.data * strategy.microbatches
    if run.batch % parts:
        near = max(1, round(run.batch / parts)) * parts
        raise InputError(f"{where}: a batch of {run.batch} is no multiple of {parts}; {near} is")
    share = run.batch // parts
    rows, reading = rows_at(share, tables.training, tables.inference)
    check_shapes(rows, where)
    total = strategy.microbatches * serial(repeated(rows, tables.layers, where)).both
    splitting = Splitting(frozenset(), frozenset(), frozenset())
    if strategy.tensor > 1:
        splitting = split_rows(rows)
        split, _ = rows_at(share / strategy.tensor, tables.training, tables.inference)
        own = {row.name: row for row in split}
        rows = [own[row.name] if row.name in splitting.shared else row for row in rows]
        total /= strategy.tensor
    whole = repeated(rows, tables.layers, where)
    gradients = gradient_bytes(rows, reading.floor)
    graph = rank_graph(whole, gradients, reading, splitting, strategy.tensor, where)
    replica = Replica(graph, graph.duration, asynchronous=reading.launch > 0, launch=reading.launch)
    cluster = switch(strategy.ranks, 0, link)
    rings = parse_change("all_reduce: algorithm ring")  # NCCL's way
    job = build_job(replica, cluster, _cut(strategy, whole, where), [rings])
    return replay_job(job).makespan, total


def _cut(strategy: Strategy, rows: Sequence[Row], where: str) -> Strategy:
    """Return the strategy with stages of as many layers each, as Megatron-LM divides them."""
    stages = strategy.pipeline
    if stages == 1:
        return strategy
    layers = list(dict.fromkeys(found for row in rows if (found := layer_of(row.module))))
    if len(layers) % stages:
        raise InputError(f"{where}: {stages} stages do not divide {len(layers)} layers")
    size = len(layers) // stages
    return replace(strategy, cut=tuple(layers[size::size]))


Table = Sequence[Row]


def rows_at(
    batch: float, training: Mapping[int, Table], inference: Mapping[int, Table]
) -> tuple[list[Row], Reading]:
    """Return the rows of a training step at `batch` examples, and how to read their intervals.

    Args:
        batch: of one GPU; may be a fraction: a part of the work of a larger one.
        training: tables of training steps by their batch, at least one.
        inference: tables of the same model's inference, by their batch.

    Raises:
        InputError: tables of the same model with other rows.
    """
    nearest = min(training, key=lambda other: (abs(other - batch), other))
    rows, reading = list(training[nearest]), reading_of(training[nearest])
    if batch == nearest:
        return rows, reading
    by_batch = {size: {row.name: row for row in table} for size, table in training.items()}
    for size, table in by_batch.items():
        if table.keys() != by_batch[nearest].keys():
            raise InputError(f"tables at batches {nearest} and {size} have other rows")
    forward = {size: {row.name: row for row in table} for size, table in inference.items()}
    floors = {size: reading_of(table).floor for size, table in inference.items()}
    own = {size: reading_of(table).floor for size, table in training.items()}
    scaled = []
    for row in rows:
        if reading.on_host(row, row.forward) and not row.backward:
            scaled.append(row)
            continue
        growth = _growth(row.name, nearest, batch, forward, floors)
        times = {}
        for name in ("forward", "backward"):
            usual = getattr(row, name)
            if reading.on_host(row, usual):
                times[name] = usual
                continue
            known = {
                size: max(getattr(table[row.name], name) - own[size], 0.0)
                for size, table in by_batch.items()
            }
            line = _line(known, batch) if len(known) > 1 else known[nearest] * growth
            times[name] = reading.floor + line
        scaled.append(replace(row, **times))
    return scaled, reading


def _growth(
    name: str,
    known: int,
    batch: float,
    forward: Mapping[int, Mapping[str, Row]],
    floors: Mapping[int, float],
) -> float:
    """Return how much longer an op takes at `batch` than at `known`, by tables of inference."""
    times = {
        size: rows[name].forward - floors[size]
        for size, rows in forward.items()
        if name in rows and rows[name].forward > floors[size]
    }
    if len(times) > 1 and (start := _line(times, known)) > 0:
        return _line(times, batch) / start
    return batch / known


def _line(known: Mapping[int, float], batch: float) -> float:
    """Return the value at `batch` of the line through those at the two nearest batches.

    Below the smallest batch it is no less than in proportion: a line might end below 0.
    """
    low, high = sorted(sorted(known, key=lambda size: (abs(size - batch), size))[:2])
    slope = (known[high] - known[low]) / (high - low)
    return max(known[low] + slope * (batch - low), known[low] * min(batch / low, 1.0))


LINEAR = frozenset({"addmm", "linear"})
"""Functions that are linear maps, where the weights are attributes of the model."""


NUMBERS = frozenset({"size", "getattr", "dim"})
"""Functions whose results are no part of their argument's values."""


@dataclass(frozen=True)
class Splitting:
    """Names of rows, by what becomes of them.

    Attributes:
        shared: each rank does its part of the work.
        summed: the result is summed over the ranks, forward.
        gradient_summed: the gradient of the input is, backward.
    """

    shared: frozenset[str]
    summed: frozenset[str]
    gradient_summed: frozenset[str]


def split_rows(rows: Sequence[Row]) -> Splitting:
    """Return how ranks share the rows of a table; a layer stands in it once."""
    shared: set[str] = set()
    summed: set[str] = set()
    gradient_summed: set[str] = set()
    sources: set[str] = set()
    head = head_of(rows)
    embedding = next((row for row in rows if row.layer == "Embedding"), None)
    for row in rows:
        if embedding is not None and row.name == embedding.name:
            summed.add(row.name)
        elif is_linear(row) and (layer_of(row.module) or row is head):
            if (shared - summed) & set(row.inputs):
                summed.add(row.name)
            else:
                source = row.inputs[0] if row.layer else next(iter(_activations(row, rows)), "")
                if source not in sources:
                    gradient_summed.add(row.name)
                sources.add(source)
            shared.add(row.name)
        elif row.function not in NUMBERS and (shared - summed) & set(row.inputs):
            shared.add(row.name)
    return Splitting(frozenset(shared), frozenset(summed), frozenset(gradient_summed))


def check_shapes(rows: Sequence[Row], where: str) -> None:
    """Raise InputError for a linear map whose shapes the table does not say."""
    for row in rows:
        if is_linear(row):
            inputs = 2 if row.function in LINEAR else 1
            if not row.shape or len(row.shapes) < inputs or not all(row.shapes[:inputs]):
                raise InputError(
                    f"{where}: the shapes of {row.name} are not known: several GPUs need the "
                    "columns input_shapes, output_shape and _input_nodes"
                )


def head_of(rows: Sequence[Row]) -> Row | None:
    """Return the linear map with the most outputs, if it belongs to no layer."""
    linear = [row for row in rows if is_linear(row) and not layer_of(row.module)]
    return max(linear, key=lambda row: row.shape[-1], default=None)


def is_linear(row: Row) -> bool:
    """Return whether a row is a linear map with weights."""
    return row.layer == "Linear" or (row.layer == "" and row.function in LINEAR)


def _activations(row: Row, rows: Sequence[Row]) -> list[str]:
    attributes = {row.name for row in rows if row.kind == "get_attr"}
    return [name for name in row.inputs if name not in attributes]


def rank_graph(
    rows: Sequence[Row],
    gradients: Mapping[str, int],
    reading: Reading,
    splitting: Splitting,
    tensor: int,
    where: str,
) -> Graph:
    """Return the graph of one rank's step, with a duration at every node.

    Args:
        rows: of the whole model, each layer in it.
        gradients: bytes of gradients, by the name of the row that completes them.
        reading: how to read the rows' intervals.
        splitting: what tensor-parallel ranks share and sum.
        tensor: how many of them there are.
        where: the file, for messages.
    """
    tasks = list(_tasks(rows, reading, splitting))
    backward = {
        (task.row.name, task.place): number
        for number, task in enumerate(tasks)
        if task.phase == "backward"
    }
    nodes: list[Node] = []
    device: tuple[int, ...] = ()  # the node that the next one on the device waits for
    for number, task in enumerate(tasks):
        name = task.row.name
        shared = tensor if name in splitting.shared else 1
        held: list[tuple[int, int]] = []
        if task.phase == "forward" and task.resource == "compute" and task.row.makes_tensor:
            result = SINGLE * prod(task.row.shape) // (1 if name in splitting.summed else shared)
            held.append((result, backward.get((name, task.place), number)))
        elif task.last and (size := gradients.get(name, 0)):
            held.append((size // shared, -1))
        sums = task.resource == "communication"
        function = task.row.function if task.row.kind != "call_module" else "module"
        nodes.append(
            Node(
                id=number,
                op=Op("all_reduce", bytes_read=task.size, bytes_written=task.size)
                if sums
                else Op(function),
                name=task.place,
                phase=task.phase,
                resource=task.resource,
                dependencies=() if task.resource == "host" else device,
                group=tuple(range(tensor)) if sums else (),
                duration=task.duration,
                allocates=tuple(held),
            )
        )
        if task.resource != "host":
            device = (number,)
    return build_graph(nodes, provenance={"tensor_ranks": tensor}, where=where)


@dataclass(frozen=True, slots=True)
class _Task:
    """A node to be: its place, the row it comes from, and what it does."""

    row: Row
    place: str
    phase: str
    resource: str
    duration: float = 0.0
    size: int = 0
    last: bool = False


def _tasks(rows: Sequence[Row], reading: Reading, splitting: Splitting) -> Iterator[_Task]:
    """Yield what runs, in order: the forward pass, then the rows backward."""
    places = _places(rows)
    for row, place in zip(rows, places, strict=True):
        if row.forward > 0:
            yield _interval(row, place, "forward", row.forward, reading)
        if row.name in splitting.summed:
            yield _sum(row, place, "forward", row.shape)
    for row, place in zip(reversed(rows), reversed(places), strict=True):
        times = [time for time in (row.backward, row.accumulate) if time > 0]
        for number, time in enumerate(times, start=1):
            task = _interval(row, place, "backward", time, reading)
            yield replace(task, last=number == len(times))
        if row.name in splitting.gradient_summed:
            yield _sum(row, place, "backward", _input_shape(row))


def _interval(row: Row, place: str, phase: str, time: float, reading: Reading) -> _Task:
    resource = "host" if reading.on_host(row, time) else "compute"
    return _Task(row, place, phase, resource, reading.time(time))


def _sum(row: Row, place: str, phase: str, shape: tuple[int, ...]) -> _Task:
    return _Task(row, place, phase, "communication", size=SINGLE * prod(shape))


def _input_shape(row: Row) -> tuple[int, ...]:
    """Return the shape of a linear map's input: addmm takes the bias first."""
    return row.shapes[1] if row.function == "addmm" else row.shapes[0]


def _places(rows: Sequence[Row]) -> list[str]:
    """Return each row's place: rows between those of a layer belong to it, all others to what comes
    before or after the layers."""
    numbered = [index for index, row in enumerate(rows) if layer_of(row.module)]
    places: list[str] = []
    current = "before"
    for index, row in enumerate(rows):
        if layer := layer_of(row.module):
            current = layer
        elif numbered and index > numbered[-1]:
            current = "after"
        places.append(current)
    return places


SINGLE = 4  # bytes: the models were measured in single precision
ALIKE = 0.05  # relative difference of the times that two gradients of the same size take to add up


def gradient_bytes(rows: Sequence[Row], floor: float) -> dict[str, int]:
    """Return bytes of gradients by the name of the row whose backward pass completes them.

    Linear maps and norms tell the size of their weights by their shapes, functions by the
    attributes that they take. An embedding does not tell how many rows it has. Where it takes as
    long to accumulate as the head, both have the same weights, and their gradient is complete when
    the embedding's is; otherwise its size is in proportion to that time.

    Args:
        rows: of a table; a layer stands in it once.
        floor: seconds that an interval has around nothing.
    """
    attributes = {row.name: prod(row.shape) for row in rows if row.kind == "get_attr"}
    found: dict[str, int] = {}
    for row in rows:
        count = sum(attributes.get(name, 0) for name in row.inputs)
        if row.layer == "Linear":
            count = row.shape[-1] * (row.shapes[0][-1] + 1)
        elif row.layer == "LayerNorm":
            count = 2 * row.shape[-1]
        if count and row.backward > 0:
            found[row.name] = SINGLE * count
    head = head_of(rows)
    if head is None or head.accumulate <= floor or head.name not in found:
        return found
    weights = found[head.name]
    for row in rows:
        if row.layer == "Embedding" and row.accumulate > floor:
            share = (row.accumulate - floor) / (head.accumulate - floor)
            if abs(share - 1) < ALIKE and head.name in found:
                found[row.name] = found.pop(head.name)
            else:
                found[row.name] = round(weights * share)
    return found


NVLINK = {
    "B200": 18 * 40.1e9,
    "H200": 18 * 20.6e9,
    "H100": 18 * 20.6e9,
    "A100": 235e9,
    "V100": 6 * 20e9,
    "P100": 4 * 18e9,
}
"""Bytes/s of modules for sockets with NVLink (SXM)."""

PCI = {"H100": 24e9, "A100": 24e9, "L4": 24e9, "A40": 24e9}
"""Bytes/s of cards for PCI Express 4.0 and later; all others have 3.0."""


def link_between(device: str, ranks: int) -> Link:
    """Return the link between two GPUs with this name ("NVIDIA_H100_80GB_HBM3") of one machine.

    A name with "PCIe" in it is a card's, and so is one of a GPU that has no NVLink. Latencies are
    those that NCCL reckons with for a ring of so many.
    """
    name = device.upper()
    card = "PCI" in name or "NVL" in name
    if not card:
        for model, bandwidth in NVLINK.items():
            if model in name:
                return nccl_link(ranks, bandwidth)
    bandwidth = next((value for model, value in PCI.items() if model in name), 12e9)
    return Link(bandwidth=bandwidth, latency=5.7e-6)

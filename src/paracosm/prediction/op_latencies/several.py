"""Runs on several GPUs of one machine, predicted from op latencies of one GPU.

A file "gpt2_large-train-1024-16-tp4.json" has what an iteration (forward and backward pass, no
update) of a batch of 16 took on four GPUs that share every layer: "dp4" has data-parallel replicas,
each with a quarter of the batch; "pp4_2" four stages of a pipeline and two micro-batches. NeuSight
measured them with Megatron-LM and PyTorch's DDP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.jobs.strategies import Replica, Strategy, build_job
from paracosm.prediction.op_latencies.batches import rows_at
from paracosm.prediction.op_latencies.iteration import serial
from paracosm.prediction.op_latencies.layers import layer_of, repeated
from paracosm.prediction.op_latencies.rank_graph import rank_graph
from paracosm.prediction.op_latencies.splitting import Splitting, check_shapes, split_rows
from paracosm.prediction.op_latencies.table import Row
from paracosm.prediction.op_latencies.weights import gradient_bytes
from paracosm.simulation import replay_job

__all__ = ["SeveralGpus", "Tables", "parse_name", "predict_several"]

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
    job = build_job(replica, cluster, _cut(strategy, whole, where))
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

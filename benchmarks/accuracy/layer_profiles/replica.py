"""Measured layers as one replica, which the strategies spread over a cluster."""

from __future__ import annotations

from layer_profiles.profiles import LayerTimes
from layer_profiles.sizes import LayerSizes
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.strategies import Replica

__all__ = ["replica_of"]


def replica_of(times: LayerTimes, sizes: LayerSizes, microbatch: int) -> Replica:
    """Return the training step of layers that were timed one by one.

    Each layer is "layer.0", "layer.1", ...: a node of the forward pass that keeps what the backward
    pass needs, one of no duration that makes what is handed on, one of the backward pass that makes
    the gradients, and its share of the optimizer's step by its parameters. Parameters and two
    moments of each (Adam) are resident.

    Args:
        times: of a micro-batch; communication between ranks that split a layer is part of them, so
            that for the strategies such ranks are one worker (tp=1).
        sizes: of the same layers.
        microbatch: examples.

    Raises:
        InputError: other layers than `times` has.
    """
    if len(times) != len(sizes):
        raise InputError(f"{len(times)} layers are timed, but the sizes of {len(sizes)} are given")
    count, parameters = len(times), int(sizes.parameters.sum())
    nodes: list[Node] = []
    for layer, seconds in enumerate(times.forward.tolist()):
        output, kept = (int(each[layer]) * microbatch for each in (sizes.output, sizes.kept))
        user = _backward_node(layer, count)
        for name, duration, held in (
            ("layer", seconds, max(kept - output, 0)),
            ("output", 0.0, output),
        ):
            nodes.append(
                Node(
                    id=len(nodes),
                    op=Op(name, bytes_written=held),
                    name=f"layer.{layer}",
                    phase="forward",
                    dependencies=(len(nodes) - 1,) if nodes else (),
                    duration=duration,
                    allocates=((held, user),) if held else (),
                )
            )
    for layer in reversed(range(count)):
        gradients = int(sizes.parameters[layer])
        nodes.append(
            Node(
                id=len(nodes),
                op=Op("layer_backward", bytes_written=gradients),
                name=f"layer.{layer}",
                phase="backward",
                dependencies=(len(nodes) - 1, 2 * layer + 1),
                duration=float(times.backward[layer]),
                allocates=((gradients, -1),) if gradients else (),
            )
        )
    for layer in range(count):
        share = float(sizes.parameters[layer]) / parameters if parameters else 1 / count
        nodes.append(
            Node(
                id=len(nodes),
                op=Op("layer_update"),
                name=f"layer.{layer}",
                phase="optimizer",
                dependencies=(_backward_node(layer, count),),
                duration=times.update * share,
            )
        )
    graph = build_graph(
        nodes,
        resident={"parameters": parameters, "optimizer": 2 * parameters},
        provenance={"examples": microbatch},
        where="layer profiles",
    )
    return Replica(graph, graph.duration)


def _backward_node(layer: int, count: int) -> int:
    """Return the id of a layer's backward node: two nodes forward for each layer, then backward."""
    return 2 * count + (count - 1 - layer)
